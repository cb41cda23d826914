"""Pooling with windows, and to a given number of windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from graphdnn.builder.tensor import Tensor
from graphdnn.enums import ReductionOperator, ResampleMode
from graphdnn.torch.lowering import Lowering, lowers

aten = torch.ops.aten


def each_axis(values: Sequence[int], axes: int) -> list[int]:
    """One value for each spatial axis; PyTorch writes one value for all."""
    return list(values) * axes if len(values) == 1 else list(values)


def _pooled(
    low: Lowering, x: Tensor, mode: ResampleMode, window: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int] = (1,),
) -> Tensor:  # fmt: skip
    """The padding behind the last element is what the extents of the result need (``ceil_mode``)."""
    extents, wanted = x.get_dim(), list(low.results()[0].shape)
    axes = len(window)
    if len(extents) == axes + 1:
        x, wanted = low.view(x, [1, *extents]), [1, *wanted]
    if any(d != 1 for d in dilation):
        raise low.refuse(
            "dilation", list(dilation), "1", "a window of the library has no gaps", "leave the operator to PyTorch"
        )
    steps = each_axis(stride, axes) if stride else list(window)
    before = each_axis(padding, axes)
    spatial = zip(x.get_dim()[2:], wanted[2:], window, steps, before, strict=True)
    after = [max(0, (q - 1) * step + size - n - p) for n, q, size, step, p in spatial]
    y = low.graph.resample(x, mode, list(window), steps, before, after, name=low.node.name)[0]
    assert y is not None
    return low.view(low.typed(y.set_dim(wanted)), low.results()[0].shape)


@lowers(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def max_pool(
    low: Lowering, x: Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> list[Tensor | None]:  # fmt: skip
    axes = 3 if low.node.target is aten.max_pool3d_with_indices.default else 2
    window = each_axis(kernel_size, axes)
    return [_pooled(low, x, ResampleMode.MAXPOOL, window, stride, padding, dilation), None]


@lowers(aten.avg_pool2d.default, aten.avg_pool3d.default)
def avg_pool(
    low: Lowering, x: Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    axes = 3 if low.node.target is aten.avg_pool3d.default else 2
    window = each_axis(kernel_size, axes)
    if divisor_override is not None:
        raise low.refuse(
            "divisor_override", divisor_override, "None", "an average is divided by the extent of its window",
            "multiply the result",
        )  # fmt: skip
    if ceil_mode:
        raise low.refuse(
            "ceil_mode", True, "False", "PyTorch counts the padding in a last window in another way",
            "pad the input, or leave the operator to PyTorch",
        )  # fmt: skip
    is_padded = any(padding) and not count_include_pad
    mode = ResampleMode.AVGPOOL_EXCLUDE_PADDING if is_padded else ResampleMode.AVGPOOL_INCLUDE_PADDING
    return _pooled(low, x, mode, window, stride, padding)


@lowers(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool(low: Lowering, x: Tensor, output_size: Sequence[int]) -> Tensor:
    axes = len(output_size)
    extents = x.get_dim()[-axes:]
    if any(n % q for n, q in zip(extents, output_size, strict=True)):
        raise low.refuse(
            "output_size", list(output_size), f"divisors of the extents {extents}",
            "windows of one operation have equal extents", "leave the operator to PyTorch",
        )  # fmt: skip
    window = [n // q for n, q in zip(extents, output_size, strict=True)]
    if prod(output_size) == 1:
        kept = [*x.get_dim()[:-axes], *[1] * axes]
        compute = low.arithmetic(x.get_data_type())
        mean = low.graph.reduction(x, ReductionOperator.AVG, compute_data_type=compute, name=low.node.name)
        return low.typed(mean.set_dim(kept))
    return _pooled(low, x, ResampleMode.AVGPOOL_INCLUDE_PADDING, window, window, (0,))
