"""Batch-norm building blocks: sums per channel, their finalization, weight gradients.

All per-channel tensors are [1, C, 1, ...]. With n elements per channel:
mean = sum/n, var = sqsum/n - mean^2 (biased), the running variance takes
n/(n-1) of it, as the legacy API and PyTorch do (cuDNN's graph documentation is silent).
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from graphdnn.attribute_names import AttributeName as A
from graphdnn.checks import Each, Equals, LengthIn, OneOf, Present
from graphdnn.enums import AttributeType as T
from graphdnn.enums import BnFinalizeStatsMode, DataType, DescriptorType, GenStatsMode, Status
from graphdnn.operations.base import Extents, Operation, same_rank
from graphdnn.rules import Constraint
from graphdnn.spec import ElementType, attr, port
from graphdnn.tensors import DIM_MAX, TensorSpec

MATH_TYPES = (DataType.FLOAT, DataType.DOUBLE)


def channel_extents(x: Extents) -> Extents:
    """[1, C, 1, ...] for an x of [N, C, ...]."""
    return (1, x[1], *(1,) * (len(x) - 2))


def math_type_constraint(prefix: str) -> Constraint:
    return Constraint(
        id=f"{prefix}.math_type",
        attribute="math_type",
        look=lambda op: op.math_type,
        check=OneOf(*MATH_TYPES),
        reason="statistics are not integers",
        fix="use FLOAT",
        status=Status.NOT_SUPPORTED_DATA_TYPE,
    )


def _per_channel(prefix: str, ports: tuple[str, ...], like: str) -> tuple[Constraint, ...]:
    def rule(name: str) -> Constraint:
        return Constraint(
            id=f"{prefix}.{name}.extents",
            attribute=f"{name}.dims",
            look=lambda op: getattr(op, name).extents,
            check=lambda op: Equals(channel_extents(getattr(op, like).extents)),
            when=lambda op: getattr(op, name) is not None,
            reason="there is one value per channel",
            fix="use [1, C, 1, ...]",
            status=Status.BAD_PARAM_SHAPE_MISMATCH,
        )

    return tuple(rule(name) for name in ports)


def channel_axis_constraint(prefix: str, port: str, when: Callable[[Any], bool] | None = None) -> Constraint:
    return Constraint(
        id=f"{prefix}.channel_axis",
        attribute=f"{port}.dims",
        look=lambda op: getattr(op, port).dims,
        check=LengthIn(2, DIM_MAX),
        when=when,
        reason="axis 1 holds the channels",
        fix="write the tensor as [N, C, ...]",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    )


class GenStats(Operation):
    """sum[c] = sum of x, sqsum[c] = sum of x^2, over all axes but the channel axis."""

    descriptor = DescriptorType.OPERATION_GEN_STATS
    tag = "genstats"
    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (same_rank("genstats"), channel_axis_constraint("genstats", "x"), math_type_constraint("genstats")),
        _per_channel("genstats", ("sum", "sqsum"), "x"),
    )

    mode: Annotated[
        GenStatsMode, attr(A.OPERATION_GENSTATS_MODE, T.GENSTATS_MODE, "SUM_SQSUM", "GenStatsMode.SUM_SQSUM")
    ] = GenStatsMode.SUM_SQSUM
    math_type: Annotated[
        ElementType, attr(A.OPERATION_GENSTATS_MATH_PREC, T.DATA_TYPE, "the type of the sums", "DataType.FLOAT")
    ]
    x: Annotated[TensorSpec, port(A.OPERATION_GENSTATS_XDESC, "input", "[N, C, ...]")]
    sum: Annotated[TensorSpec, port(A.OPERATION_GENSTATS_SUMDESC, "output", "[1, C, 1, ...]")]
    sqsum: Annotated[TensorSpec, port(A.OPERATION_GENSTATS_SQSUMDESC, "output", "[1, C, 1, ...]")]

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        extents = channel_extents(fields["x"].extents)
        return {"sum": extents, "sqsum": extents}

    @property
    def compute_type(self) -> DataType:
        return self.math_type


_SCALARS = ("accumulation_count", "epsilon", "momentum")
_RUNNING = ("previous_running_mean", "previous_running_var", "updated_running_mean", "updated_running_var")
_FINALIZE = "OPERATION_BN_FINALIZE_"


def _finalize(suffix: str, role: str, text: str = "[1, C, 1, ...]") -> Any:
    return port(A[f"{_FINALIZE}{suffix}"], role, text)


def _scalar(name: str) -> Constraint:
    return Constraint(
        id=f"bn_finalize.{name}.scalar",
        attribute=f"{name}.dims",
        look=lambda op: getattr(op, name).extents,
        check=Each(Equals(1)),
        reason="the operand is one number for all channels",
        fix="use extents of 1",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    )


def _missing_running(op: "BnFinalize") -> list[str]:
    """In training the four running statistics come together; inference only reads the previous ones."""
    if op.mode is BnFinalizeStatsMode.INFERENCE:
        return [p for p in _RUNNING[:2] if getattr(op, p) is None]
    given = [p for p in _RUNNING if getattr(op, p) is not None]
    return [p for p in _RUNNING if given and p not in given]


class BnFinalize(Operation):
    """From sums to saved and running statistics, equivalent scale and bias."""

    descriptor = DescriptorType.OPERATION_BN_FINALIZE_STATISTICS
    tag = "bn_finalize"
    constraints = (
        (channel_axis_constraint("bn_finalize", "y_sum"), math_type_constraint("bn_finalize")),
        (
            *_per_channel(
                "bn_finalize",
                ("y_sum", "y_sq_sum", "scale", "bias", *_RUNNING, "saved_mean", "saved_inv_std", "eq_scale", "eq_bias"),
                "y_sum",
            ),
            *(_scalar(name) for name in _SCALARS),
            Constraint(
                id="bn_finalize.running.complete",
                attribute=lambda op: ", ".join(_missing_running(op)),
                look=lambda op: None,
                check=Present(),
                when=lambda op: bool(_missing_running(op)),
                reason="running statistics are updated from previous to updated, mean and variance together",
                fix="give all of them, or none in training",
            ),
        ),
    )

    mode: Annotated[
        BnFinalizeStatsMode,
        attr(A.OPERATION_BN_FINALIZE_STATS_MODE, T.BN_FINALIZE_STATS_MODE, "TRAINING or INFERENCE", "TRAINING"),
    ]
    math_type: Annotated[
        ElementType, attr(A.OPERATION_BN_FINALIZE_MATH_PREC, T.DATA_TYPE, "the type of the arithmetic", "FLOAT")
    ]
    y_sum: Annotated[TensorSpec, _finalize("Y_SUM_DESC", "input")]
    y_sq_sum: Annotated[TensorSpec, _finalize("Y_SQ_SUM_DESC", "input")]
    scale: Annotated[TensorSpec, _finalize("SCALE_DESC", "input")]
    bias: Annotated[TensorSpec, _finalize("BIAS_DESC", "input")]
    previous_running_mean: Annotated[TensorSpec | None, _finalize("PREV_RUNNING_MEAN_DESC", "input")] = None
    previous_running_var: Annotated[TensorSpec | None, _finalize("PREV_RUNNING_VAR_DESC", "input")] = None
    updated_running_mean: Annotated[TensorSpec | None, _finalize("UPDATED_RUNNING_MEAN_DESC", "output")] = None
    updated_running_var: Annotated[TensorSpec | None, _finalize("UPDATED_RUNNING_VAR_DESC", "output")] = None
    saved_mean: Annotated[TensorSpec, _finalize("SAVED_MEAN_DESC", "output")]
    saved_inv_std: Annotated[TensorSpec, _finalize("SAVED_INV_STD_DESC", "output")]
    eq_scale: Annotated[TensorSpec, _finalize("EQ_SCALE_DESC", "output")]
    eq_bias: Annotated[TensorSpec, _finalize("EQ_BIAS_DESC", "output")]
    accumulation_count: Annotated[TensorSpec, _finalize("ACCUM_COUNT_DESC", "input", "elements per channel")]
    epsilon: Annotated[TensorSpec, _finalize("EPSILON_DESC", "input", "a scalar")]
    momentum: Annotated[
        TensorSpec, _finalize("EXP_AVERATE_FACTOR_DESC", "input", "a scalar: new = (1-f)*old + f*batch")
    ]

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        extents = channel_extents(fields["y_sum"].extents)
        outputs = ("updated_running_mean", "updated_running_var", "saved_mean", "saved_inv_std", "eq_scale", "eq_bias")
        return dict.fromkeys(outputs, extents)

    @property
    def compute_type(self) -> DataType:
        return self.math_type


_WEIGHTS = "OPERATION_BN_BWD_WEIGHTS_"
_WEIGHT_OUTPUTS = ("dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias")


def _weights(suffix: str, role: str, text: str = "[1, C, 1, ...]") -> Any:
    return port(A[f"{_WEIGHTS}{suffix}"], role, text)


class BnBackwardWeights(Operation):
    """dscale, dbias, and A, B, C of dx = A*dy + B*x + C."""

    descriptor = DescriptorType.OPERATION_BN_BWD_WEIGHTS
    tag = "bn_bwd_weights"
    constraints = (
        (
            same_rank("bn_bwd_weights"),
            channel_axis_constraint("bn_bwd_weights", "x"),
            math_type_constraint("bn_bwd_weights"),
        ),
        (
            *_per_channel("bn_bwd_weights", ("mean", "inv_std", "scale", *_WEIGHT_OUTPUTS), "x"),
            Constraint(
                id="bn_bwd_weights.dy.extents",
                attribute="dy.dims",
                look=lambda op: op.dy.extents,
                check=lambda op: Equals(op.x.extents),
                reason="dy is the gradient of the normalized x",
                fix="give both the same extents",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
        ),
    )

    math_type: Annotated[
        ElementType, attr(A.OPERATION_BN_BWD_WEIGHTS_MATH_PREC, T.DATA_TYPE, "the type of the arithmetic", "FLOAT")
    ]
    mean: Annotated[TensorSpec, _weights("MEAN_DESC", "input")]
    inv_std: Annotated[TensorSpec, _weights("INVSTD_DESC", "input")]
    scale: Annotated[TensorSpec, _weights("BN_SCALE_DESC", "input")]
    x: Annotated[TensorSpec, _weights("X_DESC", "input", "[N, C, ...]")]
    dy: Annotated[TensorSpec, _weights("DY_DESC", "input", "[N, C, ...]")]
    dscale: Annotated[TensorSpec, _weights("DBN_SCALE_DESC", "output")]
    dbias: Annotated[TensorSpec, _weights("DBN_BIAS_DESC", "output")]
    eq_dy_scale: Annotated[TensorSpec, _weights("EQ_DY_SCALE_DESC", "output")]
    eq_x_scale: Annotated[TensorSpec, _weights("EQ_X_SCALE_DESC", "output")]
    eq_bias: Annotated[TensorSpec, _weights("EQ_BIAS", "output")]

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        return dict.fromkeys(_WEIGHT_OUTPUTS, channel_extents(fields["x"].extents))

    @property
    def compute_type(self) -> DataType:
        return self.math_type
