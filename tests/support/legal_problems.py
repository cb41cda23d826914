"""One minimal legal problem per operation, as keyword arguments a test can change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphdnn.enums import (
    BnFinalizeStatsMode,
    ConvolutionMode,
    NormMode,
    NormPhase,
    PaddingMode,
    PointwiseMode,
    ReductionOperator,
    ResampleMode,
    RngDistribution,
)
from graphdnn.operations import (
    OPERATIONS,
    ConvolutionSpec,
    MatmulSpec,
    Operation,
    PointwiseSpec,
    ReductionSpec,
    ResampleSpec,
    RngSpec,
)
from graphdnn.tensors import TensorSpec, packed_strides


def tensor(uid: int, dims: tuple[int, ...], data_type: str = "f32", **fields: Any) -> TensorSpec:
    """A packed tensor."""
    return TensorSpec(
        uid=uid, data_type=data_type, dims=dims, strides=fields.pop("strides", packed_strides(dims)), **fields
    )


def scalar(uid: int, rank: int, data_type: str = "f32", **fields: Any) -> TensorSpec:
    return tensor(uid, (1,) * rank, data_type, **fields)


def convolution(**fields: Any) -> ConvolutionSpec:
    legal = {
        "compute_type": "f32", "mode": ConvolutionMode.CROSS_CORRELATION, "spatial_dims": 2, "dilations": (1, 1),
        "filter_strides": (1, 1), "pre_paddings": (0, 0), "post_paddings": (0, 0),
    }  # fmt: skip
    return ConvolutionSpec(**{**legal, **fields})


def pooling(**fields: Any) -> ResampleSpec:
    legal = {
        "mode": ResampleMode.MAXPOOL, "padding_mode": PaddingMode.NEG_INF_PAD, "spatial_dims": 2, "strides": (2, 2),
        "pre_paddings": (0, 0), "post_paddings": (0, 0), "window_dims": (2, 2),
    }  # fmt: skip
    return ResampleSpec(**{**legal, **fields})


def pointwise(mode: PointwiseMode = PointwiseMode.ADD, math_type: str = "f32", **fields: Any) -> PointwiseSpec:
    return PointwiseSpec(mode=mode, math_type=math_type, **fields)


def reduction(operator: ReductionOperator = ReductionOperator.ADD, compute_type: str = "f32") -> ReductionSpec:
    return ReductionSpec(operator=operator, compute_type=compute_type)


def bernoulli(**fields: Any) -> RngSpec:
    return RngSpec(**{"distribution": RngDistribution.BERNOULLI, "probability": 0.5, **fields})


IMAGE, CHANNEL = (2, 4, 6, 6), (1, 4, 1, 1)

LEGAL: dict[str, Callable[[], dict[str, Any]]] = {
    "conv_fprop": lambda: {
        "x": tensor(1, IMAGE), "w": tensor(2, (4, 2, 3, 3)), "y": tensor(3, (2, 4, 4, 4)), "conv": convolution(),
    },
    "conv_dgrad": lambda: {
        "dy": tensor(1, (2, 4, 4, 4)), "w": tensor(2, (4, 2, 3, 3)), "dx": tensor(3, IMAGE), "conv": convolution(),
    },
    "conv_wgrad": lambda: {
        "x": tensor(1, IMAGE), "dy": tensor(2, (2, 4, 4, 4)), "dw": tensor(3, (4, 2, 3, 3)), "conv": convolution(),
    },
    "matmul": lambda: {
        "a": tensor(1, (2, 3, 4)), "b": tensor(2, (2, 4, 5)), "c": tensor(3, (2, 3, 5)),
        "spec": MatmulSpec(compute_type="f32"),
    },
    "pointwise": lambda: {
        "x": tensor(1, IMAGE), "b": tensor(2, CHANNEL), "y": tensor(3, IMAGE), "spec": pointwise(),
    },
    "reduction": lambda: {"x": tensor(1, IMAGE), "y": tensor(2, CHANNEL), "spec": reduction()},
    "resample_fwd": lambda: {
        "x": tensor(1, IMAGE), "y": tensor(2, (2, 4, 3, 3)), "index": tensor(3, (2, 4, 3, 3), "i8"), "spec": pooling(),
    },
    "resample_bwd": lambda: {
        "dy": tensor(1, (2, 4, 3, 3)), "dx": tensor(2, IMAGE), "index": tensor(3, (2, 4, 3, 3), "i8"),
        "spec": pooling(),
    },
    "genstats": lambda: {
        "x": tensor(1, IMAGE), "sum": tensor(2, CHANNEL), "sqsum": tensor(3, CHANNEL), "math_type": "f32",
    },
    "bn_finalize": lambda: {
        "mode": BnFinalizeStatsMode.TRAINING, "math_type": "f32",
        "accumulation_count": scalar(20, 4, "i64"), "epsilon": scalar(21, 4), "momentum": scalar(22, 4),
        **{name: tensor(uid, CHANNEL) for uid, name in enumerate((
            "y_sum", "y_sq_sum", "scale", "bias", "previous_running_mean", "previous_running_var",
            "updated_running_mean", "updated_running_var", "saved_mean", "saved_inv_std", "eq_scale", "eq_bias",
        ), start=1)},
    },
    "bn_bwd_weights": lambda: {
        "math_type": "f32", "x": tensor(1, IMAGE), "dy": tensor(2, IMAGE),
        **{name: tensor(uid, CHANNEL) for uid, name in enumerate((
            "mean", "inv_std", "scale", "dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias",
        ), start=3)},
    },
    "norm_fwd": lambda: {
        "mode": NormMode.BATCH_NORM, "phase": NormPhase.TRAINING, "x": tensor(1, IMAGE), "y": tensor(2, IMAGE),
        "epsilon": scalar(3, 4, is_by_value=True), "momentum": scalar(4, 4),
        **{name: tensor(uid, CHANNEL) for uid, name in enumerate((
            "scale", "bias", "mean", "inv_variance", "input_running_mean", "input_running_var",
            "output_running_mean", "output_running_var",
        ), start=5)},
    },
    "norm_bwd": lambda: {
        "mode": NormMode.BATCH_NORM, "x": tensor(1, IMAGE), "dy": tensor(2, IMAGE), "dx": tensor(3, IMAGE),
        **{name: tensor(uid, CHANNEL) for uid, name in enumerate((
            "mean", "inv_variance", "scale", "dscale", "dbias",
        ), start=4)},
    },
    "concat": lambda: {
        "inputs_list": (tensor(1, (2, 3)), tensor(2, (2, 4))), "y": tensor(3, (2, 7)), "axis": 1,
    },
    "reshape": lambda: {"x": tensor(1, (2, 6)), "y": tensor(2, (3, 4))},
    "transpose": lambda: {"x": tensor(1, (2, 3, 4)), "y": tensor(2, (4, 2, 3)), "permutation": (2, 0, 1)},
    "slice": lambda: {
        "x": tensor(1, (4, 6)), "y": tensor(2, (2, 3)), "starts": (1, 0), "limits": (3, 6), "slice_strides": (1, 2),
    },
    "rng": lambda: {"y": tensor(1, (4, 6)), "spec": bernoulli(), "offset": scalar(2, 2, "i64", is_by_value=True)},
}  # fmt: skip

assert set(LEGAL) == set(OPERATIONS), (
    f"LEGAL (legal_problems.py) differs from OPERATIONS in {set(LEGAL) ^ set(OPERATIONS)}"
)


def operation(tag: str, **changes: Any) -> Operation:
    """The minimal legal operation with some fields changed; a field changed to ``...`` is left out."""
    fields = {**LEGAL[tag](), **changes}
    return OPERATIONS[tag](**{name: value for name, value in fields.items() if value is not ...})
