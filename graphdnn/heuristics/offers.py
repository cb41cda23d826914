"""What engines offer for one fused operation, in a mode's order; they are asked one by one, as they come up."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from types import MappingProxyType

from graphdnn.device import DeviceSpec
from graphdnn.engines import Engine, Knobs, Task
from graphdnn.enums import HeurMode
from graphdnn.errors import Rejection
from graphdnn.fusion.fused import FusedGraph, FusedOp
from graphdnn.heuristics.config import Choice
from graphdnn.heuristics.filters import WORKSPACE, Filters, objections
from graphdnn.heuristics.materialized import materialized_bytes
from graphdnn.operations import Reduction

_MOST_SETTINGS = 1024  # combinations of an engine's knobs up to which mode B lists all of them
_MOST_KINDS = 512
_kinds: dict[tuple[object, ...], tuple[tuple[Engine, ...], tuple[Engine, ...]]] = {}  # all of them, those to be asked


class Offers:
    """What engines offer for the operations of a fused graph within a caller's limits."""

    def __init__(
        self, fused: FusedGraph, device: DeviceSpec, mode: HeurMode, filters: Filters, engines: tuple[Engine, ...]
    ) -> None:
        self._fused, self._device, self._mode, self._filters, self._engines = fused, device, mode, filters, engines

    def of(self, task: Task) -> Iterator[Choice]:
        """Choices for one fused operation in the mode's order."""
        asked = _asked(self._engines, task, self._filters, self._mode is HeurMode.FALLBACK)
        if self._mode in (HeurMode.A, HeurMode.B):
            return self._fastest_first(task, asked)
        return (choice for engine in asked for choice in self._choices(task, engine))

    def knob_settings(self, engine: Engine) -> Iterator[Knobs]:
        """The values of an engine's knobs that the mode looks at."""
        if self._mode is not HeurMode.B:
            yield engine.defaults()
            if engine.frugal and self._filters.workspace_limit is not None:
                yield engine.settings(engine.frugal)
            return
        if prod(len(knob.values) for knob in engine.knobs) > _MOST_SETTINGS:
            yield engine.defaults()
            for knob in engine.knobs:
                yield from (engine.settings({knob.type: value}) for value in knob.sample if value != knob.default)
            return
        for values in product(*(knob.values for knob in engine.knobs)):
            yield MappingProxyType(dict(zip((k.type for k in engine.knobs), values, strict=True)))

    def why_not(self, task: Task, engine: Engine) -> tuple[Rejection, ...]:
        """Every reason for which an engine serves no configuration of an operation; none when it serves one."""
        return engine.why_not(task) + tuple(self.filtered(Choice(task, engine, engine.settings(engine.frugal))))

    def filtered(self, choice: Choice) -> Iterator[Rejection]:
        """What the caller's limits find in a choice."""
        yield from objections(choice.engine, self._filters, _asks_for_stable_sums(choice.task.op), choice.where)
        wanted = self._too_much(choice) if choice.engine.serves(choice.task) else None
        if wanted is not None:
            limit = self._filters.workspace_limit
            yield WORKSPACE.reject(choice.where, "workspace_size", wanted, limit=limit)

    def _fastest_first(self, task: Task, engines: Sequence[Engine]) -> Iterator[Choice]:
        """By predicted time and handicap; equal ones in table order. An engine waits at the least that it could say,
        and is asked for its needs and its prediction only when nothing faster is left.
        """
        waiting: list[tuple[float, int, int, Engine | Choice]] = [
            (engine.least(task) * engine.handicap, place, -1, engine) for place, engine in enumerate(engines)
        ]
        heapq.heapify(waiting)
        while waiting:
            _, place, _, first = heapq.heappop(waiting)
            if isinstance(first, Choice):
                yield first
                continue
            for i, choice in enumerate(self._choices(task, first)):
                heapq.heappush(waiting, (choice.rank, place, i, choice))

    def _choices(self, task: Task, engine: Engine) -> Iterator[Choice]:
        """What an engine that serves the kind offers within the limits; nothing when it does not serve the shape."""
        if engine.serves_shape(task):
            for knobs in self.knob_settings(engine):
                choice = Choice(task, engine, knobs)
                if self._too_much(choice) is None:
                    yield choice

    def _too_much(self, choice: Choice) -> int | None:
        """Bytes of workspace, where they are beyond the limit; of an engine that serves the operation."""
        if self._filters.workspace_limit is None:
            return None
        wanted = materialized_bytes(self._fused, self._device) + choice.scratch
        return wanted if wanted > self._filters.workspace_limit else None


def _asked(engines: tuple[Engine, ...], task: Task, filters: Filters, only_general: bool) -> tuple[Engine, ...]:
    """The engines to be asked about a task: those that no filter bars and that serve its kind, whatever the shape."""
    like, device = task.op.like, task.device
    near = id(engines), like, device.kind, device.compute_capability, filters, only_general
    found = None if like is None else _kinds.get(near)
    if found is not None:
        return found[1]
    stable = _asks_for_stable_sums(task.op)
    key = id(engines), task.kind, filters, stable, only_general
    found = _kinds.get(key)
    if found is None:
        here = [e for e in engines if (e.is_general or not only_general) and e.serves_kind(task)]
        asked = tuple(e for e in here if not any(True for _ in objections(e, filters, stable, "")))
        found = engines, asked  # kept alive, so that the identity stays theirs
    if len(_kinds) >= _MOST_KINDS:
        _kinds.clear()
    _kinds[key] = _kinds[near if like is not None else key] = found
    return found[1]


def _asks_for_stable_sums(op: FusedOp) -> bool:
    """CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC on any reduction of the kernel."""
    return any(isinstance(step, Reduction) and step.spec.is_deterministic for step in op.operations)
