"""Graphs of as many operations as asked for, in the shapes that could cost a fusion pass more than its share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from legal_problems import CHANNEL, IMAGE, operation, pointwise, reduction, tensor

from graphdnn.enums import ConvolutionMode, PointwiseMode, ReductionOperator
from graphdnn.operations import ConvForward, ConvolutionSpec, Operation, PointwiseOperation, PointwiseSpec
from graphdnn.tensors import TensorSpec, packed_strides


def layers(count: int) -> list[Operation]:
    """Convolutions with bias and ReLU, every second one with a residual, until there are ``count`` operations."""
    made: list[Operation] = []
    image, uids = (2, 64, 16, 16), iter(range(1, 10 * count))
    add, relu = (PointwiseSpec(mode=m, math_type="f32") for m in (PointwiseMode.ADD, PointwiseMode.RELU_FWD))
    conv = ConvolutionSpec(
        compute_type="f32", mode=ConvolutionMode.CROSS_CORRELATION, spatial_dims=2, dilations=(1, 1),
        filter_strides=(1, 1), pre_paddings=(1, 1), post_paddings=(1, 1),
    )  # fmt: skip

    def new(dims: tuple[int, ...] = image, *, virtual: bool = True) -> TensorSpec:
        return TensorSpec(uid=next(uids), data_type="f16", dims=dims, strides=packed_strides(dims), is_virtual=virtual)

    x = skip = new(virtual=False)
    while len(made) < count:
        y, z = new(), new()
        made.append(ConvForward(x=x, w=new((64, 64, 3, 3), virtual=False), y=y, conv=conv))
        made.append(PointwiseOperation(spec=add, x=y, b=new((1, 64, 1, 1), virtual=False), y=z))
        if len(made) % 2:
            y, z = z, new()
            made.append(PointwiseOperation(spec=add, x=y, b=skip, y=z))
            skip = x
        x = new(virtual=len(made) + 1 < count)
        made.append(PointwiseOperation(spec=relu, x=z, y=x))
    return made


def _relu(x: TensorSpec, y: TensorSpec) -> Operation:
    return operation("pointwise", x=x, b=..., y=y, spec=pointwise(PointwiseMode.RELU_FWD))


def _conv(x: TensorSpec, y: TensorSpec, uid: int) -> Operation:
    return operation("conv_fprop", x=x, w=tensor(uid, (4, 4, 1, 1)), y=y)


def chain(count: int) -> list[Operation]:
    """One pointwise kernel."""
    values = [tensor(i + 1, IMAGE, is_virtual=0 < i < count) for i in range(count + 1)]
    return [_relu(x, y) for x, y in pairwise(values)]


def branches(count: int) -> list[Operation]:
    """Convolutions of one image, and the sum of them all."""
    made: list[Operation] = []
    total = None
    for uid in range(10, 10 + 3 * (count // 2), 3):
        y = tensor(uid, IMAGE, is_virtual=True)
        made.append(_conv(tensor(1, IMAGE), y, uid + 1))
        if total is None:
            total = y
        else:
            result = tensor(uid + 2, IMAGE, is_virtual=len(made) + 1 < count - 2)
            made.append(operation("pointwise", x=total, b=y, y=result))
            total = result
    return made


def shared(count: int) -> list[Operation]:
    """A value that is computed first and read by every layer."""
    mask, made = tensor(2, IMAGE, is_virtual=True), []
    made.append(_conv(tensor(1, IMAGE), mask, 3))
    value, uid = mask, 10
    while len(made) < count:
        y = tensor(uid, IMAGE, is_virtual=True)
        made.append(_conv(value, y, uid + 1))
        value = tensor(uid + 2, IMAGE, is_virtual=len(made) + 1 < count)
        made.append(operation("pointwise", x=y, b=mask, y=value))
        uid += 3
    return made


def centred(count: int) -> list[Operation]:
    """Reductions and what is left of each value without its mean: every operation is a kernel."""
    made: list[Operation] = []
    value, uid = tensor(1, IMAGE), 10
    while len(made) < count:
        mean, result = tensor(uid, CHANNEL, is_virtual=True), tensor(uid + 1, IMAGE, is_virtual=len(made) + 2 < count)
        made.append(operation("reduction", x=value, y=mean, spec=reduction(ReductionOperator.AVG)))
        made.append(operation("pointwise", x=value, b=mean, y=result, spec=pointwise(PointwiseMode.SUB)))
        value, uid = result, uid + 2
    return made


def attention(count: int) -> list[Operation]:
    """A softmax after the other."""
    made: list[Operation] = []
    value, uid, row = tensor(1, IMAGE), 10, (2, 1, 6, 6)
    while len(made) < count:
        most, total = (tensor(uid + i, row, is_virtual=True) for i in range(2))
        apart, powers = (tensor(uid + i, IMAGE, is_virtual=True) for i in (2, 3))
        result = tensor(uid + 4, IMAGE, is_virtual=len(made) + 5 < count)
        made += [
            operation("reduction", x=value, y=most, spec=reduction(ReductionOperator.MAX)),
            operation("pointwise", x=value, b=most, y=apart, spec=pointwise(PointwiseMode.SUB)),
            operation("pointwise", x=apart, b=..., y=powers, spec=pointwise(PointwiseMode.EXP)),
            operation("reduction", x=powers, y=total),
            operation("pointwise", x=powers, b=total, y=result, spec=pointwise(PointwiseMode.DIV)),
        ]
        value, uid = result, uid + 5
    return made


SHAPES: dict[str, Callable[[int], list[Operation]]] = {
    made.__name__: made for made in (layers, chain, branches, shared, centred, attention)
}
