"""Convolution algorithms: what each of them takes, what it promises, and which engine computes it.

The rows are in ``algorithm_rows``. An algorithm's own limits (filters of 3x3, no stride) are refused always. What a row
says about types, formats and dilation describes a release: it is refused in ``profile("6.0")`` only, and without a
profile decides what is proposed first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

from graphdnn.checks import AtMost, Check, Each, Equals, OneOf
from graphdnn.enums import Status
from graphdnn.errors import Rejection
from graphdnn.rules import Constraint, violations
from graphdnn.tensors import channels_last_strides, packed_strides
from graphdnn.v6.algorithm_table import DEVICE_ENGINES, HOST_ENGINES, HOST_ENGINES_WITHOUT_WORKSPACE, OWN_MEMORY, TEXT
from graphdnn.v6.convolution_query import ConvolutionQuery
from graphdnn.v6.descriptor_values import Tensor
from graphdnn.v6.enums import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnDataType_t,
    cudnnDeterminism_t,
    cudnnTensorFormat_t,
)
from graphdnn.v6.releases import before
from graphdnn.v6.rules import ALGORITHM

D = cudnnDataType_t
_HALF, _FLOAT, _DOUBLE = D.CUDNN_DATA_HALF, D.CUDNN_DATA_FLOAT, D.CUDNN_DATA_DOUBLE
_NHWC = cudnnTensorFormat_t.CUDNN_TENSOR_NHWC
_CONFIGURATIONS = {
    (_HALF, _FLOAT, _HALF): "H", (_FLOAT, _FLOAT, _FLOAT): "F", (_DOUBLE, _DOUBLE, _DOUBLE): "D",
    (_HALF, _HALF, _HALF): "T",
}  # fmt: skip
_PASSES: dict[str, type[IntEnum]] = {
    "FWD": cudnnConvolutionFwdAlgo_t, "BWD_FILTER": cudnnConvolutionBwdFilterAlgo_t,
    "BWD_DATA": cudnnConvolutionBwdDataAlgo_t,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the manuals' tables."""

    algorithm: IntEnum
    spatial: int
    deterministic: bool
    types: str
    x_format: str
    y_format: str
    filters: tuple[int, ...]  # sides that are allowed; empty for any
    longest: int  # side of a filter; 0 for any
    line: bool
    padded: int  # largest side of the padded image; 0 for any
    covers_padding: bool
    unit_stride: bool
    unit_dilation: bool
    dilates: bool  # 6.0 did
    nhwc: bool


def _row(line: str) -> Row:
    name, spatial, promise, types, x, y, text = (cell.strip() for cell in line.split(" | "))
    words = set(text.split())
    named = {key: value for key, _, value in (w.replace("<=", "=").partition("=") for w in words)}
    direction = next(d for d in _PASSES if name.startswith(d))
    longest = int(named["filter"]) if "filter" in named and "filter=" not in text else 0
    return Row(
        algorithm=_PASSES[direction][f"CUDNN_CONVOLUTION_{name}"],
        spatial=int(spatial),
        deterministic=promise == "same",
        types=types,
        x_format=x,
        y_format=y,
        filters=() if longest or "filter" not in named else tuple(map(int, named["filter"].split(","))),
        longest=longest,
        line="line" in words,
        padded=int(named.get("padded", 0)),
        covers_padding="pad<filter" in words,
        unit_stride="stride=1" in words,
        unit_dilation="dilation=1" in words,
        dilates=not words & {"dilation=1", "dilation:6.0"},
        nhwc="NHWC" in words,
    )


@cache
def rows() -> dict[tuple[str, int], Row]:
    """(algorithm's name, spatial axes) -> row; members of different enums are equal where their integers are."""
    return {(row.algorithm.name, row.spatial): row for row in map(_row, TEXT.splitlines())}


def members(kind: type[IntEnum]) -> tuple[IntEnum, ...]:
    """All algorithms of a direction, even if no release implemented them."""
    return tuple(a for a in kind if not a.name.endswith("_COUNT"))


def is_implemented(algorithm: IntEnum) -> bool:
    """False for names that the header declares and no release computes."""
    return any(row.algorithm is algorithm for row in rows().values())


def determinism(algorithm: IntEnum) -> cudnnDeterminism_t:
    """What the manual promises; the engines here always give equal bits."""
    found = [row.deterministic for row in rows().values() if row.algorithm is algorithm]
    return cudnnDeterminism_t.CUDNN_DETERMINISTIC if all(found) else cudnnDeterminism_t.CUDNN_NON_DETERMINISTIC


