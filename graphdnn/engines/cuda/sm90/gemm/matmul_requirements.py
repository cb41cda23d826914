"""Requirements of the matrix products of compute capability 9.0, and the order of their batch axes."""

from __future__ import annotations

from graphdnn.checks import Empty
from graphdnn.dtypes import FLOAT_COMPUTE
from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace, collapsed
from graphdnn.engines.cuda.codegen.pointwise_program import gen_index_axes
from graphdnn.engines.cuda.codegen.requirements import SHARED_MEMORY
from graphdnn.engines.cuda.codegen.tensor_cores import Pairs
from graphdnn.engines.cuda.sm90.gemm.matmul_operands import MOST_BATCH_AXES
from graphdnn.engines.cuda.sm90.sm90_requirements import capability_need, operand_needs
from graphdnn.engines.engine import Task, image_need, needs_rule
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Matmul
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec, stride_order


def batch_axes(op: FusedOp, written: TensorSpec) -> tuple[int, ...]:
    """The batch axes longer than 1, in the memory order of ``written``, outermost first."""
    assert isinstance(op.anchor, Matmul)
    extents = op.anchor.c.extents
    return in_memory_order(written, tuple(j for j in range(len(extents) - 2) if extents[j] > 1))


def in_memory_order(written: TensorSpec, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(axes, key=stride_order(written.dims, written.strides).index))


def batch_space(op: FusedOp, written: TensorSpec) -> IndexSpace:
    """The batch axes, merged if every tensor of the epilogue has merged axes too: one axis, if the engine serves."""
    return flattened(op, written, batch_axes(op, written))


def flattened(op: FusedOp, written: TensorSpec, axes: tuple[int, ...]) -> IndexSpace:
    """The axes of the result, merged if every tensor of the epilogue has merged axes too."""
    assert isinstance(op.anchor, Matmul)
    extents = op.anchor.c.extents
    space = IndexSpace(extents, tuple(Axis(extents[j], j) for j in axes))
    epilogue_tensors = [t for t in op.at_end() if not (t.is_by_value or t.is_constant)]
    return collapsed(space, written, epilogue_tensors, gen_index_axes(op.epilogue))


def written_tensor(op: FusedOp) -> TensorSpec:
    assert isinstance(op.anchor, Matmul)
    c = op.anchor.c
    return next((t for t in op.outputs if t.extents == c.extents), c)


def _is_matmul(task: Task) -> bool:
    return isinstance(task.op.anchor, Matmul)


def _types(task: Task) -> tuple[DataType, DataType]:
    assert isinstance(task.op.anchor, Matmul)
    return task.op.anchor.a.data_type, task.op.anchor.b.data_type


def _unflattened_axes(task: Task) -> str:
    """The batch axes, if the result has no single axis for them or a tensor map has fewer axes; else an empty text."""
    written = written_tensor(task.op)
    axes = batch_axes(task.op, written)
    if len(axes) <= MOST_BATCH_AXES and batch_space(task.op, written).rank <= 1:
        return ""
    extents = written.extents
    return ", ".join(f"{extents[j]} (axis {j})" for j in axes)


def matmul_needs(prefix: str, pairs: Pairs, sums: tuple[DataType, ...] = FLOAT_COMPUTE) -> tuple[Constraint, ...]:
    """Constraints of an engine for operand types ``pairs``; their ids begin with ``prefix``.

    ``sums``: the compute types of floats.
    """

    def has_served_types(task: Task) -> bool:
        return _is_matmul(task) and _types(task) in pairs

    return (
        needs_rule(f"{prefix}.operation", "matmul"),
        capability_need(prefix, _is_matmul),
        SHARED_MEMORY,
        *operand_needs(prefix, pairs, sums, types=_types, tag="matmul", when=_is_matmul, when_served=has_served_types),
        image_need(
            f"{prefix}.batch",
            "dims",
            _unflattened_axes,
            Empty(f"at most {MOST_BATCH_AXES} batch axes, which every tensor of the epilogue steps through as one"),
            reason="the kernel counts the result's batch along one axis, and a tensor map has three batch axes",
            fix="lay batch axes behind one another, or use another engine",
            when=has_served_types,
        ),
    )
