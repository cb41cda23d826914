"""What a caller bars: engines by their notes, configurations by their workspace, each with its rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphdnn.engines import Engine
from graphdnn.enums import BehaviorNote, NumericalNote, Status
from graphdnn.errors import Rejection
from graphdnn.rules import Rule

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


@dataclass(frozen=True, slots=True)
class Filters:
    """What configurations must not be, or cost."""

    without_numerical_notes: frozenset[NumericalNote] = frozenset()
    allowed_numerical_notes: frozenset[NumericalNote] = frozenset()  # of those that have to be asked for
    without_behavior_notes: frozenset[BehaviorNote] = frozenset()
    deterministic: bool = False
    workspace_limit: int | None = None  # bytes


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
