"""The text of ``wgmma_ss`` and ``wgmma_rs``: 64 rows of a times the columns of b, added to accumulators in registers.

``wgmma_ss`` reads both operands from shared memory, ``wgmma_rs`` reads a from registers. In both ``scale_d`` is zero
where the products overwrite the accumulators.
"""

from __future__ import annotations

from functools import lru_cache

from graphdnn.engines.cuda.codegen.tensor_cores import INTEGERS, NARROW
from graphdnn.enums import DataType

# The PTX name of each type, and the k of one instruction.
_KINDS = {
    DataType.HALF: ("f16", 16),
    DataType.BFLOAT16: ("bf16", 16),
    DataType.FLOAT: ("tf32", 8),
    DataType.INT8: ("s8", 32),
    DataType.UINT8: ("u8", 32),
    DataType.FP8_E4M3: ("e4m3", 32),
    DataType.FP8_E5M2: ("e5m2", 32),
}
ACROSS_K = (DataType.HALF, DataType.BFLOAT16)  # types of operands that may be MN-major


# The K tiles (128 bytes of k) between promotions of fp8 accumulators, which are then added to fp32 registers. The
# tensor cores accumulate fp8 with 14 bits: a sum of 65,536 positive terms that is never promoted loses half of its
# value. Promotion costs 7 % of the time.
_PROMOTION_INTERVAL = 1


def promotion_interval(a: DataType) -> int:
    """The K tiles between promotions; 0 if the accumulators of tensor cores are precise enough."""
    return _PROMOTION_INTERVAL if a in NARROW else 0


@lru_cache(maxsize=256)
def wgmma_ss_text(a: DataType, b: DataType, columns: int, a_mn_major: bool, b_mn_major: bool) -> str:
    """The function ``wgmma_ss`` for operands of these types and majors, with ``columns`` columns of b."""
    (kind_a, k), (kind_b, _) = _KINDS[a], _KINDS[b]
    count = columns // 2
    is_integer = a in INTEGERS
    ctype, constraint = ("int", "r") if is_integer else ("float", "f")
    registers = ", ".join(f"%{i}" for i in range(count))
    operands = ", ".join(f'"+{constraint}"(accum[{i}])' for i in range(count))
    # The predicate p is scale-d. Floats have the signs of a and b after it, and 16-bit floats their majors too.
    flags = "p" if is_integer else "p, 1, 1"
    majors = f"{int(a_mn_major)}, {int(b_mn_major)}"
    if a in ACROSS_K:
        flags += f", {majors}"
    types = f"{'s32' if is_integer else 'f32'}.{kind_a}.{kind_b}"
    return (
        f"__device__ __forceinline__ void wgmma_ss(\n"
        f"    {ctype} (&accum)[{count}], unsigned long long a, unsigned long long b, int scale_d = 1\n"
        f") {{\n#ifdef __CUDA_ARCH__\n"
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'                 "wgmma.mma_async.sync.aligned.m64n{columns}k{k}.{types} "\n'
        f'                 "{{{registers}}}, %{count}, %{count + 1}, {flags};\\n}}"\n'
        f'                 : {operands}\n                 : "l"(a), "l"(b), "r"(scale_d));\n'
        f'#else\n    emulated_multiply(accum, a, b, "{kind_a}", "{kind_b}", {majors}, scale_d != 0);\n#endif\n}}\n'
    )


def wgmma_rs_text(kind: DataType, columns: int, b_mn_major: bool = False) -> str:
    """The function ``wgmma_rs`` for 16-bit floats, or for TF32 with a K-major b."""
    name, k = _KINDS[kind]
    count = columns // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    operands = ", ".join(f'"+f"(accum[{i}])' for i in range(count))
    rows = ", ".join(f"%{count + i}" for i in range(4))
    major = f", {int(b_mn_major)}" if kind in ACROSS_K else ""
    return (
        "__device__ __forceinline__ void wgmma_rs(\n"
        f"    float (&accum)[{count}], const unsigned int (&a)[4], unsigned long long b, int scale_d\n"
        f") {{\n#ifdef __CUDA_ARCH__\n"
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 5}, 0;\\n"\n'
        f'                 "wgmma.mma_async.sync.aligned.m64n{columns}k{k}.f32.{name}.{name} "\n'
        f'                 "{{{registers}}}, {{{rows}}}, %{count + 4}, p, 1, 1{major};\\n}}"\n'
        f"                 : {operands}\n"
        f'                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d));\n'
        f'#else\n    emulated_multiply(accum, a, b, "{name}", "{name}", {int(b_mn_major)}, scale_d != 0);\n#endif\n}}\n'
    )
