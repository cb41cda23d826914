"""Ledger: every refusal of a plan, a graph or an error, to be filtered, printed and stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from graphdnn.analysis.diagnostics.diagnostic import KINDS, Diagnostic
from graphdnn.analysis.diagnostics.query_validation import check_names
from graphdnn.engines.renames import current_name, current_names

FORMAT, VERSION = "graphdnn.ledger", 1


class DiagnosticList:
    """Refusals in the order in which they were found."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[Diagnostic] = ()) -> None:
        self.entries = tuple(dict.fromkeys(entries))  # rankings of several modes say the same

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> Diagnostic:
        return self.entries[index]

    def __contains__(self, item: object) -> bool:
        return item in self.entries

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiagnosticList) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __add__(self, other: DiagnosticList) -> DiagnosticList:
        return DiagnosticList((*self.entries, *other.entries))

    def only(
        self,
        engine: str | int | None = None,
        kind: str | None = None,
        rule: str | None = None,
        operation: str | int | None = None,
        uid: int | None = None,
    ) -> DiagnosticList:
        """The refusals that agree with every argument.

        Args:
            engine: The name or the id of an engine.
            kind: "edge", "pattern", "engine", "filter", "knob" or "value".
            rule: The id of a rule, or the part of an id before a dot.
            operation: The index of a fused operation, or the label or the name of an operation.
            uid: The uid of a tensor.

        Returns:
            The selected refusals.

        Raises:
            BadParam: There is no such engine, kind or rule, so nothing could have been refused for it.
        """
        check_names(engine, kind, rule)
        engine = current_name(engine) if isinstance(engine, str) else engine
        rule = current_names(rule) if isinstance(rule, str) else rule
        return DiagnosticList(
            e
            for e in self.entries
            if (engine is None or engine in (e.subject.engine, e.subject.engine_id))
            and (kind is None or kind == e.kind)
            and (rule is None or e.rule == rule or e.rule.startswith(f"{rule}."))
            and (operation is None or _is_of(e, operation))
            and (uid is None or uid in e.subject.uids)
        )

    @property
    def rules(self) -> tuple[str, ...]:
        """The ids of the rules, each once, in order."""
        return tuple(dict.fromkeys(e.rule for e in self.entries))

    def __repr__(self) -> str:
        counts = Counter(e.kind for e in self.entries)
        return f"<Ledger: {', '.join(f'{counts[kind]} {kind}' for kind in KINDS if counts[kind]) or 'empty'}>"

    def __str__(self) -> str:
        return "\n".join(map(str, self.entries)) or "nothing was refused"

    def to_json(self) -> dict[str, Any]:
        """Plain data: the entries and their fields."""
        return {"format": FORMAT, "version": VERSION, "entries": [e.to_json() for e in self.entries]}


def _is_of(entry: Diagnostic, operation: str | int) -> bool:
    if isinstance(operation, int):
        return entry.subject.fused == operation
    return any(operation == label or label.endswith(f" '{operation}'") for label in entry.subject.operations)
