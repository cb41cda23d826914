"""What a graph and its parts take, measured where their device is: medians with intervals."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from graphdnn.analysis.median_statistics import FEWEST, Interval, median_interval
from graphdnn.dtypes import ELEMENTS, FLOATS, Array, cast
from graphdnn.engines.host.memory import empty, store
from graphdnn.plan import ExecutionPlan
from graphdnn.tensors import TensorSpec

MOST_ROUNDS = 20
SECONDS = 1.5  # after that long a round is the last, once there are enough samples for an interval
_CALLS = 5  # of one round on a device, which tells the time of each
_DRAWN = 65_537  # values that large tensors repeat: drawing takes longer than all executions would


class Timed:
    """A plan and its times."""

    __slots__ = ("bindings", "plan", "samples", "workspace")

    def __init__(self, plan: ExecutionPlan, bindings: dict[int, Any]) -> None:
        self.plan, self.bindings, self.workspace = plan, bindings, plan.new_workspace()
        self.samples: list[float] = []

    @property
    def interval(self) -> Interval:
        return median_interval(self.samples)

    def call(self) -> None:
        self.plan.execute(self.bindings, self.workspace)

    def sample(self) -> None:
        timings = getattr(self.plan, "timings", None)  # a device tells its own time
        if timings is not None:
            self.samples.append(float(median(timings(self.call, _CALLS))))
            return
        start = perf_counter()
        self.call()
        self.samples.append(perf_counter() - start)


class Bench:
    """Times plans that share tensors. Plans take turns, so that a machine that slows down slows all of them.

    A part reads what another one has written, so the plans are executed in their order.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, Any] = {}
        self._rng = np.random.default_rng(0)
        self._timed: list[Timed] = []

    def enter(self, plan: ExecutionPlan) -> Timed:
        """Times of a plan, for ``measure`` to fill in. Raises ``NotSupported`` when the plan's device is not here."""
        plan.load()
        timed = Timed(plan, self._bindings(plan))
        timed.call()
        self._timed.append(timed)
        return timed

    def measure(self) -> None:
        """Execute all plans in rounds: enough for intervals, and more while there is time."""
        start = perf_counter()
        for done in range(MOST_ROUNDS):
            if done >= FEWEST and perf_counter() - start > SECONDS:
                break
            for timed in self._timed:
                timed.sample()

    def _bindings(self, plan: ExecutionPlan) -> dict[int, Any]:
        graph = plan.config.fused.graph
        for spec in graph.bound:
            if spec.uid in self._arrays:
                continue
            if spec.uid in graph.producer:
                self._arrays[spec.uid] = plan.new_array(spec)
            else:
                self._arrays |= plan.to_device({spec.uid: self._drawn(spec)})
        return {spec.uid: self._arrays[spec.uid] for spec in graph.bound}

    def _drawn(self, spec: TensorSpec) -> Any:
        """Normal numbers, or small whole ones; 1e-5 by value, as befits an epsilon."""
        if spec.is_by_value:
            return 1e-5 if spec.data_type in FLOATS else 1
        kind, count = ELEMENTS[spec.data_type].kind, min(spec.elements, _DRAWN)
        values: Array = self._rng.standard_normal(count) if kind == "float" else self._rng.integers(0, 4, count)
        array = empty(spec)
        array[...] = 0
        store(np.resize(cast(values, spec.data_type), spec.extents), array, spec)
        return array
