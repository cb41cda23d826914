"""Normalization forward and backward: batch, instance, layer, RMS and adaptive layer norm.

Which axes are averaged over: BATCH all but the channel axis, INSTANCE the
spatial axes, the layer modes the axes where the statistics have extent 1 (or,
without statistics, where the scale has not). The variance is biased; the
statistic stored is 1/sqrt(var + epsilon), whatever its cuDNN name says.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from graphdnn.attribute_names import AttributeName as A
from graphdnn.checks import BroadcastsTo, Check, Equals, OneOf, Present
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType, DescriptorType, NormMode, NormPhase, Status
from graphdnn.operations.base import Extents, Operation, output_constraints, same_rank
from graphdnn.operations.batchnorm_statistics import channel_axis_constraint, channel_extents, math_type_constraint
from graphdnn.rules import Constraint
from graphdnn.spec import ElementType, Refused, attr, port
from graphdnn.tensors import TensorSpec

_PEERS = "statistics over several GPUs are not implemented"


def normalized_axes(mode: NormMode, x: Extents, statistics: Extents | None, scale: Extents | None) -> tuple[int, ...]:
    """Axes the mean is taken over (see the module's first paragraph)."""
    axes = range(len(x))
    if mode is NormMode.BATCH_NORM:
        return tuple(a for a in axes if a != 1)
    if mode is NormMode.INSTANCE_NORM:
        return tuple(axes[2:])
    if mode is NormMode.ADA_LAYER_NORM:
        return (len(x) - 1,)
    if statistics is not None:
        return tuple(a for a in axes if statistics[a] == 1 and x[a] != 1) or (len(x) - 1,)
    return tuple(a for a in axes if scale is not None and scale[a] != 1) or (len(x) - 1,)


def statistics_extents(mode: NormMode, x: Extents, scale: Extents | None) -> Extents:
    """Extents of mean and inverse variance when they follow from x and the scale alone."""
    axes = normalized_axes(mode, x, None, scale)
    return tuple(1 if a in axes else extent for a, extent in enumerate(x))


def _extents(tensor: TensorSpec | None) -> Extents | None:
    return None if tensor is None else tensor.extents


def _like(prefix: str, name: str, other: str) -> Constraint:
    return Constraint(
        id=f"{prefix}.{name}.extents",
        attribute=f"{name}.dims",
        look=lambda op: getattr(op, name).extents,
        check=lambda op: Equals(getattr(op, other).extents),
        when=lambda op: getattr(op, name) is not None and getattr(op, other) is not None,
        reason=f"{name} has the extents of {other}",
        fix="use the expected extents",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    )


def _statistic(prefix: str, name: str) -> Constraint:
    return Constraint(
        id=f"{prefix}.{name}.extents",
        attribute=f"{name}.dims",
        look=lambda op: getattr(op, name).extents,
        check=lambda op: Equals(tuple(1 if a in op.axes else e for a, e in enumerate(op.x.extents))),
        when=lambda op: getattr(op, name) is not None,
        reason="a statistic has one value for all elements of the normalized axes",
        fix="use 1 on the normalized axes and x's extents elsewhere",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    )


def _parameter(prefix: str, name: str) -> Constraint:
    def wanted(op: "NormForward | NormBackward") -> Check:
        if _has_channels(op):
            return Equals(channel_extents(op.x.extents))
        return BroadcastsTo(op.x.extents)

    return Constraint(
        id=f"{prefix}.{name}.extents",
        attribute=f"{name}.dims",
        look=lambda op: getattr(op, name).extents,
        check=wanted,
        when=lambda op: getattr(op, name) is not None,
        reason="scale and bias have one value per channel, or per normalized position in the layer modes",
        fix="use [1, C, 1, ...] for batch and instance norm, [1, ..., D] for the layer modes",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    )


def _mode(prefix: str) -> Constraint:
    return Constraint(
        id=f"{prefix}.mode",
        attribute="mode",
        look=lambda op: op.mode,
        check=OneOf(*(m for m in NormMode if m is not NormMode.GROUP_NORM)),
        reason="no engine computes group normalization, which the header names",
        fix="split the channels of [N, C, ...] to [N, G, C/G, ...] and use LAYER_NORM with mean and inverse variance "
        "[N, G, 1, ...], scale and bias [1, G, C/G, 1, ...]",
        status=Status.NOT_SUPPORTED,
    )


def _has_channels(op: "NormForward | NormBackward") -> bool:
    return op.mode in (NormMode.BATCH_NORM, NormMode.INSTANCE_NORM)


def _epsilon(prefix: str) -> Constraint:
    return Constraint(
        id=f"{prefix}.epsilon",
        attribute="epsilon",
        look=lambda op: (op.epsilon.is_by_value or op.epsilon.is_constant) and op.epsilon.elements == 1,
        check=Equals("a by-value tensor with extents of 1"),
        when=lambda op: (
            op.epsilon is not None
            and not ((op.epsilon.is_by_value or op.epsilon.is_constant) and op.epsilon.elements == 1)
        ),
        reason="epsilon is read on the host",
        fix="set is_by_value on its tensor",
    )


def _mean_unused(prefix: str) -> Constraint:
    return Constraint(
        id=f"{prefix}.mean.rms",
        attribute="mean",
        look=lambda op: op.mean.label(),
        check=Equals("no mean"),
        when=lambda op: op.mode is NormMode.RMS_NORM and op.mean is not None,
        reason="RMS norm does not subtract a mean, and the library ignores no input",
        fix="leave the mean unset",
    )


def _half_given(op: "NormForward | NormBackward") -> list[str]:
    """The statistic that is missing beside the one given, where both are read (RMS has no mean)."""
    wanted = ("inv_variance",) if op.mode is NormMode.RMS_NORM else ("mean", "inv_variance")
    given = [p for p in wanted if getattr(op, p) is not None]
    return [p for p in wanted if given and p not in given]


def _pair(prefix: str, reads: Callable[[Any], bool]) -> Constraint:
    return Constraint(
        id=f"{prefix}.statistics.pair",
        attribute=lambda op: ", ".join(_half_given(op)),
        look=lambda op: None,
        check=Present(),
        when=lambda op: reads(op) and bool(_half_given(op)),
        reason="mean and inverse variance are used together; one of them alone would be ignored",
        fix="give both, or neither",
    )


def _computes_statistics(op: "NormForward") -> bool:
    return op.phase is NormPhase.TRAINING or (op.mean is None and op.inv_variance is None)


_RUNNING = ("input_running_mean", "input_running_var", "output_running_mean", "output_running_var")
_BATCH_ONLY = (*_RUNNING, "momentum")
_FWD = "OPERATION_NORM_FWD_"


def _forward_port(suffix: str, role: str, text: str) -> Any:
    return port(A[f"{_FWD}{suffix}"], role, text)


def _misplaced(op: "NormForward") -> list[str]:
    if op.mode is NormMode.BATCH_NORM and op.phase is NormPhase.TRAINING:
        return []
    return [p for p in _BATCH_ONLY if getattr(op, p) is not None]


def _incomplete(op: "NormForward") -> list[str]:
    given = [p for p in _BATCH_ONLY if getattr(op, p) is not None]
    return [p for p in _BATCH_ONLY if given and p not in given]


class NormForward(Operation):
    """y = scale * (x - mean) / sqrt(var + epsilon) + bias."""

    descriptor = DescriptorType.OPERATION_NORM_FORWARD
    tag = "norm_fwd"
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (_mode("norm_fwd"), math_type_constraint("norm_fwd")),
        (same_rank("norm_fwd"), channel_axis_constraint("norm_fwd", "x", _has_channels)),
        (
            _like("norm_fwd", "y", "x"),
            _parameter("norm_fwd", "scale"),
            _parameter("norm_fwd", "bias"),
            _statistic("norm_fwd", "mean"),
            _statistic("norm_fwd", "inv_variance"),
            *(_statistic("norm_fwd", name) for name in _RUNNING),
            _epsilon("norm_fwd"),
            Constraint(
                id="norm_fwd.epsilon.missing",
                attribute="epsilon",
                look=lambda op: op.epsilon,
                check=Present(),
                when=_computes_statistics,
                reason="1/sqrt(var + epsilon) cannot be computed without epsilon",
                fix="give a by-value tensor, e.g. of 1e-5",
            ),
            _pair("norm_fwd", lambda op: op.phase is NormPhase.INFERENCE),
            _mean_unused("norm_fwd"),
            Constraint(
                id="norm_fwd.inference.statistics",
                attribute="mean, inv_variance",
                look=lambda op: None,
                check=Present(),
                when=lambda op: (
                    op.phase is NormPhase.INFERENCE
                    and op.mode is NormMode.BATCH_NORM
                    and (op.mean is None or op.inv_variance is None)
                ),
                reason="batch norm normalizes with given statistics in inference",
                fix="give both, or write the scaling as pointwise operations",
            ),
            Constraint(
                id="norm_fwd.running.misplaced",
                attribute=lambda op: ", ".join(_misplaced(op)),
                look=_misplaced,
                check=Equals("running statistics and momentum only in batch-norm training"),
                when=lambda op: bool(_misplaced(op)),
                reason="only batch normalization in training has running statistics, and the library ignores no input",
                fix="leave them unset",
            ),
            Constraint(
                id="norm_fwd.running.incomplete",
                attribute=lambda op: ", ".join(_incomplete(op)),
                look=lambda op: None,
                check=Present(),
                when=lambda op: not _misplaced(op) and bool(_incomplete(op)),
                reason="running statistics are updated from input to output, mean and variance together, by momentum",
                fix="give all five, or none",
            ),
            output_constraints("norm_fwd"),
        ),
    )
    refused = (Refused(A.OPERATION_NORM_FWD_PEER_STAT_DESCS, (T.BACKEND_DESCRIPTOR,), _PEERS),)

    mode: Annotated[NormMode, attr(A.OPERATION_NORM_FWD_MODE, T.NORM_MODE, "a NormMode", "e.g. LAYER_NORM")]
    phase: Annotated[
        NormPhase,
        attr(A.OPERATION_NORM_FWD_PHASE, T.NORM_FWD_PHASE, "TRAINING or INFERENCE", "TRAINING saves statistics"),
    ]
    x: Annotated[TensorSpec, _forward_port("XDESC", "input", "rank 2 to 5, channel axis 1")]
    mean: Annotated[TensorSpec | None, _forward_port("MEAN_DESC", "output", "out in training, in in inference")] = None
    inv_variance: Annotated[
        TensorSpec | None, _forward_port("INV_VARIANCE_DESC", "output", "1/sqrt(var+eps); as the mean")
    ] = None
    scale: Annotated[TensorSpec | None, _forward_port("SCALE_DESC", "input", "[1, C, 1, ...] or [1, ..., D]")] = None
    bias: Annotated[TensorSpec | None, _forward_port("BIAS_DESC", "input", "as the scale")] = None
    epsilon: Annotated[TensorSpec | None, _forward_port("EPSILON_DESC", "input", "by value")] = None
    momentum: Annotated[TensorSpec | None, _forward_port("EXP_AVG_FACTOR_DESC", "input", "a scalar f")] = None
    input_running_mean: Annotated[
        TensorSpec | None, _forward_port("INPUT_RUNNING_MEAN_DESC", "input", "[1, C, 1, ...]")
    ] = None
    input_running_var: Annotated[
        TensorSpec | None, _forward_port("INPUT_RUNNING_VAR_DESC", "input", "[1, C, 1, ...]")
    ] = None
    output_running_mean: Annotated[
        TensorSpec | None, _forward_port("OUTPUT_RUNNING_MEAN_DESC", "output", "[1, C, 1, ...]")
    ] = None
    output_running_var: Annotated[
        TensorSpec | None, _forward_port("OUTPUT_RUNNING_VAR_DESC", "output", "[1, C, 1, ...]")
    ] = None
    y: Annotated[TensorSpec, _forward_port("YDESC", "output", "the extents of x")]
    math_type: ElementType = DataType.FLOAT

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        x = fields["x"].extents
        scale = fields.get("scale")
        statistics = statistics_extents(fields["mode"], x, None if scale is None else scale.extents)
        outputs = {"y": x, "output_running_mean": statistics, "output_running_var": statistics}
        if fields["phase"] is NormPhase.TRAINING:
            outputs |= {"mean": statistics, "inv_variance": statistics}
        return outputs

    @property
    def spare(self) -> tuple[str, ...]:
        """The statistics, where they do not say what is averaged over."""
        return ("mean", "inv_variance") if _has_channels(self) else ()

    @property
    def axes(self) -> tuple[int, ...]:
        """The normalized axes."""
        known = self.inv_variance or self.mean
        return normalized_axes(self.mode, self.x.extents, _extents(known), _extents(self.scale))

    @property
    def compute_type(self) -> DataType:
        return self.math_type

    def inputs(self) -> dict[str, TensorSpec]:
        given = {"mean": self.mean, "inv_variance": self.inv_variance} if self.phase is NormPhase.INFERENCE else {}
        return super().inputs() | {port: t for port, t in given.items() if t is not None}

    def outputs(self) -> dict[str, TensorSpec]:
        hidden = ("mean", "inv_variance") if self.phase is NormPhase.INFERENCE else ()
        return {port: t for port, t in super().outputs().items() if port not in hidden}


