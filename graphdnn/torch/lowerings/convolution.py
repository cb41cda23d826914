"""Convolutions of one to three axes, also transposed, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from graphdnn.builder.tensor import Tensor
from graphdnn.enums import DataType, ReductionOperator
from graphdnn.enums import PointwiseMode as M
from graphdnn.torch.lowering import Lowering, lowers

aten = torch.ops.aten


@lowers(aten.convolution.default)
def convolution(
    low: Lowering, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    """The number of groups follows from the channels of ``x`` and of ``weight``."""
    compute = low.arithmetic(x.get_data_type())
    weight = _channels_last_filter(low, weight)
    geometry = list(padding), list(stride), list(dilation)
    method = low.graph.conv_dgrad if transposed else low.graph.conv_fprop
    y = method(x, weight, *geometry, compute_data_type=compute, name=low.node.name)
    if transposed:
        y.set_dim(list(low.result.shape))
    _set_layout(low, y)
    if bias is None:
        return low.typed(y)
    y.set_data_type(compute)
    return low.typed(low.pointwise(M.ADD, y, low.channels(bias, len(x.get_dim())), compute=compute))


def _channels_last_filter(low: Lowering, weight: Tensor) -> Tensor:
    """A filter whose layout is changed once, if it is a parameter and the kernels read channels."""
    fake = low.node.args[1].meta["val"]
    if not low.prefers_channels_last or fake.dtype not in _HALVES or fake.dim() not in _FORMATS:
        return weight
    found = low.arguments.prepared(_FORMATS[fake.dim()], (weight,), _FORMATS[fake.dim()](fake))
    return weight if found is None else found


_HALVES = (torch.float16, torch.bfloat16)
_FORMATS = {
    4: partial(torch.Tensor.contiguous, memory_format=torch.channels_last),
    5: partial(torch.Tensor.contiguous, memory_format=torch.channels_last_3d),
}  # by the rank of the filter


def _set_layout(low: Lowering, y: Tensor) -> None:
    """Channels last for half precision on a GPU, whose tensor cores read channels; else as PyTorch has them."""
    if low.prefers_channels_last and low.results()[0].dtype in _HALVES:
        y.set_stride(low.channels_last(low.result.shape))


@lowers(aten.convolution_backward.default)
def convolution_backward(
    low: Lowering, dy: Tensor, x: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    output_mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """``[dx, dw, dbias]``. Of a transposed convolution dx is a convolution of dy, and dw exchanges x and dy."""
    compute = low.arithmetic(dy.get_data_type())
    geometry = list(padding), list(stride), list(dilation)
    name, fakes, graph = low.node.name, low.results(), low.graph
    made: list[Tensor | None] = [None, None, None]
    if output_mask[0] and low.is_read(0):
        method = graph.conv_fprop if transposed else graph.conv_dgrad
        dx = method(dy, weight, *geometry, compute_data_type=compute, name=f"{name}::dx")
        made[0] = low.typed(dx.set_dim(list(fakes[0].shape)), fakes[0])
    if output_mask[1] and low.is_read(1):
        image, loss = (dy, x) if transposed else (x, dy)
        dw = graph.conv_wgrad(image, loss, *geometry, compute_data_type=compute, name=f"{name}::dw")
        made[1] = low.typed(dw.set_dim(list(fakes[1].shape)), fakes[1])
    if output_mask[2] and low.is_read(2):
        made[2] = _channel_sums(low, dy, compute)
    return made


def _channel_sums(low: Lowering, dy: Tensor, compute: DataType) -> Tensor:
    channels, rank = dy.get_dim()[1], len(dy.get_dim())
    sums = low.graph.reduction(dy, ReductionOperator.ADD, compute_data_type=compute, name=f"{low.node.name}::dbias")
    sums.set_dim([1, channels, *[1] * (rank - 2)])
    return low.typed(sums, low.results()[2])
