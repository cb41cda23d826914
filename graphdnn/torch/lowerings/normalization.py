"""Batch, layer and group normalization."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from graphdnn.builder.tensor import Tensor
from graphdnn.enums import DataType, NormPhase, ReductionOperator
from graphdnn.enums import PointwiseMode as M
from graphdnn.torch.lowering import Lowering, lowers

aten = torch.ops.aten


@lowers(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(
    low: Lowering, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    momentum: float, eps: float,
) -> list[Tensor | None]:  # fmt: skip
    """``(x - mean) * rsqrt(variance + eps) * weight + bias``, in the type of the arithmetic."""
    rank = len(x.get_dim())
    dim = [1, x.get_dim()[1], *[1] * (rank - 2)]
    folded = None
    if weight is not None and bias is not None:
        folded = low.arguments.folded((weight, bias, mean, variance), eps, dim)
    if folded is not None:
        return [low.typed(low.float_pointwise(M.ADD, low.float_pointwise(M.MUL, x, folded[0]), folded[1])), None, None]
    centered = low.float_pointwise(M.SUB, x, low.channels(mean, rank))
    deviation = low.float_pointwise(M.ADD, low.channels(variance, rank), eps)
    y = low.float_pointwise(M.MUL, centered, low.float_pointwise(M.RSQRT, deviation))
    return [_affine(low, y, weight, bias, dim), None, None]


def _affine(low: Lowering, y: Tensor, weight: Tensor | None, bias: Tensor | None, dim: Sequence[int]) -> Tensor:
    for mode, operand in ((M.MUL, weight), (M.ADD, bias)):
        if operand is not None:
            y = low.float_pointwise(mode, y, low.view(operand, dim))
    return low.typed(y)


@lowers(aten._native_batch_norm_legit_functional.default)
def batch_norm_training(
    low: Lowering, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    training: bool, momentum: float, eps: float,
) -> list[Tensor | None]:  # fmt: skip
    """``[y, mean, 1 / deviation, next running mean, next running variance]``."""
    if weight is None or bias is None or not training:
        raise low.refuse(
            "weight, bias, training", (weight is not None, bias is not None, training), "all three",
            "the operation NORM_FORWARD in the phase TRAINING has a scale and a bias", "use affine=True",
        )  # fmt: skip
    dim = [1, x.get_dim()[1], *[1] * (len(x.get_dim()) - 2)]
    kind = low.arithmetic(DataType.FLOAT, x.get_data_type())
    numbers = [low.graph.tensor_scalar(value, kind) for value in (eps, momentum)]
    scale, offset, running_mean, running_variance = (low.view(t, dim) for t in (weight, bias, mean, variance))
    found = low.graph.batchnorm(
        x, scale, offset, running_mean, running_variance, numbers[0], numbers[1], name=low.node.name
    )
    for tensor, fake in zip(found, low.results(), strict=True):
        assert tensor is not None
        low.typed(tensor, fake)
    return found


@lowers(aten.native_layer_norm.default)
def layer_norm(
    low: Lowering, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> list[Tensor | None]:
    if weight is None:
        raise low.refuse(
            "weight", None, "a tensor", "the operation NORM_FORWARD has a scale", "use elementwise_affine=True"
        )
    dims, fakes = x.get_dim(), low.results()
    rows, width = prod(dims[: len(dims) - len(shape)]), prod(shape)
    flat = low.view(x, [rows, width])
    epsilon = low.graph.tensor_scalar(eps, low.arithmetic(DataType.FLOAT, x.get_data_type()))
    reads_statistics = any(user.args[1] != 0 for user in low.node.users)
    phase = NormPhase.TRAINING if reads_statistics else NormPhase.INFERENCE
    y, mean, deviation = low.graph.layernorm(
        phase, flat, low.view(weight, [1, width]), None if bias is None else low.view(bias, [1, width]), epsilon,
        name=low.node.name,
    )  # fmt: skip
    assert y is not None
    found: list[Tensor | None] = [low.typed(y)]
    for tensor, fake in zip((mean, deviation), fakes[1:], strict=True):
        found.append(None if tensor is None else low.typed(tensor, fake))
    return found


@lowers(aten.native_group_norm.default)
def group_norm(
    low: Lowering, x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: int, channels: int, size: int,
    groups: int, eps: float,
) -> list[Tensor | None]:  # fmt: skip
    """Instance normalization of each group's elements; scale and bias of the channels follow."""
    if any(user.args[1] != 0 for user in low.node.users):
        raise low.refuse(
            "results", "mean and deviation", "y alone", "the statistics of a group have no lowering yet",
            "leave the operator to PyTorch",
        )  # fmt: skip
    dims = x.get_dim()
    compute = low.arithmetic(DataType.FLOAT, x.get_data_type())
    ungrouped = low.view(x, [batch, groups, channels // groups * size])
    kept = [batch, groups, 1]
    mean = (
        low.graph.reduction(ungrouped, ReductionOperator.AVG, compute_data_type=compute)
        .set_dim(kept)
        .set_data_type(compute)
    )
    centered = low.float_pointwise(M.SUB, ungrouped, mean)
    squares = low.float_pointwise(M.MUL, centered, centered)
    variance = (
        low.graph.reduction(squares, ReductionOperator.AVG, compute_data_type=compute)
        .set_dim(kept)
        .set_data_type(compute)
    )
    inverse = low.float_pointwise(M.RSQRT, low.float_pointwise(M.ADD, variance, eps))
    y = low.view(low.float_pointwise(M.MUL, centered, inverse), dims)
    return [_affine(low, y, weight, bias, [1, channels, *[1] * (len(dims) - 2)]), None, None]
