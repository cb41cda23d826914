"""Nodes of cuDNN's frontend by tag: the builder's method, its parameters by port and by attribute, what it returns."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from graphdnn.enums import (
    ConvolutionMode,
    DataType,
    NormPhase,
    PaddingMode,
    PointwiseMode,
    ReductionOperator,
    ResampleMode,
    ReshapeMode,
    RngDistribution,
)
from graphdnn.importers.import_result import UNKNOWN, VALUE, Refusal

Read = Callable[[str, Any], Any]  # (attribute, value) -> what the method takes


def integers(attribute: str, value: Any) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        raise wrong(attribute, value, "a list of whole numbers")
    return value


def integer(attribute: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(attribute, value, "a whole number")
    return value


def number(attribute: str, value: Any) -> int | float:
    """A number as it is written, or the bits of one in FLOAT."""
    if isinstance(value, str) and len(value) == 8:
        try:
            (bits,) = struct.unpack(">f", bytes.fromhex(value))
        except ValueError:
            raise wrong(attribute, value, "eight hexadecimal digits") from None
        return float(bits)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise wrong(attribute, value, "a number, or its bits as eight hexadecimal digits")
    return value


def member(kind: Any, attribute: str, value: Any) -> Any:
    if not isinstance(value, str) or value not in kind.__members__:
        raise wrong(attribute, value, f"one of {', '.join(kind.__members__)}")
    return kind[value]


def boolean(attribute: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong(attribute, value, "true or false")
    return value


def wrong(attribute: str, value: Any, expected: str) -> Refusal:
    return Refusal(
        VALUE, attribute, value, expected=expected, detail="the entry is of another kind", fix="correct the entry"
    )


def only(*allowed: Any) -> Read:
    """For what has no counterpart here: nothing but its neutral value."""

    def read(attribute: str, value: Any) -> None:
        if value not in allowed:
            raise Refusal(
                UNKNOWN, attribute, value, expected=str(allowed[0]), detail="nothing here computes with another value",
                fix="leave it unset",
            )  # fmt: skip

    return read


def object_at(attribute: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(attribute, type(value).__name__, "an object")
    return value


def type_at(attribute: str, value: Any) -> DataType | None:
    """None where it is left open."""
    return None if value is None else member(DataType, attribute, value)


def name_at(attribute: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong(attribute, value, "a name")
    return value


_LISTS: dict[str, tuple[str, Read]] = {n: (n, integers) for n in ("pre_padding", "post_padding", "stride", "dilation")}
_MEMBER: dict[Any, Read] = {
    kind: partial(member, kind)
    for kind in (ConvolutionMode, ReductionOperator, NormPhase, ReshapeMode, ResampleMode, PaddingMode, RngDistribution)
}
_CONVOLUTION = {**_LISTS, "math_mode": ("convolution_mode", _MEMBER[ConvolutionMode])}
_PHASE = {"forward_phase": ("norm_forward_phase", _MEMBER[NormPhase])}
_AFFINE = {"SCALE": "scale", "BIAS": "bias"}
_SAVED = {"MEAN": "mean", "INV_VARIANCE": "inv_variance"}
_FORWARD = {"X": "input", **_AFFINE, "EPSILON": "epsilon"}
_BACKWARD = {"DY": "grad", "X": "input", "SCALE": "scale", **_SAVED}
_RUNNING = {"PREV_RUNNING_MEAN": "in_running_mean", "PREV_RUNNING_VAR": "in_running_var", "MOMENTUM": "momentum"}
_NEXT = ("NEXT_RUNNING_MEAN", "NEXT_RUNNING_VAR")
_STATISTICS = ("Y", "MEAN", "INV_VARIANCE")
_GRADIENTS = ("DX", "DSCALE", "DBIAS")


@dataclass(frozen=True, slots=True)
class Row:
    """A tag: the builder's method, its parameters by port and by attribute, and the ports of what it returns."""

    method: str
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    attributes: Mapping[str, tuple[str, Read]] = field(default_factory=dict)  # "" as parameter: looked at only
    has_compute_type: bool = True


