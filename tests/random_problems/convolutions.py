"""Convolutions in all three directions: geometry, groups in both forms, flips, layouts, blends, chains."""

from __future__ import annotations

from math import prod
from typing import Any

from problems import INTEGERS

from graphdnn import ConvolutionMode, TensorSpec
from graphdnn.enums import PointwiseMode
from graphdnn.operations import (
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionSpec,
    Operation,
    PointwiseOperation,
    PointwiseSpec,
)
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import binary, chain, exit_of, unary

_PORTS = {"fprop": ("x", "w", "y"), "dgrad": ("dx", "w", "dy"), "wgrad": ("x", "dw", "dy")}
_CLASSES: dict[str, type[Operation]] = {"fprop": ConvForward, "dgrad": ConvBackwardData, "wgrad": ConvBackwardFilter}
_RESULT = {"fprop": 2, "dgrad": 0, "wgrad": 1}
_WORK = {False: 3e4, True: 1.5e7}  # multiplications, for the emulator and for NumPy


def _geometry(s: Sketch) -> dict[str, Any]:
    axes = s.one_of((1, 2, 2, 2, 2, 3))
    bare = s.one_of(((0,), (1, 2))) if axes == 3 and s.chance(0.5) else ()
    same = s.chance(0.4)
    taps = [3] * axes if same else [s.one_of((1, 1, 2, 3, 5)) for _ in range(axes)]
    found = {
        "taps": taps,
        "stride": [1 if same and s.chance(0.7) else s.number(1, 3) for _ in taps],
        "dilation": [1 if same or s.chance(0.7) else 2 for _ in taps],
        "pre": [1 if same else s.number(0, 2) for _ in taps],
        "post": [1 if same else s.number(0, 2) for _ in taps],
        "output": [s.extent(5 if axes < 3 else 3, 20 if axes < 3 else 7) for _ in taps],
        "extra": [s.number(0, 2) for _ in taps],
        "flip": s.chance(0.15),
        "axis": s.chance(0.2),
        "n": s.extent(2, 6),
    }
    for axis in bare:  # planes, or lines, one by one
        for name, value in {"taps": 1, "stride": 1, "dilation": 1, "pre": 0, "post": 0, "extra": 0}.items():
            found[name][axis] = value
    return found


def _channels(s: Sketch) -> tuple[int, int, int]:
    """Groups, and channels of x and y in one group."""
    kind = s.rng.random()
    if kind < 0.6:
        return 1, s.channels(9, 140), s.channels(9, 140)
    if s.row:  # groups as wide as the 128 bytes that tensor cores read at a time
        wide = 8 * s.row
        return 2, wide * (s.number(1, 2) if s.large else 1), s.one_of((wide, s.channels(9, 140)))
    if kind < 0.75:
        return s.channels(6, 70), 1, s.one_of((1, 1, 2))
    return s.number(2, 4), s.channels(4, 24), s.channels(4, 24)


def _extents(s: Sketch) -> tuple[dict[str, Any], list[tuple[int, ...]]]:
    """The geometry, and the extents of x, w and y, small enough to be computed by NumPy."""
    while True:
        s.aligned = s.row > 0 or s.chance(0.5)
        g = _geometry(s)
        groups, c, k = _channels(s)
        # an edge that no window reaches exists where the stride steps over it
        size = [
            (p - 1) * u + d * (f - 1) + 1 - a - b + min(e, u - 1)
            for p, u, d, f, a, b, e in zip(
                g["output"], g["stride"], g["dilation"], g["taps"], g["pre"], g["post"], g["extra"], strict=True
            )
        ]
        work = g["n"] * groups * c * k * prod(g["taps"]) * prod(g["output"])
        if min(size) < 1 or work > _WORK[s.large]:
            continue
        n = g["n"]
        heads = (
            ((n, groups, c), (groups, k, c), (n, groups, k)) if g["axis"] else ((n, groups * c), (groups * k, c), (n, groups * k))
        )  # fmt: skip
        return g, [(*h, *e) for h, e in zip(heads, (size, g["taps"], g["output"]), strict=True)]


