"""What a caller bars: engines by their notes, configurations by their workspace, each with its rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from graphdnn.engines import Engine
from graphdnn.enums import BehaviorNote, CEnum, NumericalNote, Status
from graphdnn.errors import BadParam, Rejection
from graphdnn.rules import Rule
from graphdnn.scalars import listed

NOTE = Rule(
    id="filter.note",
    expected="members of {enum}, or their names",
    reason="a note that no engine has excludes nothing",
    fix="choose among {members}",
)
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
    expected="notes that need no permission, or {allowed}",
    reason="the engine computes with fewer digits than the types have, and only a request allows that",
    fix="allow the note (Graph.allow_numeric_notes) if the loss of digits is acceptable",
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


@dataclass(frozen=True, slots=True)
class Filters:
    """What configurations must not be or cost.

    Args:
        without_numerical_notes: Engines with one of these notes are excluded.
        allowed_numerical_notes: Engines that compute with fewer digits than the types have are excluded unless their
            note is here.
        without_behavior_notes: Engines with one of these notes are excluded.
        deterministic: True excludes engines whose results may differ from run to run.
        workspace_limit: The most bytes of workspace. None means no limit.
    """

    without_numerical_notes: frozenset[NumericalNote] = frozenset()
    allowed_numerical_notes: frozenset[NumericalNote] = (
        frozenset()
    )  # notes that exclude an engine unless they are allowed
    without_behavior_notes: frozenset[BehaviorNote] = frozenset()
    deterministic: bool = False
    workspace_limit: int | None = None  # bytes

    def __post_init__(self) -> None:
        for field, enum in _NOTES.items():
            given = getattr(self, field)
            if given:
                object.__setattr__(self, field, notes_of(enum, given))


_NOTES: dict[str, type[CEnum]] = {
    "without_numerical_notes": NumericalNote,
    "allowed_numerical_notes": NumericalNote,
    "without_behavior_notes": BehaviorNote,
}
N = TypeVar("N", bound=CEnum)


def notes_of(enum: type[N], given: Iterable[Any] | Any) -> frozenset[N]:
    """Members of one of them, or of several, each as itself or by its name. Raises ``BadParam`` for what is none."""
    try:
        values = (given,) if isinstance(given, (str, int)) else listed(given, "no list")
    except ValueError:
        values = (given,)  # which is refused
    found = []
    for value in values:
        member = enum.named(value)
        if not isinstance(member, enum):
            members = ", ".join(name for name in enum.__members__ if name != "TYPE_COUNT")
            raise BadParam(NOTE.reject("FILTERS", "note", value, enum=enum.__name__, members=members))
        found.append(member)
    return frozenset(found)


UNFILTERED = Filters()


def objections(engine: Engine, filters: Filters, stable: bool, where: str) -> Iterator[Rejection]:
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
