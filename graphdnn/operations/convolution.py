"""Convolution forward, backward data and backward filter: one problem, three roles.

The three operations share every shape rule; a class only says which of its
ports plays x, w and y. Formulas: output extent
``1 + floor((x + pre + post - dilation*(filter-1) - 1) / stride)`` per axis.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar

from graphdnn.attribute_names import AttributeName as A
from graphdnn.checks import AtLeast, Each, Equals, InRange, LengthIn, MultipleOf, OneOf
from graphdnn.dtypes import FP8
from graphdnn.enums import AttributeType as T
from graphdnn.enums import ConvolutionMode, DataType, DescriptorType, Status
from graphdnn.operations.base import Extents, Operation, compute_constraints, output_constraints
from graphdnn.operations.conv_problem import ConvProblem, output_extent
from graphdnn.rules import Constraint
from graphdnn.spec import ElementType, Float, Int64, Int64s, Spec, attr, port
from graphdnn.tensors import TensorSpec

COMPUTE_TYPES = (
    DataType.FLOAT,
    DataType.DOUBLE,
    DataType.HALF,
    DataType.BFLOAT16,
    DataType.FAST_FLOAT_FOR_FP8,
    DataType.INT32,
    DataType.INT64,
)


def _lengths(field: str) -> Constraint:
    return Constraint(
        id=f"convolution.{field}.length",
        attribute=field,
        look=lambda c: getattr(c, field),
        check=lambda c: LengthIn(c.spatial_dims, c.spatial_dims),
        reason="there is one entry per spatial axis, outermost first: (D,) H, W",
        fix="give as many entries as spatial_dims says",
    )


def _minimum(field: str, minimum: int, reason: str) -> Constraint:
    return Constraint(
        id=f"convolution.{field}.minimum",
        attribute=field,
        look=lambda c: getattr(c, field),
        check=Each(AtLeast(minimum)),
        reason=reason,
        fix=f"use {minimum} for a plain convolution",
    )


class ConvolutionSpec(Spec):
    """Parameters shared by the three convolution operations."""

    descriptor = DescriptorType.CONVOLUTION
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="convolution.spatial_dims",
                attribute="spatial_dims",
                look=lambda c: c.spatial_dims,
                check=InRange(1, 3),
                reason="spatial_dims is the number of spatial axes, not their extents: 2 for images, 3 for volumes",
                fix="use 1, 2 or 3",
            ),
        ),
        (
            _lengths("dilations"),
            _lengths("filter_strides"),
            _lengths("pre_paddings"),
            _lengths("post_paddings"),
            _minimum("dilations", 1, "1 means neighbouring taps"),
            _minimum("filter_strides", 1, "the window has to move"),
            _minimum("pre_paddings", 0, "padding adds zeros; cropping is a SLICE operation"),
            _minimum("post_paddings", 0, "padding adds zeros; cropping is a SLICE operation"),
        ),
    )

    compute_type: Annotated[
        ElementType, attr(A.CONVOLUTION_COMP_TYPE, T.DATA_TYPE, "the accumulation type", "FLOAT, or INT32 for integers")
    ]
    mode: Annotated[
        ConvolutionMode,
        attr(
            A.CONVOLUTION_CONV_MODE, T.CONVOLUTION_MODE, "CONVOLUTION or CROSS_CORRELATION",
            "deep learning uses CROSS_CORRELATION",
        ),
    ]  # fmt: skip
    spatial_dims: Annotated[
        Int64, attr(A.CONVOLUTION_SPATIAL_DIMS, T.INT64, "the number of spatial axes", "2 for images")
    ]
    dilations: Annotated[
        Int64s,
        attr(
            A.CONVOLUTION_DILATIONS,
            T.INT64,
            "one entry >= 1 per spatial axis",
            "give a number for each, e.g. [1, 1]",
            (1, 3),
        ),
    ]
    filter_strides: Annotated[
        Int64s,
        attr(
            A.CONVOLUTION_FILTER_STRIDES,
            T.INT64,
            "one entry >= 1 per spatial axis",
            "give a number for each, e.g. [1, 1]",
            (1, 3),
        ),
    ]
    pre_paddings: Annotated[
        Int64s,
        attr(
            A.CONVOLUTION_PRE_PADDINGS,
            T.INT64,
            "how many zeros come before each spatial axis",
            "give a number for each, e.g. [1, 1]",
            (1, 3),
        ),
    ]
    post_paddings: Annotated[
        Int64s,
        attr(
            A.CONVOLUTION_POST_PADDINGS,
            T.INT64,
            "how many zeros come after each spatial axis",
            "give a number for each, e.g. [1, 1]",
            (1, 3),
        ),
    ]


def _has_group_axis(x: TensorSpec, conv: ConvolutionSpec) -> bool:
    return len(x.extents) == conv.spatial_dims + 3


def _channels(op: "ConvolutionOperation") -> int:
    """Channels per group, which both group forms keep in the filter."""
    w = op.roles[1].extents
    return w[2] if _has_group_axis(op.roles[0], op.conv) else w[1]


def _filter(op: "ConvolutionOperation") -> Extents:
    return op.roles[1].extents[-op.conv.spatial_dims :]


def _spatial_output(x: Extents, w: Extents, conv: ConvolutionSpec) -> Extents:
    s = conv.spatial_dims
    sizes = zip(x[-s:], w[-s:], conv.pre_paddings, conv.post_paddings, conv.filter_strides, conv.dilations, strict=True)
    return tuple(output_extent(*axis) for axis in sizes)


_RANKS = (
    Constraint(
        id="conv.rank",
        attribute=lambda op: f"ranks of {', '.join(op.role_names)}",
        look=lambda op: tuple(len(t.extents) for t in op.roles),
        check=lambda op: OneOf(
            (op.conv.spatial_dims + 2,) * 3,
            (op.conv.spatial_dims + 3,) * 3,
        ),
        reason="x, w and y have one rank: [N, G*C, ...] with [G*K, C, ...], or [N, G, C, ...] with [G, K, C, ...]",
        fix="write all three tensors in one of the two forms; spatial_dims counts only D, H and W",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    ),
)

_GROUPS = (
    Constraint(
        id="conv.groups.divide_channels",
        attribute=lambda op: f"{op.role_names[0]}.dims[1]",
        look=lambda op: op.roles[0].extents[1],
        check=lambda op: MultipleOf(_channels(op)),
        when=lambda op: not _has_group_axis(op.roles[0], op.conv),
        reason="the group count is x's channels divided by the filter's, here w.dims[1]",
        fix="make the channels of x a multiple of w.dims[1]; extents are N, C, H, W also where the layout is NHWC",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    ),
    Constraint(
        id="conv.groups.divide_filters",
        attribute="w.dims[0]",
        look=lambda op: op.roles[1].extents[0],
        check=lambda op: MultipleOf(op.roles[0].extents[1] // _channels(op)),
        when=lambda op: not _has_group_axis(op.roles[0], op.conv) and op.roles[0].extents[1] % _channels(op) == 0,
        reason="the filters are divided evenly among the groups",
        fix="make w.dims[0] a multiple of the group count",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    ),
    Constraint(
        id="conv.groups.extents",
        attribute="dims",
        look=lambda op: (op.roles[0].extents[1], op.roles[1].extents[0], op.roles[2].extents[1]),
        check=lambda op: Equals((op.roles[1].extents[0],) * 3),
        when=lambda op: _has_group_axis(op.roles[0], op.conv),
        reason="with a group axis, x.dims[1], w.dims[0] and y.dims[1] all are the group count",
        fix="give the three tensors the same group extent; without a group axis, spatial_dims (how many paddings, "
        "strides and dilations there are) is the rank less 2",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    ),
    Constraint(
        id="conv.channels",
        attribute=lambda op: f"{op.role_names[0]}.dims[2]",
        look=lambda op: op.roles[0].extents[2],
        check=lambda op: Equals(op.roles[1].extents[2]),
        when=lambda op: _has_group_axis(op.roles[0], op.conv),
        reason="with a group axis, x.dims[2] and w.dims[2] both are the channels per group",
        fix="give x and w the same channel extent",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    ),
    Constraint(
        id="conv.filter.fits",
        attribute="w.dims",
        look=_filter,
        check=lambda op: Equals("a dilated filter no larger than the padded input"),
        when=lambda op: min(_spatial_output(op.roles[0].extents, op.roles[1].extents, op.conv)) < 1,
        reason="the filter does not fit into the padded input, so the output is empty",
        fix="pad more, dilate less, or use a smaller filter",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    ),
)


def _y_extents(op: "ConvolutionOperation") -> Extents:
    return forward_extents(op.roles[0].extents, op.roles[1].extents, op.conv)


_EXTENTS = (
    Constraint(
        id="conv.y.extents",
        attribute=lambda op: f"{op.role_names[2]}.dims",
        look=lambda op: op.roles[2].extents,
        check=lambda op: Equals(_y_extents(op)),
        reason="y is [N of x, K of w] and per axis 1 + floor((x + pre + post - dilation*(filter-1) - 1) / stride)",
        fix="use the expected extents",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    ),
)


def forward_extents(x: Extents, w: Extents, conv: ConvolutionSpec) -> Extents:
    """Extents of y in the group form of x and w."""
    if len(x) == conv.spatial_dims + 3:
        return (x[0], w[0], w[1], *_spatial_output(x, w, conv))
    return (x[0], w[0], *_spatial_output(x, w, conv))


class ConvolutionOperation(Operation):
    """What the three directions share; ``role_names`` says which ports play x, w and y."""

    role_names: ClassVar[tuple[str, str, str]]
    conv: ConvolutionSpec  # redeclared with its attribute row by each direction
    alpha: Float = 1.0
    beta: Float = 0.0

    @cached_property
    def roles(self) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
        """The tensors in the roles x, w, y of the forward convolution."""
        x, w, y = self.role_names
        return getattr(self, x), getattr(self, w), getattr(self, y)

    @property
    def compute_type(self) -> DataType:
        return self.conv.compute_type

    @property
    def reads_output(self) -> bool:
        return self.beta != 0.0

    @cached_property
    def problem(self) -> ConvProblem:
        """The geometry, groups made explicit."""
        (x, w, y), conv = [t.extents for t in self.roles], self.conv
        s = conv.spatial_dims
        if len(x) == s + 3:
            groups, k, c = w[:3]
        else:
            groups, c = x[1] // w[1], w[1]
            k = w[0] // groups
        return ConvProblem(
            n=x[0], groups=groups, c=c, k=k, input=x[-s:], filter=w[-s:], output=y[-s:],
            pre_padding=conv.pre_paddings, post_padding=conv.post_paddings, stride=conv.filter_strides,
            dilation=conv.dilations, flip=conv.mode is ConvolutionMode.CONVOLUTION,
        )  # fmt: skip

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        """Nothing for the gradients: several extents of x and w lead to one y, so the caller chooses them."""
        return {}


_OPERANDS = compute_constraints("conv", "conv.compute_type", COMPUTE_TYPES, lambda op: op.inputs())
_FP8_FAST = Constraint(
    id="conv.fast_float_for_fp8",
    attribute="conv.compute_type",
    look=lambda op: op.compute_type,
    check=OneOf(*(t for t in COMPUTE_TYPES if t is not DataType.FAST_FLOAT_FOR_FP8)),
    when=lambda op: op.compute_type in COMPUTE_TYPES and any(t.data_type not in FP8 for t in op.inputs().values()),
    reason="FAST_FLOAT_FOR_FP8 describes the accumulation of fp8 operands only",
    fix="use FLOAT",
    status=Status.NOT_SUPPORTED_DATA_TYPE,
)
_CONSTRAINTS = (_RANKS, _GROUPS, (*_EXTENTS, *_OPERANDS, _FP8_FAST, output_constraints("conv")))

_SCALAR = (T.FLOAT, T.DOUBLE)


def _alpha(name: A) -> Any:
    return attr(name, _SCALAR, "the factor of the result", "1.0")


def _beta(name: A) -> Any:
    return attr(name, _SCALAR, "the factor of the output's old contents", "0.0")


def _conv(name: A) -> Any:
    return attr(name, T.BACKEND_DESCRIPTOR, "a convolution descriptor", "give a finalized ConvolutionSpec")


class ConvForward(ConvolutionOperation):
    """y = alpha * conv(x, w) + beta * y."""

    descriptor = DescriptorType.OPERATION_CONVOLUTION_FORWARD
    tag = "conv_fprop"
    role_names = ("x", "w", "y")
    constraints = _CONSTRAINTS

    x: Annotated[TensorSpec, port(A.OPERATION_CONVOLUTION_FORWARD_X, "input", "[N, G*C, ...] or [N, G, C, ...]")]
    w: Annotated[TensorSpec, port(A.OPERATION_CONVOLUTION_FORWARD_W, "input", "[G*K, C, ...] or [G, K, C, ...]")]
    y: Annotated[TensorSpec, port(A.OPERATION_CONVOLUTION_FORWARD_Y, "output", "[N, G*K, ...] or [N, G, K, ...]")]
    conv: Annotated[ConvolutionSpec, _conv(A.OPERATION_CONVOLUTION_FORWARD_CONV_DESC)]
    alpha: Annotated[Float, _alpha(A.OPERATION_CONVOLUTION_FORWARD_ALPHA)] = 1.0
    beta: Annotated[Float, _beta(A.OPERATION_CONVOLUTION_FORWARD_BETA)] = 0.0

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        return {"y": forward_extents(fields["x"].extents, fields["w"].extents, fields["conv"])}


class ConvBackwardData(ConvolutionOperation):
    """dx = alpha * dgrad(dy, w) + beta * dx; conv holds the forward parameters."""

    descriptor = DescriptorType.OPERATION_CONVOLUTION_BACKWARD_DATA
    tag = "conv_dgrad"
    role_names = ("dx", "w", "dy")
    constraints = _CONSTRAINTS

    w: Annotated[TensorSpec, port(A.OPERATION_CONVOLUTION_BWD_DATA_W, "input", "the filter, as forward")]
    dy: Annotated[TensorSpec, port(A.OPERATION_CONVOLUTION_BWD_DATA_DY, "input", "gradient of y")]
    dx: Annotated[
        TensorSpec, port(A.OPERATION_CONVOLUTION_BWD_DATA_DX, "output", "gradient of x; its extents are chosen")
    ]
    conv: Annotated[ConvolutionSpec, _conv(A.OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC)]
    alpha: Annotated[Float, _alpha(A.OPERATION_CONVOLUTION_BWD_DATA_ALPHA)] = 1.0
    beta: Annotated[Float, _beta(A.OPERATION_CONVOLUTION_BWD_DATA_BETA)] = 0.0


class ConvBackwardFilter(ConvolutionOperation):
    """dw = alpha * wgrad(x, dy) + beta * dw; conv holds the forward parameters."""

    descriptor = DescriptorType.OPERATION_CONVOLUTION_BACKWARD_FILTER
    tag = "conv_wgrad"
    role_names = ("x", "dw", "dy")
    constraints = _CONSTRAINTS

    x: Annotated[TensorSpec, port(A.OPERATION_CONVOLUTION_BWD_FILTER_X, "input", "the forward input")]
    dy: Annotated[TensorSpec, port(A.OPERATION_CONVOLUTION_BWD_FILTER_DY, "input", "gradient of y")]
    dw: Annotated[
        TensorSpec, port(A.OPERATION_CONVOLUTION_BWD_FILTER_DW, "output", "gradient of w; its extents are chosen")
    ]
    conv: Annotated[ConvolutionSpec, _conv(A.OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC)]
    alpha: Annotated[Float, _alpha(A.OPERATION_CONVOLUTION_BWD_FILTER_ALPHA)] = 1.0
    beta: Annotated[Float, _beta(A.OPERATION_CONVOLUTION_BWD_FILTER_BETA)] = 0.0
