"""What a fused operation does with its tensors, where one of them has several uses."""

from __future__ import annotations

from legal_problems import operation, pointwise, reduction, tensor

from graphdnn import OperationGraph, fuse
from graphdnn.enums import PointwiseMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation

M = PointwiseMode
DIMS = (4, 4, 2, 2)


def virtual(uid: int) -> object:
    return tensor(uid, DIMS, is_virtual=True)


def only(*operations: Operation) -> FusedOp:
    (op,) = fuse(OperationGraph.of(operations))
    return op


def binary(mode: PointwiseMode, x: object, b: object, y: object) -> Operation:
    return operation("pointwise", x=x, b=b, y=y, spec=pointwise(mode))


def behind_a_chain(residual: int) -> FusedOp:
    """relu of 1, convolved with 2; what is added has the uid ``residual``."""
    return only(
        operation("pointwise", x=tensor(1, DIMS), b=..., y=virtual(10), spec=pointwise(M.RELU_FWD)),
        operation("conv_fprop", x=virtual(10), w=tensor(2, (4, 4, 1, 1)), y=virtual(11)),
        binary(M.ADD, virtual(11), tensor(residual, DIMS), tensor(12, DIMS)),
    )


def test_each_use_is_known() -> None:
    uses = behind_a_chain(3).uses
    assert uses.entering == {10, 2}
    assert uses.ahead == {1}
    assert uses.behind == {11, 3}
    assert uses.made == {10, 11, 12}
    assert uses.front == uses.front_only == {1, 2, 10}
    assert not uses.again | uses.doubled


def test_what_is_read_once_more_is_met_at_the_end() -> None:
    op = behind_a_chain(1)
    assert op.uses.front_only == {2, 10}
    assert [t.uid for t in op.at_end()] == [1, 12, 11]
    assert not op.uses.again  # what is convolved is another tensor
    assert [t.uid for t in op.sources([virtual(10)])] == [1]  # type: ignore[list-item]


def test_an_operand_behind_the_product() -> None:
    op = only(
        operation("conv_fprop", x=tensor(1, DIMS), w=tensor(2, (4, 4, 1, 1)), y=virtual(11)),
        binary(M.ADD, virtual(11), tensor(1, DIMS), tensor(12, DIMS)),
        operation("reduction", x=tensor(12, DIMS), y=tensor(13, (1, 4, 1, 1)), spec=reduction()),
    )
    assert op.uses.again == {1}
    assert op.uses.behind == {11, 1, 12}
    assert [t.uid for t in op.at_end()] == [1, 12, 13, 11]


def test_two_operands_of_one_tensor() -> None:
    square = (4, 4, 1, 1)
    op = only(operation("conv_fprop", x=tensor(1, square), w=tensor(1, square), y=tensor(3, square)))
    assert op.uses.doubled == {1}


def test_a_graph_without_anchor_reads_everything_behind_it() -> None:
    op = only(binary(M.ADD, tensor(1, DIMS), tensor(2, DIMS), tensor(3, DIMS)))
    assert not op.uses.front
    assert op.uses.behind == {1, 2}


def test_kernels_of_a_class_share_the_record() -> None:
    def made(pixels: int) -> FusedOp:
        dims = (4, 4, pixels, pixels)
        return only(operation("conv_fprop", x=tensor(1, dims), w=tensor(2, (4, 4, 1, 1)), y=tensor(3, dims)))

    assert made(5).uses.entering == {1, 2}
    assert made(6).uses is made(7).uses


def test_another_anchor_leaves_what_is_still_read() -> None:
    copy = tensor(20, DIMS)
    kept, gone = behind_a_product(1), behind_a_product(3)
    for op, inputs in ((kept, [2, 1, 20]), (gone, [2, 3, 20])):
        assert op.anchor is not None
        made = op.with_anchor(op.anchor.model_copy(update={"x": copy}))
        assert sorted(t.uid for t in made.inputs) == sorted(inputs)
        assert made.uses.entering == {20, 2}


def behind_a_product(residual: int) -> FusedOp:
    return only(
        operation("conv_fprop", x=tensor(1, DIMS), w=tensor(2, (4, 4, 1, 1)), y=virtual(11)),
        binary(M.ADD, virtual(11), tensor(residual, DIMS), tensor(12, DIMS)),
    )
