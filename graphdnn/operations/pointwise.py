"""Pointwise operations: any mode of the header over broadcast operands.

Forward modes write y, backward modes write dx. What a mode needs and computes
is its row in ``graphdnn.operations.pointwise_modes``; nothing here knows a mode by name.
"""

from collections.abc import Mapping
from math import inf, isfinite, isnan
from typing import Annotated, Any, ClassVar

from graphdnn.attribute_names import AttributeName as A
from graphdnn.checks import Equals, InRange, OneOf
from graphdnn.dtypes import BOOLEANS, COMPUTE, INTEGER_COMPUTE
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType, DescriptorType, NanPropagation, PointwiseMode, Status
from graphdnn.escaped import escaped
from graphdnn.operations.base import (
    Extents,
    Operation,
    extents_constraint,
    operand_constraint,
    output_constraints,
    same_rank,
)
from graphdnn.operations.pointwise_modes import POINTWISE, Pointwise
from graphdnn.rules import Constraint
from graphdnn.spec import ElementType, Float, Int64, Spec, attr, port
from graphdnn.tensors import TensorSpec

_REAL = (T.DOUBLE, T.FLOAT)
_PARAMETER_DEFAULTS = {
    "relu_lower_clip": 0.0,
    "relu_upper_clip": inf,
    "relu_lower_clip_slope": 0.0,
    "elu_alpha": 1.0,
    "softplus_beta": 1.0,
    "swish_beta": 1.0,
    "axis": -1,
}
_BOOLEAN_KINDS = ("logical", "comparison", "select")


def _unused(spec: "PointwiseSpec") -> dict[str, float]:
    used = POINTWISE[spec.mode].parameters
    given = {name: getattr(spec, name) for name in _PARAMETER_DEFAULTS if name not in used}
    return {name: value for name, value in given.items() if value != _PARAMETER_DEFAULTS[name]}


def _math_types(spec: "PointwiseSpec") -> tuple[DataType, ...]:
    row = POINTWISE[spec.mode]
    floats = tuple(t for t in COMPUTE if t not in INTEGER_COMPUTE and t not in BOOLEANS)
    integers = INTEGER_COMPUTE if row.integer else ()
    booleans = BOOLEANS if row.kind in _BOOLEAN_KINDS or spec.mode is PointwiseMode.IDENTITY else ()
    return (*floats, *integers, *booleans)


def _fractional(spec: "PointwiseSpec") -> dict[str, float]:
    """Parameters that an integer arithmetic would cut."""
    return {name: v for name, v in spec.parameters().items() if isnan(v) or (isfinite(v) and v != int(v))}


class PointwiseSpec(Spec):
    """Mode, math type and parameters of a pointwise operation."""

    descriptor = DescriptorType.POINTWISE
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="pointwise.math_type",
                attribute="math_type",
                look=lambda p: p.math_type,
                check=lambda p: OneOf(*_math_types(p)),
                reason="the mode has no meaning in that arithmetic",
                fix="use FLOAT; INT32 and INT64 serve the modes that are exact in integers",
                status=Status.NOT_SUPPORTED_DATA_TYPE,
            ),
            Constraint(
                id="pointwise.parameter.whole",
                attribute=lambda p: ", ".join(_fractional(p)),
                look=lambda p: tuple(_fractional(p).values()),
                check=Equals("whole numbers"),
                when=lambda p: p.math_type in INTEGER_COMPUTE and bool(_fractional(p)),
                reason="an integer math type would cut the fraction, and has no NaN",
                fix="use FLOAT arithmetic, or a whole number",
            ),
            Constraint(
                id="pointwise.nan_propagation",
                attribute="nan_propagation",
                look=lambda p: p.nan_propagation,
                check=OneOf(NanPropagation.PROPAGATE_NAN),
                reason="NaN always propagates here, as in cuDNN's engines, whatever the deprecated attribute says",
                fix="leave it unset",
                status=Status.NOT_SUPPORTED,
            ),
            Constraint(
                id="pointwise.parameter.unused",
                attribute=lambda p: ", ".join(_unused(p)),
                look=lambda p: tuple(_unused(p).values()),
                check=Equals("only parameters that the mode reads"),
                when=lambda p: bool(_unused(p)),
                reason="the mode does not read this parameter, and the library ignores no input",
                fix="leave it unset, or choose the mode it belongs to",
            ),
        ),
    )

    mode: Annotated[
        PointwiseMode, attr(A.POINTWISE_MODE, T.POINTWISE_MODE, "a PointwiseMode", "e.g. PointwiseMode.RELU_FWD")
    ]
    math_type: Annotated[
        ElementType, attr(A.POINTWISE_MATH_PREC, T.DATA_TYPE, "the type of the arithmetic", "DataType.FLOAT")
    ]
    nan_propagation: Annotated[
        NanPropagation,
        attr(A.POINTWISE_NAN_PROPAGATION, T.NAN_PROPOGATION, "PROPAGATE_NAN", "leave it unset"),
    ] = NanPropagation.PROPAGATE_NAN
    relu_lower_clip: Annotated[
        Float, attr(A.POINTWISE_RELU_LOWER_CLIP, _REAL, "the value below which RELU clips", "0.0")
    ] = 0.0
    relu_upper_clip: Annotated[
        Float, attr(A.POINTWISE_RELU_UPPER_CLIP, _REAL, "the value above which RELU clips", "6.0 for ReLU6")
    ] = inf
    relu_lower_clip_slope: Annotated[
        Float, attr(A.POINTWISE_RELU_LOWER_CLIP_SLOPE, _REAL, "slope below the lower clip", "0.01 for leaky ReLU")
    ] = 0.0
    elu_alpha: Annotated[Float, attr(A.POINTWISE_ELU_ALPHA, _REAL, "ELU's alpha", "1.0")] = 1.0
    softplus_beta: Annotated[Float, attr(A.POINTWISE_SOFTPLUS_BETA, _REAL, "softplus' beta", "1.0")] = 1.0
    swish_beta: Annotated[Float, attr(A.POINTWISE_SWISH_BETA, _REAL, "swish's beta", "1.0 for SiLU")] = 1.0
    axis: Annotated[Int64, attr(A.POINTWISE_AXIS, T.INT64, "the axis GEN_INDEX counts along", "1 for channels")] = -1

    @property
    def row(self) -> Pointwise:
        """What the mode needs and computes."""
        return POINTWISE[self.mode]

    def parameters(self) -> dict[str, float]:
        """The parameters that the mode reads."""
        return {name: getattr(self, name) for name in self.row.parameters}


