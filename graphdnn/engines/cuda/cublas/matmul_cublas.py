"""Engine ``cuda_matmul_cublas``: matrix products by cuBLAS.

Prologues, and layouts that cuBLAS cannot address, become copies in the workspace. The epilogue is one more launch;
there is none if cuBLAS can write the result itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as cartesian_product
from math import prod

from graphdnn.checks import InRange, MultipleOf
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import least_seconds_in_sequence, phased_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.dense_operands import (
    add_epilogue_launch,
    can_library_store,
    dense_tensor,
    epilogue_phase,
    materialize,
    result_type,
)
from graphdnn.engines.cuda.codegen.index_space import is_addressable, whole
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.cublas.contraction import MOST_CALLS, Axis, Contraction, GemmCall, best_product
from graphdnn.engines.cuda.cublas.gemm_launches import (
    Place,
    add_product,
    gemm_notes,
    needs_cublas,
    needs_sizes,
    needs_types,
)
from graphdnn.engines.cuda.cublas.strided_gemm import (
    ARITHMETIC,
    INT8_ALIGNMENT,
    INT8_DEPTH,
    LARGEST,
    LARGEST_SHARE,
    RESULTS,
    Sizes,
    gemm_blocks,
    gemm_seconds,
    idle_seconds,
    leaving_seconds,
    start_seconds,
)
from graphdnn.engines.engine import Cost, Knobs, Task, need, needs_rule
from graphdnn.engines.memoization import memoize_by_identity
from graphdnn.enums import DataType, NumericalNote, Status
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Matmul
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec, ordered_strides, packed_strides

_PIECE = 16  # bytes to which rows should be aligned


def _anchor(op: FusedOp) -> Matmul:
    assert isinstance(op.anchor, Matmul)
    return op.anchor


def _batch_axes(op: Matmul, a: TensorSpec, b: TensorSpec, c: TensorSpec) -> list[Axis]:
    """(size, stride of a, of b, of c) of every batch axis with more than one step, outermost in c first.

    Consecutive batches share a matrix of the smaller operand, so such an axis is two.
    """
    axes = []
    strides = [whole(t.extents).strides(t)[:-2] for t in (a, b, c)]
    for j, size in enumerate(c.extents[:-2]):
        ratio = size // min(a.extents[j], b.extents[j])
        outer, inner = [], []
        for t, stride in zip((a, b, c), (s[j] for s in strides), strict=True):
            is_shared = t.extents[j] != size
            outer.append(stride if is_shared else stride * ratio)
            inner.append(0 if is_shared else stride)
        axes += [(size // ratio, *outer), (ratio, *inner)]
    return [(size, x, y, z) for size, x, y, z in axes if size > 1]


def _contraction(op: Matmul, a: TensorSpec, b: TensorSpec, c: TensorSpec) -> Contraction:
    m, n, k = op.c.extents[-2], op.c.extents[-1], op.a.extents[-1]
    (am, ak), (bk, bn), (cm, cn) = (whole(t.extents).strides(t)[-2:] for t in (a, b, c))
    return Contraction(((m, am, 0, cm),), ((n, 0, bn, cn),), ((k, ak, bk, 0),), tuple(_batch_axes(op, a, b, c)))


@dataclass(frozen=True, slots=True)
class _Choice:
    """The cuBLAS call, its matrices, and the operands that are copied to a dense layout before it."""

    product: GemmCall
    copied: tuple[bool, bool, bool]


def _plain(a: TensorSpec, b: TensorSpec, c: TensorSpec) -> tuple[tuple[int, ...], ...]:
    """The strides of copies. Copies of int8 are K-major, as cuBLAS's tensor-core kernels require."""
    rows = [packed_strides(t.extents) for t in (a, b, c)]
    if b.data_type is DataType.INT8:
        rows[1] = ordered_strides(b.extents, (*range(b.rank - 2), b.rank - 1, b.rank - 2))
    return tuple(rows)


