"""Requirements of the weight-stationary convolution."""

from __future__ import annotations

from graphdnn.checks import Equals
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_PAIRS
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    direction_need,
    is_convolution,
    problem_need,
    problem_of,
    prologue_need,
)
from graphdnn.engines.cuda.sm90.sm90_requirements import channels_last_need, gemm_needs, im2col_box_needs, types_of
from graphdnn.engines.cuda.sm90.weight_stationary.weight_stationary_shape import shape_of
from graphdnn.engines.cuda.sm90.weight_stationary.weight_stationary_tiles import TILE, choose
from graphdnn.engines.engine import Task, image_need
from graphdnn.operations import ConvForward
from graphdnn.rules import Constraint

_NAME = "cuda_hopper_weight_stationary"


def _has_served_types(task: Task) -> bool:
    return is_convolution(task) and types_of(task) in EXACT_PAIRS


def _is_forward(task: Task) -> bool:
    return _has_served_types(task) and isinstance(task.op.anchor, ConvForward)


def _is_one_gemm(task: Task) -> bool:
    return _is_forward(task) and problem_of(task).groups == 1


def _fits(task: Task) -> bool:
    return choose(shape_of(task.op), task.device, {TILE.type: TILE.default}) is not None


NEEDS: tuple[Constraint, ...] = (
    *gemm_needs(_NAME, EXACT_PAIRS, _has_served_types),
    direction_need(
        _NAME,
        ConvForward.tag,
        "only in forward convolutions the filter is K-major for every type",
        lambda task: _has_served_types(task) and not _is_forward(task),
    ),
    problem_need(
        _NAME,
        "groups",
        Equals(1),
        reason="a CTA keeps the filters of one group",
        fix="nothing to do: another engine serves groups",
        when=_is_forward,
        attribute="w.dims",
    ),
    prologue_need(_NAME, is_convolution),
    *im2col_box_needs(_NAME, _is_forward),
    channels_last_need(_NAME, "y", _is_forward),
    image_need(
        f"{_NAME}.filter",
        "w.dims",
        lambda task: problem_of(task).w_extents,
        Equals("filters that leave shared memory for pixels"),
        reason="all taps and channels of at least 64 filters stay in shared memory, beside the stages of pixels",
        fix="nothing to do: another engine serves larger filters, and sums of more channels",
        when=lambda task: _is_one_gemm(task) and not _fits(task),
    ),
)
