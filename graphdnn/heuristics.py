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

import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from math import prod
from types import MappingProxyType

from graphdnn.cuda import debug
from graphdnn.device import DeviceSpec
from graphdnn.engines import Cost, Engine, Knobs, Task, engines_of
from graphdnn.enums import BehaviorNote, HeurMode, NumericalNote, Status
from graphdnn.errors import BadParam, NotSupported, Rejection
from graphdnn.fusion.fused import FusedGraph, FusedOp
from graphdnn.fusion.views import views_of
from graphdnn.operations import Reduction
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec
from graphdnn.text import seconds

COMPOSED_ID = 0  # engine id of a configuration with several fused operations
COMPOSED_NAME = "composed"
WORKSPACE_ALIGNMENT = 256
_MOST_SETTINGS = 1024  # combinations of an engine's knobs up to which mode B lists all of them
_SHOWN = 16  # configurations in the printed ranking

NUMERICAL_NOTE = Rule(
    id="filter.numerical_note",
    expected="none of {barred}",
    reason="engines with this numerical note were excluded",
    fix="allow the note",
    status=Status.NOT_SUPPORTED,
)
# Engines that compute with fewer digits than the graph's types have. Nobody gets them without asking.
ASKED_FOR = frozenset({NumericalNote.DOWN_CONVERT_INPUTS, NumericalNote.REDUCED_PRECISION_REDUCTION})
ASKED_NOTE = Rule(
    id="filter.allowed_note",
    expected="notes that need no leave, or {allowed}",
    reason="the engine computes with fewer digits than the types have, which is never done unasked",
    fix="allow the note (Graph.allow_numeric_notes) where the loss is acceptable",
    status=Status.NOT_SUPPORTED,
)
BEHAVIOR_NOTE = Rule(
    id="filter.behavior_note",
    expected="none of {barred}",
    reason="engines with this behaviour note were excluded",
    fix="allow the note",
    status=Status.NOT_SUPPORTED,
)
DETERMINISTIC = Rule(
    id="filter.deterministic",
    expected="the same bits on every run",
    reason="the engine combines partial results in the order in which they finish",
    fix="drop the requirement, or choose another engine",
    status=Status.NOT_SUPPORTED,
)
WORKSPACE = Rule(
    id="filter.workspace",
    expected="at most {limit} bytes",
    reason="the configuration needs more scratch memory than the limit",
    fix="raise the limit",
    status=Status.NOT_SUPPORTED,
)
MODE = Rule(
    id="heuristics.mode",
    expected="INSTANT, A, B or FALLBACK",
    reason="this is a count, not a mode",
    fix="use HeurMode.A",
)


@dataclass(frozen=True, slots=True)
class Filters:
    """What configurations must not be, or cost."""

    without_numerical_notes: frozenset[NumericalNote] = frozenset()
    allowed_numerical_notes: frozenset[NumericalNote] = frozenset()  # of those that have to be asked for
    without_behavior_notes: frozenset[BehaviorNote] = frozenset()
    deterministic: bool = False
    workspace_limit: int | None = None  # bytes


@dataclass(frozen=True, eq=False)
class Choice:
    """One engine with knob values for one fused operation."""

    task: Task
    engine: Engine
    knobs: Knobs

    @cached_property
    def cost(self) -> Cost:
        return self.engine.cost(self.task, self.knobs)

    @property
    def rank(self) -> float:
        """Seconds it is ranked by: an engine whose errors are larger has to be faster by its handicap to go first."""
        return self.cost.seconds * self.engine.handicap

    @cached_property
    def scratch(self) -> int:
        """Bytes of workspace the kernel itself needs."""
        return self.engine.workspace(self.task, self.knobs)

    @property
    def name(self) -> str:
        """``numpy_blocked`` or ``conv_x_k40=128_k41=64`` with the knobs that differ from their defaults."""
        defaults = self.engine.defaults()
        changed = [f"k{int(k)}={v}" for k, v in sorted(self.knobs.items()) if defaults[k] != v]
        return "_".join((self.engine.name, *changed))

    @property
    def where(self) -> str:
        return f"engine {self.engine}, {self.task.where}"


