"""The text of ``multiply``: 64 rows of a times the columns of b, added to sums in registers (wgmma)."""

from __future__ import annotations

from functools import lru_cache

from graphdnn.engines.cuda.codegen.tensor_cores import INTEGERS, NARROW
from graphdnn.enums import DataType

# PTX name and the k of one instruction.
_KINDS = {
    DataType.HALF: ("f16", 16),
    DataType.BFLOAT16: ("bf16", 16),
    DataType.FLOAT: ("tf32", 8),
    DataType.INT8: ("s8", 32),
    DataType.UINT8: ("u8", 32),
    DataType.FP8_E4M3: ("e4m3", 32),
    DataType.FP8_E5M2: ("e5m2", 32),
}
ACROSS_K = (DataType.HALF, DataType.BFLOAT16)  # types of operands that may lie across k


# Steps of 128 bytes of k whose products of fp8 tensor cores add, before what they come to is added in registers. They
# keep 14 digits: a sum of 65,536 positive terms that is never taken from them loses half of it, for 7 % of the time.
_PROMOTED = 1


def promoted_steps(a: DataType) -> int:
    """0: tensor cores keep the sums to the end, as they do well."""
    return _PROMOTED if a in NARROW else 0


@lru_cache(maxsize=256)
def product_text(a: DataType, b: DataType, columns: int, across_a: bool, across_b: bool) -> str:
    (kind_a, depth), (kind_b, _) = _KINDS[a], _KINDS[b]
    count = columns // 2
    is_integer = a in INTEGERS
    ctype, constraint = ("int", "r") if is_integer else ("float", "f")
    sums = ", ".join(f"%{i}" for i in range(count))
    held = ", ".join(f'"+{constraint}"(sum[{i}])' for i in range(count))
    # p: add to the sums; else they begin. Floats: the signs of a and b, and for 16 bits whether each lies across k.
    flags = "p" if is_integer else "p, 1, 1"
    lying = f"{int(across_a)}, {int(across_b)}"
    if a in ACROSS_K:
        flags += f", {lying}"
    types = f"{'s32' if is_integer else 'f32'}.{kind_a}.{kind_b}"
    return (
        f"__device__ __forceinline__ void multiply(\n"
        f"    {ctype} (&sum)[{count}], unsigned long long a, unsigned long long b, int add = 1\n"
        f") {{\n#ifdef __CUDA_ARCH__\n"
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'                 "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{types} "\n'
        f'                 "{{{sums}}}, %{count}, %{count + 1}, {flags};\\n}}"\n'
        f'                 : {held}\n                 : "l"(a), "l"(b), "r"(add));\n'
        f'#else\n    emulated_multiply(sum, a, b, "{kind_a}", "{kind_b}", {lying}, add != 0);\n#endif\n}}\n'
    )


def register_product_text(kind: DataType, columns: int, across_b: bool = False) -> str:
    """``multiply_rows``: rows of a out of the registers of threads; floats of 16 bits, or of 32 with b along k."""
    name, depth = _KINDS[kind]
    count = columns // 2
    sums = ", ".join(f"%{i}" for i in range(count))
    held = ", ".join(f'"+f"(sum[{i}])' for i in range(count))
    rows = ", ".join(f"%{count + i}" for i in range(4))
    lying = f", {int(across_b)}" if kind in ACROSS_K else ""
    return (
        "__device__ __forceinline__ void multiply_rows(\n"
        f"    float (&sum)[{count}], const unsigned int (&a)[4], unsigned long long b, int add\n"
        f") {{\n#ifdef __CUDA_ARCH__\n"
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 5}, 0;\\n"\n'
        f'                 "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{name}.{name} "\n'
        f'                 "{{{sums}}}, {{{rows}}}, %{count + 4}, p, 1, 1{lying};\\n}}"\n'
        f"                 : {held}\n"
        f'                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));\n'
        f'#else\n    emulated_multiply(sum, a, b, "{name}", "{name}", {int(across_b)}, add != 0);\n#endif\n}}\n'
    )
