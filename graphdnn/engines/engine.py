"""Engine: a family of kernels with its needs, knobs, notes, cost, workspace and compiler, as one record.

An engine serves one fused operation on one device: a ``Task``. What it needs are
constraints over the task, so declining always comes with every reason. The
table of engines is ``graphdnn.engines.ENGINES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from math import sqrt
from types import MappingProxyType
from typing import Any, Protocol

from graphdnn.checks import Check, OneOf
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.operation_cost import reduction_length
from graphdnn.engines.rewrite_step import RewriteStep
from graphdnn.engines.sum_error import SumError
from graphdnn.enums import BehaviorNote, KnobType, LayoutType, NumericalNote, Status
from graphdnn.errors import Rejection
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation, Operation
from graphdnn.rules import Constraint, Rule, violations

Knobs = Mapping[KnobType, int]
_SAMPLED = 24  # values of a knob beyond which a search takes some of them

KNOB_UNKNOWN = Rule(
    id="knob.unknown",
    expected="one of {known}",
    reason="engine {engine} has no such knob, and the library ignores no input",
    fix="query the engine's knobs",
)
KNOB_VALUE = Rule(
    id="knob.value",
    expected="{expected}",
    reason="legal values of a knob are its minimum, minimum + stride, ... up to its maximum",
    fix="choose a legal value, or leave the knob at its default",
    status=Status.NOT_SUPPORTED,
)
KNOB_UNAVAILABLE = Rule(
    id="knob.unavailable",
    expected="{expected}",
    reason="with its other knobs the engine has no kernel of this value for the operation; it would launch {launched}",
    fix="choose one of these values, or leave the knob at its default",
    status=Status.NOT_SUPPORTED,
)
KNOB_TWICE = Rule(
    id="knob.twice",
    expected="each knob at most once",
    reason="two choices for one knob contradict each other",
    fix="drop one of them",
    status=Status.BAD_PARAM_DUPLICATED_ENTRIES,
)
PLACE = Rule(
    id="engine.place",
    expected="a device of kind {places}",
    reason="the engine works on arrays in the memory of such a device, and a plan's arrays are all in one place",
    fix="build the plan for such a device; other engines serve this one",
    status=Status.NOT_SUPPORTED_ARCH_MISMATCH,
)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What an engine is asked to serve."""

    op: FusedOp
    device: DeviceSpec

    @property
    def where(self) -> str:
        return f"{self.op.name} on {self.device.name}"

    @property
    def kind(self) -> tuple[object, ...]:
        """What shapes of one kind have in common, as far as engines look at it first: operation, types, generation."""
        op, device, anchor = self.op, self.device, self.op.anchor
        place = device.kind, device.compute_capability
        if anchor is None:
            return (*place, op.rule)
        types = tuple([(port, t.data_type) for port, t in anchor.tensors().items()])
        spatial = anchor.conv.spatial_dims if isinstance(anchor, ConvolutionOperation) else 0
        ends = len(op.prologue), op.exit is None
        return (*place, op.rule, anchor.tag, anchor.compute_type, types, spatial, *ends)


@dataclass(frozen=True, slots=True)
class Knob:
    """A tuning parameter: ``minimum``, ``minimum + stride``, ... ``maximum``.

    ``is_row``: the value is the number of a row of a table. Neighbouring rows may differ in everything, so a search
    takes all rows.
    """

    type: KnobType
    minimum: int
    maximum: int
    stride: int
    default: int
    meaning: str
    is_row: bool = False

    @classmethod
    def row_of(cls, table: Sized, type_: KnobType, meaning: str) -> Knob:
        """The number of a row, beginning with 1. The default 0 leaves the choice to the engine."""
        return cls(type_, 0, len(table), 1, 0, meaning, is_row=True)

    @property
    def values(self) -> range:
        return range(self.minimum, self.maximum + 1, self.stride)

    @property
    def sample(self) -> list[int]:
        """The values that a search takes: all, or of a long range the first ones, then some whose distance grows."""
        values = self.values
        if self.is_row or len(values) <= _SAMPLED:
            return list(values)
        steps = [*range(9), *(n << k for k in range(2, 32) for n in (3, 4))]
        return [values[step] for step in sorted(set(steps)) if step < len(values)]

    def __str__(self) -> str:
        values = ", ".join(map(str, self.values)) if len(self.values) <= 8 else f"{self.minimum} to {self.maximum}"
        return values + ("" if self.stride == 1 or len(self.values) <= 8 else f" in steps of {self.stride}")