@dataclass(frozen=True, slots=True, eq=False)
class EngineConfig:
    """One choice for each fused operation: everything a plan is built from."""

    fused: FusedGraph
    device: DeviceSpec
    choices: tuple[Choice, ...]
    mode: HeurMode | None = None  # of the ranking it comes from; None where it was put together by hand
    filters: Filters = Filters()  # of that ranking: what they leave out, nobody could have chosen

    @property
    def engine_id(self) -> int:
        return self.choices[0].engine.id if len(self.choices) == 1 else COMPOSED_ID

    @property
    def name(self) -> str:
        return " ; ".join(choice.name for choice in self.choices)

    @property
    def predicted_seconds(self) -> float:
        return sum(choice.cost.seconds for choice in self.choices)

    @property
    def workspace_size(self) -> int:
        """Bytes: virtual tensors that pass through memory, then scratch that the kernels take turns in."""
        return materialized_bytes(self.fused, self.device) + max(choice.scratch for choice in self.choices)

    @property
    def numerical_notes(self) -> tuple[NumericalNote, ...]:
        return tuple(sorted({note for c in self.choices for note in c.engine.numerical_notes}))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a ranking says beside a time: numerical notes, and the time it stands for where errors are larger."""
        return (*(note.name for note in self.numerical_notes), *self._handicapped)

    @property
    def _handicapped(self) -> tuple[str, ...]:
        rank = sum(choice.rank for choice in self.choices)
        return () if rank == self.predicted_seconds else (f"ranked as {seconds(rank)} for its larger errors",)

    @property
    def error_growth(self) -> dict[int, float]:
        """uid -> factor on the rounding errors of the operation that writes it, where an engine states one."""
        stated = [(c.task.op.main, c.engine.growth(c.task.op.main)) for c in self.choices]
        return {t.uid: growth for op, growth in stated if growth != 1.0 for t in op.outputs().values()}

    @property
    def behavior_notes(self) -> tuple[BehaviorNote, ...]:
        return tuple(sorted({note for c in self.choices for note in c.engine.behavior_notes}))

    def __str__(self) -> str:
        line = f"{self.name}: {self.predicted_seconds * 1e6:.1f} us, {self.workspace_size} bytes of workspace"
        return ", ".join((line, *self._handicapped))


@dataclass(frozen=True, slots=True)
class Declined:
    """An engine that does not serve a fused operation, with all its reasons."""

    operation: FusedOp
    engine: Engine
    rejections: tuple[Rejection, ...]

    def __str__(self) -> str:
        reasons = "\n".join(f"  {line}" for r in self.rejections for line in str(r).splitlines())
        return f"engine {self.engine} declined {self.operation.name}:\n{reasons}"

    def to_json(self) -> dict[str, object]:
        return {
            "operation": self.operation.index,
            "engine": self.engine.name,
            "engine_id": self.engine.id,
            "rejections": [r.to_json() for r in self.rejections],
        }


def materialized_slots(fused: FusedGraph, device: DeviceSpec) -> list[tuple[TensorSpec, int]]:
    """(tensor, workspace offset) of every virtual tensor that two kernels share."""
    slots, offset = [], 0
    for tensor in _materialized(fused, device):
        slots.append((tensor, offset))
        offset += _aligned(tensor.bytes)
    return slots


def materialized_bytes(fused: FusedGraph, device: DeviceSpec) -> int:
    return sum(_aligned(t.bytes) for t in _materialized(fused, device))


def _materialized(fused: FusedGraph, device: DeviceSpec) -> tuple[TensorSpec, ...]:
    """Kernels of a device read views where they lie; the host's take whole arrays."""
    if len(fused.operations) == 1:
        return ()
    tensors = fused.materialized
    views = views_of(fused) if tensors and device.kind == "cuda" else {}
    return tuple(t for t in tensors if t.uid not in views)


def _asks_for_stable_sums(op: FusedOp) -> bool:
    """CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC on any reduction of the kernel."""
    return any(isinstance(step, Reduction) and step.spec.is_deterministic for step in op.operations)


def _aligned(size: int) -> int:
    return -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT


def _barred(engine: Engine, filters: Filters, stable: bool, where: str) -> Iterator[Rejection]:
    """What filters find in an engine whatever it is asked. ``stable``: the operation's sums have to be."""
    numerical = filters.without_numerical_notes.intersection(engine.numerical_notes)
    if numerical:
        barred = ", ".join(sorted(n.name for n in filters.without_numerical_notes))
        found = sorted(n.name for n in numerical)
        yield NUMERICAL_NOTE.reject(where, "numerical_notes", found, barred=barred)
    unasked = ASKED_FOR.intersection(engine.numerical_notes) - filters.allowed_numerical_notes
    if unasked:
        allowed = ", ".join(sorted(n.name for n in filters.allowed_numerical_notes)) or "none"
        found = sorted(n.name for n in unasked)
        yield ASKED_NOTE.reject(where, "numerical_notes", found, allowed=allowed)
    behavior = filters.without_behavior_notes.intersection(engine.behavior_notes)
    if behavior:
        barred = ", ".join(sorted(n.name for n in filters.without_behavior_notes))
        found = sorted(n.name for n in behavior)
        yield BEHAVIOR_NOTE.reject(where, "behavior_notes", found, barred=barred)
    if NumericalNote.NONDETERMINISTIC in engine.numerical_notes and (filters.deterministic or stable):
        yield DETERMINISTIC.reject(where, "numerical_notes", "NONDETERMINISTIC")