_BWD = "OPERATION_NORM_BWD_"


def _backward_port(suffix: str, role: str, text: str) -> Any:
    return port(A[f"{_BWD}{suffix}"], role, text)


def _without_statistics(op: "NormBackward") -> bool:
    needs_mean = op.mode is not NormMode.RMS_NORM
    return op.inv_variance is None or (needs_mean and op.mean is None)


class NormBackward(Operation):
    """dx, dscale and dbias from dy, with saved statistics or, given epsilon, computed again from x."""

    descriptor = DescriptorType.OPERATION_NORM_BACKWARD
    tag = "norm_bwd"
    constraints = (
        (_mode("norm_bwd"), math_type_constraint("norm_bwd")),
        (same_rank("norm_bwd"), channel_axis_constraint("norm_bwd", "x", _has_channels)),
        (
            _like("norm_bwd", "dy", "x"),
            _like("norm_bwd", "dx", "x"),
            _parameter("norm_bwd", "scale"),
            _like("norm_bwd", "dscale", "scale"),
            _like("norm_bwd", "dbias", "scale"),
            _statistic("norm_bwd", "mean"),
            _statistic("norm_bwd", "inv_variance"),
            _epsilon("norm_bwd"),
            _pair("norm_bwd", lambda op: True),
            _mean_unused("norm_bwd"),
            Constraint(
                id="norm_bwd.statistics",
                attribute="epsilon",
                look=lambda op: op.epsilon,
                check=Present(),
                when=_without_statistics,
                reason="without the saved statistics they are computed again, which needs epsilon",
                fix="give the saved mean and inverse variance of the forward pass, or epsilon",
            ),
            output_constraints("norm_bwd"),
        ),
    )
    refused = (Refused(A.OPERATION_NORM_BWD_PEER_STAT_DESCS, (T.BACKEND_DESCRIPTOR,), _PEERS),)

    mode: Annotated[NormMode, attr(A.OPERATION_NORM_BWD_MODE, T.NORM_MODE, "a NormMode", "as in the forward pass")]
    x: Annotated[TensorSpec, _backward_port("XDESC", "input", "the forward input")]
    mean: Annotated[TensorSpec | None, _backward_port("MEAN_DESC", "input", "saved mean")] = None
    inv_variance: Annotated[
        TensorSpec | None, _backward_port("INV_VARIANCE_DESC", "input", "saved 1/sqrt(var+eps)")
    ] = None
    dy: Annotated[TensorSpec, _backward_port("DYDESC", "input", "gradient of y")]
    scale: Annotated[TensorSpec, _backward_port("SCALE_DESC", "input", "as forward")]
    epsilon: Annotated[TensorSpec | None, _backward_port("EPSILON_DESC", "input", "by value")] = None
    dscale: Annotated[TensorSpec, _backward_port("DSCALE_DESC", "output", "the extents of the scale")]
    dbias: Annotated[TensorSpec | None, _backward_port("DBIAS_DESC", "output", "the extents of the scale")] = None
    dx: Annotated[TensorSpec, _backward_port("DXDESC", "output", "the extents of x")]
    math_type: ElementType = DataType.FLOAT

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        scale = fields["scale"].extents
        return {"dx": fields["x"].extents, "dscale": scale, "dbias": scale}

    @property
    def axes(self) -> tuple[int, ...]:
        """The normalized axes."""
        known = self.inv_variance or self.mean
        return normalized_axes(self.mode, self.x.extents, _extents(known), self.scale.extents)

    @property
    def compute_type(self) -> DataType:
        return self.math_type