@dataclass(frozen=True, slots=True)
class Cost:
    """A prediction: work, traffic and seconds."""

    flops: float
    bytes: float
    seconds: float
    parts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # named seconds

    @property
    def microseconds(self) -> float:
        return self.seconds * 1e6

    def plus(self, parts: Mapping[str, float]) -> Cost:
        """With more named seconds."""
        if not parts:
            return self
        return Cost(
            self.flops, self.bytes, self.seconds + sum(parts.values()), MappingProxyType({**self.parts, **parts})
        )

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value * 1e6:.1f}" for name, value in self.parts.items())
        return f"{self.microseconds:.1f} us" + (f" ({parts})" if parts else "")


class CompiledOperation(Protocol):
    """What an engine makes of a fused operation: a ``Kernel`` of the host, or a ``DeviceKernel``."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A fused operation compiled for the host: ``run(arrays, scratch)`` takes inputs, then outputs, in its order."""

    name: str
    run: Callable[[Sequence[Any], Any], None]
    source: str | None = None


class Scope(Enum):
    """For which tasks a verdict is the same, so that rankings ask once for all of them; the widest first."""

    KIND = "tasks of one kind, whatever their shapes"
    WINDOW = "convolutions of one kind that differ in how many images there are, and in their lines and pixels"
    IMAGES = "operations of one kind that differ in how many images, products or rows there are, but not in one"
    TASK = "this task alone"

    __hash__ = object.__hash__  # of members, which are kept by


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """One row of the engine table."""

    id: int  # never reused, also when the engine is gone
    name: str
    summary: str
    needs: tuple[Constraint, ...]
    cost: Callable[[Task, Knobs], Cost]
    compile: Callable[[Task, Knobs], CompiledOperation]
    least: Callable[[Task], float] = lambda task: 0.0  # seconds that no prediction is below; quickly said
    closer: Callable[[Task], float] | None = None  # the same, nearer to predictions, and not said as quickly
    workspace: Callable[[Task, Knobs], int] = lambda task, knobs: 0
    knobs: tuple[Knob, ...] = ()
    # Knob values of the kernel that these settings launch, without the knobs that it lacks. None: as they are set.
    effective: Callable[[Task, Knobs], Knobs] | None = None
    frugal: Mapping[KnobType, int] = field(
        default_factory=lambda: MappingProxyType({})
    )  # knob values that need the least workspace
    numerical_notes: tuple[NumericalNote, ...] = ()  # of any setting: an absent note is a promise
    notes_of: Callable[[Task, Knobs], tuple[NumericalNote, ...]] | None = None  # of one setting, where settings differ
    sum_error: SumError | None = None  # of convolutions and products of floats, as tests hold it to
    error_growth: float = 1.0  # rounding errors, beside those of a plain sum of products: for the oracle
    handicap: float = 1.0  # of its predicted time where engines are ranked: larger errors have to be worth it
    behavior_notes: tuple[BehaviorNote, ...] = ()
    rewritten: Callable[[Task], RewriteStep] | None = None  # of a task that it serves, where it is a rewrite's engine
    places: tuple[str, ...] = ("cpu",)  # where its arrays live
    layout: LayoutType | None = None  # of images, where it serves no other, or serves it faster
    is_general: bool = False  # serves every legal task of its kind of operation: what FALLBACK returns

    def growth(self, op: Operation) -> float:
        """Of this operation's errors, beside those of a sum whose roundings are independent: 8 (sqrt(n) + 1) units."""
        drift = 0.0 if self.sum_error is None else self.sum_error.drift
        n = reduction_length(op) if drift else 0
        return max(self.error_growth, drift * n / (8 * (sqrt(n) + 1)))

    def why_not(self, task: Task) -> tuple[Rejection, ...]:
        """Every reason to decline; empty when the engine serves the task."""
        where = f"engine {self.id} {self.name}, {task.where}"
        if task.device.kind not in self.places:
            return (PLACE.reject(where, "device.kind", task.device.kind, places=", ".join(self.places)),)
        return tuple(violations(self.needs, task, where))

    def serves(self, task: Task) -> bool:
        """The verdict alone: at the first reason to decline, the others are not looked at."""
        is_asked = self.is_for(task.op.rule) and task.device.kind in self.places
        return is_asked and all(need.holds(task) for need in self.needs)

    def serves_kind(self, task: Task) -> bool:
        """False when the engine serves no task of this kind, whatever its shape."""
        is_asked = self.is_for(task.op.rule) and task.device.kind in self.places
        return is_asked and all(need.holds(task) for need in _sorted(self, None, Scope.KIND))

    def needs_between(self, wider: Scope, scope: Scope) -> tuple[Constraint, ...]:
        """What is left to ask tasks that agree in what ``scope`` looks at, where those of ``wider`` are served."""
        return _sorted(self, wider, scope)

    def is_for(self, rule: str) -> bool:
        """False when the engine is written for operations of other fusion rules, which most engines decline with."""
        rules = _rules_of(self)
        return rules is None or rule in rules

    def defaults(self) -> Knobs:
        return _defaults(self)

    def settings(self, chosen: Mapping[KnobType, int]) -> Knobs:
        """Defaults with ``chosen`` values in place. Raises nothing; check with ``knob_problems`` first."""
        return MappingProxyType({**self.defaults(), **chosen})

    def knob_problems(self, chosen: Sequence[tuple[KnobType, int]]) -> list[Rejection]:
        """Unknown knobs, illegal values, knobs given twice."""
        where = f"engine {self.id} {self.name}"
        known = {knob.type: knob for knob in self.knobs}
        found = []
        for i, (kind, value) in enumerate(chosen):
            if kind not in known:
                names = ", ".join(k.name for k in known) or "no knobs"
                label = kind.c_name if isinstance(kind, KnobType) else str(kind)
                found.append(KNOB_UNKNOWN.reject(where, label, value, known=names, engine=self.name))
            elif value not in known[kind].values:
                found.append(KNOB_VALUE.reject(where, kind.c_name, value, expected=str(known[kind])))
            if kind in [k for k, _ in chosen[:i]]:
                found.append(KNOB_TWICE.reject(where, kind.c_name, value))
        return found

    def setting_notes(self, task: Task, knobs: Knobs) -> tuple[NumericalNote, ...]:
        """The numerical notes of the kernel that these settings launch, of a task that the engine serves."""
        return self.numerical_notes if self.notes_of is None else self.notes_of(task, knobs)

    def effective_knobs(self, task: Task, knobs: Knobs) -> Knobs:
        """The values of the kernel that these settings launch for a task that the engine serves.

        A knob that the kernel lacks has its default.
        """
        return knobs if self.effective is None else self.settings(self.effective(task, knobs))

    def has_setting(self, task: Task, knobs: Knobs) -> bool:
        """False when a knob is set to a value that the launched kernel does not have."""
        return not self._unavailable(knobs, self.effective_knobs(task, knobs))

    def unavailable_knobs(self, task: Task, knobs: Knobs) -> list[Rejection]:
        """A rejection for each knob that is set to a value that the launched kernel does not have.

        Args:
            task: A task that the engine serves.
            knobs: A legal value for each knob.
        """
        launched, where = self.effective_knobs(task, knobs), f"engine {self.id} {self.name}, {task.where}"
        found = []
        for knob in self._unavailable(knobs, launched):
            others = ((value, self.settings({**knobs, knob.type: value})) for value in knob.sample)
            had = [v for v, s in others if v == knob.default or self.effective_knobs(task, s)[knob.type] == v]
            first = "one of" if len(knob.sample) == len(knob.values) else "for example"
            found.append(
                KNOB_UNAVAILABLE.reject(
                    where, knob.type.c_name, knobs[knob.type], expected=f"{first} {', '.join(map(str, had))}",
                    launched=launched[knob.type],
                )
            )  # fmt: skip
        return found

    def named_settings(self, task: Task, knobs: Knobs) -> Knobs:
        """The settings of an earlier version, where values gave way, with the values that they launch.

        They are returned as they are when other settings would launch another kernel.
        """
        launched = self.effective_knobs(task, knobs)
        changed = {knob.type: launched[knob.type] for knob in self._unavailable(knobs, launched)}
        if not changed:
            return knobs
        named = self.settings({**knobs, **changed})
        if self.knob_problems(tuple(changed.items())) or self.effective_knobs(task, named) != launched:
            return knobs
        return named if self.has_setting(task, named) else knobs

    def _unavailable(self, knobs: Knobs, launched: Knobs) -> list[Knob]:
        return [k for k in self.knobs if knobs[k.type] not in (k.default, launched[k.type])]

    def __str__(self) -> str:
        return f"{self.id} {self.name}"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Need(Constraint):
    scope: Scope
    rules: tuple[str, ...] | None = None  # the fusion rules that are served, where the condition is about them