def engines_of(algorithm: IntEnum, place: str) -> tuple[tuple[str, ...], ...]:
    """Names of the engines that compute an algorithm on devices of a kind, preferred engines first."""
    if place == "cpu":
        return HOST_ENGINES_WITHOUT_WORKSPACE if brings_memory(algorithm) else HOST_ENGINES
    return DEVICE_ENGINES[_last_words(algorithm)]


def brings_memory(algorithm: IntEnum) -> bool:
    """Whether an algorithm asks its caller for no workspace, whatever its plan needs."""
    return _last_words(algorithm) in OWN_MEMORY


def _last_words(algorithm: IntEnum) -> str:
    return algorithm.name.partition("_ALGO_")[2]


def _is_special(algorithm: IntEnum) -> bool:
    """Transforms, which cannot take everything; matrix products can."""
    return any(word in algorithm.name for word in ("FFT", "WINOGRAD"))


def _of(q: ConvolutionQuery) -> Row | None:
    return rows().get((q.algorithm.name, q.spatial))


def _short(q: ConvolutionQuery) -> str:
    return q.algorithm.name.removeprefix("CUDNN_CONVOLUTION_")


def _applies(field: str) -> Callable[[ConvolutionQuery], bool]:
    def applies(q: ConvolutionQuery) -> bool:
        row = _of(q)
        return row is not None and bool(getattr(row, field))

    return applies


def _limit(field: str, attribute: str, look: Callable[[ConvolutionQuery], object], check: Any, reason: str,
           fix: str) -> Constraint:  # fmt: skip
    return Constraint(
        id=f"v6.algorithm.{field}",
        attribute=attribute,
        look=look,
        check=check,
        when=_applies(field),
        reason=reason,
        fix=f"{fix}, or use an algorithm of matrix products (GEMM, ALGO_0, ALGO_1)",
        status=Status.NOT_SUPPORTED,
    )


def _found(q: ConvolutionQuery) -> Row:
    row = _of(q)
    assert row is not None
    return row


def _longest_side(q: ConvolutionQuery) -> Check:
    """Filters of one row or column may be longer."""
    row = _found(q)
    return Each(AtMost(256 if q.spatial == 2 and 1 in q.sides else row.longest))


def _padded(q: ConvolutionQuery) -> tuple[int, ...]:
    return tuple(extent + 2 * p for extent, p in zip(q.x.dims[2:], q.conv.padding, strict=True))


def _line(q: ConvolutionQuery) -> Check | None:
    if any(q.x.dims[2 + i] == q.y.dims[2 + i] == 1 and q.x.dims[3 - i] <= 256 for i in (0, 1)):
        return None
    return Equals("both of height 1 or both of width 1, the other side at most 256")


def _padding(q: ConvolutionQuery) -> Check | None:
    covered = all(p < side for p, side in zip(q.conv.padding, q.sides, strict=True))
    return None if covered else Equals(f"less than the filter's sides {q.sides}")


LIMITS: tuple[Constraint, ...] = (
    Constraint(
        id="v6.algorithm.axes",
        attribute="algo",
        look=_short,
        check=lambda q: OneOf(*(r.algorithm.name for r in rows().values() if r.spatial == q.spatial
                                and type(r.algorithm) is type(q.algorithm))),
        when=lambda q: _is_special(q.algorithm) and _of(q) is None,
        reason="no release had this transform for this number of spatial axes",
        fix="use an algorithm of matrix products (GEMM, ALGO_0, ALGO_1)",
        status=Status.NOT_SUPPORTED,
    ),
    Constraint(
        id="v6.algorithm.integers",
        attribute="algo",
        look=_short,
        check=Equals("an algorithm of matrix products"),
        when=lambda q: _is_special(q.algorithm) and q.types[1] is D.CUDNN_DATA_INT32,
        reason="sums of integers have to be exact, and transforms round",
        fix="use CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM",
        status=Status.NOT_SUPPORTED,
    ),
    _limit("filters", "wDesc.dims", lambda q: q.sides, lambda q: OneOf(*((n,) * q.spatial for n in _found(q).filters)),
           "the transform is made for these filters", "use such a filter"),
    _limit("longest", "wDesc.dims", lambda q: q.sides, _longest_side,
           "the filter is longer than a tile of the transform", "use a shorter filter"),
    _limit("line", "xDesc.dims, yDesc.dims", lambda q: (q.x.dims[2:], q.y.dims[2:]), _line,
           "this transform runs along one axis", "reshape the images to one row"),
    _limit("padded", "xDesc.dims", _padded, lambda q: Each(AtMost(_found(q).padded)),
           "the whole padded image is transformed", "cut the image"),
    _limit("covers_padding", "convDesc.pad", lambda q: q.conv.padding,
           _padding, "every tile of the transform has to read at least one element of the image", "use less padding"),
    _limit("unit_stride", "convDesc.stride", lambda q: q.conv.stride, Each(Equals(1)),
           "the transform computes every position", "use stride 1"),
    _limit("unit_dilation", "convDesc.dilation", lambda q: q.conv.dilation, Each(Equals(1)),
           "the transform takes neighbouring taps", "use dilation 1"),
)  # fmt: skip


