"""What the matrix products of compute capability 9.0 ask for, and how a stack's batch axes are counted."""

from __future__ import annotations

from graphdnn.checks import Empty
from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace, collapsed
from graphdnn.engines.cuda.codegen.pointwise_program import gen_index_axes
from graphdnn.engines.cuda.codegen.requirements import ROOM
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
    """The result's batch axes that are longer than 1, as they lie in the tensor that is written, outermost first."""
    assert isinstance(op.anchor, Matmul)
    extents = op.anchor.c.extents
    return in_memory_order(written, tuple(j for j in range(len(extents) - 2) if extents[j] > 1))


def in_memory_order(written: TensorSpec, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(axes, key=stride_order(written.dims, written.strides).index))


def batch_space(op: FusedOp, written: TensorSpec) -> IndexSpace:
    """The batch axes as every tensor that the result meets steps through them: one axis, where the engine serves it."""
    return joined(op, written, batch_axes(op, written))


def joined(op: FusedOp, written: TensorSpec, axes: tuple[int, ...]) -> IndexSpace:
    """Axes of the result, where they can be as one."""
    assert isinstance(op.anchor, Matmul)
    extents = op.anchor.c.extents
    space = IndexSpace(extents, tuple(Axis(extents[j], j) for j in axes))
    met = [t for t in op.at_end() if not (t.is_by_value or t.is_constant)]
    return collapsed(space, written, met, gen_index_axes(op.epilogue))


def written_tensor(op: FusedOp) -> TensorSpec:
    assert isinstance(op.anchor, Matmul)
    c = op.anchor.c
    return next((t for t in op.outputs if t.extents == c.extents), c)


def _is_matmul(task: Task) -> bool:
    return isinstance(task.op.anchor, Matmul)


def _types(task: Task) -> tuple[DataType, DataType]:
    assert isinstance(task.op.anchor, Matmul)
    return task.op.anchor.a.data_type, task.op.anchor.b.data_type


def _uncounted(task: Task) -> str:
    """Batch axes that do not become one in the result, or that are more than a map has."""
    written = written_tensor(task.op)
    axes = batch_axes(task.op, written)
    if len(axes) <= MOST_BATCH_AXES and batch_space(task.op, written).rank <= 1:
        return ""
    extents = written.extents
    return ", ".join(f"{extents[j]} (axis {j})" for j in axes)


def matmul_needs(prefix: str, pairs: Pairs, sums: DataType = DataType.FLOAT) -> tuple[Constraint, ...]:
    """Ids begin with ``prefix``; for operands of these types, ``sums`` of floats."""

    def is_multiplied(task: Task) -> bool:
        return _is_matmul(task) and _types(task) in pairs

    return (
        needs_rule(f"{prefix}.operation", "matmul"),
        capability_need(prefix, _is_matmul),
        ROOM,
        *operand_needs(prefix, pairs, sums, types=_types, tag="matmul", when=_is_matmul, multiplies=is_multiplied),
        image_need(
            f"{prefix}.batch",
            "dims",
            _uncounted,
            Empty(f"at most {MOST_BATCH_AXES} batch axes, which every tensor of the epilogue steps through as one"),
            reason="a result's place in the stack is one number, an operand's at most three",
            fix="lay batch axes behind one another, or use another engine",
            when=is_multiplied,
        ),
    )
