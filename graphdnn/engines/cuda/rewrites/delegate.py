"""Delegate: a rewritten operation, which the fastest of several other engines computes."""

from __future__ import annotations

from collections.abc import Callable

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.engine import Cost, Engine, Task
from graphdnn.fusion.fused_graph import FusedOp


def _as_it_is(engine: Engine, cost: Cost) -> Cost:
    return cost


class Delegate:
    """An operation, and the engines that may compute it with their default knobs. ``weighed`` adjusts an engine's
    predicted cost.
    """

    __slots__ = ("_fastest", "_serving", "engines", "op", "weighed")

    def __init__(
        self, op: FusedOp, engines: tuple[Engine, ...], weighed: Callable[[Engine, Cost], Cost] = _as_it_is
    ) -> None:
        self.op, self.engines, self.weighed = op, engines, weighed
        # By the identity of a device, which they keep.
        self._serving: dict[int, tuple[tuple[Engine, ...], DeviceSpec]] = {}
        self._fastest: dict[int, tuple[Engine, Cost, DeviceSpec]] = {}

    def serving(self, device: DeviceSpec) -> tuple[Engine, ...]:
        """The engines that support the operation; empty where all of them decline."""
        known = self._serving.get(id(device))
        if known is None:
            task = Task(self.op, device)
            known = self._serving[id(device)] = tuple(e for e in self.engines if e.serves(task)), device
        return known[0]

    def fastest(self, device: DeviceSpec) -> tuple[Engine, Cost]:
        """The engine with the least predicted time, the first of equal ones. At least one engine must serve."""
        known = self._fastest.get(id(device))
        if known is None:
            task = Task(self.op, device)
            costs = [(e, self.weighed(e, e.cost(task, e.defaults()))) for e in self.serving(device)]
            known = self._fastest[id(device)] = (*min(costs, key=lambda one: one[1].seconds), device)
        return known[:2]

    def kernel(self, device: DeviceSpec) -> DeviceKernel:
        engine, _ = self.fastest(device)
        kernel = engine.compile(Task(self.op, device), engine.defaults())
        assert isinstance(kernel, DeviceKernel)
        return kernel
