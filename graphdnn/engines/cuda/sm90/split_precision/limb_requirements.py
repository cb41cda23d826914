"""Requirements of the split-precision engines for fprop and dgrad."""

from __future__ import annotations

from collections.abc import Callable

from graphdnn.checks import Equals
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    direction_need,
    is_convolution,
    problem_of,
    prologue_need,
)
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.sm90_requirements import (
    capability_need,
    im2col_needs,
    is_wgrad,
    types_and_sum,
    types_of,
)
from graphdnn.engines.cuda.sm90.split_precision.limb_schemes import LimbScheme, limb_scheme_of
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT
from graphdnn.engines.engine import Task, kind_need, need, needs_rule
from graphdnn.rules import Constraint

_TYPES = {
    False: "integers up to 32 bits, one wider than a byte, with INT32; integers up to 16 bits with INT64",
    True: "operands of FLOAT with FLOAT",
}


def _scheme(task: Task) -> LimbScheme | None:
    return limb_scheme_of(*types_of(task), task.op.main.compute_type)


def _types(task: Task) -> str:
    im2col, dense, compute = types_and_sum(task)
    return f"{im2col.name}, {dense.name} with {compute.name}"


def _crosses_groups(task: Task) -> bool:
    scheme = _scheme(task)
    assert scheme is not None
    return problem_of(task).groups > 1 and gemm_problem_of(task.op).channels % scheme.channels != 0


def _begins_inside(task: Task) -> bool:
    """Whether a group's channels begin at an address that TMA cannot copy from."""
    group = gemm_problem_of(task.op).channels * ELEMENTS[types_of(task)[0]].bytes
    return problem_of(task).groups > 1 and group % ALIGNMENT != 0


def _groups_need(prefix: str, condition: Callable[[Task], bool], is_float: bool) -> Constraint:
    """Integer blocks may cross groups: the filter's limbs are zero there, and no integer is infinite."""
    if is_float:
        expected = "groups of channels that fill whole blocks of a stage"
        reason = "a block that reaches into the next group would multiply its infinities with zeros"
    else:
        expected = f"groups of channels that begin at multiples of {ALIGNMENT} bytes"
        reason = f"im2col copies of an image begin at multiples of {ALIGNMENT} bytes"
    declines = _crosses_groups if is_float else _begins_inside
    return need(
        f"{prefix}.groups",
        "w.dims",
        lambda task: gemm_problem_of(task.op).channels,
        Equals(expected),
        reason=reason,
        fix="nothing to do: another engine serves narrow groups",
        when=lambda task: condition(task) and declines(task),
    )


def limb_needs(prefix: str, *, is_float: bool) -> tuple[Constraint, ...]:
    """The constraints of an engine; their ids begin with ``prefix``."""

    def is_served(task: Task) -> bool:
        scheme = _scheme(task)
        return scheme is not None and scheme.is_float == is_float

    def when_served(task: Task) -> bool:
        return is_convolution(task) and not is_wgrad(task) and is_served(task)

    return (
        needs_rule(f"{prefix}.operation", "conv"),
        capability_need(prefix, is_convolution),
        direction_need(
            prefix,
            "conv_fprop or conv_dgrad",
            "both operands of a filter gradient are MN-major",
            is_wgrad,
        ),
        kind_need(
            f"{prefix}.types",
            "data_type",
            _types,
            Equals(_TYPES[is_float]),
            reason="the engine has split-precision schemes for these types only",
            fix="nothing to do: another engine serves other types",
            when=lambda task: is_convolution(task) and not is_served(task),
        ),
        prologue_need(prefix, is_convolution),
        *im2col_needs(prefix, when_served),
        _groups_need(prefix, when_served, is_float),
    )