_PARAMETERS = {
    "relu_lower_clip": "relu_lower_clip", "relu_upper_clip": "relu_upper_clip",
    "relu_lower_clip_slope": "relu_lower_clip_slope", "swish_beta": "swish_beta", "elu_alpha": "elu_alpha",
    "softplus_beta": "softplus_beta",
}  # fmt: skip
TAGS: Mapping[str, Row] = {
    "CONV_FPROP": Row("conv_fprop", {"X": "image", "W": "weight"}, ("Y",), _CONVOLUTION),
    "CONV_DGRAD": Row("conv_dgrad", {"DY": "loss", "W": "filter"}, ("DX",), _CONVOLUTION),
    "CONV_WGRAD": Row("conv_wgrad", {"X": "image", "DY": "loss"}, ("DW",), _CONVOLUTION),
    "POINTWISE": Row(
        "pointwise", {"IN_0": "IN_0", "IN_1": "IN_1", "IN_2": "IN_2"}, ("OUT_0",),
        {"mode": ("mode", partial(member, PointwiseMode)), "axis": ("axis", integer),
         **{name: (field, number) for name, field in _PARAMETERS.items()}},
    ),
    "MATMUL": Row("matmul", {"A": "A", "B": "B"}, ("C",), {"padding_value": ("padding", number)}),
    "REDUCTION": Row(
        "reduction", {"X": "input"}, ("Y",),
        {"mode": ("mode", _MEMBER[ReductionOperator]), "is_deterministic": ("", only(False))},
    ),
    "GENSTATS": Row("genstats", {"X": "input"}, ("SUM", "SQ_SUM")),
    "BATCHNORM": Row(
        "batchnorm", {**_FORWARD, **_RUNNING}, (*_STATISTICS, *_NEXT), {"peer_stats": ("", only([]))}
    ),
    "BATCHNORM_INFERENCE": Row("batchnorm_inference", {"X": "input", **_AFFINE, **_SAVED}, ("Y",)),
    "DBN": Row("batchnorm_backward", _BACKWARD, _GRADIENTS, {"peer_stats": ("", only([]))}),
    "DBN_WEIGHT": Row(
        "dbn_weight", {"DY": "dy", "X": "x", "SCALE": "scale", **_SAVED},
        ("DSCALE", "DBIAS", "EQ_SCALE_DY", "EQ_SCALE_X", "EQ_BIAS"),
    ),
    "BN_FINALIZE": Row(
        "bn_finalize",
        {"SUM": "sum", "SQ_SUM": "sq_sum", **_AFFINE, "EPSILON": "epsilon", "ACCUM_COUNT": "accum_count", **_RUNNING},
        ("EQ_SCALE", "EQ_BIAS", "MEAN", "INV_VARIANCE", *_NEXT),
    ),
    "LAYER_NORM": Row("layernorm", _FORWARD, _STATISTICS, _PHASE),
    "ADA_LAYER_NORM": Row("adalayernorm", _FORWARD, _STATISTICS, _PHASE),
    "INSTANCE_NORM": Row("instancenorm", _FORWARD, _STATISTICS, _PHASE),
    "RMS_NORM": Row("rmsnorm", _FORWARD, ("Y", "INV_VARIANCE"), {**_PHASE, "use_dbias": ("", only(None, True, False))}),
    "LAYER_NORM_BPROP": Row("layernorm_backward", _BACKWARD, _GRADIENTS),
    "ADA_LAYER_NORM_BPROP": Row("adalayernorm_backward", _BACKWARD, _GRADIENTS),
    "INSTANCE_NORM_BPROP": Row("instancenorm_backward", _BACKWARD, _GRADIENTS),
    "RMS_NORM_BPROP": Row(
        "rmsnorm_backward", {k: v for k, v in _BACKWARD.items() if k != "MEAN"}, _GRADIENTS,
        {"use_dbias": ("has_dbias", boolean)},
    ),
    "RESAMPLE": Row(
        "resample", {"X": "input"}, ("Y", "Index"),
        {"resample_mode": ("mode", _MEMBER[ResampleMode]), "padding_mode": ("padding_mode", _MEMBER[PaddingMode]),
         "window": ("window", integers), "stride": ("stride", integers), "pre_padding": ("pre_padding", integers),
         "post_padding": ("post_padding", integers), "generate_index": ("generate_index", boolean)},
    ),
    "RESHAPE": Row(
        "reshape", {"X": "input"}, ("Y",),
        {"reshape_mode": ("reshape_mode", _MEMBER[ReshapeMode]), "dim": ("", integers), "stride": ("", integers)},
        has_compute_type=False,
    ),
    "TRANSPOSE": Row("transpose", {"X": "input"}, ("Y",), {"permutation": ("permutation", integers)}),
    "SLICE": Row(
        "slice", {"X": "input"}, ("Y",),
        {"slices": ("slices", lambda name, value: value), "slice_strides": ("strides", integers)},
    ),
    "CONCATENATE": Row(
        "concatenate", {}, ("Y",), {"axis": ("axis", integer), "in_place_index": ("", only(None))},
        has_compute_type=False,
    ),
    "RNG": Row(
        "rng", {"Seed": "seed", "Offset": "offset"}, ("Y",),
        {"distribution": ("distribution", _MEMBER[RngDistribution]), "seed": ("seed", integer),
         "bernoulli_probability": ("probability", number), "dim": ("", integers), "stride": ("", integers)},
        has_compute_type=False,
    ),
}  # fmt: skip