_INPUT_PORTS = ("x", "b", "t", "dy")


def _output_port(mode: PointwiseMode) -> str:
    return "dx" if POINTWISE[mode].kind == "backward" else "y"


def _wanted_ports(op: "PointwiseOperation") -> set[str]:
    return {*op.spec.row.operands, _output_port(op.spec.mode)}


def _set_ports(op: "PointwiseOperation") -> set[str]:
    return {p for p in (*_INPUT_PORTS, "y", "dx") if getattr(op, p) is not None}


def broadcast(shapes: list[Extents]) -> Extents | None:
    """The common extents of shapes of one rank; None when two extents other than 1 differ."""
    result = []
    for axis in zip(*shapes, strict=True):
        wide = {extent for extent in axis if extent != 1}
        if len(wide) > 1:
            return None
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def _cut_factors(op: "PointwiseOperation") -> dict[str, float]:
    """Factors that the arithmetic does not hold: fractions in integers, anything but 1 in booleans."""
    factors = {"alpha1": op.alpha1, "alpha2": op.alpha2}
    if op.compute_type in BOOLEANS:
        return {name: value for name, value in factors.items() if value != 1}
    if op.compute_type not in INTEGER_COMPUTE:
        return {}
    limit = 2.0 ** (COMPUTE[op.compute_type].itemsize * 8 - 1)
    return {name: f for name, f in factors.items() if not (f.is_integer() and -limit <= f < limit)}


def _arithmetic_operands(op: "PointwiseOperation") -> dict[str, TensorSpec]:
    """Inputs that are converted to the math type: not the predicate, and nothing where only the shape matters."""
    if op.spec.mode is PointwiseMode.GEN_INDEX:
        return {}
    return {port: t for port, t in op.inputs().items() if port != "t"}