_MOST_KINDS = 256
_kinds: dict[tuple[object, ...], tuple[tuple[Engine, ...], tuple[Engine, ...]]] = {}  # all of them, those to be asked


def _asked(engines: tuple[Engine, ...], task: Task, filters: Filters, only_general: bool) -> tuple[Engine, ...]:
    """The engines to be asked about a task: those that no filter bars and that serve its kind, whatever the shape."""
    stable = _asks_for_stable_sums(task.op)
    key = id(engines), task.kind, filters, stable, only_general
    found = _kinds.get(key)
    if found is None:
        here = [e for e in engines if (e.is_general or not only_general) and e.serves_kind(task)]
        asked = tuple(e for e in here if not any(True for _ in _barred(e, filters, stable, "")))
        if len(_kinds) >= _MOST_KINDS:
            _kinds.clear()
        found = _kinds[key] = engines, asked  # kept alive, so that the identity stays theirs
    return found[1]


class Ranking:
    """Configurations in order, worked out as they are asked for; ``declined`` names every engine left out."""

    def __init__(
        self,
        fused: FusedGraph,
        device: DeviceSpec,
        mode: HeurMode = HeurMode.A,
        filters: Filters | None = None,
        engines: Sequence[Engine] | None = None,
    ) -> None:
        if mode is HeurMode.COUNT:
            raise BadParam(MODE.reject("ENGINEHEUR", "mode", mode))
        self.fused, self.device, self.mode = fused, device, mode
        self.filters = filters or Filters()
        # Engines of other kinds of device are no candidates; alone they say so themselves.
        here = engines_of(device.kind) if engines is None else tuple(e for e in engines if device.kind in e.places)
        self._engines = here or tuple(engines or ())
        self._tasks = tuple(Task(op, device) for op in fused)
        self._found: list[EngineConfig] = []
        self._told = False
        self._working = threading.Lock()
        self._rest = self._configs()

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
        """The first configuration. Raises ``NotSupported`` with every engine's reasons when there is none."""
        if not self._fill(1):
            error = NotSupported([r for declined in self.declined for r in declined.rejections])
            error.subject = self
            raise error
        return self._found[0]

    @property
    def declined(self) -> tuple[Declined, ...]:
        """Every engine that serves no configuration of a fused operation, with all its reasons."""
        found = []
        for task in self._tasks:
            for engine in self._engines:
                rejections = self._why_not(task, engine)
                if rejections:
                    found.append(Declined(task.op, engine, rejections))
        return tuple(found)

    def excluded_knobs(self, op: FusedOp) -> Iterator[tuple[Choice, Rejection]]:
        """Knob settings of engines that serve a fused operation, with the filter that takes each out."""
        task = self._tasks[op.index]
        for engine in self._engines:
            if engine.serves(task):
                for knobs in self._knob_settings(engine):
                    choice = Choice(task, engine, knobs)
                    yield from ((choice, rejection) for rejection in self._filtered(choice))

    def _why_not(self, task: Task, engine: Engine) -> tuple[Rejection, ...]:
        return engine.why_not(task) + tuple(self._filtered(Choice(task, engine, engine.settings(engine.frugal))))

    def _fill(self, count: int) -> bool:
        """Work out configurations until there are ``count``; False when there are fewer."""
        if len(self._found) < count:
            with self._working:  # rankings are shared between threads
                self._found += islice(self._rest, max(count - len(self._found), 0))
        if not self._told and debug.asks("rank"):
            self._told = True
            self._tell()
        return len(self._found) >= count

    def _tell(self) -> None:
        """The ranking as lines on stderr."""
        about = self.fused.graph.name or "unnamed", self.device.name, self.mode.name
        repeat = debug.repeat("of_graph", self.fused.graph, "explain", self.device.name)
        for i, config in enumerate(islice(self, _SHOWN)):
            seconds = f"{config.predicted_seconds * 1e6:.1f}"
            debug.line("rank", *about, i, config.name, seconds, config.workspace_size, repeat=repeat)
        for declined in self.declined:
            for r in declined.rejections:
                place = declined.engine.name, declined.operation.name
                debug.line("declined", *about, *place, r.rule, r.reason, repeat=repeat)

    def _configs(self) -> Iterator[EngineConfig]:
        candidates = [_Lazy(self._candidates(task)) for task in self._tasks]
        if not all(c.has(0) for c in candidates):
            return
        ranked = self.mode in (HeurMode.A, HeurMode.B)
        for picked in _best_first(candidates, (lambda c: c.rank) if ranked else None):
            yield EngineConfig(self.fused, self.device, picked, self.mode, self.filters)

    def _candidates(self, task: Task) -> Iterator[Choice]:
        """Choices for one fused operation in the mode's order; engines are asked one by one, as they come up."""
        asked = _asked(self._engines, task, self.filters, self.mode is HeurMode.FALLBACK)
        if self.mode in (HeurMode.A, HeurMode.B):
            return self._fastest_first(task, asked)
        return (choice for engine in asked for choice in self._choices(task, engine))

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
            for knobs in self._knob_settings(engine):
                choice = Choice(task, engine, knobs)
                if self._too_much(choice) is None:
                    yield choice

    def _knob_settings(self, engine: Engine) -> Iterator[Knobs]:
        if self.mode is not HeurMode.B:
            yield engine.defaults()
            if engine.frugal and self.filters.workspace_limit is not None:
                yield engine.settings(engine.frugal)
            return
        if prod(len(knob.values) for knob in engine.knobs) > _MOST_SETTINGS:
            yield engine.defaults()
            for knob in engine.knobs:
                yield from (engine.settings({knob.type: value}) for value in knob.sample if value != knob.default)
            return
        for values in product(*(knob.values for knob in engine.knobs)):
            yield MappingProxyType(dict(zip((k.type for k in engine.knobs), values, strict=True)))

    def _filtered(self, choice: Choice) -> Iterator[Rejection]:
        yield from _barred(choice.engine, self.filters, _asks_for_stable_sums(choice.task.op), choice.where)
        wanted = self._too_much(choice) if choice.engine.serves(choice.task) else None
        if wanted is not None:
            limit = self.filters.workspace_limit
            yield WORKSPACE.reject(choice.where, "workspace_size", wanted, limit=limit)

    def _too_much(self, choice: Choice) -> int | None:
        """Bytes of workspace, where they are beyond the limit; of an engine that serves the operation."""
        if self.filters.workspace_limit is None:
            return None
        wanted = materialized_bytes(self.fused, self.device) + choice.scratch
        return wanted if wanted > self.filters.workspace_limit else None

    def __str__(self) -> str:
        lines = [f"ranking on {self.device.name}, mode {self.mode.name}:"]
        shown = list(islice(self, _SHOWN + 1))  # many kernels have a product of choices
        lines += [f"  {i}. {config}" for i, config in enumerate(shown[:_SHOWN])]
        lines += ["  ..."] if len(shown) > _SHOWN else []
        lines += ["declined:"] if self.declined else []
        lines += [f"  {line}" for declined in self.declined for line in str(declined).splitlines()]
        return "\n".join(lines)

    def to_json(self, limit: int | None = None, *, declined: bool = True) -> dict[str, object]:
        """``limit``: the most configurations to list; a graph of several kernels has a product of them."""
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


