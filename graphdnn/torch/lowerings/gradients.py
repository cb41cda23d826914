"""Gradients of elementwise operators, softmax, normalizations and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from graphdnn.builder.tensor import Tensor
from graphdnn.enums import DataType, ReductionOperator, ResampleMode
from graphdnn.enums import PointwiseMode as M
from graphdnn.torch.lowering import Lower, Lowering, lowers
from graphdnn.torch.lowerings.pooling import each_axis
from graphdnn.torch.lowerings.reduction import reduced
from graphdnn.torch.max_pool_gradient import max_pool_gradient

aten = torch.ops.aten


def _backward(low: Lowering, mode: M, dy: Tensor, x: Tensor, **parameters: Any) -> Tensor:
    compute = low.arithmetic(DataType.FLOAT, dy.get_data_type())
    return low.typed(low.graph.pointwise(mode, dy=dy, x=x, compute_data_type=compute, name=low.node.name, **parameters))


def _of_input(mode: M) -> Lower:
    return lambda low, dy, x: _backward(low, mode, dy, x)


lowers(aten.silu_backward.default)(_of_input(M.SWISH_BWD))


@lowers(aten.threshold_backward.default)
def threshold_backward(low: Lowering, dy: Tensor, x: Tensor, threshold: float) -> Tensor:
    """The gradient of ReLU, also from its result: both are positive in the same places."""
    if threshold != 0:
        raise low.refuse("threshold", threshold, "0", "the mode RELU_BWD begins at 0", "leave it to PyTorch")
    return _backward(low, M.RELU_BWD, dy, x)


@lowers(aten.leaky_relu_backward.default)
def leaky_relu_backward(low: Lowering, dy: Tensor, x: Tensor, slope: float, self_is_result: bool) -> Tensor:
    if self_is_result and slope < 0:
        raise low.refuse(
            "negative_slope", slope, "at least 0", "the result hides the sign of x", "use a positive slope"
        )
    return _backward(low, M.RELU_BWD, dy, x, relu_lower_clip_slope=float(slope))


@lowers(aten.hardtanh_backward.default)
def hardtanh_backward(low: Lowering, dy: Tensor, x: Tensor, min_val: float, max_val: float) -> Tensor:
    """``dy`` where x is between the limits, 0 elsewhere."""
    return _between(low, dy, x, min_val, max_val, 1.0)


@lowers(aten.hardsigmoid_backward.default)
def hardsigmoid_backward(low: Lowering, dy: Tensor, x: Tensor) -> Tensor:
    """``dy / 6`` where x is between -3 and 3, 0 elsewhere."""
    return _between(low, dy, x, -3.0, 3.0, 1 / 6)


def _between(low: Lowering, dy: Tensor, x: Tensor, lower: float, upper: float, factor: float) -> Tensor:
    compute = low.arithmetic(DataType.FLOAT, dy.get_data_type())
    above = low.pointwise(M.CMP_GT, x, lower, compute=compute).set_data_type(DataType.BYTE_BOOLEAN)
    below = low.pointwise(M.CMP_LT, x, upper, compute=compute).set_data_type(DataType.BYTE_BOOLEAN)
    inside = low.pointwise(M.LOGICAL_AND, above, below).set_data_type(DataType.BYTE_BOOLEAN)
    scaled = low.float_pointwise(M.MUL, dy, factor)
    return low.typed(_selected(low, scaled, low.graph.tensor_scalar(0.0, compute), inside, compute))


def _selected(low: Lowering, x: Tensor, otherwise: Tensor, mask: Tensor, compute: DataType) -> Tensor:
    return low.graph.pointwise(M.BINARY_SELECT, x=x, b=otherwise, t=mask, compute_data_type=compute)


@lowers(aten.hardswish_backward.default)
def hardswish_backward(low: Lowering, dy: Tensor, x: Tensor) -> Tensor:
    """``dy * (x / 3 + 1 / 2)`` where x is between -3 and 3; 0 below, ``dy`` above."""
    compute = low.arithmetic(DataType.FLOAT, dy.get_data_type())
    slope = low.float_pointwise(M.ADD, low.float_pointwise(M.MUL, x, 1 / 3), 0.5)
    gradient = low.float_pointwise(M.MUL, dy, slope)
    zero = low.graph.tensor_scalar(0.0, compute)
    above = low.pointwise(M.CMP_GE, x, -3.0, compute=compute).set_data_type(DataType.BYTE_BOOLEAN)
    below = low.pointwise(M.CMP_LE, x, 3.0, compute=compute).set_data_type(DataType.BYTE_BOOLEAN)
    inner = _selected(low, gradient, zero, above, compute).set_data_type(compute)
    return low.typed(_selected(low, inner, dy, below, compute))


@lowers(aten.gelu_backward.default)
def gelu_backward(low: Lowering, dy: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    return _backward(low, M.GELU_BWD if approximate == "none" else M.GELU_APPROX_TANH_BWD, dy, x)


@lowers(aten.sigmoid_backward.default)
def sigmoid_backward(low: Lowering, dy: Tensor, y: Tensor) -> Tensor:
    """``dy * (1 - y) * y`` of the result y."""
    rest = low.float_pointwise(M.SUB, low.tensor(1.0, DataType.FLOAT), y)
    return low.typed(low.float_pointwise(M.MUL, dy, low.float_pointwise(M.MUL, rest, y)))


@lowers(aten.tanh_backward.default)
def tanh_backward(low: Lowering, dy: Tensor, y: Tensor) -> Tensor:
    """``dy * (1 - y * y)`` of the result y."""
    square = low.float_pointwise(M.MUL, y, y)
    return low.typed(
        low.float_pointwise(M.MUL, dy, low.float_pointwise(M.SUB, low.tensor(1.0, DataType.FLOAT), square))
    )


@lowers(aten._softmax_backward_data.default)
def softmax_backward(low: Lowering, dy: Tensor, y: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """``y * (dy - sum(dy * y))``."""
    compute = low.arithmetic(DataType.FLOAT, dy.get_data_type())
    total = reduced(low, low.float_pointwise(M.MUL, dy, y), ReductionOperator.ADD, [dim], compute)
    return low.typed(low.float_pointwise(M.MUL, y, low.float_pointwise(M.SUB, dy, total)))


@lowers(aten._log_softmax_backward_data.default)
def log_softmax_backward(low: Lowering, dy: Tensor, y: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """``dy - exp(y) * sum(dy)``."""
    compute = low.arithmetic(DataType.FLOAT, dy.get_data_type())
    total = reduced(low, dy, ReductionOperator.ADD, [dim], compute)
    return low.typed(low.float_pointwise(M.SUB, dy, low.float_pointwise(M.MUL, low.float_pointwise(M.EXP, y), total)))


@lowers(aten.native_batch_norm_backward.default)
def batch_norm_backward(
    low: Lowering, dy: Tensor, x: Tensor, weight: Tensor | None, running_mean: Tensor | None,
    running_variance: Tensor | None, mean: Tensor | None, deviation: Tensor | None, train: bool, eps: float,
    output_mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """``[dx, dweight, dbias]`` from the statistics of the batch."""
    if not train or weight is None or mean is None or deviation is None:
        raise low.refuse(
            "train", train, "True, with a weight", "the operation NORM_BACKWARD reads the statistics of the batch",
            "leave the operator to PyTorch",
        )  # fmt: skip
    dim = [1, x.get_dim()[1], *[1] * (len(x.get_dim()) - 2)]
    scale, means, deviations = (low.view(t, dim) for t in (weight, mean, deviation))
    found = low.graph.batchnorm_backward(dy, x, scale, means, deviations, name=low.node.name)
    return _gradients(low, found, output_mask)


def _gradients(low: Lowering, found: Sequence[Tensor | None], output_mask: Sequence[bool]) -> list[Tensor | None]:
    """Gradients with the extents and types of PyTorch's."""
    made: list[Tensor | None] = []
    for tensor, fake, is_wanted in zip(found, low.results(), output_mask, strict=True):
        made.append(low.typed(tensor, fake) if tensor is not None and is_wanted else None)
    return made


