"""What the engine that reads filters across the summed axis asks of a data gradient."""

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
from graphdnn.engines.cuda.sm90.conv_gemm_shape import sizes_of
from graphdnn.engines.cuda.sm90.sm90_requirements import MOST_RESIDUES, product_needs, types_of, walk_needs
from graphdnn.engines.engine import Task, need
from graphdnn.operations import ConvBackwardData
from graphdnn.rules import Constraint

_NAME = "cuda_hopper_dgrad_tf32"


def _is_multiplied(task: Task) -> bool:
    return is_convolution(task) and types_of(task) in TF32_PAIRS


def _is_gradient(task: Task) -> bool:
    return _is_multiplied(task) and roles_of(task).direction == "dgrad"


def _is_one_product(task: Task) -> bool:
    few = _is_gradient(task) and len(gemm_problem_of(task.op).residues) <= MOST_RESIDUES
    return few and roles_of(task).problem.groups == 1


NEEDS: tuple[Constraint, ...] = (
    *product_needs(_NAME, TF32_PAIRS, _is_multiplied),
    direction_need(
        _NAME,
        ConvBackwardData.tag,
        "only the filters of a data gradient lie across the summed axis",
        lambda task: _is_multiplied(task) and not _is_gradient(task),
    ),
    prologue_need(_NAME, is_convolution),
    problem_need(
        _NAME,
        "groups",
        Equals(1),
        reason="rows of the product are the channels of one group",
        fix="nothing to do: another engine serves groups",
        when=_is_gradient,
        attribute="w.dims",
    ),
    *walk_needs(_NAME, _is_gradient),
    need(
        f"{_NAME}.pixels",
        "dx.strides",
        lambda task: sizes_of(task.op).may_be_turned,
        Equals(True),
        reason="all images' pixels are columns of one product: they lie in a row, with channels next to each other",
        fix="nothing to do: another engine serves other layouts and strides",
        when=_is_one_product,
    ),
)
