"""The requirements of the Winograd engines."""

from __future__ import annotations

from graphdnn.checks import Each, Equals, OneOf
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import convolution_of, is_convolution, problem_need
from graphdnn.engines.cuda.winograd.winograd_layout import TAPS
from graphdnn.engines.engine import Task, kind_need, need, needs_rule
from graphdnn.enums import DataType
from graphdnn.operations import ConvBackwardData, ConvForward
from graphdnn.rules import Constraint

_STORED = (DataType.FLOAT, DataType.HALF, DataType.BFLOAT16)


def winograd_needs(name: str) -> tuple[Constraint, ...]:
    def operands(task: Task) -> tuple[DataType, ...]:
        return tuple(t.data_type for t in convolution_of(task).inputs().values())

    return (
        needs_rule(f"{name}.operation", "conv"),
        kind_need(
            f"{name}.direction",
            "operation",
            lambda task: task.op.main.tag,
            OneOf(ConvForward.tag, ConvBackwardData.tag),
            reason="the filter's gradient has another transform",
            fix="nothing to do: another engine serves this operation",
            when=is_convolution,
        ),
        problem_need(
            name,
            "filter",
            Equals((TAPS, TAPS)),
            reason="the transforms are those of two-dimensional filters of three taps",
            fix="nothing to do: another engine serves this filter",
        ),
        *(
            problem_need(
                name,
                field,
                Each(Equals(1)),
                reason="neighbouring results share inputs only at distance one",
                fix="nothing to do: another engine serves this convolution",
            )
            for field in ("stride", "dilation")
        ),
        problem_need(
            name,
            "groups",
            Equals(1),
            reason="a group has too few channels for the transforms to pay",
            fix="nothing to do: another engine serves groups",
            attribute="w.dims[1]",
        ),
        need(
            f"{name}.operands",
            "data_type",
            operands,
            Each(OneOf(*_STORED)),
            reason="transforms and products run in fp32",
            fix="use FLOAT, HALF or BFLOAT16 operands",
            when=is_convolution,
        ),
        need(
            f"{name}.compute_type",
            "conv.compute_type",
            lambda task: task.op.main.compute_type,
            OneOf(*_STORED),
            reason="transforms and products run in fp32",
            fix="use FLOAT",
            when=is_convolution,
        ),
    )