@lowers(aten.native_layer_norm_backward.default)
def layer_norm_backward(
    low: Lowering, dy: Tensor, x: Tensor, shape: Sequence[int], mean: Tensor, deviation: Tensor, weight: Tensor | None,
    bias: Tensor | None, output_mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """``[dx, dweight, dbias]``."""
    if weight is None:
        raise low.refuse("weight", None, "a tensor", "the operation NORM_BACKWARD has a scale", "use a weight")
    dims, width = x.get_dim(), prod(shape)
    rows = prod(dims) // width
    gradient, values = low.view(dy, [rows, width]), low.view(x, [rows, width])
    scale, means, deviations = low.view(weight, [1, width]), low.view(mean, [rows, 1]), low.view(deviation, [rows, 1])
    found = low.graph.layernorm_backward(gradient, values, scale, means, deviations, name=low.node.name)
    return _gradients(low, found, output_mask)


@lowers(max_pool_gradient)
def max_pool_backward(
    low: Lowering, dy: Tensor, x: Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int],
) -> Tensor:  # fmt: skip
    """Each gradient goes to the first maximum of its window."""
    axes = len(x.get_dim()) - 2
    steps = each_axis(stride, axes) if stride else each_axis(window, axes)
    size, before = each_axis(window, axes), each_axis(padding, axes)
    spatial = zip(x.get_dim()[2:], dy.get_dim()[2:], size, steps, before, strict=True)
    after = [max(0, (q - 1) * step + n - extent - p) for extent, q, n, step, p in spatial]
    dx = low.graph.resample_backward(dy, ResampleMode.MAXPOOL, size, steps, before, after, x=x, name=low.node.name)
    return low.typed(dx.set_dim(x.get_dim()))


@lowers(aten.avg_pool2d_backward.default)
def avg_pool_backward(
    low: Lowering, dy: Tensor, x: Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    if ceil_mode or divisor_override is not None:
        raise low.refuse(
            "ceil_mode, divisor_override", (ceil_mode, divisor_override), "False and None",
            "an average is divided by the extent of its window", "leave the operator to PyTorch",
        )  # fmt: skip
    axes = len(x.get_dim()) - 2
    size, before = each_axis(window, axes), each_axis(padding, axes)
    is_excluded = any(before) and not count_include_pad
    mode = ResampleMode.AVGPOOL_EXCLUDE_PADDING if is_excluded else ResampleMode.AVGPOOL_INCLUDE_PADDING
    steps = each_axis(stride, axes) if stride else size
    dx = low.graph.resample_backward(dy, mode, size, steps, before, name=low.node.name)
    return low.typed(dx.set_dim(x.get_dim()))


ELEMENTWISE = frozenset({
    aten.silu_backward.default, aten.threshold_backward.default, aten.leaky_relu_backward.default,
    aten.hardtanh_backward.default, aten.hardsigmoid_backward.default, aten.hardswish_backward.default,
    aten.gelu_backward.default, aten.sigmoid_backward.default, aten.tanh_backward.default,
})  # fmt: skip
