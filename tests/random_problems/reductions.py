"""Reductions, sums per channel, and the pieces of batch norm."""

from __future__ import annotations

from typing import Any

import numpy as np
from problems import FLOATS, INTEGERS

from graphdnn.dtypes import cast
from graphdnn.enums import BnFinalizeStatsMode, DataType, PointwiseMode, ReductionOperator
from graphdnn.operations import BnBackwardWeights, BnFinalize, GenStats, Reduction, ReductionSpec
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import chain, unary

R = ReductionOperator
OPERATORS = tuple(R)
_INTEGER = tuple(o for o in R if o not in (R.AVG, R.NORM2))


def _extents(s: Sketch) -> tuple[list[int], list[int]]:
    """Extents of x and y: axes kept, reduced, or reduced in groups."""
    if s.large and s.chance(0.15):  # sums that are divided among blocks
        x = s.one_of(([s.number(1, 900_000)], [3, s.number(1, 300_000)], [s.number(1, 20_000), 40], [8, 64, 40, 41]))
        return x, [e if s.chance(0.3) else 1 for e in x]
    rank = s.number(1, 5)
    x, y = [], []
    for _ in range(rank):
        kind, size = s.rng.random(), s.extent(4, 600 if rank == 1 else 60 if rank == 2 else 14)
        groups = s.number(1, 3)
        x.append(size * groups if kind < 0.1 else size)
        y.append(groups if kind < 0.1 else 1 if kind < 0.6 else size)
    return x, y


def reduction(s: Sketch, operator: ReductionOperator) -> Problem:
    x_dims, y_dims = _extents(s)
    integer = operator in _INTEGER and s.chance(0.35)
    if integer:
        compute = s.one_of(("i32", "i64"))
        held = (*INTEGERS, "bool") if compute == "i64" else (*INTEGERS[:-1], "bool", "boolean")
        kind, out, s.extreme = s.one_of(held), s.one_of(INTEGERS), s.chance(0.5)
    else:
        compute, kind = s.one_of(("f32", "f32", "f64")), s.one_of(FLOATS)
        out = s.one_of(("f64",) if compute == "f64" else ("f32", "f16", "bf16", "f32"))
    exact = integer or operator in (R.MAX, R.MIN, R.AMAX)
    if operator in (R.MUL, R.MUL_NO_ZEROS) and not integer:
        x = s.positive(x_dims, kind)
        values = s.values[x.uid].astype(np.float64)
        s.values[x.uid] = cast(np.where(s.rng.random(values.shape) < 0.1, 0.0, values**0.25), x.data_type)
    else:
        x = s.input(x_dims, kind)
    steps = 0 if integer or s.chance(0.6) else s.number(1, 2)
    if s.chance(0.25) and not integer:
        before = s.virtual(x_dims, compute)
        unary(s, PointwiseMode.ABS, x, before, compute)
        x = before
    y = s.virtual(y_dims, compute) if steps else s.tensor(y_dims, out)
    spec = ReductionSpec(operator=operator, compute_type=compute, is_deterministic=s.chance(0.5))
    s.add(Reduction(x=x, y=y, spec=spec))
    if steps:
        chain(s, y, steps, compute, out, exact=exact)
        exact = False
    return s.problem(exact, covers=(operator.name, str(compute)))


def _image(s: Sketch) -> tuple[int, ...]:
    if s.large and s.chance(0.15):
        return s.one_of(((16, 64, 30, 31), (4, 7, s.number(1, 40_000)), (s.number(1, 20_000), 24)))
    rank = s.number(2, 5)
    return (s.extent(4, 12), s.extent(9, 80), *(s.extent(4, 14 if rank < 5 else 6) for _ in range(rank - 2)))


def _channels(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(e if a == 1 else 1 for a, e in enumerate(dims))


def statistics(s: Sketch) -> Problem:
    dims = _image(s)
    kind = s.one_of(("f32", "f16", "bf16", "f64", "e4m3"))
    math = "f64" if kind == "f64" else "f32"
    x = s.input(dims, kind)
    if s.chance(0.3):
        before = s.virtual(dims, kind)
        unary(s, PointwiseMode.RELU_FWD, x, before, math)
        x = before
    channels = _channels(dims)
    s.add(GenStats(x=x, sum=s.tensor(channels, math), sqsum=s.tensor(channels, math), math_type=math))
    return s.problem(covers=("genstats",))


def finalize(s: Sketch) -> Problem:
    rank, count, c = s.number(2, 5), s.number(2, 5000), s.extent(20, 3000)
    channels = (1, c, *(1,) * (rank - 2))
    math = s.one_of(("f32", "f64"))
    mean, var = s.rng.standard_normal(c), s.rng.random(c) + 0.5
    names = ["y_sum", "y_sq_sum", "scale", "bias"]
    given = {n: s.input(channels, math) for n in names}
    s.values[given["y_sum"].uid] = (mean * count).reshape(channels).astype(np.float32)
    s.values[given["y_sq_sum"].uid] = ((var + mean**2) * count).reshape(channels).astype(np.float32)
    mode = s.one_of((BnFinalizeStatsMode.TRAINING, BnFinalizeStatsMode.TRAINING, BnFinalizeStatsMode.INFERENCE))
    training = mode is BnFinalizeStatsMode.TRAINING
    written = ["saved_mean", "saved_inv_std", "eq_scale", "eq_bias"]
    if not training or s.chance(0.7):
        given["previous_running_mean"] = s.input(channels, math)
        given["previous_running_var"] = s.positive(channels, math)
        written += ["updated_running_mean", "updated_running_var"] if training else []
    ports: dict[str, Any] = {**given, **{n: s.tensor(channels, math) for n in written}}
    s.add(
        BnFinalize(
            mode=mode,
            math_type=math,
            **ports,
            epsilon=s.scalar(rank, 1e-3, math),
            momentum=s.scalar(rank, 0.25, math),
            accumulation_count=s.scalar(rank, count, "i64"),
        )
    )
    return s.problem(covers=(mode.name,))


def weights(s: Sketch) -> Problem:
    dims = _image(s)
    kind = s.one_of(("f32", "f16", "bf16", "f64"))
    math = "f64" if kind == "f64" else "f32"
    channels = _channels(dims)
    outputs = ("dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias")
    s.add(
        BnBackwardWeights(
            math_type=math,
            x=s.input(dims, kind),
            dy=s.input(dims, kind),
            mean=s.input(channels, math),
            inv_std=s.positive(channels, math),
            scale=s.input(channels, math),
            **{name: s.tensor(channels, math) for name in outputs},
        )
    )
    return s.problem(covers=("bn_bwd_weights",))


def exits(s: Sketch) -> Problem:
    """A chain that ends in memory and in a reduction of what it wrote."""
    from random_problems.pointwise_chains import exit_of

    dims = _image(s)
    x = s.input(dims, s.one_of(("f32", "f16")))
    first = s.virtual(dims, "f32")
    unary(s, PointwiseMode.NEG, x, first, "f32")
    exit_of(s, chain(s, first, s.number(1, 3), "f32", s.one_of((DataType.FLOAT, DataType.HALF))))
    return s.problem(covers=("exit",))
