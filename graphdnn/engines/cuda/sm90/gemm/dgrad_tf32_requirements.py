"""Requirements of the TF32 data gradient that reads MN-major filters."""

from __future__ import annotations

from graphdnn.checks import Equals
from graphdnn.engines.cuda.codegen.tensor_cores import TF32_PAIRS
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    direction_need,
    is_convolution,
    problem_need,
    prologue_need,
    roles_of,
)
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.sm90_requirements import MAX_RESIDUES, gemm_needs, im2col_needs, types_of
from graphdnn.engines.engine import Task, need
from graphdnn.operations import ConvBackwardData
from graphdnn.rules import Constraint

_NAME = "cuda_hopper_dgrad_tf32"


def _has_served_types(task: Task) -> bool:
    return is_convolution(task) and types_of(task) in TF32_PAIRS


def _is_dgrad(task: Task) -> bool:
    return _has_served_types(task) and roles_of(task).direction == "dgrad"


def _is_one_gemm(task: Task) -> bool:
    few = _is_dgrad(task) and len(gemm_problem_of(task.op).residues) <= MAX_RESIDUES
    return few and roles_of(task).problem.groups == 1


NEEDS: tuple[Constraint, ...] = (
    *gemm_needs(_NAME, TF32_PAIRS, _has_served_types),
    direction_need(
        _NAME,
        ConvBackwardData.tag,
        "only the filter of a data gradient is MN-major",
        lambda task: _has_served_types(task) and not _is_dgrad(task),
    ),
    prologue_need(_NAME, is_convolution),
    problem_need(
        _NAME,
        "groups",
        Equals(1),
        reason="the rows of the GEMM are the channels of one group",
        fix="nothing to do: another engine serves groups",
        when=_is_dgrad,
        attribute="w.dims",
    ),
    *im2col_needs(_NAME, _is_dgrad),
    need(
        f"{_NAME}.pixels",
        "dx.strides",
        lambda task: gemm_shape_of(task.op).may_swap_ab,
        Equals(True),
        reason="the pixels of all images are the columns of one GEMM, so they are one contiguous axis, channels last",
        fix="nothing to do: another engine serves other layouts and strides",
        when=_is_one_gemm,
    ),
)
