"""What engines offer for one fused operation, in a mode's order; they are asked one by one, as they come up."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from types import MappingProxyType

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import Engine, Knobs, Task
from graphdnn.enums import HeurMode, KnobType
from graphdnn.errors import Rejection
from graphdnn.fusion.fused_graph import FusedGraph
from graphdnn.heuristics.candidate_cache import ProblemClass, asks_for_stable_sums, candidates_of
from graphdnn.heuristics.engine_config import Choice
from graphdnn.heuristics.filters import WORKSPACE, Filters, objections
from graphdnn.heuristics.workspace_layout import materialized_bytes

_LEAST, _CLOSER = -2, -1  # bounds that an engine waits at; its choices count from 0
_MOST_SETTINGS = 1024  # combinations of an engine's knobs up to which mode B lists all of them


class CandidateEnumerator:
    """What engines offer for the operations of a fused graph within a caller's limits."""

    def __init__(
        self, fused: FusedGraph, device: DeviceSpec, mode: HeurMode, filters: Filters, engines: tuple[Engine, ...]
    ) -> None:
        self._fused, self._device, self._mode, self._filters = fused, device, mode, filters
        self._candidates = candidates_of(engines, device, filters, mode is HeurMode.FALLBACK)

    def of(self, task: Task) -> Iterator[Choice]:
        """Choices for one fused operation in the mode's order."""
        problems = self._candidates.problem_class(task)
        if self._mode in (HeurMode.A, HeurMode.B):
            return self._fastest_first(task, problems)
        return (choice for engine in problems.engines for choice in self._choices(task, problems, engine))

    def knob_settings(self, engine: Engine) -> Iterable[Knobs]:
        """The values of an engine's knobs that the mode looks at."""
        if self._mode is HeurMode.B:
            return _every_setting(engine)
        if engine.frugal and self._filters.workspace_limit is not None:
            return engine.defaults(), engine.settings(engine.frugal)
        return (engine.defaults(),)

    def settings_of(self, task: Task, engine: Engine) -> Iterable[Knobs]:
        """The settings of an engine that serves the task, in the mode: each kernel once, by the first setting."""
        settings = self.knob_settings(engine)
        if engine.effective is None or (self._mode is not HeurMode.B and self._filters.workspace_limit is None):
            return settings
        found: dict[tuple[tuple[KnobType, int], ...], Knobs] = {}
        for asked in settings:
            knobs = engine.named_settings(task, asked)  # a sample of values passes over the last one that can be had
            if engine.has_setting(task, knobs):
                found.setdefault(tuple(engine.effective_knobs(task, knobs).items()), knobs)
        return found.values()

    def why_not(self, task: Task, engine: Engine) -> tuple[Rejection, ...]:
        """Every reason for which an engine serves no configuration of an operation; none when it serves one."""
        return engine.why_not(task) + tuple(self.filtered(Choice(task, engine, engine.settings(engine.frugal))))

    def filtered(self, choice: Choice) -> Iterator[Rejection]:
        """What the caller's limits find in a choice."""
        yield from objections(choice.engine, self._filters, asks_for_stable_sums(choice.task.op), choice.where)
        wanted = self._too_much(choice) if choice.engine.serves(choice.task) else None
        if wanted is not None:
            limit = self._filters.workspace_limit
            yield WORKSPACE.reject(choice.where, "workspace_size", wanted, limit=limit)

    def _fastest_first(self, task: Task, problems: ProblemClass) -> Iterator[Choice]:
        """By predicted time and handicap; equal ones in table order. An engine waits at the least that it could say,
        then at a closer bound where it has one, and is asked for its needs and its prediction only when nothing faster
        is left.
        """
        waiting: list[tuple[float, int, int, Engine | Choice]] = [
            (engine.least(task) * engine.handicap, place, _LEAST, engine)
            for place, engine in enumerate(problems.engines)
        ]
        heapq.heapify(waiting)
        while waiting:
            _, place, which, first = heapq.heappop(waiting)
            if isinstance(first, Choice):
                yield first
                continue
            if which == _LEAST and first.closer is not None:
                heapq.heappush(waiting, (first.closer(task) * first.handicap, place, _CLOSER, first))
                continue
            for i, choice in enumerate(self._choices(task, problems, first)):
                heapq.heappush(waiting, (choice.rank, place, i, choice))

    def _choices(self, task: Task, problems: ProblemClass, engine: Engine) -> list[Choice]:
        """What an engine of a class offers within the limits; nothing when it does not serve the task."""
        if not problems.serves(engine, task):
            return []
        offered = [Choice(task, engine, knobs) for knobs in self.settings_of(task, engine)]
        if self._filters.workspace_limit is None:
            return offered
        return [choice for choice in offered if self._too_much(choice) is None]

    def _too_much(self, choice: Choice) -> int | None:
        """Bytes of workspace, where they are beyond the limit; of an engine that serves the operation."""
        if self._filters.workspace_limit is None:
            return None
        wanted = materialized_bytes(self._fused, self._device) + choice.scratch
        return wanted if wanted > self._filters.workspace_limit else None


def _every_setting(engine: Engine) -> Iterator[Knobs]:
    """Of all knobs; where that is too many, of one knob at a time."""
    if prod(len(knob.values) for knob in engine.knobs) > _MOST_SETTINGS:
        yield engine.defaults()
        for knob in engine.knobs:
            yield from (engine.settings({knob.type: value}) for value in knob.sample if value != knob.default)
        return
    for values in product(*(knob.values for knob in engine.knobs)):
        yield MappingProxyType(dict(zip((k.type for k in engine.knobs), values, strict=True)))