def _choose(op: Matmul, a: TensorSpec, b: TensorSpec, c: TensorSpec, direct: bool) -> _Choice:
    """The choice with the fewest copies. ``direct``: cuBLAS writes to the output itself."""
    arithmetic = ARITHMETIC[op.compute_type]
    packed = [dense_tensor(t, strides) for t, strides in zip((a, b, c), _plain(a, b, c), strict=True)]
    choices = sorted(cartesian_product((False, True), (False, True), (False, True) if direct else (False,)), key=sum)
    for copied in choices:
        chosen = [p if is_copied else t for t, p, is_copied in zip((a, b, c), packed, copied, strict=True)]
        if any(t.data_type is DataType.INT8 and t.byte_alignment % INT8_ALIGNMENT for t in chosen[:2]):
            continue
        types = chosen[0].data_type, chosen[2].data_type
        found = best_product(_contraction(op, chosen[0], chosen[1], chosen[2]), types, arithmetic)
        if found is not None:
            return _Choice(found, (copied[0], copied[1], copied[2] if direct else False))
    raise AssertionError("packed operands are taken")


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    anchor = _anchor(op)
    steps = LaunchSequence(op, device)
    arithmetic = ARITHMETIC[anchor.compute_type]
    a, b = materialize(steps, anchor.a), materialize(steps, anchor.b)
    kind = result_type(anchor.c, op, RESULTS[a.data_type, arithmetic])
    direct = kind is anchor.c.data_type and can_library_store(steps, anchor.c)
    apart = dense_tensor(anchor.c, uid=steps.new_uid(), data_type=kind)
    choice = _choose(anchor, a, b, anchor.c if direct else apart, direct)
    a, b = (
        steps.relayout(t, strides) if is_copied else t
        for t, strides, is_copied in zip((a, b), _plain(a, b, anchor.c), choice.copied, strict=False)
    )
    direct = direct and not choice.copied[2]
    c = anchor.c if direct else apart
    if not direct:
        apart = apart.model_copy(update={"uid": steps.new_uid()})  # the uid is used by a copy
        c = apart
        steps.workspace_offsets[c.uid] = steps.allocate(c.bytes)
    add_product(steps, choice.product, [(Place.of(steps, t), t.data_type) for t in (a, b, c)])
    if not direct:
        add_epilogue_launch(steps, c, anchor.c, arithmetic)
    return steps.kernel(f"matmul__cublas__{op.name}")


# Requirements.

_ID = "cuda_matmul_cublas"


def _is_matmul(task: Task) -> bool:
    return isinstance(task.op.anchor, Matmul)


_OPERANDS = (DataType.DOUBLE, DataType.FLOAT, DataType.HALF, DataType.BFLOAT16, DataType.INT8)


def _is_served(task: Task) -> bool:
    if not _is_matmul(task):
        return False
    op = _anchor(task.op)
    return op.a.data_type is op.b.data_type and (op.a.data_type, ARITHMETIC.get(op.compute_type)) in RESULTS


def _is_int8(task: Task) -> bool:
    return _is_served(task) and _anchor(task.op).a.data_type is DataType.INT8


def _calls(task: Task) -> int:
    return _plain_calls(_anchor(task.op))


@memoize_by_identity
def _plain_calls(op: Matmul) -> int:
    """The number of calls for operands in dense layouts."""
    if op.a.extents[:-2] == op.b.extents[:-2]:
        return 1  # the batch is one axis
    a, b, c = (dense_tensor(t) for t in (op.a, op.b, op.c))
    # Extents decide, so that int8's alignment is not asked here.
    found = best_product(_contraction(op, a, b, c), (DataType.FLOAT, DataType.FLOAT), DataType.FLOAT, 2**31)
    assert found is not None, "sizes are asked first"
    return found.calls


def _sizes(task: Task) -> tuple[int, int, int]:
    op = _anchor(task.op)
    return op.c.extents[-2], op.c.extents[-1], op.a.extents[-1]


def _counted(task: Task) -> tuple[int, ...]:
    return (*_sizes(task), prod(_anchor(task.op).c.extents[:-2]))