def _build(
    s: Sketch, direction: str, kinds: tuple[Any, Any, Any], compute: Any, *, steps: int, math: Any, out: Any,
    exact: bool, blend: bool,
) -> None:  # fmt: skip
    """``kinds`` of x, w and y; the result's is that of the virtual tensor before the chain, if there is one."""
    geometry, extents = _extents(s)
    result = _RESULT[direction]
    tensors: list[TensorSpec] = []
    for i, (dims, kind) in enumerate(zip(extents, kinds, strict=True)):
        if i != result:
            tensors.append(s.input(dims, kind))
        else:
            tensors.append(s.virtual(dims, kind) if steps else s.tensor(dims, kind))
    ports = dict(zip(_PORTS[direction], tensors, strict=True))
    streamed = "dy" if direction == "dgrad" else "x"
    if steps and s.chance(0.2):  # a prologue
        before = s.virtual(ports[streamed].extents, ports[streamed].data_type)
        unary(s, s.one_of((PointwiseMode.RELU_FWD, PointwiseMode.ABS)), ports[streamed], before, math)
        ports[streamed] = before
    scale: dict[str, float] = {}
    if blend:
        scale = {"alpha": s.one_of((1.0, 2.0, -0.5)), "beta": s.one_of((1.0, -2.0, 0.5))}
        s.old(tensors[result])
    conv = ConvolutionSpec(
        compute_type=compute, spatial_dims=len(geometry["taps"]), dilations=geometry["dilation"],
        filter_strides=geometry["stride"], pre_paddings=geometry["pre"], post_paddings=geometry["post"],
        mode=ConvolutionMode.CONVOLUTION if geometry["flip"] else ConvolutionMode.CROSS_CORRELATION,
    )  # fmt: skip
    s.add(_CLASSES[direction](conv=conv, **ports, **scale))
    if steps:
        value = tensors[result]
        if len(geometry["taps"]) != 2 and s.chance(0.2):
            value = _with_index(s, value, math)
        last = chain(s, value, steps, math, out, exact=exact)
        if s.chance(0.2):
            exit_of(s, last)


def _with_index(s: Sketch, value: TensorSpec, math: Any) -> TensorSpec:
    """The index along some axis is added."""
    index, total = s.virtual(value.dims, "i32"), s.virtual(value.dims, math)
    spec = PointwiseSpec(mode=PointwiseMode.GEN_INDEX, math_type=math, axis=s.number(0, value.rank - 1))
    s.add(PointwiseOperation(spec=spec, x=value, y=index))
    binary(s, PointwiseMode.ADD, value, index, total, math)
    return total


def floating(s: Sketch, direction: str) -> Problem:
    s.quarters = exact = s.chance(0.5)
    family = s.rng.random()
    if s.chance(0.3):  # tensor cores have all that they ask for
        s.row = 8
        kinds: tuple[Any, ...] = (s.one_of(("f16", "f16", "bf16")),) * 3
    elif family < 0.1:
        kinds = ("f64",) * 3
    elif family < 0.3:
        kinds = ("f32",) * 3
    elif family < 0.75:
        kinds = (s.one_of(("f16", "bf16")),) * 3
    else:  # mixed, e.g. fp8 operands
        kinds = tuple(s.one_of(("f32", "f16", "bf16", "e4m3", "e5m2")) for _ in range(3))
    wide = kinds[0] == "f64"
    steps = 0 if s.chance(0.35) else s.number(1, 4)
    if steps:
        between: list[Any] = list(kinds)
        between[_RESULT[direction]] = "f64" if wide else s.one_of(("f32", "f32", "f16"))
        out = kinds[_RESULT[direction]]
        # rounding in the middle is exact only where NumPy rounds the same sums
        _build(
            s, direction, tuple(between), "f64" if wide else "f32", steps=steps, math="f64" if wide else "f32",
            out=out, exact=exact, blend=False,
        )  # fmt: skip
        exact = exact and all(op.tag not in ("reduction", "genstats") for op in s.operations)
        return s.problem(exact, covers=(f"{direction} chain",))
    blend = s.chance(0.25)
    compute = "f64" if wide else "f32"
    _build(s, direction, kinds, compute, steps=0, math=compute, out=None, exact=exact, blend=blend)
    return s.problem(exact, covers=(f"{direction} alone",))


def whole(s: Sketch, direction: str) -> Problem:
    """Integers, exact modulo 2^32 or 2^64, saturated into the result's type."""
    s.extreme = s.chance(0.5)
    compute = s.one_of(("i32", "i32", "i32", "i64"))
    held = ("i8", "i8", "u8", "i16", "i32") if compute == "i32" else INTEGERS
    out = s.one_of(("i8", "i32", "i32", "i64"))
    operands = (s.one_of(held), s.one_of(held))
    if s.chance(0.3):  # tensor cores have all that they ask for
        s.row, compute, operands = 16, "i32", (s.one_of(("i8", "u8")), s.one_of(("i8", "u8")))
    elif s.chance(0.4):
        operands = ("i8", "i8")
    steps = 0 if s.chance(0.5) else s.number(1, 3)
    kinds = list(operands)
    kinds.insert(_RESULT[direction], compute if steps else out)
    _build(s, direction, tuple(kinds), compute, steps=steps, math=compute, out=out, exact=True, blend=not steps and s.chance(0.2))  # type: ignore[arg-type]  # fmt: skip
    whole_blend = all(getattr(op, "alpha", 1.0) == 1.0 and getattr(op, "beta", 0.0) == 0.0 for op in s.operations)
    return s.problem(exact=whole_blend, covers=(f"{direction} {compute}",))
