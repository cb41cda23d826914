"""The GPU benchmark without a GPU: a host that is taken for a device, small layers, and results to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu import contest, convolutions, timing
from gpu.layers import Layer
from gpu.options import Options
from gpu.problem import Case, Group, Problem
from gpu.result import PeerResult, Result
from gpu.timing import Timed

from graphdnn import TensorSpec
from graphdnn.engines.host.memory import binding_layout

torch = pytest.importorskip("torch")
timing.SERIES_US = 200.0  # the fake clock does not need long ones
SMALL = {
    "dense": Layer("dense", 2, 8, 7, 6, 16, 3, 3, 1, 1),
    "depthwise": Layer("depthwise", 2, 8, 7, 7, 8, 3, 3, 2, 1, 8),
    "groups": Layer("groups", 2, 8, 6, 6, 8, 3, 3, 1, 1, 2),
    "stem": Layer("stem", 1, 3, 16, 16, 8, 7, 7, 2, 3),
}


class FakeLaunches:
    def __init__(self, device: FakeDevice, calls: Sequence[Any], *, foreign: bool, captured: bool) -> None:
        self.device, self.calls, self.foreign = device, calls, foreign
        self.count, self.captured = len(calls), captured

    def run(self) -> None:
        for call in self.calls:
            call()

    def microseconds(self) -> float:
        self.run()
        return self.device.clock(self)


class FakeDevice:
    """The host in the place of a GPU: NumPy engines, PyTorch on the CPU, and a clock that the test sets."""

    name = engine_device = "cpu"
    cache_bytes = 2**12
    torch = torch

    def __init__(self, clock: Any = None) -> None:
        self.clock = clock or (lambda launches: 20.0 if launches.foreign else 10.0)
        self.dead = False
        self.made: list[FakeLaunches] = []

    def array(self, raw: Any, spec: TensorSpec) -> Any:
        dtype, shape, strides = binding_layout(spec)
        return np.ndarray(shape, dtype, buffer=raw.numpy(), strides=strides)

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def launches(self, calls: Sequence[Any], *, foreign: bool, capture: bool = True) -> FakeLaunches:
        self.made.append(FakeLaunches(self, calls, foreign=foreign, captured=capture))
        return self.made[-1]

    def synchronize(self) -> None: ...

    def is_alive(self) -> bool:
        return not self.dead

    def release(self) -> None: ...

    def about(self) -> dict[str, Any]:
        return {"device": "fake"}


def measured(problem: Problem, device: FakeDevice | None = None, **options: Any) -> Result:
    group = Group("test", "test", ())
    case = Case("case", lambda: problem)
    return contest.measure(group, case, device or FakeDevice(), Options(repeats=2, **options))


def assert_right(result: Result) -> None:
    assert (result.status, result.reason) == ("ok", "")
    assert result.ours is not None
    assert result.peer is not None
    assert result.ratio == pytest.approx(2)


def small(kind: str = "f16") -> Problem:
    return convolutions.fused_problem(SMALL["dense"], kind)


def broken(problem: Problem) -> Problem:
    """The same graph with another definition: as if the engine computed something else."""
    formula = problem.formula
    return replace(problem, formula=lambda t, x: {name: value + 1 for name, value in formula(t, x).items()})


def example(**fields: Any) -> Result:
    time = Timed(10.0, 9.0, 11.0, 15, 20, captured=True)
    peer = PeerResult("conv2d", time=replace(time, us=25.0))
    part = PeerResult("alone", part=True, time=replace(time, us=5.0))
    plain: dict[str, Any] = {"status": "ok", "plan": "engine", "ours": time, "peers": [part, peer], "right": "1e-4"}
    return Result("g", "c", **plain | {"copy": replace(time, us=8.0), "flops": 10**9} | fields)
