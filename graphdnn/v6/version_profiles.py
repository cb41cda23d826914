"""Profiles: what a release refused, as constraints. Without one, whatever can be computed is computed.

``with profile("6.0"):`` makes convolutions refuse what 6.0 refused of element types, formats, channel counts, dilation
and algorithms, and say which of its conditions it was: all that are broken, at once.
``releases.py`` says what came with which release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from graphdnn.checks import Each, Equals, MultipleOf, OneOf
from graphdnn.enums import Status
from graphdnn.errors import Rejection
from graphdnn.rules import Constraint, Rule, violations
from graphdnn.v6.algorithms import outside_tables
from graphdnn.v6.convolution_query import ConvolutionQuery
from graphdnn.v6.descriptor_values import Filter, Tensor
from graphdnn.v6.enums import cudnnConvolutionFwdAlgo_t, cudnnDataType_t, cudnnTensorFormat_t
from graphdnn.v6.errors import CudnnError, refuse_if
from graphdnn.v6.functions import Function
from graphdnn.v6.layouts import element_of, format_strides
from graphdnn.v6.releases import RELEASES, active, asking_for, before, is_newer, newer_enumerator

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
    expected=", ".join(RELEASES[:-1]) + " or " + RELEASES[-1],
    reason="no other release is described",
    fix="use one of them, or no profile",
)


def _format(f: ConvolutionQuery) -> Format:
    """What integer data has to lie in."""
    return Format.CUDNN_TENSOR_NCHW_VECT_C if f.x.data_type is _INT8X4 else Format.CUDNN_TENSOR_NHWC


def _packed(value: Tensor, tensor_format: Format) -> tuple[int, ...]:
    return format_strides(tensor_format, value.dims, element_of(value.data_type)[1])


def _y_format(f: ConvolutionQuery) -> Format:
    to_float = f.y.data_type is _FLOAT and f.x.data_type is _INT8X4
    return Format.CUDNN_TENSOR_NCHW if to_float else _format(f)


_FIX_LAYOUT = "convert with cudnnTransformTensor, or leave the profile: without it any layout is computed"
_REASON_LAYOUT = "6.0 computed INT8 in packed NHWC only, and INT8x4 in NCHW_VECT_C"
_FIX_CHANNELS = "pad the channels with zeros to a multiple of four, or leave the profile"
_N = Status.NOT_SUPPORTED


def _integer(f: ConvolutionQuery) -> bool:
    return f.is_integer


def _configurations() -> list[str]:
    """Of the release: integers came with 6.0."""
    found = [c for c in CONFIGURATIONS.values() if c[1] is not _INT32 or not before("6.0")]
    return ["/".join(t.name.removeprefix("CUDNN_DATA_") for t in c) for c in found]


CONVOLUTIONS: tuple[Constraint, ...] = (
    Constraint(
        id="v6.profile.configuration",
        attribute="xDesc.dataType, convDesc.computeType, yDesc.dataType",
        look=lambda f: "/".join(t.name.removeprefix("CUDNN_DATA_") for t in f.types),
        check=lambda _: OneOf(*_configurations()),
        reason="these are the combinations of types in the release's manual",
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
        id="v6.profile.dilation.none",
        attribute="convDesc.dilation",
        look=lambda f: f.conv.dilation,
        check=Each(Equals(1)),
        when=lambda _: before("6.0"),
        reason="dilation came with 6.0",
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
        when=lambda _: before("7.0"),
        reason="groups came with 7.0",
        fix="use one group, or leave the profile",
        status=_N,
    ),
)


# Beside convolutions: enumerators, functions and types that came later or were gone.

_REMOVED = ("filter", "pooling", "activation")  # families whose _v3 and _v4 calls of 5.1 were gone
_CONVOLUTIONS = ("cudnnConvolutionForward", "cudnnConvolutionBiasActivationForward", "cudnnConvolutionBackwardData",
                 "cudnnConvolutionBackwardFilter")  # fmt: skip
_TAKES_INT8 = ("cudnnTransformTensor", "cudnnOpTensor", "cudnnReduceTensor")

ENUMERATOR = Rule(
    id="v6.profile.enumerator",
    expected="an enumerator of {release}",
    reason="it came with {since}",
    fix="use another one, or leave the profile",
    status=_N,
)
FUNCTION = Rule(
    id="v6.profile.function",
    expected="a function of {release}",
    reason="{reason}",
    fix="use the function that {release} had, or leave the profile",
    status=_N,
)
INTEGERS = Rule(
    id="v6.profile.integers",
    expected="{expected}",
    reason="the release had this call for these types",
    fix="convert with cudnnTransformTensor, or leave the profile",
    status=_N,
)
INNERMOST = Rule(
    id="v6.profile.pooling.stride",
    expected="1 along the last axis",
    reason="the manuals require contiguous rows",
    fix="use NCHW, or leave the profile",
    status=_N,
)
BIAS = Rule(
    id="v6.profile.bias",
    expected="{expected}",
    reason="the release read the bias with this type and these extents",
    fix="convert the bias, or leave the profile",
    status=_N,
)


@contextmanager
def profile(release: str) -> Iterator[None]:
    """Refuse what a release of cuDNN refused, for the calls of this thread inside a ``with`` block.

    Args:
        release: "5.1", "6.0", "7.0" or "7.5".

    Raises:
        CudnnError: There is no profile of this release.
    """
    if release not in RELEASES:
        raise CudnnError(UNKNOWN.reject("profile", "release", release))
    with asking_for(release):
        yield


def outside(where: str, question: ConvolutionQuery) -> tuple[Rejection, ...]:
    """Every condition of the release that the convolution breaks, whatever its direction; without a profile, of 6.0."""
    return (*violations(CONVOLUTIONS, question, where), *outside_tables(where, question))


def check_convolution(where: str, question: ConvolutionQuery) -> None:
    """Raise what the active profile refuses."""
    if active():
        refuse_if(outside(where, question))


def check_call(where: str, settings: object) -> None:
    """Raise what the active profile refuses of any call: by the values of its descriptors and its enumerators."""
    parts = tuple(_flat(settings))
    found = list(_newer(where, parts))
    if where not in _CONVOLUTIONS:
        allowed = (_FLOAT, _HALF, _DOUBLE, *((_INT8, _INT8X4) if _takes_int8(where) else ()))
        expected = ", ".join(t.name for t in allowed)
        kinds = {p.data_type for p in parts if isinstance(p, (Tensor, Filter))}
        found += [INTEGERS.reject(where, "dataType", k.name, expected=expected) for k in kinds if k not in allowed]
    refuse_if(found)


def _flat(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, tuple):
        for item in value:
            yield from _flat(item)


def _takes_int8(where: str) -> bool:
    return not before("6.0") and (where in _TAKES_INT8 or (where == "cudnnPoolingForward" and not before("7.0")))


def _newer(where: str, values: Iterable[object]) -> Iterator[Rejection]:
    for value in values:
        since = newer_enumerator(value.name) if isinstance(value, IntEnum) else ""
        if isinstance(value, IntEnum) and since:
            yield ENUMERATOR.reject(where, type(value).__name__, value.name, release=active(), since=since)


def check_enumerators(where: str, arguments: Iterable[object]) -> None:
    """Raise for enumerators among a call's arguments that the active profile did not have."""
    refuse_if(_newer(where, arguments))