class PointwiseOperation(Operation):
    """y = f(alpha1*x, alpha2*b), y = t ? x : b, or dx = f'(alpha1*dy, alpha2*x)."""

    descriptor = DescriptorType.OPERATION_POINTWISE
    tag = "pointwise"
    constraints = (
        (
            Constraint(
                id="pointwise.port.missing",
                attribute=lambda op: ", ".join(sorted(_wanted_ports(op) - _set_ports(op))),
                look=lambda op: None,
                check=lambda op: Equals(f"a tensor: {op.spec.mode.name} needs {', '.join(sorted(_wanted_ports(op)))}"),
                when=lambda op: not _wanted_ports(op) <= _set_ports(op),
                reason="the mode reads or writes this port",
                fix="set it",
            ),
            Constraint(
                id="pointwise.port.extra",
                attribute=lambda op: ", ".join(sorted(_set_ports(op) - _wanted_ports(op))),
                look=lambda op: sorted(_set_ports(op)),
                check=lambda op: Equals(f"only {', '.join(sorted(_wanted_ports(op)))} for {op.spec.mode.name}"),
                when=lambda op: not _set_ports(op) <= _wanted_ports(op),
                reason="the mode does not use this port, and the library ignores no input",
                fix="leave it unset, or choose another mode",
            ),
            Constraint(
                id="pointwise.alpha2.unused",
                attribute="alpha2",
                look=lambda op: op.alpha2,
                check=Equals(1.0),
                when=lambda op: len(op.spec.row.operands) < 2,
                reason="alpha2 scales the second operand, which this mode does not have",
                fix="leave it unset",
            ),
        ),
        (
            same_rank("pointwise"),
            Constraint(
                id="pointwise.alpha1.unused",
                attribute="alpha1",
                look=lambda op: op.alpha1,
                check=Equals(1.0),
                when=lambda op: op.spec.row.kind == "index",
                reason="alpha1 scales the values of x, and this mode reads only the extents of x",
                fix="leave it unset, or scale the result with a MUL operation",
            ),
            Constraint(
                id="pointwise.alpha.whole",
                attribute=lambda op: ", ".join(_cut_factors(op)),
                look=lambda op: tuple(_cut_factors(op).values()),
                check=lambda op: Equals("1" if op.compute_type in BOOLEANS else "whole numbers of the math type"),
                when=lambda op: bool(_cut_factors(op)),
                reason="an integer math type would cut the fraction, and a boolean one has no factors",
                fix="use FLOAT arithmetic, or leave the factor at 1",
            ),
        ),
        (
            Constraint(
                id="pointwise.broadcast",
                attribute="dims",
                look=lambda op: {p: t.extents for p, t in op.inputs().items()},
                check=Equals("extents that are equal or 1 on every axis"),
                when=lambda op: broadcast([t.extents for t in op.inputs().values()]) is None,
                reason="operands are combined element by element, extents of 1 repeat",
                fix="give the operand an extent on every axis: one value per channel of (N, C, H, W) is (1, C, 1, 1)",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            operand_constraint("pointwise", "spec.math_type", _arithmetic_operands),
            Constraint(
                id="pointwise.axis",
                attribute="spec.axis",
                look=lambda op: op.spec.axis,
                check=lambda op: InRange(0, op.x.rank - 1),
                when=lambda op: "axis" in op.spec.row.parameters,
                reason="the axis counts from 0 to rank-1; -1 only marks it as unset",
                fix="name an axis of x",
                status=Status.BAD_PARAM_OUT_OF_BOUND,
            ),
        ),
        (
            extents_constraint(
                "pointwise.y.extents",
                lambda op: _output_port(op.spec.mode),
                reason="the output has the broadcast extents of the operands",
                fix="use the expected extents",
            ),
            output_constraints("pointwise"),
        ),
    )

    spec: Annotated[
        PointwiseSpec,
        attr(
            A.OPERATION_POINTWISE_PW_DESCRIPTOR, T.BACKEND_DESCRIPTOR, "a pointwise descriptor", "give a PointwiseSpec"
        ),
    ]
    x: Annotated[TensorSpec | None, port(A.OPERATION_POINTWISE_XDESC, "input", "first operand; forward input")] = None
    b: Annotated[TensorSpec | None, port(A.OPERATION_POINTWISE_BDESC, "input", "second operand")] = None
    t: Annotated[TensorSpec | None, port(A.OPERATION_POINTWISE_TDESC, "input", "predicate of BINARY_SELECT")] = None
    dy: Annotated[TensorSpec | None, port(A.OPERATION_POINTWISE_DYDESC, "input", "incoming gradient")] = None
    y: Annotated[TensorSpec | None, port(A.OPERATION_POINTWISE_YDESC, "output", "result of forward modes")] = None
    dx: Annotated[TensorSpec | None, port(A.OPERATION_POINTWISE_DXDESC, "output", "result of backward modes")] = None
    alpha1: Annotated[
        Float, attr(A.OPERATION_POINTWISE_ALPHA1, (T.FLOAT, T.DOUBLE), "factor of the first operand", "1.0")
    ] = 1.0
    alpha2: Annotated[
        Float, attr(A.OPERATION_POINTWISE_ALPHA2, (T.FLOAT, T.DOUBLE), "factor of the second operand", "1.0")
    ] = 1.0

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        mode = fields["spec"].mode
        shapes = [fields[p].extents for p in POINTWISE[mode].operands if fields.get(p) is not None]
        common = broadcast(shapes)
        return {} if common is None else {_output_port(mode): common}

    @property
    def compute_type(self) -> DataType:
        return self.spec.math_type

    def label(self) -> str:
        mode = self.spec.mode.name.lower()
        return f"{mode} '{escaped(self.name)}'" if self.name else mode
