"""Rank engine configurations for a fused graph on a device, lazily, with every engine that declined.

| mode     | candidates                                | order                                |
|----------|-------------------------------------------|--------------------------------------|
| INSTANT  | each engine that serves, default knobs    | the engine table's; no cost model    |
| A        | each engine that serves, default knobs    | predicted time                       |
| B        | each engine that serves, every knob value | predicted time                       |
| FALLBACK | the engines that never decline            | the engine table's; no promise       |

Where an engine's knobs have too many combinations to look at, mode B changes one of them at a time, and of a long
range takes some values. A graph of one fused operation is served by one engine; a graph of several by a
composed configuration, one choice per fused operation, best total first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import islice

from graphdnn import debug_log
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import Engine, Task, engines_of
from graphdnn.enums import HeurMode
from graphdnn.errors import BadParam, NotSupported, Rejection
from graphdnn.fusion.fused_graph import FusedGraph, FusedOp
from graphdnn.heuristics.best_first import Lazy, best_first
from graphdnn.heuristics.candidate_enumeration import CandidateEnumerator
from graphdnn.heuristics.declined_text import declined_by_reason
from graphdnn.heuristics.engine_config import Choice, Declined, EngineConfig
from graphdnn.heuristics.filters import UNFILTERED, Filters
from graphdnn.hooks import call_hook
from graphdnn.rules import Rule

_SHOWN = 16  # configurations in the printed ranking

MODE = Rule(
    id="heuristics.mode",
    expected="INSTANT, A, B or FALLBACK",
    reason="these are the orders in which configurations are offered",
    fix="use HeurMode.A",
)


def mode_of(given: HeurMode | str) -> HeurMode:
    """The mode, or that of a name. Raises ``BadParam`` for anything else."""
    mode = HeurMode.named(given)
    if not isinstance(mode, HeurMode) or mode is HeurMode.COUNT:
        raise BadParam(MODE.reject("ENGINEHEUR", "mode", given))
    return mode


class Ranking:
    """The configurations of a graph on a device, best first. A configuration is worked out when it is read.

    ``declined`` lists every engine that serves no configuration, with its reasons.
    """

    def __init__(
        self,
        fused: FusedGraph,
        device: DeviceSpec,
        mode: HeurMode = HeurMode.A,
        filters: Filters | None = None,
        engines: Sequence[Engine] | None = None,
    ) -> None:
        mode = mode_of(mode)
        self.fused, self.device, self.mode = fused, device, mode
        self.filters = filters or UNFILTERED
        # Engines of other kinds of device are no candidates; alone they say so themselves.
        here = engines_of(device.kind) if engines is None else tuple(e for e in engines if device.kind in e.places)
        self._engines = here or tuple(engines or ())
        self._offers = CandidateEnumerator(fused, device, mode, self.filters, self._engines)
        self._tasks = tuple(Task(op, device) for op in fused)
        self._found: list[EngineConfig] = []
        self._told = False
        self._working = threading.Lock()
        self._rest: Iterator[EngineConfig] | None = None  # configurations behind the found ones

    def __repr__(self) -> str:
        return f"<Ranking of {self.fused.graph.name!r} on {self.device.name}, mode {self.mode.name}>"

    def __iter__(self) -> Iterator[EngineConfig]:
        i = 0
        while self._fill(i + 1):
            yield self._found[i]
            i += 1

    def __getitem__(self, index: int) -> EngineConfig:
        if index < 0 or not self._fill(index + 1):
            raise IndexError(index)
        return self._found[index]

    def __len__(self) -> int:
        """Counts every configuration, which works all of them out."""
        return sum(1 for _ in self)

    @property
    def best(self) -> EngineConfig:
        """The first configuration.

        Raises:
            NotSupported: There is none. The error has the ``reasons``.
        """
        if not self._fill(1):
            error = NotSupported(self.reasons)
            error.subject = self
            raise error
        return self._found[0]

    @property
    def reasons(self) -> list[Rejection]:
        """The reasons of the engines that are written for an operation of the graph; general engines come first.

        ``declined`` has the engines for other kinds of operation too, and they are returned where there are no others.
        """
        declined = [d for d in self.declined if d.engine.is_for(d.operation.rule)] or self.declined
        return [r for d in sorted(declined, key=lambda d: not d.engine.is_general) for r in d.rejections]

    @property
    def declined(self) -> tuple[Declined, ...]:
        """Every engine that serves no configuration of a fused operation, with all its reasons."""
        declined = []
        for task in self._tasks:
            reasons = [(engine, self._offers.why_not(task, engine)) for engine in self._engines]
            if all(rejections for _, rejections in reasons):  # then no fix may name another engine
                reasons = [(engine, tuple([r.without_other_engine() for r in found])) for engine, found in reasons]
            declined += [Declined(task.op, engine, rejections) for engine, rejections in reasons if rejections]
        return tuple(declined)

    def excluded_knobs(self, op: FusedOp) -> Iterator[tuple[Choice, Rejection]]:
        """Knob settings that a filter excludes, of engines that serve a fused operation.

        Args:
            op: The fused operation.

        Returns:
            Pairs of a choice and the filter that excludes it.
        """
        task = self._tasks[op.index]
        for engine in self._engines:
            if engine.serves(task):
                for knobs in self._offers.settings_of(task, engine):
                    choice = Choice(task, engine, knobs)
                    yield from ((choice, rejection) for rejection in self.filtered(choice))

    def choices(self, op: FusedOp) -> Iterator[Choice]:
        """The choices that engines offer for one fused operation, best first.

        Args:
            op: The fused operation.

        Returns:
            The choices.
        """
        return self._offers.of(self._tasks[op.index])

    def filtered(self, choice: Choice) -> Iterator[Rejection]:
        """The filters that exclude a choice.

        Args:
            choice: An engine with knob values.

        Returns:
            A rejection for each filter; none if the filters accept the choice.
        """
        return self._offers.filtered(choice)

    def _fill(self, count: int) -> bool:
        """Work out configurations until there are ``count``; False when there are fewer."""
        if len(self._found) < count:
            with self._working:  # rankings are shared between threads
                # What is interrupted, by Ctrl-C for instance, is begun again: a generator that raised is at its end.
                rest, self._rest = self._rest or islice(self._configs(), len(self._found), None), None
                self._found += islice(rest, max(count - len(self._found), 0))
                self._rest = rest
        if not self._told and debug_log.asks("rank"):
            self._told = True
            self._tell()
        return len(self._found) >= count

    def _tell(self) -> None:
        """The ranking as lines on stderr."""
        about = self.fused.graph.name or "unnamed", self.device.name, self.mode.name
        repeat = call_hook("graph.repeat", self.fused.graph, "explain", self.device.name)
        for i, config in enumerate(islice(self, _SHOWN)):
            seconds = f"{config.predicted_seconds * 1e6:.1f}"
            debug_log.line("rank", *about, i, config.name, seconds, config.workspace_size, repeat=repeat)
        for declined in self.declined:
            for r in declined.rejections:
                place = declined.engine.name, declined.operation.name
                debug_log.line("declined", *about, *place, r.rule, r.reason, repeat=repeat)

    def _configs(self) -> Iterator[EngineConfig]:
        if len(self._tasks) == 1:
            for choice in self._offers.of(self._tasks[0]):
                yield EngineConfig(self.fused, self.device, (choice,), self.mode, self.filters)
            return
        candidates = [Lazy(self._offers.of(task)) for task in self._tasks]
        if not all(c.has(0) for c in candidates):
            return
        ranked = self.mode in (HeurMode.A, HeurMode.B)
        for picked in best_first(candidates, (lambda c: c.rank) if ranked else None):
            yield EngineConfig(self.fused, self.device, picked, self.mode, self.filters)

    def __str__(self) -> str:
        return self.text()

    def text(self, *, every_reason: bool = False) -> str:
        """The first configurations, and the engines that declined.

        Args:
            every_reason: True lists each engine that declined with all its reasons. Otherwise engines that decline for
                the same reason share a line.

        Returns:
            Several lines of text.
        """
        lines = [f"ranking on {self.device.name}, mode {self.mode.name}:"]
        shown = list(islice(self, _SHOWN + 1))  # many kernels have a product of choices
        lines += [f"  {i}. {config}" for i, config in enumerate(shown[:_SHOWN])]
        lines += ["  ..."] if len(shown) > _SHOWN else []
        declined = self.declined
        if not every_reason:
            return "\n".join([*lines, *declined_by_reason(declined)])
        lines += ["declined:"] if declined else []
        lines += [f"  {line}" for each in declined for line in str(each).splitlines()]
        return "\n".join(lines)

    def to_json(self, limit: int | None = None, *, declined: bool = True) -> dict[str, object]:
        """Plain data: the device, the configurations and the engines that declined.

        Args:
            limit: The most configurations to list. A graph of several kernels has a product of them.
            declined: False leaves out the engines that declined.

        Returns:
        Plain data that ``json.dumps`` accepts.
        """
        refused = {"declined": [each.to_json() for each in self.declined]} if declined else {}
        return {
            "device": self.device.name,
            "mode": self.mode.name,
            "configs": [
                {
                    "name": config.name,
                    "engine_id": config.engine_id,
                    "predicted_us": config.predicted_seconds * 1e6,
                    "workspace_size": config.workspace_size,
                    "numerical_notes": [n.name for n in config.numerical_notes],
                    "behavior_notes": [n.name for n in config.behavior_notes],
                }
                for config in islice(self, limit)
            ],
            **refused,
        }
