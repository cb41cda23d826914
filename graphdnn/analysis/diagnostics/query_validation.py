"""What a ledger can be asked about: names that there are, so that an empty answer means that nothing was refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from graphdnn.analysis.diagnostics.diagnostic import KINDS
from graphdnn.engines import ENGINES, Engine, engines_of
from graphdnn.engines.renames import current_name, current_names
from graphdnn.errors import Rejection, raise_if
from graphdnn.fusion import FusedGraph
from graphdnn.rules import RULES, Rule

UNKNOWN = Rule(
    id="ledger.unknown",
    expected="one of {known}",
    reason="there is no such {what}, so nothing could have been refused for it",
    fix="choose one of the names, or leave it out",
)
_NEAREST = 12  # rules that are named


def check_names(engine: str | int | None, kind: str | None, rule: str | None) -> None:
    """Raises ``BadParam`` for what no ledger has."""
    raise_if(_unknown_names(engine, kind, rule))


def check_places(
    fused: FusedGraph, kind: str, engine: str | int | None, operation: str | int | None, uid: int | None
) -> None:
    """Raises ``BadParam`` for operations and tensors that the graph has not, engines of another ``kind`` of device."""
    raise_if(_unknown_places(fused, kind, engine, operation, uid))


def _unknown_names(engine: str | int | None, kind: str | None, rule: str | None) -> Iterator[Rejection]:
    if engine is not None and not _is_among(engine, ENGINES):
        yield _reject("engine", engine, (e.name for e in ENGINES))
    if kind is not None and kind not in KINDS:
        yield _reject("kind", kind, KINDS)
    if rule is not None:
        known, rule = _rules(), current_names(rule) if isinstance(rule, str) else rule
        if rule not in known and len(ENGINES):  # engines that nobody asked for have not said their rules
            known = _rules()
        if rule not in known:
            nearest = get_close_matches(str(rule), sorted(known), _NEAREST, 0.5)
            yield _reject("rule", rule, nearest or sorted({id.split(".")[0] for id in RULES}))


def _unknown_places(
    fused: FusedGraph, kind: str, engine: str | int | None, operation: str | int | None, uid: int | None
) -> Iterator[Rejection]:
    here = engines_of(kind)
    if engine is not None and not _is_among(engine, here):
        yield _reject("engine", engine, (e.name for e in here))
    labels = [op.label() for op in fused.graph.operations]
    names = [op.name for op in fused.graph.operations if op.name]
    if isinstance(operation, int) and not 0 <= operation < len(fused):
        yield _reject("operation", operation, map(str, range(len(fused))))
    if isinstance(operation, str) and operation not in (*labels, *names):
        yield _reject("operation", operation, labels)
    if uid is not None and uid not in fused.graph.tensors:
        yield _reject("uid", uid, map(str, sorted(fused.graph.tensors)))


def _is_among(engine: str | int, engines: Iterable[Engine]) -> bool:
    """Whether one of the engines has this id, this name, or had it in an earlier version."""
    current = current_name(engine) if isinstance(engine, str) else engine
    return current in {name for e in engines for name in (e.name, e.id)}


def _rules() -> set[str]:
    """With the families that they belong to."""
    return {part for id in RULES for part in (id, *_beginnings(id))}


def _beginnings(rule: str) -> Iterator[str]:
    parts = rule.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))


def _reject(what: str, value: object, known: Iterable[str]) -> Rejection:
    return UNKNOWN.reject("LEDGER", what, value, known=", ".join(known), what=what)
