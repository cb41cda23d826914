"""What a graph and its parts take, measured where their device is: medians of several executions."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from graphdnn.dtypes import ELEMENTS, FLOATS, Array, cast
from graphdnn.engines.host.memory import empty, store
from graphdnn.plan import ExecutionPlan
from graphdnn.tensors import TensorSpec

REPEAT = 20
_DRAWN = 65_537  # values that large tensors repeat: drawing takes longer than all executions would


class Bench:
    """Times plans that share tensors. A part finds what another one has written, so parts are timed in their order."""

    def __init__(self) -> None:
        self._arrays: dict[int, Any] = {}
        self._rng = np.random.default_rng(0)

    def seconds(self, plan: ExecutionPlan) -> float:
        """The median after one more execution. Raises ``NotSupported`` when the plan's device is not here."""
        plan.load()
        bindings, workspace = self._bindings(plan), plan.new_workspace()
        plan.execute(bindings, workspace)
        times: list[float] = []

        def call() -> None:
            start = perf_counter()
            plan.execute(bindings, workspace)
            times.append(perf_counter() - start)

        timings = getattr(plan, "timings", None)  # a device tells its own time
        if timings is not None:
            return float(median(timings(call, REPEAT)))
        for _ in range(REPEAT):
            call()
        return median(times)

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