class _Lazy:
    """A list that is filled from an iterator as far as it is read."""

    def __init__(self, source: Iterator[Choice]) -> None:
        self._source = source
        self._items: list[Choice] = []

    def has(self, index: int) -> bool:
        while len(self._items) <= index:
            item = next(self._source, None)
            if item is None:
                return False
            self._items.append(item)
        return True

    def __getitem__(self, index: int) -> Choice:
        return self._items[index]


def _best_first(candidates: Sequence[_Lazy], seconds: Callable[[Choice], float] | None) -> Iterator[tuple[Choice, ...]]:
    """One choice from each list, smallest total first (total position when ``seconds`` is None)."""

    def worth(axis: int, index: int) -> float:
        return index if seconds is None else seconds(candidates[axis][index])

    if len(candidates) == 1:
        (only,), index = candidates, 0
        while only.has(index):
            yield (only[index],)
            index += 1
        return
    start = (0,) * len(candidates)
    heap, seen = [(sum([worth(axis, 0) for axis in range(len(start))]), start)], {start}
    while heap:
        _, indices = heapq.heappop(heap)
        yield tuple(c[i] for c, i in zip(candidates, indices, strict=True))
        here = [worth(axis, index) for axis, index in enumerate(indices)]
        for axis, candidate in enumerate(candidates):
            following = (*indices[:axis], indices[axis] + 1, *indices[axis + 1 :])
            if following not in seen and candidate.has(following[axis]):
                seen.add(following)
                # Added up anew: totals that are worked out from others would come to other digits, and another order.
                there = [*here[:axis], worth(axis, following[axis]), *here[axis + 1 :]]
                heapq.heappush(heap, (sum(there), following))