def check_function(row: Function) -> None:
    """Raise for a function that the active profile did not have."""
    release = active()
    if is_newer(row.since, release):
        since = row.since.replace("7.x", "7.0")
        reason = f"it came with {since}"
    elif row.family in _REMOVED and row.since == "5.1" and row.name.endswith(("_v3", "_v4")) and not before("6.0"):
        reason = "6.0 had dropped it"
    else:
        return
    raise CudnnError(FUNCTION.reject(row.name, "function", row.name, release=release, reason=reason))


def check_pooling(where: str, **tensors: Tensor) -> None:
    """Raise for tensors whose last axis does not lie close, in a profile."""
    if active():
        refuse_if(
            INNERMOST.reject(where, f"{name}.strides", t.strides) for name, t in tensors.items() if t.strides[-1] != 1
        )


def check_bias(where: str, bias: Tensor, y: Tensor) -> None:
    """Raise for a bias of another type or with gaps, in a profile."""
    if not active():
        return
    wanted = y.data_type if y.data_type in (_DOUBLE, _HALF) else _FLOAT
    found = []
    if bias.data_type is not wanted:
        found.append(BIAS.reject(where, "biasDesc.dataType", bias.data_type.name, expected=wanted.name))
    if bias.strides[1] != 1:
        found.append(BIAS.reject(where, "biasDesc.strides", bias.strides, expected="channels that lie close"))
    refuse_if(found)
