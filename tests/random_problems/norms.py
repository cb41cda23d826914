"""Normalization forward and backward, and softmax as a graph."""

from __future__ import annotations

from typing import Any

from graphdnn.enums import NormMode, NormPhase, PointwiseMode, ReductionOperator
from graphdnn.operations import NormBackward, NormForward, Reduction, ReductionSpec
from graphdnn.operations.normalization import statistics_extents
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import binary, chain, unary

N = NormMode
_MODES = (N.BATCH_NORM, N.INSTANCE_NORM, N.LAYER_NORM, N.LAYER_NORM, N.RMS_NORM, N.ADA_LAYER_NORM)
Extents = tuple[int, ...]


def _extents(s: Sketch, mode: NormMode) -> tuple[Extents, Extents]:
    """x and its scale. No row has two elements: normalized they are 1 and -1 whatever x, and dx is a rest of nothing."""
    if mode in (N.BATCH_NORM, N.INSTANCE_NORM):
        rank = s.number(3, 5)
        x = (s.extent(3, 6) + 1, s.extent(7, 60), *(s.extent(4, 14 if rank < 5 else 6) + 1 for _ in range(rank - 2)))
        if rank == 3:
            x = (*x[:2], max(x[2], 3))
        return x, (1, x[1], *(1,) * (rank - 2))
    if s.large and s.chance(0.1):
        return (s.number(1, 50), 20_000), (1, 20_000)
    rank = s.number(2, 4)
    x = (*(s.extent(5, 30) for _ in range(rank - 1)), max(3, s.extent(40, 1500 if rank == 2 else 300) + 1))
    if mode is N.ADA_LAYER_NORM:
        return x, (*(e if s.chance(0.5) else 1 for e in x[:-1]), x[-1])
    from_axis = s.number(1, rank - 1) if rank > 2 else rank - 1
    return x, tuple(1 if a < from_axis else e for a, e in enumerate(x))


def _tensors(s: Sketch) -> tuple[NormMode, dict[str, Any], Extents, Any, Any]:
    mode = s.one_of(_MODES)
    x, scale = _extents(s, mode)
    kind = s.one_of(("f32", "f16", "bf16", "f64"))
    math = "f64" if kind == "f64" else "f32"
    ports: dict[str, Any] = {"x": s.input(x, kind), "scale": s.input(scale, math)}
    return mode, ports, statistics_extents(mode, x, scale), kind, math


def _statistics(s: Sketch, mode: NormMode, dims: Extents, math: Any, *, given: bool) -> dict[str, Any]:
    make = {"mean": s.input if given else s.tensor, "inv_variance": s.positive if given else s.tensor}
    return {port: f(dims, math) for port, f in make.items() if port != "mean" or mode is not N.RMS_NORM}


def forward(s: Sketch) -> Problem:
    mode, ports, statistic, kind, math = _tensors(s)
    rank = ports["x"].rank
    if mode is not N.RMS_NORM or s.chance(0.5):
        ports["bias"] = s.input(ports["scale"].dims, math)
    training = s.chance(0.6)
    if training:
        ports["epsilon"] = s.scalar(rank, 1e-3, math)
        if s.chance(0.7):
            ports |= _statistics(s, mode, statistic, math, given=False)
        if mode is N.BATCH_NORM and s.chance(0.6):
            ports |= {
                "momentum": s.scalar(rank, 0.25, math), "input_running_mean": s.input(statistic, math),
                "input_running_var": s.positive(statistic, math), "output_running_mean": s.tensor(statistic, math),
                "output_running_var": s.tensor(statistic, math),
            }  # fmt: skip
    elif mode is N.BATCH_NORM or s.chance(0.5):
        ports |= _statistics(s, mode, statistic, math, given=True)
    else:
        ports["epsilon"] = s.scalar(rank, 1e-3, math)
    steps = 0 if s.chance(0.5) else s.number(1, 3)
    dims = ports["x"].dims
    if s.chance(0.15):
        before = s.virtual(dims, kind)
        unary(s, PointwiseMode.TANH_FWD, ports["x"], before, math)
        ports["x"] = before
    y = s.virtual(dims, math) if steps else s.tensor(dims, kind)
    phase = NormPhase.TRAINING if training else NormPhase.INFERENCE
    s.add(NormForward(mode=mode, phase=phase, math_type=math, y=y, **ports))
    if steps:
        chain(s, y, steps, math, kind)
    return s.problem(covers=(mode.name, phase.name))


def backward(s: Sketch) -> Problem:
    mode, ports, statistic, kind, math = _tensors(s)
    dims = ports["x"].dims
    ports |= {"dy": s.input(dims, kind), "dx": s.tensor(dims, kind), "dscale": s.tensor(ports["scale"].dims, math)}
    if mode is not N.RMS_NORM or s.chance(0.5):
        ports["dbias"] = s.tensor(ports["scale"].dims, math)
    if s.chance(0.6):
        ports |= _statistics(s, mode, statistic, math, given=True)
    else:
        ports["epsilon"] = s.scalar(len(dims), 1e-3, math)
    s.add(NormBackward(mode=mode, math_type=math, **ports))
    return s.problem(covers=(mode.name,))


def softmax(s: Sketch) -> Problem:
    """Largest, difference, exponential, sum, quotient over the last axes."""
    rank = s.number(2, 4)
    dims = (*(s.extent(5, 20) for _ in range(rank - 1)), s.extent(40, 1200 if rank == 2 else 300))
    row = (*dims[:-1], 1)
    kind = s.one_of(("f32", "f16", "bf16"))
    x, y = s.input(dims, kind), s.tensor(dims, s.one_of((kind, "f32")))
    most, total = s.virtual(row, "f32"), s.virtual(row, "f32")
    shifted, powers = s.virtual(dims, "f32"), s.virtual(dims, "f32")
    s.add(Reduction(x=x, y=most, spec=ReductionSpec(operator=ReductionOperator.MAX, compute_type="f32")))
    binary(s, PointwiseMode.SUB, x, most, shifted, "f32")
    unary(s, PointwiseMode.EXP, shifted, powers, "f32")
    s.add(Reduction(x=powers, y=total, spec=ReductionSpec(operator=ReductionOperator.ADD, compute_type="f32")))
    binary(s, PointwiseMode.DIV, powers, total, y, "f32")
    return s.problem(covers=("softmax",))
