"""Makers of cases for the documented conditions of legacy calls: what differs from legal arguments, and the rule it breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from test_v6_statuses import GAPS_2D, IDENTITY, INT, OTHER, WIDE
from v6_tools import convolution, filter_of, tensor

from graphdnn import v6
from graphdnn.v6.descriptor_values import DESCRIPTORS, LRN, Filter, Tensor
from graphdnn.v6.functions import Function

FLOAT, DOUBLE, HALF, INT8 = v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_DOUBLE, v6.CUDNN_DATA_HALF, v6.CUDNN_DATA_INT8
INT32, INT8X4 = v6.CUDNN_DATA_INT32, v6.CUDNN_DATA_INT8x4
NCHW, NHWC, VECT = v6.CUDNN_TENSOR_NCHW, v6.CUDNN_TENSOR_NHWC, v6.CUDNN_TENSOR_NCHW_VECT_C
RELU = v6.CUDNN_ACTIVATION_RELU

Case = tuple[dict[str, Any], str]  # arguments that differ from legal ones, and the rule that they break
Make = Callable[[Function], list[Case]]  # ``PROFILE`` among the arguments: inside profile("6.0")


def case(rule: str, **changes: Any) -> Make:
    return lambda row: [(changes, rule)]


def cases(*makes: Make) -> Make:
    return lambda row: [found for make in makes for found in make(row)]


def in_profile(rule: str, **changes: Any) -> Make:
    return case(rule, **changes, PROFILE=True)


def null(*patterns: str) -> Make:
    """Null for each parameter of those names; for each that may not be null where none is named."""

    def make(row: Function) -> list[Case]:
        found = [p.name for p in row.inputs if any(re.fullmatch(n, p.name, re.IGNORECASE) for n in patterns)]
        assert found, patterns
        return [({name: None}, "v6.null") for name in found]

    return make


def descriptors(row: Function) -> list[Case]:
    """A handle or descriptor that is null, destroyed, of another kind or, where that matters, not set."""
    found: list[Case] = []
    for p in row.inputs:
        if p.kind != "Handle" and p.kind not in DESCRIPTORS:
            continue
        dead = v6.cudnnCreate() if p.kind == "Handle" else DESCRIPTORS[p.kind]()
        dead.destroyed = True
        found += [({p.name: None}, "v6.null"), ({p.name: dead}, "v6.destroyed"), ({p.name: object()}, "v6.kind")]
        sets = row.name.startswith(("cudnnSet", "cudnnDerive")) and p is row.inputs[0]
        if p.kind in DESCRIPTORS and not sets and p.kind != "LRNDescriptor":
            found.append(({p.name: DESCRIPTORS[p.kind]()}, "v6.unset"))
    return found


def unset(*names: str) -> Make:
    return lambda row: [
        ({p.name: DESCRIPTORS[p.kind]()}, "v6.unset") for p in row.inputs if p.kind in DESCRIPTORS and
        (not names or p.name in names)
    ]  # fmt: skip


def invalid(*names: str) -> Make:
    """A number that no enumerator has."""
    return lambda row: [({p.name: 1000}, "v6.enum") for p in row.inputs if p.name in names]


def each(rule: str, names: str, *values: Any) -> Make:
    """Each parameter of those names with each value."""
    return lambda row: [({p.name: v}, rule) for p in row.inputs if re.fullmatch(names, p.name) for v in values]


def made(kind: str, value: Any) -> Any:
    """A descriptor with a value that no setter takes."""
    desc = DESCRIPTORS[kind]()
    desc.value = value
    return desc


def flat(rank: int) -> Any:
    return made("TensorDescriptor", Tensor(FLOAT, (1,) * rank, (1,) * rank))


def filters(*dims: int, kind: Any = FLOAT, fmt: Any = NCHW) -> Any:
    return filter_of(dims, fmt, kind)


def plane(*dims: int, kind: Any = FLOAT, fmt: Any = NCHW) -> Any:
    return tensor(dims, fmt, kind)


def images(row: Function) -> tuple[str, str, str]:
    """The parameters that play x, w and y in any function of a convolution."""
    names = [p.name for p in row.inputs if p.kind in ("TensorDescriptor", "FilterDescriptor")][:3]
    if "BackwardData" in row.name:
        return names[2], names[0], names[1]
    return (names[0], names[2], names[1]) if "BackwardFilter" in row.name else (names[0], names[1], names[2])


def parts(rule: str, **changes: Any) -> Make:
    """``x``, ``w``, ``y`` stand for the descriptors that play these parts."""

    def make(row: Function) -> list[Case]:
        parts = dict(zip("xwy", images(row), strict=True))
        return [({parts.get(name, name): value for name, value in changes.items()}, rule)]

    return make


def small_rank(row: Function) -> list[Case]:
    """Fewer than three axes, which no setter takes."""
    x, w, y = images(row)
    line = made("FilterDescriptor", Filter(FLOAT, NCHW, (1, 1)))
    return [({x: flat(2), w: line, y: flat(2)}, "v6.dims"), ({x: flat(2)}, "v6.dims")]


def no_axes(row: Function) -> list[Case]:
    x, w, y = images(row)
    empty = made("FilterDescriptor", Filter(FLOAT, NCHW, ()))
    return [({x: flat(0)}, "v6.dims"), ({w: empty}, "v6.dims"), ({y: flat(0)}, "v6.dims")]


def fitting(rank: int) -> dict[str, Any]:
    """Descriptors of that many axes that fit together."""
    spatial = rank - 2
    return {
        "x": tensor((1,) * rank), "w": filter_of((1,) * rank), "y": tensor((1,) * rank),
        "convDesc": convolution((0,) * spatial, (1,) * spatial, (1,) * spatial),
    }  # fmt: skip


RANKS = cases(parts("v6.rank", **fitting(3)), parts("v6.rank", **fitting(6)))
DIFFERENT_RANKS = cases(*(parts("v6.dims", **{part: fitting(5)[part]}) for part in "xwy"))
CHANNELS = parts("v6.dims", x=WIDE)
TYPES = cases(parts("v6.data_type", x=OTHER), parts("v6.data_type", w=filters(1, 1, 1, 1, kind=HALF)))
TYPES_OF_ALL = cases(
    parts("v6.data_type", x=OTHER), parts("v6.data_type", w=filters(1, 1, 1, 1, kind=HALF)),
    parts("v6.data_type", y=OTHER),
)  # fmt: skip
UNEVEN = cases(
    parts("v6.dims", w=filters(1, 1, 2, 1)), parts("v6.dims", x=plane(1, 1, 2, 3), w=filters(1, 1, 1, 5)),
    parts("v6.dims", x=plane(1, 1, 4, 4), w=filters(1, 1, 3, 1), convDesc=convolution(dilation=(2, 1))),
)  # fmt: skip
WRONG_OUTPUT = parts("v6.dims", y=plane(1, 1, 1, 2))


def limited(row: Function) -> list[Case]:
    """Algorithms with limits of their own, and names that nobody implemented."""
    if "BackwardFilter" in row.name:
        found = [("v6.algorithm.filters", 5), ("v6.algorithm", 4)]
    elif "BackwardData" in row.name:
        found = [("v6.algorithm.filters", 4), ("v6.algorithm", 6)]
    else:
        found = [("v6.algorithm.filters", 6), ("v6.algorithm", 3)]
    return [({"algo": algo}, rule) for rule, algo in found]


WRONG_CONVOLUTION = cases(DIFFERENT_RANKS, CHANNELS, TYPES, UNEVEN)
STRIDED = made("TensorDescriptor", Tensor(FLOAT, (1, 1, 1, 1), (1, 1, 1, -1)))
PARAMETERS = "bnScaleBiasMeanVarDesc|dBnScaleBiasDesc"
OUT_OF_RANGE = cases(*(
    each("v6.range", "normDesc", made("LRNDescriptor", value))
    for value in (LRN(0, 1, 1, 1), LRN(17, 1, 1, 1), LRN(5, 1, 1e-3, 1), LRN(5, 1, 1, 1e-6))
))  # fmt: skip


def integers(row: Function) -> list[Case]:
    """Data that 6.0 did not compute with, inside its profile."""
    names = [p.name for p in row.inputs if p.kind == "TensorDescriptor"]
    return [({**dict.fromkeys(names, INT), "PROFILE": True}, "v6.profile.integers")]


def data_of_in_place(first: str, second: str, desc: str) -> Make:
    """One array for both, and a descriptor with other strides."""

    def make(row: Function) -> list[Case]:
        one = np.ones(1, np.float32)
        return [({first: one, second: one, desc: GAPS_2D}, "v6.strides")]

    return make


def activations(row: Function) -> list[Case]:
    """IDENTITY is no activation of its own; _v3 takes the mode as it is."""
    if "_v3" in row.name:
        return [({"mode": 1000}, "v6.enum"), ({"mode": v6.CUDNN_ACTIVATION_IDENTITY}, "v6.mode")]
    return [({"activationDesc": IDENTITY}, "v6.mode")]
