"""Reductions over axes, and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from graphdnn.builder.tensor import Tensor
from graphdnn.enums import DataType, ReductionOperator
from graphdnn.enums import PointwiseMode as M
from graphdnn.torch.lowering import Lower, Lowering, lowers

aten = torch.ops.aten

_MODES = {
    aten.mean.dim: ReductionOperator.AVG, aten.mean.default: ReductionOperator.AVG,
    aten.sum.dim_IntList: ReductionOperator.ADD, aten.sum.default: ReductionOperator.ADD,
    aten.amax.default: ReductionOperator.MAX, aten.amin.default: ReductionOperator.MIN,
}  # fmt: skip


def _lowering(mode: ReductionOperator) -> Lower:
    def lower(
        low: Lowering, x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Tensor:
        kind = low.data_type(low.result.dtype)
        return reduced(low, x, mode, dim, kind)

    return lower


for _operator, _mode in _MODES.items():
    lowers(_operator)(_lowering(_mode))


def reduced(low: Lowering, x: Tensor, mode: ReductionOperator, dim: Sequence[int] | None, kind: DataType) -> Tensor:
    """``x`` reduced over axes, which keep one element. No axes stand for all of them."""
    extents = x.get_dim()
    rank = len(extents)
    axes = {axis % rank for axis in (dim if dim else range(rank))}
    kept = [1 if axis in axes else n for axis, n in enumerate(extents)]
    compute = low.arithmetic(kind, x.get_data_type())
    if kept == extents:
        return low.pointwise(M.IDENTITY, x, compute=compute).set_data_type(kind)
    made = low.graph.reduction(x, mode, compute_data_type=compute, name=low.node.name)
    return made.set_dim(kept).set_data_type(kind)


@lowers(aten._softmax.default)
def softmax(low: Lowering, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    exponents, total = _exponentials(low, x, dim)[1:]
    return low.typed(low.float_pointwise(M.DIV, exponents, total))


@lowers(aten._log_softmax.default)
def log_softmax(low: Lowering, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """``(x - max) - log(sum(exp(x - max)))``."""
    shifted, _, total = _exponentials(low, x, dim)
    return low.typed(low.float_pointwise(M.SUB, shifted, low.float_pointwise(M.LOG, total)))


def _exponentials(low: Lowering, x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """``x - max``, its exponentials, and their sum over an axis."""
    compute = low.arithmetic(DataType.FLOAT, x.get_data_type())
    shifted = low.float_pointwise(M.SUB, x, reduced(low, x, ReductionOperator.MAX, [dim], compute))
    exponents = low.float_pointwise(M.EXP, shifted)
    return shifted, exponents, reduced(low, exponents, ReductionOperator.ADD, [dim], compute)