def need(
    id: str,
    attribute: str,
    look: Callable[[Task], object],
    check: Check | Callable[[Task], Check | None],
    reason: str,
    fix: str,
    status: Status = Status.NOT_SUPPORTED,
    when: Callable[[Task], bool] | None = None,
    scope: Scope = Scope.TASK,
) -> Constraint:
    """One condition of an engine. It looks at nothing in which tasks of its ``scope`` differ."""
    return _Need(
        id=id,
        attribute=attribute,
        look=look,
        check=check,
        reason=reason,
        fix=fix,
        status=status,
        when=when,
        scope=scope,
    )


def scope_of(constraint: Constraint) -> Scope:
    return constraint.scope if isinstance(constraint, _Need) else Scope.TASK


kind_need = partial(need, scope=Scope.KIND)
window_need = partial(need, scope=Scope.WINDOW)
image_need = partial(need, scope=Scope.IMAGES)


def needs_rule(id: str, *rules: str) -> Constraint:
    """The engine serves fused operations of these fusion rules."""
    return _Need(
        id=id,
        attribute="operation",
        look=lambda task: task.op.rule,
        check=OneOf(*rules),
        reason="the engine is written for another kind of operation",
        fix="nothing to do: another engine serves this operation",
        status=Status.NOT_SUPPORTED_GRAPH_PATTERN,
        scope=Scope.KIND,
        rules=rules,
    )


_SCOPES = tuple(Scope)


@cache
def _sorted(engine: Engine, wider: Scope | None, scope: Scope) -> tuple[Constraint, ...]:
    """Needs of this scope, and of those between it and a wider one."""
    first, last = 0 if wider is None else _SCOPES.index(wider) + 1, _SCOPES.index(scope)
    return tuple(need for need in engine.needs if first <= _SCOPES.index(scope_of(need)) <= last)


@cache
def _defaults(engine: Engine) -> Knobs:
    return MappingProxyType({knob.type: knob.default for knob in engine.knobs})


def sort_needs(engines: Iterable[Engine]) -> None:
    """Sort the needs of engines, before a first task asks."""
    for engine in engines:
        _rules_of(engine)
        for wider, scope in zip((None, *_SCOPES), _SCOPES, strict=False):
            _sorted(engine, wider, scope)


@cache
def _rules_of(engine: Engine) -> tuple[str, ...] | None:
    """The fusion rules that an engine serves; None when it has no such need."""
    return next((need.rules for need in engine.needs if isinstance(need, _Need) and need.rules is not None), None)
