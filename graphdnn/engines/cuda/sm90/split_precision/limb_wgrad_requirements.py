"""Requirements of the split-precision engines for filter gradients."""

from __future__ import annotations

from graphdnn.checks import Equals, OneOf
from graphdnn.dtypes import FLOAT_COMPUTE
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import is_convolution, problem_of, prologue_need
from graphdnn.engines.cuda.sm90.sm90_requirements import (
    capability_need,
    im2col_box_needs,
    is_wgrad,
    types_and_sum,
    wgrad_need,
)
from graphdnn.engines.cuda.sm90.split_precision.limb_wgrad_schemes import integer_limbs_of
from graphdnn.engines.engine import Task, kind_need, need, needs_rule
from graphdnn.enums import DataType
from graphdnn.rules import Constraint

_GROUP_MULTIPLE = 8  # channels: 16 bytes of a bfloat16 limb


def _group(task: Task) -> tuple[int, int]:
    problem = problem_of(task)
    return problem.c, problem.k


def limb_wgrad_needs(prefix: str, types: Constraint) -> tuple[Constraint, ...]:
    """The constraints of an engine; their ids begin with ``prefix``."""
    return (
        needs_rule(f"{prefix}.operation", "conv"),
        capability_need(prefix, is_convolution),
        wgrad_need(prefix, "only a filter gradient has two MN-major operands"),
        types,
        prologue_need(prefix, is_wgrad),
        *im2col_box_needs(prefix, is_wgrad),
        need(
            f"{prefix}.groups",
            "dw.dims",
            _group,
            Equals(f"groups of channels that are multiples of {_GROUP_MULTIPLE}"),
            reason="im2col copies of an image begin at multiples of 16 bytes",
            fix="nothing to do: another engine serves narrow groups",
            when=lambda task: (
                is_wgrad(task) and problem_of(task).groups > 1 and any(c % _GROUP_MULTIPLE for c in _group(task))
            ),
        ),
    )


def floats_need(prefix: str) -> Constraint:
    return kind_need(
        f"{prefix}.types",
        "data_type",
        types_and_sum,
        OneOf(*((DataType.FLOAT, DataType.FLOAT, compute) for compute in FLOAT_COMPUTE)),
        reason="bfloat16 limbs represent an fp32 number, and sums are in fp32",
        fix="nothing to do: another engine serves other types",
        when=is_wgrad,
    )


def integers_need(prefix: str) -> Constraint:
    return kind_need(
        f"{prefix}.types",
        "data_type",
        types_and_sum,
        Equals("both operands bytes or both INT16, with INT32 or INT64"),
        reason="the engine has integer limb schemes for these types only",
        fix="nothing to do: another engine serves other types",
        when=lambda task: is_wgrad(task) and integer_limbs_of(*types_and_sum(task)) is None,
    )