NEEDS: tuple[Constraint, ...] = (
    needs_rule(f"{_ID}.operation", "matmul"),
    needs_cublas(f"{_ID}.library", _is_matmul),
    *needs_types(_ID, _OPERANDS, _is_matmul),
    need(
        f"{_ID}.int8.rows",
        "a.dims[-1]",
        lambda task: _sizes(task)[2],
        MultipleOf(INT8_ALIGNMENT),
        reason="cuBLAS takes rows of K int8 that start at multiples of four bytes",
        fix="pad K to a multiple of four with zeros, or use another engine",
        status=Status.NOT_SUPPORTED_SHAPE,
        when=_is_int8,
    ),
    need(
        f"{_ID}.int8.depth",
        "a.dims[-1]",
        lambda task: _sizes(task)[2],
        InRange(1, INT8_DEPTH),
        reason="longer sums may leave 32 bits, and cuBLAS does not promise how they wrap",
        fix="use another engine, or divide K among several products",
        status=Status.NOT_SUPPORTED_SHAPE,
        when=_is_int8,
    ),
    needs_sizes(_ID, _counted, "a.dims, b.dims, c.dims", _is_served),
    need(
        f"{_ID}.batch",
        "dims",
        _calls,
        InRange(1, MOST_CALLS),
        reason="cuBLAS takes one stride for the whole stack; a stack with several is that many calls",
        fix="broadcast along fewer axes, or use another engine",
        status=Status.NOT_SUPPORTED_SHAPE,
        when=lambda task: _is_served(task) and max(_counted(task)) <= LARGEST,
    ),
)


def _has_odd_rows(t: TensorSpec) -> bool:
    """Whether rows are not multiples of 16 bytes."""
    strides = [stride for stride, size in zip(t.strides, t.dims, strict=True) if size > 1 and stride != 1]
    return any(stride * ELEMENTS[t.data_type].bytes % _PIECE for stride in strides)


def _cost(task: Task, knobs: Knobs) -> Cost:
    op, device = _anchor(task.op), task.device
    m, n, k = _sizes(task)
    sizes = Sizes(m, n, k, prod(op.c.extents[:-2]))
    are_halves = ELEMENTS[op.a.data_type].bytes == 2
    odd = are_halves and any(_has_odd_rows(t) for t in (op.a, op.b, op.c))
    product = gemm_seconds(sizes, op.a.data_type, device, has_odd_rows=odd)
    copies = [t for t in (op.a, op.b) if task.op.leading_to(t) or not is_addressable(t)]
    if op.a.data_type is DataType.INT8:
        copies += [t for t, k in ((op.a, -1), (op.b, -2)) if t not in copies and whole(t.extents).strides(t)[k] != 1]
    kind = _kind(task.op)
    is_direct = kind is op.c.data_type and not task.op.epilogue and task.op.exit is None
    result = op.c.bytes if is_direct else op.c.elements * ELEMENTS[kind].bytes
    phases = {
        "operands": (0.0, 2.0 * sum(t.bytes for t in copies)),
        "product": (product + leaving_seconds(device, result), float(op.a.bytes + op.b.bytes + result)),
        "start": (start_seconds(device), 0.0),
    }
    launches = _calls(task) + len(copies)
    if not is_direct:
        phases["finish"] = epilogue_phase(task.op, device, result)
        launches += 1
    idle = launches * idle_seconds(device, gemm_blocks(sizes, op.a.data_type))
    return phased_cost(task, phases, launches).plus({"idle": -idle})


def _least(task: Task) -> float:
    """A lower bound of the cost. A prologue may read fewer bytes than its result, so it counts as a launch only. The
    epilogue reads the GEMM's result once more.
    """
    op, device = _anchor(task.op), task.device
    idle = idle_seconds(device, 0)
    if task.op.prologue:
        return device.launch - idle
    launches, again = 1, 0
    if task.op.epilogue or task.op.exit is not None:
        launches, again = 2, op.c.elements * ELEMENTS[_kind(task.op)].bytes
    rate = device.rate(op.a.data_type) * LARGEST_SHARE
    return least_seconds_in_sequence(task, launches, rate, float(again)) - launches * idle


def _kind(op: FusedOp) -> DataType:
    """The data type that cuBLAS writes."""
    product = _anchor(op)
    return result_type(product.c, op, RESULTS[product.a.data_type, ARITHMETIC[product.compute_type]])


ENGINE = cuda_engine(
    id=20,
    name=_ID,
    summary="matrix products by cuBLAS: fp64, fp32 without TF32, fp16, bf16, int8; one more launch for what follows",
    needs=NEEDS,
    cost=_cost,
    least=_least,
    generate=generate,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    notes_of=gemm_notes,
)
