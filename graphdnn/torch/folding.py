"""Folded batch normalizations: factor and offset of each channel, computed from the parameters at each call.

``factor = weight / sqrt(variance + eps)``, ``offset = bias - mean * factor``. All normalizations of a segment are
computed together, by a handful of PyTorch's launches over lists of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from graphdnn.builder.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Fold:
    """A batch normalization of parameters.

    Args:
        arguments: The indices of weight, bias, mean and variance.
        eps: The number that is added to the variance.
        factor: The input of the graph for the factor, ``[1, C, 1, ...]``.
        offset: The input for the offset.
    """

    arguments: tuple[int, int, int, int]
    eps: float
    factor: Tensor
    offset: Tensor


class FoldedNorms:
    """The arrays of all folds of a segment.

    Args:
        folds: The normalizations.
        args: The arguments of a call.
    """

    def __init__(self, folds: Sequence[Fold], args: Sequence[Any]) -> None:
        self._folds = tuple(folds)
        self._eps = [fold.eps for fold in folds]
        self._factors, self._means, self._offsets, self._weights = (
            [_wide(args[fold.arguments[i]]) for fold in folds] for i in (3, 2, 1, 0)
        )
        self.update(args)

    def arrays(self) -> dict[int, Any]:
        """``{uid: tensor}`` of the factors and the offsets. ``update`` writes to the same tensors."""
        found = {}
        for fold, factor, offset in zip(self._folds, self._factors, self._offsets, strict=True):
            found[fold.factor.get_uid()] = factor.view(fold.factor.get_dim())
            found[fold.offset.get_uid()] = offset.view(fold.offset.get_dim())
        return found

    def update(self, args: Sequence[Any]) -> None:
        """Compute the arrays again from the parameters of a call."""
        lists = (self._weights, self._offsets, self._means, self._factors)  # in the order of ``Fold.arguments``
        with torch.no_grad():
            for i, buffers in enumerate(lists):
                torch._foreach_copy_(buffers, [args[fold.arguments[i]].detach() for fold in self._folds])
            torch._foreach_add_(self._factors, self._eps)
            torch._foreach_sqrt_(self._factors)
            torch._foreach_reciprocal_(self._factors)
            torch._foreach_mul_(self._factors, self._weights)
            torch._foreach_mul_(self._means, self._factors)
            torch._foreach_sub_(self._offsets, self._means)


def _wide(tensor: Any) -> Any:
    """An uninitialized tensor like this one, in fp32 at least."""
    return torch.empty_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32), requires_grad=False)
