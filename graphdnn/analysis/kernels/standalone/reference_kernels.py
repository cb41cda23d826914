"""The loops of a fused operation as kernels, one for each result, and the kernels that fill and compare tensors."""

from __future__ import annotations

from math import prod

from graphdnn.analysis.kernels.standalone.loops import LOOPS, moved_type
from graphdnn.analysis.kernels.standalone.tensor_access import Access, arithmetic_of, coordinates, offset, uid_text
from graphdnn.engines.cuda.codegen.parameters import STORAGE
from graphdnn.fusion import FusedOp
from graphdnn.operations import Concat, Operation, PointwiseOperation, Reshape, Slice, Transpose
from graphdnn.tensors import TensorSpec

COMMON = """\
// A number of -8/8 to 8/8 for floats, which every floating type holds: sums of products of these are exact in fp32.
// Integers are -4 to 4, or 0 to 8 without a sign; booleans are false or true.
template <class Element> __global__ void fill(Element* data, long long count, unsigned seed) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    unsigned hash = (unsigned)i * 2654435761u + seed * 0x9e3779b9u;
    hash ^= hash >> 15; hash *= 0x85ebca6bu; hash ^= hash >> 13;
    constexpr bool is_float = is_floating<Element> || __is_class(Element);
    if constexpr (same<Element, bool_t>) data[i] = narrow<Element>((int)(hash & 1));
    else if constexpr (is_float) data[i] = narrow<Element>(((int)(hash % 17) - 8) / 8.0);
    else if constexpr ((Element)-1 < (Element)0) data[i] = narrow<Element>((int)(hash % 9) - 4);
    else data[i] = narrow<Element>((int)(hash % 9));
}

struct Verdict {
    unsigned long long scale, worst;         // bits of the largest finite magnitude, and of the largest difference
    unsigned long long wrong, compared;      // elements
};

__device__ __forceinline__ bool is_finite(double x) { return x - x == 0; }
__device__ __forceinline__ unsigned long long bits_of(double x) { return (unsigned long long)__double_as_longlong(x); }
__device__ __forceinline__ double distance(double a, double b) { return a < b ? b - a : a - b; }
"""


def source_of(op: FusedOp) -> dict[int, Access]:
    """How each tensor of a fused operation is read: what an operation computes is read from its loops' result."""
    found = {spec.uid: Access(spec, False) for spec in op.inputs}
    for step in op.operations:
        for spec in step.inputs().values():
            found.setdefault(spec.uid, Access(spec, False))
        found |= {spec.uid: Access(spec, True) for spec in step.outputs().values()}
    return found


def loop_kernels(op: FusedOp) -> str:
    """One kernel for each result of each operation."""
    known = source_of(op)
    return "\n".join(text for i, step in enumerate(op.operations) for text in _kernels(i, step, known))


def kernel_name(number: int, port: str) -> str:
    return f"operation_{number}_{port}"


def arguments_of(step: Operation, known: dict[int, Access], result: TensorSpec) -> list[Access]:
    """The tensors that a kernel of an operation is called with, its result last."""
    read = {s.uid: known[s.uid] for s in step.inputs().values() if not (s.is_by_value or s.is_constant)}
    return [*read.values(), known[result.uid]]


def _kernels(number: int, step: Operation, known: dict[int, Access]) -> list[str]:
    operands = {port: known[spec.uid] for port, spec in step.inputs().items()}
    bodies = LOOPS[type(step)].results(step, operands)
    texts = []
    for port, spec in step.outputs().items():
        *read, result = arguments_of(step, known, spec)
        parameters = [f"const {a.storage}* {a.name}" for a in read] + [f"{result.storage}* {result.name}"]
        kind = _result_type(step, spec)
        lines = [
            f"// operation {number}: {step.tag}, {port} {list(spec.extents)}",
            f"__global__ void {kernel_name(number, port)}({', '.join(parameters)}) {{",
            "    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;",
            f"    if (i >= {prod(spec.extents)}LL) return;",
            *(f"    [[maybe_unused]] {line}" for line in coordinates(spec.extents)),
            f"    {kind} result = 0;",
            *(f"    {line}" for line in bodies[port]),
            f"    {result.name}[i] = narrow<{result.storage}>(result);",
            "}\n",
        ]
        texts.append("\n".join(lines))
    return texts


def _result_type(step: Operation, spec: TensorSpec) -> str:
    """The arithmetic of a result; movement keeps the type of its elements."""
    if isinstance(step, (Transpose, Reshape, Slice, Concat)):
        return moved_type(step)
    if isinstance(step, PointwiseOperation):
        is_bool = step.spec.row.kind in ("comparison", "logical")
        return (
            "bool" if is_bool else "long long" if step.spec.row.kind == "index" else arithmetic_of(step.spec.math_type)
        )
    return arithmetic_of(step.compute_type)


def compare_kernels(op: FusedOp) -> str:
    """Two passes for each output in memory: the scale of the expected values, then the differences."""
    return "\n".join(_compare(spec) for spec in op.outputs)


def _compare(spec: TensorSpec) -> str:
    storage, uid = STORAGE[spec.data_type], uid_text(spec)
    place = offset([f"i{axis}" for axis in range(len(spec.extents))], spec.strides)
    lines = "\n".join(f"    [[maybe_unused]] {line}" for line in coordinates(spec.extents))
    return f"""\
__global__ void compare_{uid}(const {storage}* found, const {storage}* expected, double bound, int pass,
                          Verdict* verdict) {{
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= {spec.elements}LL) return;
{lines}
    const double is = widen<double>(found[{place}]), wanted = widen<double>(expected[i]);
    if (pass == 0) {{
        if (is_finite(wanted)) atomicMax(&verdict->scale, bits_of(distance(wanted, 0)));
        return;
    }}
    if (!is_finite(wanted)) {{  // decided by nothing that rounds: the same, but not evidence
        if (is != wanted && !(is != is && wanted != wanted)) atomicAdd(&verdict->wrong, 1ull);
        return;
    }}
    atomicAdd(&verdict->compared, 1ull);
    const double difference = distance(is, wanted);
    if (!(difference <= bound)) atomicAdd(&verdict->wrong, 1ull);
    if (is_finite(difference)) atomicMax(&verdict->worst, bits_of(difference));
}}
"""
