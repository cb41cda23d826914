"""The gradient of a maximum pooling from its input, in place of PyTorch's, which reads 64-bit indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

aten = torch.ops.aten


@torch.library.custom_op("graphdnn::max_pool2d_gradient", mutates_args=())
def _max_pool2d_gradient(
    dy: torch.Tensor, x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> torch.Tensor:
    """What PyTorch executes where the library does not serve the operator."""
    rest = (list(window), list(stride), list(padding), [1, 1], _is_ceiled(dy, x, window, stride, padding))
    indices = aten.max_pool2d_with_indices(x, *rest)[1]
    return aten.max_pool2d_with_indices_backward(dy, x, *rest, indices)


@_max_pool2d_gradient.register_fake
def _(
    dy: torch.Tensor, x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> torch.Tensor:
    return torch.empty_like(x)


def _is_ceiled(dy: Any, x: Any, window: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> bool:
    """Whether the number of windows was rounded up."""
    size = list(window) * 2 if len(window) == 1 else list(window)
    step = (list(stride) * 2 if len(stride) == 1 else list(stride)) or size
    before = list(padding) * 2 if len(padding) == 1 else list(padding)
    floors = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(x.shape[-2:], before, size, step, strict=True)]
    return list(dy.shape[-2:]) != floors


max_pool_gradient = torch.ops.graphdnn.max_pool2d_gradient.default


def _decomposed(
    dy: Any, x: Any, window: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Any
) -> Any:
    """The gradient without its indices, which the forward graph then does not compute."""
    if any(d != 1 for d in dilation) or x.dim() != 4:
        return NotImplemented
    return torch.ops.graphdnn.max_pool2d_gradient(dy, x, window, stride or window, padding)


DECOMPOSITIONS = {aten.max_pool2d_with_indices_backward.default: _decomposed}