def refusals(where: str, q: ConvolutionQuery) -> Iterator[Rejection]:
    """Why the algorithm cannot compute this, in any release: nothing where it can."""
    if not is_implemented(q.algorithm):
        yield ALGORITHM.reject(where, "algo", q.algorithm.name)
        return
    yield from violations(LIMITS, q, where)


# What the tables of 6.0 leave out.


def _is_packed(value: Tensor, axes: int) -> bool:
    """Whether the last ``axes`` axes lie in memory like those of a packed NCHW tensor."""
    wanted = packed_strides(value.dims)
    places = zip(value.dims[-axes:], value.strides[-axes:], wanted[-axes:], strict=True)
    return all(extent == 1 or stride == packed for extent, stride, packed in places)


def _fits(value: Tensor, tensor_format: str) -> bool:
    rank = len(value.dims)
    axes = {"any": 0, "HW": rank - 2, "CHW": rank - 1, "packed": rank}[tensor_format]
    return axes == 0 or _is_packed(value, axes)


def _takes(row: Row, q: ConvolutionQuery) -> bool:
    letter = _CONFIGURATIONS.get(q.types, "?")
    narrowed = {":1": 1 in q.sides, ":3": q.sides == (3, 3)}
    kinds, colon, mark = row.types.partition(":")
    if letter == "T" and not q.is_forward and not before("7.0"):  # true half, backward as well
        letter = "H"
    return letter in kinds and (not colon or letter != kinds[-1] or narrowed[colon + mark])


def _formats(q: ConvolutionQuery) -> str:
    return f"{q.names[0]} strides {q.x.strides}, {q.names[2]} strides {q.y.strides}, filter {q.w.format.name}"


def _formats_fit(q: ConvolutionQuery) -> bool:
    row = _found(q)
    if q.w.format is not _NHWC:
        return _fits(q.x, row.x_format) and _fits(q.y, row.y_format)
    packed = all(t.strides == channels_last_strides(t.dims) for t in (q.x, q.y))
    return row.nhwc and packed and _CONFIGURATIONS.get(q.types) in ("H", "F")


_LEAVE = "use another algorithm or another type, or leave the profile: without the profile every case is computed"


def _floating(q: ConvolutionQuery) -> bool:
    return not q.is_integer and _of(q) is not None


TABLE: tuple[Constraint, ...] = (
    Constraint(
        id="v6.profile.algorithm.axes",
        attribute="algo",
        look=_short,
        check=Equals("an algorithm that the tables list for so many axes"),
        when=lambda q: not q.is_integer and _of(q) is None,
        reason="the manuals have this algorithm for another number of spatial axes",
        fix=_LEAVE,
        status=Status.NOT_SUPPORTED,
    ),
    Constraint(
        id="v6.profile.algorithm.types",
        attribute="xDesc.dataType, convDesc.computeType, yDesc.dataType",
        look=lambda q: "/".join(t.name.removeprefix("CUDNN_DATA_") for t in q.types),
        check=lambda q: None if _takes(_found(q), q) else Equals(f"what {_short(q)} took: {_found(q).types}"),
        when=_floating,
        reason="the algorithm was there for some types only (H pseudo half, F float, D double, T true half)",
        fix=_LEAVE,
        status=Status.NOT_SUPPORTED,
    ),
    Constraint(
        id="v6.profile.algorithm.formats",
        attribute="strides, wDesc.format",
        look=_formats,
        check=lambda q: (
            None if _formats_fit(q) else Equals(f"x {_found(q).x_format}, y {_found(q).y_format}: packed axes")
        ),
        when=_floating,
        reason="the algorithm read some layouts only, and filters in NHWC with packed NHWC tensors at best",
        fix=_LEAVE,
        status=Status.NOT_SUPPORTED,
    ),
    Constraint(
        id="v6.profile.algorithm.dilation",
        attribute="convDesc.dilation",
        look=lambda q: q.conv.dilation,
        check=lambda q: None if _found(q).dilates else Each(Equals(1)),
        when=lambda q: _floating(q) and before("7.3"),
        reason="releases before 7.3 dilated in IMPLICIT_GEMM and ALGO_0",
        fix=_LEAVE,
        status=Status.NOT_SUPPORTED,
    ),
)


def outside_tables(where: str, q: ConvolutionQuery) -> tuple[Rejection, ...]:
    """What the tables of 6.0 do not list; integers have conditions of their own."""
    return tuple(violations(TABLE, q, where))
