"""Resample: pooling and interpolation over the spatial axes of [N, C, spatial...].

Extents per spatial axis: ``1 + floor((x + pre + post - window) / stride)``, in
fractions, so that a stride of 1/2 upsamples twofold.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import floor, prod
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from graphdnn.attribute_names import AttributeName as A
from graphdnn.checks import AtLeast, Check, Each, Equals, InRange, LengthIn, OneOf, Present
from graphdnn.dtypes import ELEMENTS, INTEGERS
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType, DescriptorType, NanPropagation, PaddingMode, ResampleMode, Status, shown
from graphdnn.operations.base import (
    Extents,
    Operation,
    operand_constraint,
    output_constraints,
    same_rank,
)
from graphdnn.rules import Constraint
from graphdnn.scalars import listed, whole
from graphdnn.spec import ElementType, Float, Int64, Spec, attr, port, signed
from graphdnn.tensors import TensorSpec

_FLOAT_TYPES = (DataType.FLOAT, DataType.DOUBLE, DataType.HALF, DataType.BFLOAT16)
_INTEGER_TYPES = (DataType.INT32, DataType.INT64)
POOLING = (ResampleMode.MAXPOOL, ResampleMode.AVGPOOL_INCLUDE_PADDING, ResampleMode.AVGPOOL_EXCLUDE_PADDING)


_int64 = signed(64)  # as FRACTION has them


def _fraction(item: Any) -> Fraction:
    if isinstance(item, (bool, str)):
        raise ValueError(f"{type(item).__name__} is not a fraction")
    try:
        numerator, denominator = item if isinstance(item, (tuple, list)) else (item, 1)
        found = _ratio(numerator) / _ratio(denominator)
        return Fraction(_int64(found.numerator), _int64(found.denominator))
    except Exception:  # an object's own code among it
        wanted = "an integer, a Fraction nor a (numerator, denominator) pair"
        raise ValueError(f"{shown(item)} is neither {wanted}") from None


def _ratio(number: Any) -> Fraction:
    return Fraction(number) if isinstance(number, (Fraction, float)) else Fraction(whole(number))


def _fractions(value: Any) -> tuple[Fraction, ...]:
    return tuple(map(_fraction, listed(value, "a sequence of integers or fractions is wanted")))


Fractions = Annotated[tuple[Fraction, ...], BeforeValidator(_fractions)]
_RATIONAL = (T.INT64, T.FRACTION)
_ZEROS, _ONES, _TWOS = (f"e.g. {n} for each axis, as FRACTION ({n}, 1)" for n in range(3))


def _lengths(field: str) -> Constraint:
    return Constraint(
        id=f"resample.{field}.length",
        attribute=field,
        look=lambda r: getattr(r, field),
        check=lambda r: LengthIn(r.spatial_dims, r.spatial_dims),
        reason="there is one entry per spatial axis, outermost first",
        fix="give as many entries as spatial_dims says",
        status=Status.NOT_SUPPORTED,
    )


def _whole(field: str) -> Constraint:
    return Constraint(
        id=f"resample.{field}.whole",
        attribute=field,
        look=lambda r: tuple(map(str, getattr(r, field))),
        check=Equals("whole numbers"),
        when=lambda r: r.mode in POOLING and any(f.denominator != 1 for f in getattr(r, field)),
        reason="a pooling window covers whole elements",
        fix="use integers; fractions belong to NEAREST and BILINEAR",
    )


def _positive(field: str) -> Constraint:
    return Constraint(
        id=f"resample.{field}.positive",
        attribute=field,
        look=lambda r: tuple(map(str, getattr(r, field))),
        check=Equals("numbers above 0"),
        when=lambda r: any(f <= 0 for f in getattr(r, field)),
        reason="a window has at least one element, and a stride is at least one element",
        fix="use 1 for no change",
    )


def _not_negative(field: str) -> Constraint:
    return Constraint(
        id=f"resample.{field}.minimum",
        attribute=field,
        look=lambda r: getattr(r, field),
        check=Each(AtLeast(0)),
        reason="padding adds elements; cropping is a SLICE operation",
        fix="use 0 for none",
    )


class ResampleSpec(Spec):
    """Pooling or interpolation parameters, shared by forward and backward."""

    descriptor = DescriptorType.RESAMPLE
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="resample.spatial_dims",
                attribute="spatial_dims",
                look=lambda r: r.spatial_dims,
                check=InRange(1, 3),
                reason="spatial_dims is the number of spatial axes, not their extents",
                fix="use 1, 2 or 3",
            ),
            Constraint(
                id="resample.compute_type",
                attribute="compute_type",
                look=lambda r: r.compute_type,
                check=lambda r: OneOf(*_FLOAT_TYPES, *(_INTEGER_TYPES if r.mode is ResampleMode.MAXPOOL else ())),
                reason="averages and weights are fractions; only a maximum is exact in integers",
                fix="use FLOAT",
                status=Status.NOT_SUPPORTED_DATA_TYPE,
            ),
        ),
        tuple(_lengths(f) for f in ("strides", "pre_paddings", "post_paddings", "window_dims")),
        (
            *(_whole(f) for f in ("strides", "pre_paddings", "post_paddings", "window_dims")),
            _positive("strides"),
            _positive("window_dims"),
            _not_negative("pre_paddings"),
            _not_negative("post_paddings"),
            Constraint(
                id="resample.bilinear.window",
                attribute="window_dims",
                look=lambda r: tuple(map(str, r.window_dims)),
                check=lambda r: Equals(("2",) * r.spatial_dims),
                when=lambda r: r.mode is ResampleMode.BILINEAR,
                reason="linear interpolation reads two neighbours per axis",
                fix="use windows of 2",
                status=Status.NOT_SUPPORTED,
            ),
            Constraint(
                id="resample.padding_mode.average",
                attribute="padding_mode",
                look=lambda r: r.padding_mode,
                check=OneOf(PaddingMode.ZERO_PAD, PaddingMode.EDGE_VAL_PAD),
                when=lambda r: r.mode is not ResampleMode.MAXPOOL,
                reason="an average with minus infinity is minus infinity",
                fix="use ZERO_PAD; NEG_INF_PAD belongs to MAXPOOL",
            ),
        ),
    )

    mode: Annotated[
        ResampleMode, attr(A.RESAMPLE_MODE, T.RESAMPLE_MODE, "a ResampleMode", "e.g. ResampleMode.MAXPOOL")
    ] = ResampleMode.NEAREST
    compute_type: Annotated[
        ElementType, attr(A.RESAMPLE_COMP_TYPE, T.DATA_TYPE, "the type of the arithmetic", "DataType.FLOAT")
    ] = DataType.FLOAT
    nan_propagation: Annotated[
        NanPropagation,
        attr(A.RESAMPLE_NAN_PROPAGATION, T.NAN_PROPOGATION, "a NanPropagation", "PROPAGATE_NAN hands NaN on"),
    ] = NanPropagation.NOT_PROPAGATE_NAN
    spatial_dims: Annotated[Int64, attr(A.RESAMPLE_SPATIAL_DIMS, T.INT64, "the number of spatial axes", "2 for images")]
    padding_mode: Annotated[
        PaddingMode, attr(A.RESAMPLE_PADDING_MODE, T.PADDING_MODE, "a PaddingMode", "NEG_INF_PAD for MAXPOOL")
    ] = PaddingMode.ZERO_PAD
    strides: Annotated[Fractions, attr(A.RESAMPLE_STRIDES, _RATIONAL, "one stride per axis", _ONES, (1, 3))]
    pre_paddings: Annotated[Fractions, attr(A.RESAMPLE_PRE_PADDINGS, _RATIONAL, "one per axis", _ZEROS, (1, 3))]
    post_paddings: Annotated[Fractions, attr(A.RESAMPLE_POST_PADDINGS, _RATIONAL, "one per axis", _ZEROS, (1, 3))]
    window_dims: Annotated[Fractions, attr(A.RESAMPLE_WINDOW_DIMS, _RATIONAL, "one per axis", _TWOS, (1, 3))]


def resampled_extents(x: Extents, spec: ResampleSpec) -> Extents:
    """Extents of y for an x of [N, C, spatial...]."""
    axes = zip(x[2:], spec.pre_paddings, spec.post_paddings, spec.window_dims, spec.strides, strict=True)
    return (*x[:2], *(1 + floor((size + pre + post - window) / stride) for size, pre, post, window, stride in axes))


def _rank(prefix: str) -> Constraint:
    return Constraint(
        id=f"{prefix}.spatial_rank",
        attribute="dims",
        look=lambda op: op.full.rank,
        check=lambda op: Equals(op.spec.spatial_dims + 2),
        reason="tensors are [N, C, spatial...]",
        fix="correct spatial_dims, or add the batch and channel axes",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    )


def _extents(prefix: str) -> tuple[Constraint, ...]:
    return (
        Constraint(
            id=f"{prefix}.window.fits",
            attribute="spec.window_dims",
            look=lambda op: tuple(map(str, op.spec.window_dims)),
            check=Equals("a window no larger than the padded input"),
            when=lambda op: min(resampled_extents(op.full.extents, op.spec)) < 1,
            reason="no output position is left",
            fix="pad more or use a smaller window",
            status=Status.BAD_PARAM_SHAPE_MISMATCH,
        ),
        Constraint(
            id=f"{prefix}.y.extents",
            attribute=lambda op: f"{op.pooled_name}.dims",
            look=lambda op: op.pooled.extents,
            check=lambda op: Equals(resampled_extents(op.full.extents, op.spec)),
            when=lambda op: min(resampled_extents(op.full.extents, op.spec)) >= 1,
            reason="extents are 1 + floor((x + pre + post - window) / stride) per axis",
            fix="use the expected extents",
            status=Status.BAD_PARAM_SHAPE_MISMATCH,
        ),
        Constraint(
            id=f"{prefix}.index.mode",
            attribute="index",
            look=lambda op: op.spec.mode,
            check=OneOf(ResampleMode.MAXPOOL),
            when=lambda op: op.index is not None,
            reason="only a maximum comes from one position of the window",
            fix="leave the index unset",
        ),
        Constraint(
            id=f"{prefix}.index.extents",
            attribute="index.dims",
            look=lambda op: op.index.extents,
            check=lambda op: Equals(op.pooled.extents),
            when=lambda op: op.index is not None,
            reason="there is one index per output element",
            fix="give the index the extents of y",
            status=Status.BAD_PARAM_SHAPE_MISMATCH,
        ),
        Constraint(
            id=f"{prefix}.index.type",
            attribute="index.data_type",
            look=lambda op: op.index.data_type,
            check=lambda op: OneOf(
                *(t for t in INTEGERS if ELEMENTS[t].largest >= prod(map(int, op.spec.window_dims)) - 1)
            ),
            when=lambda op: op.index is not None,
            reason="the index is a position inside the window",
            fix="use an integer type that holds the window's size",
            status=Status.NOT_SUPPORTED_DATA_TYPE,
        ),
    )


class ResampleForward(Operation):
    """y = alpha * resample(x) + beta * y, with the positions of maxima in ``index`` on request."""

    descriptor = DescriptorType.OPERATION_RESAMPLE_FWD
    tag = "resample_fwd"
    pooled_name: ClassVar[str] = "y"
    constraints = (
        (same_rank("resample_fwd"), _rank("resample_fwd")),
        (
            *_extents("resample_fwd"),
            operand_constraint("resample_fwd", "spec.compute_type", lambda op: op.inputs()),
            output_constraints("resample_fwd"),
        ),
    )

    spec: Annotated[
        ResampleSpec,
        attr(A.OPERATION_RESAMPLE_FWD_DESC, T.BACKEND_DESCRIPTOR, "a resample descriptor", "a ResampleSpec"),
    ]
    x: Annotated[TensorSpec, port(A.OPERATION_RESAMPLE_FWD_XDESC, "input", "[N, C, spatial...]")]
    y: Annotated[TensorSpec, port(A.OPERATION_RESAMPLE_FWD_YDESC, "output", "[N, C, spatial...]")]
    index: Annotated[TensorSpec | None, port(A.OPERATION_RESAMPLE_FWD_IDXDESC, "output", "as y")] = None
    alpha: Annotated[
        Float, attr(A.OPERATION_RESAMPLE_FWD_ALPHA, (T.DOUBLE, T.FLOAT), "factor of the result", "1.0")
    ] = 1.0
    beta: Annotated[Float, attr(A.OPERATION_RESAMPLE_FWD_BETA, (T.DOUBLE, T.FLOAT), "factor of the old y", "0.0")] = 0.0

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        extents = resampled_extents(fields["x"].extents, fields["spec"])
        return {"y": extents, "index": extents}

    @property
    def full(self) -> TensorSpec:
        """The tensor before pooling."""
        return self.x

    @property
    def pooled(self) -> TensorSpec:
        return self.y

    @property
    def compute_type(self) -> DataType:
        return self.spec.compute_type

    @property
    def reads_output(self) -> bool:
        return self.beta != 0.0


def _sources(op: "ResampleBackward") -> Check | None:
    return Present() if op.spec.mode is ResampleMode.MAXPOOL and op.x is None else None


class ResampleBackward(Operation):
    """dx = alpha * resample_backward(dy) + beta * dx; a maximum is found by ``index``, or again from x."""

    descriptor = DescriptorType.OPERATION_RESAMPLE_BWD
    tag = "resample_bwd"
    pooled_name: ClassVar[str] = "dy"
    constraints = (
        (same_rank("resample_bwd"), _rank("resample_bwd")),
        (
            *_extents("resample_bwd"),
            Constraint(
                id="resample_bwd.maximum.source",
                attribute="index",
                look=lambda op: op.index,
                check=_sources,
                reason="the gradient of a maximum goes to the element that was largest",
                fix="give the index of the forward pass, or its input x",
            ),
            Constraint(
                id="resample_bwd.x.extents",
                attribute="x.dims",
                look=lambda op: op.x.extents,
                check=lambda op: Equals(op.dx.extents),
                when=lambda op: op.x is not None,
                reason="dx is the gradient of x",
                fix="give both the same extents",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            Constraint(
                id="resample_bwd.forward_output.extents",
                attribute="y.dims",
                look=lambda op: op.y.extents,
                check=lambda op: Equals(op.dy.extents),
                when=lambda op: op.y is not None,
                reason="dy is the gradient of y",
                fix="give both the same extents",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            operand_constraint("resample_bwd", "spec.compute_type", lambda op: op.inputs()),
            output_constraints("resample_bwd"),
        ),
    )

    spec: Annotated[
        ResampleSpec,
        attr(A.OPERATION_RESAMPLE_BWD_DESC, T.BACKEND_DESCRIPTOR, "a resample descriptor", "a ResampleSpec"),
    ]
    dx: Annotated[TensorSpec, port(A.OPERATION_RESAMPLE_BWD_DXDESC, "output", "gradient of x")]
    dy: Annotated[TensorSpec, port(A.OPERATION_RESAMPLE_BWD_DYDESC, "input", "gradient of y")]
    index: Annotated[TensorSpec | None, port(A.OPERATION_RESAMPLE_BWD_IDXDESC, "input", "as dy")] = None
    x: Annotated[TensorSpec | None, port(A.OPERATION_RESAMPLE_BWD_XDESC, "input", "the forward input")] = None
    y: Annotated[TensorSpec | None, port(A.OPERATION_RESAMPLE_BWD_YDESC, "input", "the forward output")] = None
    alpha: Annotated[
        Float, attr(A.OPERATION_RESAMPLE_BWD_ALPHA, (T.DOUBLE, T.FLOAT), "factor of the result", "1.0")
    ] = 1.0
    beta: Annotated[Float, attr(A.OPERATION_RESAMPLE_BWD_BETA, (T.DOUBLE, T.FLOAT), "factor of the old dx", "0.0")] = (
        0.0
    )

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        """Nothing: several extents of dx lead to one dy."""
        return {}

    @property
    def full(self) -> TensorSpec:
        return self.dx

    @property
    def pooled(self) -> TensorSpec:
        return self.dy

    @property
    def compute_type(self) -> DataType:
        return self.spec.compute_type

    @property
    def reads_output(self) -> bool:
        return self.beta != 0.0
