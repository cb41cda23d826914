"""What the engine that reads filters across the summed axis asks of a data gradient."""

from __future__ import annotations

from graphdnn.checks import Equals, OneOf
from graphdnn.engines.cuda.generator.convolution_needs import is_convolution, roles_of
from graphdnn.engines.cuda.generator.tensor_cores import TF32_PAIRS
from graphdnn.engines.cuda.hopper.gemm import sizes_of
from graphdnn.engines.cuda.hopper.needs import hopper_needs, types_of
from graphdnn.engines.engine import Task, kind_need, need
from graphdnn.rules import Constraint

_NAME = "cuda_hopper_across"


def _is_multiplied(task: Task) -> bool:
    return is_convolution(task) and types_of(task) in TF32_PAIRS


def _is_gradient(task: Task) -> bool:
    return _is_multiplied(task) and roles_of(task).direction == "dgrad" and roles_of(task).problem.groups == 1


NEEDS: tuple[Constraint, ...] = (
    *hopper_needs(_NAME, TF32_PAIRS),
    kind_need(
        f"{_NAME}.direction",
        "operation",
        lambda task: roles_of(task).direction,
        OneOf("dgrad"),
        reason="only the filters of a data gradient lie across the summed axis",
        fix="nothing to do: another engine serves the other directions",
        when=_is_multiplied,
    ),
    need(
        f"{_NAME}.pixels",
        "dx.strides",
        lambda task: sizes_of(task.op).may_be_turned,
        Equals(True),
        reason="the pixels of all images are columns of one product: they lie in a row, channels next to each other",
        fix="nothing to do: another engine serves other layouts and strides",
        when=_is_gradient,
    ),
)
