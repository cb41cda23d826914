"""Pointwise operations: every mode in every arithmetic it has, any types and layouts, alone and in graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from problems import FLOATS, INTEGERS

from graphdnn.dtypes import BOOLEANS, ELEMENTS, cast, data_type_of
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.operations import PointwiseOperation, PointwiseSpec
from graphdnn.operations.pointwise_modes import POINTWISE
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import binary, chain, unary

M = PointwiseMode
MODES = tuple(POINTWISE)
_BOOLEAN_MODES = tuple(
    m for m, row in POINTWISE.items() if row.kind in ("comparison", "logical", "select") or m is M.IDENTITY
)
_PARAMETERS = {
    "relu_lower_clip": (0.0, -1.0), "relu_upper_clip": (6.0, 2.0, float("inf")), "relu_lower_clip_slope": (0.0, 0.25),
    "elu_alpha": (1.0, 0.5), "softplus_beta": (1.0, 2.0), "swish_beta": (1.0, 0.5),
}  # fmt: skip
_POSITIVE = (M.SQRT, M.RSQRT, M.LOG, M.POW, M.RECIPROCAL, M.DIV)


def _dims(s: Sketch) -> tuple[int, ...]:
    if s.large and s.chance(0.1):  # more than the device holds at once
        return s.one_of(((s.number(1, 1_500_000),), (s.number(1, 999), 1024), (4, 64, s.number(30, 60), 57)))
    rank = s.number(1, 5)
    return tuple(s.extent(5, 300 if rank == 1 else 40 if rank == 2 else 12) for _ in range(rank))


def _parameters(s: Sketch, mode: PointwiseMode, rank: int, *, whole: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in POINTWISE[mode].parameters:
        if name == "axis":
            found[name] = s.number(0, rank - 1)
        else:
            choices = [v for v in _PARAMETERS[name] if not whole or float(v).is_integer() or v == float("inf")]
            found[name] = s.one_of(choices)
    return found


def single(s: Sketch, mode: PointwiseMode) -> Problem:
    """One operation of a mode."""
    row, dims = POINTWISE[mode], _dims(s)
    maths: list[Any] = ["f32", "f32", "f64"]
    if row.integer:
        maths += ["i32", "i64"]
    if mode in _BOOLEAN_MODES:
        maths.append("boolean")
    math = s.one_of(maths)
    whole, floating = math in ("i32", "i64"), math in ("f32", "f64")
    held: tuple[Any, ...] = ("boolean", "bool") if math == "boolean" else INTEGERS if math == "i64" else INTEGERS[:-1]
    if floating:
        held = (*FLOATS, "f32", "f16", "bf16") if s.chance(0.7) else (*FLOATS, *INTEGERS, "bool", "boolean")
    same = s.one_of(held)
    alike = s.chance(0.5)
    exact = not floating or mode in (M.IDENTITY, M.BINARY_SELECT, M.GEN_INDEX) or row.kind in ("comparison", "logical")
    s.extreme = exact and s.chance(0.5)
    ports: dict[str, Any] = {}
    for port in row.operands:
        extents = s.broadcast(dims) if ports and s.chance(0.6) else dims
        kind = same if alike else s.one_of(held)
        if port == "t":
            kind = s.one_of(("bool", "boolean", "i8"))
        fields = _vector(s, kind, extents) if floating or whole else None
        if mode in _POSITIVE and not whole:
            ports[port] = s.positive(extents, kind)
        elif fields is not None and not ports and len(row.operands) == 1:
            ports[port] = s.input(fields[0], kind, **fields[1])
        else:
            ports[port] = s.input(extents, kind)
    common = np.broadcast_shapes(*(t.extents for t in ports.values()))
    out = s.one_of(FLOATS + INTEGERS + ("bool", "boolean") if s.chance(0.4) else (same,))
    if ELEMENTS[data_type_of(out)].kind == "bool" and row.kind not in ("comparison", "logical") and floating:
        out = "f32"  # every value but 0 is true: nothing to compare
    name = "dx" if row.kind == "backward" else "y"
    ports[name] = s.tensor(common, out)
    alphas: dict[str, float] = {}
    if s.chance(0.3) and math != "boolean" and row.kind not in ("index", "logical"):
        factors = (1.0, 3.0, -1.0) if whole else (1.0, 2.0, 0.5)
        alphas["alpha1"] = s.one_of(factors)
        if len(row.operands) > 1:
            alphas["alpha2"] = s.one_of(factors)
    spec = PointwiseSpec(mode=mode, math_type=math, **_parameters(s, mode, len(common), whole=whole))
    s.add(PointwiseOperation(spec=spec, **ports, **alphas))
    scaled = floating and any(a != 1.0 for a in alphas.values())
    return s.problem(exact and not scaled, covers=(mode.name, str(math)))


def _vector(s: Sketch, kind: Any, extents: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, Any]] | None:
    """Vectors of channels for int8, now and then: (dims, fields)."""
    if kind not in ("i8", "u8") or len(extents) < 2 or not s.chance(0.5):
        return None
    return extents, {"vector_count": 4 if not s.large or s.chance(0.7) else 32, "vectorized_dimension": 1}


def graph(s: Sketch) -> Problem:
    """A chain over one set of extents, with branches and several outputs."""
    math = s.one_of(("f32", "f32", "f32", "f64", "i32"))
    s.quarters = exact = math == "i32" or s.chance(0.3)
    dims = _dims(s)
    kinds = {"f32": ("f32", "f16", "bf16", "e4m3"), "f64": ("f64",), "i32": ("i8", "i32", "i16")}[math]
    x = s.input(dims, s.one_of(kinds))
    out = s.one_of(kinds)
    first = s.virtual(dims, math)
    unary(s, M.ABS, x, first, math)
    chain(s, first, s.number(2, 6), math, out, exact=exact)
    return s.problem(exact, covers=("graph",))


def conversion(s: Sketch) -> Problem:
    """Every value of one type into another: one rounding, saturation, NaN to 0 in integers."""
    sources = (*FLOATS, *INTEGERS, "bool", "boolean")
    source, target = s.one_of(sources), s.one_of(sources)
    kind = data_type_of(source)
    if kind in BOOLEANS:
        math: Any = "f32" if data_type_of(target) not in BOOLEANS else "boolean"
    elif ELEMENTS[kind].kind == "int":
        math = s.one_of(("i64",)) if kind is DataType.INT64 else s.one_of(("i32", "i64"))
    else:
        math = "f64" if kind is DataType.DOUBLE else s.one_of(("f32", "f64"))
    s.extreme = True
    dims = (s.extent(40, 2000),) if s.chance(0.5) else _dims(s)
    x = s.input(dims, source)
    if ELEMENTS[kind].kind == "float":
        # numbers around the middles of the target's numbers, and far beyond its range
        wide = s.rng.standard_normal(dims) * 10.0 ** s.rng.integers(-9, 9, dims)
        halves = s.rng.integers(-600, 600, dims) / 4.0
        mixed = np.where(s.rng.random(dims) < 0.3, halves, wide)
        s.values[x.uid] = np.where(s.rng.random(dims) < 0.2, s.values[x.uid], cast(mixed, kind)).astype(
            ELEMENTS[kind].numpy
        )
    unary(s, M.IDENTITY, x, s.tensor(dims, target), math)
    return s.problem(exact=True, covers=(f"{source} to {target}",))


def compared(s: Sketch) -> Problem:
    """A comparison kept as packed bits, and read again by a selection in another kernel or the same."""
    dims = _dims(s)
    x, b = s.input(dims, s.one_of(("f32", "f16", "i8"))), s.input(s.broadcast(dims), "f32")
    mask = s.tensor(dims, s.one_of(("boolean", "bool")))
    binary(s, s.one_of((M.CMP_GT, M.CMP_LT, M.CMP_EQ)), x, b, mask, "f32")
    y = s.tensor(dims, s.one_of(("f32", "f16", "i8")))
    s.add(PointwiseOperation(spec=PointwiseSpec(mode=M.BINARY_SELECT, math_type="f32"), x=x, b=b, t=mask, y=y))
    return s.problem(exact=True, covers=("mask",))
