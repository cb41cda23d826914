"""Profiles: what a release refused, as constraints. Without one, whatever can be computed is computed.

``with profile("6.0"):`` makes convolutions refuse what 6.0 refused of element types, formats, channel counts, dilation
and algorithms, and say which of its conditions it was: all that are broken, at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from graphdnn.checks import Each, Equals, MultipleOf, OneOf
from graphdnn.enums import Status
from graphdnn.errors import Rejection
from graphdnn.rules import Constraint, Rule, violations
from graphdnn.v6.algorithms import outside_tables
from graphdnn.v6.convolution_query import Question
from graphdnn.v6.descriptor_values import Filter, Tensor
from graphdnn.v6.enums import cudnnConvolutionFwdAlgo_t, cudnnDataType_t, cudnnTensorFormat_t
from graphdnn.v6.errors import CudnnError, refuse_if
from graphdnn.v6.functions import Function
from graphdnn.v6.layouts import element_of, format_strides

D = cudnnDataType_t
Format = cudnnTensorFormat_t
_INT8, _INT8X4, _FLOAT, _HALF, _DOUBLE = (
    D.CUDNN_DATA_INT8, D.CUDNN_DATA_INT8x4, D.CUDNN_DATA_FLOAT, D.CUDNN_DATA_HALF, D.CUDNN_DATA_DOUBLE,
)  # fmt: skip
_INT32 = D.CUDNN_DATA_INT32

# (data, compute type, output) of the 6.0 manual
CONFIGURATIONS = {
    "TRUE_HALF_CONFIG": (_HALF, _HALF, _HALF),
    "PSEUDO_HALF_CONFIG": (_HALF, _FLOAT, _HALF),
    "FLOAT_CONFIG": (_FLOAT, _FLOAT, _FLOAT),
    "DOUBLE_CONFIG": (_DOUBLE, _DOUBLE, _DOUBLE),
    "INT8_CONFIG": (_INT8, _INT32, _INT8),
    "INT8_EXT_CONFIG": (_INT8, _INT32, _FLOAT),
    "INT8x4_CONFIG": (_INT8X4, _INT32, _INT8X4),
    "INT8x4_EXT_CONFIG": (_INT8X4, _INT32, _FLOAT),
}
UNKNOWN = Rule(
    id="v6.profile.unknown",
    expected="6.0",
    reason="no other release is described",
    fix='use profile("6.0"), or no profile',
)


def _format(f: Question) -> Format:
    """What integer data has to lie in."""
    return Format.CUDNN_TENSOR_NCHW_VECT_C if f.x.data_type is _INT8X4 else Format.CUDNN_TENSOR_NHWC


def _packed(value: Tensor, tensor_format: Format) -> tuple[int, ...]:
    return format_strides(tensor_format, value.dims, element_of(value.data_type)[1])


def _y_format(f: Question) -> Format:
    to_float = f.y.data_type is _FLOAT and f.x.data_type is _INT8X4
    return Format.CUDNN_TENSOR_NCHW if to_float else _format(f)


_FIX_LAYOUT = "convert with cudnnTransformTensor, or leave the profile: without it any layout is computed"
_REASON_LAYOUT = "6.0 computed INT8 in packed NHWC only, and INT8x4 in NCHW_VECT_C"
_FIX_CHANNELS = "pad the channels with zeros to a multiple of four, or leave the profile"
_N = Status.NOT_SUPPORTED


def _integer(f: Question) -> bool:
    return f.is_integer


SIX: tuple[Constraint, ...] = (
    Constraint(
        id="v6.profile.configuration",
        attribute="xDesc.dataType, convDesc.computeType, yDesc.dataType",
        look=lambda f: "/".join(t.name.removeprefix("CUDNN_DATA_") for t in f.types),
        check=OneOf(*("/".join(t.name.removeprefix("CUDNN_DATA_") for t in c) for c in CONFIGURATIONS.values())),
        reason="these are the combinations of types in the manual of 6.0",
        fix="use one of them, or leave the profile",
        status=_N,
    ),
    Constraint(
        id="v6.profile.channels",
        attribute="xDesc channels",
        look=lambda f: f.x.dims[1],
        check=MultipleOf(4),
        when=_integer,
        reason="6.0 multiplied four int8 values at once",
        fix=_FIX_CHANNELS,
        status=_N,
    ),
    Constraint(
        id="v6.profile.filters",
        attribute="wDesc outputs",
        look=lambda f: f.w.dims[0],
        check=MultipleOf(4),
        when=lambda f: f.is_integer and f.y.data_type is not _FLOAT,
        reason="6.0 wrote four int8 channels at once",
        fix=_FIX_CHANNELS,
        status=_N,
    ),
    Constraint(
        id="v6.profile.x.format",
        attribute="xDesc.strides",
        look=lambda f: f.x.strides,
        check=lambda f: Equals(_packed(f.x, _format(f))),
        when=_integer,
        reason=_REASON_LAYOUT,
        fix=_FIX_LAYOUT,
        status=_N,
    ),
    Constraint(
        id="v6.profile.w.format",
        attribute="wDesc.format",
        look=lambda f: f.w.format.name,
        check=lambda f: Equals(_format(f).name),
        when=_integer,
        reason=_REASON_LAYOUT,
        fix=_FIX_LAYOUT,
        status=_N,
    ),
    Constraint(
        id="v6.profile.y.format",
        attribute="yDesc.strides",
        look=lambda f: f.y.strides,
        check=lambda f: Equals(_packed(f.y, _y_format(f))),
        when=_integer,
        reason=_REASON_LAYOUT,
        fix=_FIX_LAYOUT,
        status=_N,
    ),
    Constraint(
        id="v6.profile.algorithm",
        attribute="algo",
        look=lambda f: f.algorithm.name,
        check=Equals(cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM.name),
        when=_integer,
        reason="6.0 had integers in one algorithm (its manual misspells the name as ..._PRECOMPUTED_GEMM)",
        fix="use that algorithm, or leave the profile",
        status=_N,
    ),
    Constraint(
        id="v6.profile.dilation",
        attribute="convDesc.dilation",
        look=lambda f: f.conv.dilation,
        check=Each(Equals(1)),
        when=_integer,
        reason="6.0 had integers without dilation",
        fix="use dilation 1, or leave the profile",
        status=_N,
    ),
    Constraint(
        id="v6.profile.rank",
        attribute="xDesc.dims",
        look=lambda f: f"{len(f.x.dims)} axes",
        check=Equals("4 axes"),
        when=_integer,
        reason="6.0 had integers in two dimensions",
        fix="use a 2-d convolution, or leave the profile",
        status=_N,
    ),
    Constraint(
        id="v6.profile.groups",
        attribute="convDesc.groupCount",
        look=lambda f: f.conv.groups,
        check=Equals(1),
        reason="groups came with 7.0",
        fix="use one group, or leave the profile",
        status=_N,
    ),
)


# Beside convolutions: enumerators, functions and types that came later or were gone.

NEWER = frozenset({
    "CUDNN_DATA_UINT8", "CUDNN_DATA_UINT8x4", "CUDNN_DATA_INT8x32", "CUDNN_OP_TENSOR_NOT",
    "CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS", "CUDNN_ACTIVATION_IDENTITY", "CUDNN_BATCHNORM_SPATIAL_PERSISTENT",
    "CUDNN_TENSOR_OP_MATH", "CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION",
})  # fmt: skip
_REMOVED = ("filter", "pooling", "activation")  # families whose _v3 and _v4 calls of 5.1 were gone
_CONVOLUTIONS = ("cudnnConvolutionForward", "cudnnConvolutionBiasActivationForward", "cudnnConvolutionBackwardData",
                 "cudnnConvolutionBackwardFilter")  # fmt: skip
_TAKES_INT8 = ("cudnnTransformTensor", "cudnnOpTensor", "cudnnReduceTensor")

ENUMERATOR = Rule(
    id="v6.profile.enumerator",
    expected="an enumerator of 6.0",
    reason="it came with a later release",
    fix="use another one, or leave the profile",
    status=_N,
)
FUNCTION = Rule(
    id="v6.profile.function",
    expected="a function of 6.0",
    reason="{reason}",
    fix="use the function that 6.0 had, or leave the profile",
    status=_N,
)
INTEGERS = Rule(
    id="v6.profile.integers",
    expected="{expected}",
    reason="6.0 had this call for these types",
    fix="convert with cudnnTransformTensor, or leave the profile",
    status=_N,
)
INNERMOST = Rule(
    id="v6.profile.pooling.stride",
    expected="1 along the last axis",
    reason="the manual of 6.0 asks for rows that lie close",
    fix="use NCHW, or leave the profile",
    status=_N,
)
BIAS = Rule(
    id="v6.profile.bias",
    expected="{expected}",
    reason="6.0 read the bias so",
    fix="convert the bias, or leave the profile",
    status=_N,
)


class _Thread(threading.local):
    release = ""


_thread = _Thread()


@contextmanager
def profile(release: str) -> Iterator[None]:
    """Inside, calls of this thread refuse what this release refused."""
    if release != "6.0":
        raise CudnnError(UNKNOWN.reject("profile", "release", release))
    before = _thread.release
    _thread.release = release
    try:
        yield
    finally:
        _thread.release = before


def active() -> str:
    """The profile of this thread, "" for none: part of the key of a kept plan."""
    return _thread.release


def outside(where: str, question: Question) -> tuple[Rejection, ...]:
    """Every condition of 6.0 that the convolution breaks, whatever its direction."""
    return (*violations(SIX, question, where), *outside_tables(where, question))


def check_convolution(where: str, question: Question) -> None:
    """Raise what the active profile refuses."""
    if _thread.release:
        refuse_if(outside(where, question))


def check_call(where: str, settings: object) -> None:
    """Raise what the active profile refuses of any call: by the values of its descriptors and its enumerators."""
    parts = tuple(_flat(settings))
    found = [ENUMERATOR.reject(where, type(p).__name__, p.name) for p in parts if isinstance(p, IntEnum)
             and p.name in NEWER]  # fmt: skip
    if where not in _CONVOLUTIONS:
        allowed = (_FLOAT, _HALF, _DOUBLE, *((_INT8, _INT8X4) if where in _TAKES_INT8 else ()))
        expected = ", ".join(t.name for t in allowed)
        kinds = {p.data_type for p in parts if isinstance(p, (Tensor, Filter))}
        found += [INTEGERS.reject(where, "dataType", k.name, expected=expected) for k in kinds if k not in allowed]
    refuse_if(found)


def _flat(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, tuple):
        for item in value:
            yield from _flat(item)


def check_function(row: Function) -> None:
    """Raise for a function that the active profile did not have."""
    if not _thread.release:
        return
    if row.since == "7.x":
        raise CudnnError(FUNCTION.reject(row.name, "function", row.name, reason="it came with 7.0"))
    if row.family in _REMOVED and row.since == "5.1" and row.name.endswith(("_v3", "_v4")):
        raise CudnnError(FUNCTION.reject(row.name, "function", row.name, reason="6.0 had dropped it"))


def check_pooling(where: str, **tensors: Tensor) -> None:
    """Raise for tensors whose last axis does not lie close, in a profile."""
    if _thread.release:
        refuse_if(
            INNERMOST.reject(where, f"{name}.strides", t.strides) for name, t in tensors.items() if t.strides[-1] != 1
        )


def check_bias(where: str, bias: Tensor, y: Tensor) -> None:
    """Raise for a bias of another type or with gaps, in a profile."""
    if not _thread.release:
        return
    wanted = y.data_type if y.data_type in (_DOUBLE, _HALF) else _FLOAT
    found = []
    if bias.data_type is not wanted:
        found.append(BIAS.reject(where, "biasDesc.dataType", bias.data_type.name, expected=wanted.name))
    if bias.strides[1] != 1:
        found.append(BIAS.reject(where, "biasDesc.strides", bias.strides, expected="channels that lie close"))
    refuse_if(found)
