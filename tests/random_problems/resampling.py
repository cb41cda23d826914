"""Pooling and interpolation, forward and backward."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from problems import INTEGERS

from graphdnn.dtypes import cast
from graphdnn.enums import PaddingMode, PointwiseMode, ResampleMode
from graphdnn.operations import ResampleBackward, ResampleForward, ResampleSpec
from graphdnn.operations.resample import resampled_extents
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import binary, chain, unary

M = ResampleMode
_POOLS = (M.MAXPOOL, M.AVGPOOL_INCLUDE_PADDING, M.AVGPOOL_EXCLUDE_PADDING)


def _pooling(s: Sketch, compute: Any, modes: tuple[ResampleMode, ...] = _POOLS) -> ResampleSpec:
    axes, mode = s.one_of((1, 2, 2, 3)), s.one_of(modes)
    paddings = [PaddingMode.ZERO_PAD]
    if mode is not M.AVGPOOL_EXCLUDE_PADDING:
        paddings.append(PaddingMode.EDGE_VAL_PAD)
    if mode is M.MAXPOOL:
        paddings += [PaddingMode.NEG_INF_PAD] * 2
    window = [s.number(1, 3) for _ in range(axes)]
    return ResampleSpec(
        mode=mode, padding_mode=s.one_of(paddings), compute_type=compute, spatial_dims=axes, window_dims=window,
        strides=[s.number(1, 3) for _ in window], pre_paddings=[s.number(0, w - 1) for w in window],
        post_paddings=[s.number(0, w - 1) for w in window],
    )  # fmt: skip


def _interpolation(s: Sketch, compute: Any) -> ResampleSpec:
    axes, mode, factor = s.one_of((1, 2, 2, 3)), s.one_of((M.NEAREST, M.BILINEAR)), s.number(1, 3)
    linear = mode is M.BILINEAR
    pre, window = (Fraction(1, 2), 2) if linear else (Fraction(0), 1)
    post = max(Fraction(window) - pre - Fraction(1, factor), Fraction(0))
    return ResampleSpec(
        mode=mode, padding_mode=PaddingMode.EDGE_VAL_PAD, compute_type=compute, spatial_dims=axes,
        window_dims=[window] * axes, strides=[Fraction(1, factor)] * axes, pre_paddings=[pre] * axes,
        post_paddings=[post] * axes,
    )  # fmt: skip


def _full(s: Sketch, spec: ResampleSpec) -> tuple[int, ...]:
    sides = (s.extent(7, 24 if spec.spatial_dims < 3 else 9) + 2 for _ in range(spec.spatial_dims))
    return (s.extent(2, 5), s.extent(7, 70), *sides)


def forward(s: Sketch) -> Problem:
    if s.chance(0.2):  # a maximum of integers
        compute, kind = s.one_of((("i32", "i8"), ("i32", "i32"), ("i64", "i64"), ("i32", "u8")))
        s.extreme, spec, exact = True, _pooling(s, compute, (M.MAXPOOL,)), True
    else:
        kind = s.one_of(("f32", "f16", "bf16", "f64", "e4m3", "i8"))
        compute = "f64" if kind == "f64" else "f32"
        spec = _pooling(s, compute) if s.chance(0.7) else _interpolation(s, compute)
        exact = spec.mode in (M.MAXPOOL, M.NEAREST)
    dims = _full(s, spec)
    x = s.input(dims, kind)
    if s.chance(0.2) and not exact:
        before = s.virtual(dims, kind)
        unary(s, PointwiseMode.ABS, x, before, compute)
        x = before
    pooled = resampled_extents(x.extents, spec)
    index = s.tensor(pooled, s.one_of(INTEGERS)) if spec.mode is M.MAXPOOL and s.chance(0.4) else None
    steps = 0 if exact or s.chance(0.6) else s.number(1, 2)
    y = s.virtual(pooled, compute) if steps else s.tensor(pooled, kind)
    blend: dict[str, float] = {}
    if not steps and not s.operations and compute in ("f32", "f64") and s.chance(0.2):
        blend, exact = {"alpha": 2.0, "beta": s.one_of((0.0, -0.5))}, False
        s.old(y)
    s.add(ResampleForward(spec=spec, x=x, y=y, index=index, **blend))
    if steps:
        chain(s, y, steps, compute, s.one_of(("f32", "f16")) if compute == "f32" else "f64")
    return s.problem(exact, covers=(spec.mode.name, f"{spec.spatial_dims}-D"))


def across(s: Sketch) -> Problem:
    """Averages over windows across memory; what they are of may scale them, as in local response normalization."""
    window = s.number(2, 5)
    pre = s.number(0, window - 1)
    post = window - 1 - pre if s.chance(0.7) else s.number(0, window - 1)
    dims = (
        s.extent(2, 4),
        s.extent(3, 6),
        s.number(window, 90 if s.large else 12),
        8 * s.number(1, 12 if s.large else 2),
    )
    kind = s.one_of(("f32", "f16", "bf16"))
    spec = ResampleSpec(
        mode=M.AVGPOOL_INCLUDE_PADDING, padding_mode=PaddingMode.ZERO_PAD, compute_type="f32", spatial_dims=2,
        window_dims=(window, 1), strides=(1, 1), pre_paddings=(pre, 0), post_paddings=(post, 0),
    )  # fmt: skip
    x = s.input(dims, kind, "packed" if s.chance(0.8) else None)
    entering = x
    if s.chance(0.7):
        entering = s.virtual(dims, "f32")
        binary(s, PointwiseMode.MUL, x, x, entering, "f32")
    extents = resampled_extents(dims, spec)
    is_scaled = extents == dims and s.chance(0.7)
    y = s.virtual(extents, "f32") if is_scaled else s.tensor(extents, kind, "packed")
    s.add(ResampleForward(spec=spec, x=entering, y=y))
    if is_scaled:
        binary(s, PointwiseMode.MUL, x, y, s.tensor(extents, kind, "packed"), "f32")
    return s.problem(covers=("windows across memory",))


def backward(s: Sketch) -> Problem:
    kind = s.one_of(("f32", "f16", "bf16", "f64"))
    compute = "f64" if kind == "f64" else "f32"
    spec = _pooling(s, compute) if s.chance(0.7) else _interpolation(s, compute)
    dims = _full(s, spec)
    pooled = resampled_extents(dims, spec)
    ports: dict[str, Any] = {}
    if spec.mode is M.MAXPOOL:
        if s.chance(0.5):
            ports["x"] = s.input(dims, kind)
        else:
            count = 1
            for w in spec.window_dims:
                count *= int(w)
            index = s.tensor(pooled, s.one_of(("i8", "i32", "i64")))
            s.values[index.uid] = s.rng.integers(0, count, pooled).astype("int8")
            ports["index"] = index
    dx, dy = s.tensor(dims, kind), s.input(pooled, kind)
    blend: dict[str, float] = {}
    if s.chance(0.2):
        blend = {"alpha": 2.0, "beta": s.one_of((0.0, -0.5))}
        s.old(dx)
    s.add(ResampleBackward(spec=spec, dx=dx, dy=dy, **ports, **blend))
    if "x" in ports and s.chance(0.4):  # maxima that are equal, infinite or no numbers
        x = ports["x"]
        some = s.rng.choice([0.0, -0.0, 1.0, float("nan"), float("inf"), float("-inf")], x.extents)
        given = s.rng.random(x.extents) < s.one_of((0.1, 0.5, 1.0))
        s.values[x.uid] = np.where(given, cast(some, x.data_type), s.values[x.uid])
    return s.problem(covers=(spec.mode.name, f"{spec.spatial_dims}-D"))


def apart(s: Sketch) -> Problem:
    """Volumes whose windows lie one behind the other; some elements may be in none."""
    kind, spec, dims = _apart(s)
    exact = spec.mode is M.MAXPOOL
    s.add(ResampleForward(spec=spec, x=s.input(dims, kind), y=s.tensor(resampled_extents(dims, spec), kind)))
    return s.problem(exact, covers=(spec.mode.name, "3-D"))


def apart_backward(s: Sketch) -> Problem:
    """Their gradients."""
    kind, spec, dims = _apart(s)
    dx, dy = s.tensor(dims, kind), s.input(resampled_extents(dims, spec), kind)
    ports = {"x": s.input(dims, kind)} if spec.mode is M.MAXPOOL else {}
    s.add(ResampleBackward(spec=spec, dx=dx, dy=dy, **ports))
    return s.problem(covers=(spec.mode.name, "3-D"))


def _apart(s: Sketch) -> tuple[str, ResampleSpec, tuple[int, ...]]:
    kind = s.one_of(("f32", "f16", "bf16", "f64"))
    window = [s.number(2, 3) for _ in range(3)]
    spec = ResampleSpec(
        mode=s.one_of(_POOLS), padding_mode=PaddingMode.ZERO_PAD, compute_type="f64" if kind == "f64" else "f32",
        spatial_dims=3, window_dims=window, strides=window, pre_paddings=(0, 0, 0), post_paddings=(0, 0, 0),
    )  # fmt: skip
    sides = (w * s.extent(3, 8 if s.large else 3) + s.one_of((0, 0, 1)) for w in window)
    return kind, spec, (s.extent(2, 3), s.one_of((3, 8, 16, 24)), *sides)
