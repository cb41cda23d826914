"""What an importer hands over: problems, and a reason for each line that is none. Nothing is left out in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphdnn.errors import BadParam, GraphdnnError, Rejection
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.problem import parse
from graphdnn.rules import Rule

UNKNOWN = Rule(
    id="import.unknown",
    expected="{expected}",
    reason="{detail}, and the library ignores no input",
    fix="{fix}",
)
VALUE = Rule(
    id="import.value",
    expected="{expected}",
    reason="{detail}",
    fix="{fix}",
)
MISSING = Rule(
    id="import.missing",
    expected="{expected}",
    reason="the problem is incomplete without this value",
    fix="add it",
)
UNLIKE = Rule(
    id="import.unlike",
    expected="{expected}",
    reason="a problem text derives it from the first operand, and derives something else",
    fix="{fix}",
)


class Refusal(Exception):
    """One field that cannot be taken over; the importer adds the line."""

    def __init__(self, rule: Rule, attribute: str, value: object, **words: Any) -> None:
        super().__init__(rule.id)
        self.rule, self.attribute, self.value, self.words = rule, attribute, value, words

    def at(self, where: str) -> Rejection:
        return self.rule.reject(where, self.attribute, self.value, **self.words)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a source. ``text`` is empty if only a graph can express it."""

    line: int
    name: str
    text: str
    graph: OperationGraph

    @property
    def comment(self) -> str:
        """The line and the name of the problem, as a comment."""
        return f"line {self.line}" + (f", {self.name}" if self.name else "")


@dataclass(frozen=True, slots=True)
class Imported:
    """The problems of a source, and the lines that were refused."""

    format: str
    problems: tuple[Problem, ...]
    refused: tuple[Rejection, ...]
    notes: tuple[str, ...] = ()  # what is no problem, and was passed over


def checked(line: int, name: str, text: str) -> Problem:
    """A problem from its text. Raises ``BadParam`` where it is none, with the line in front."""
    try:
        return Problem(line, name, text, parse(text).build_operation_graph())
    except GraphdnnError as error:
        raise BadParam(placed(error.rejections, f"line {line}")) from None


def placed(rejections: Sequence[Rejection], where: str) -> list[Rejection]:
    """With the line in front of what was being checked."""
    return [
        Rejection(r.rule, f"{where}: {r.where}", r.attribute, r.value, r.expected, r.reason, r.fix, r.status)
        for r in rejections
    ]
