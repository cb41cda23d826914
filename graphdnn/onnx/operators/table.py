"""OPERATORS: the table of operators. A row has a lowering function, a range of operator set versions, and needs.

A lowering function takes the node, the emitter and a tensor for each operand (None for an absent one); it returns the
tensors of the outputs. Operands in ``by_value`` are not passed: the function reads them as constants of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from graphdnn.checks import Check
from graphdnn.errors import Rejection
from graphdnn.onnx.node import Node
from graphdnn.onnx.rules import NEED

Lowering = Callable[..., Any]
NEWEST = 10_000


@dataclass(frozen=True, slots=True)
class Need:
    """What a lowering asks of a node. ``look`` picks the value; None means that the need does not apply."""

    attribute: str
    look: Callable[[Node], Any]
    check: Check
    reason: str
    fix: str = "pass fallback='reference'"

    def why_not(self, node: Node) -> Rejection | None:
        value = self.look(node)
        if value is None or self.check(value):
            return None
        expected = str(self.check)
        return NEED.reject(node.where, self.attribute, value, expected=expected, reason=self.reason, fix=self.fix)


@dataclass(frozen=True, slots=True)
class Operator:
    """One row of the table."""

    op_type: str
    domain: str
    since: int
    until: int
    lower: Lowering
    needs: tuple[Need, ...]
    by_value: tuple[int, ...]  # operands that a plan has to know
    shape: Callable[[Node], tuple[int, ...]] | None = None  # of the outputs, where ONNX's inference errs

    def refusals(self, node: Node) -> Iterator[Rejection]:
        """The needs that the node does not meet."""
        for need in self.needs:
            rejection = need.why_not(node)
            if rejection is not None:
                yield rejection


OPERATORS: dict[tuple[str, str], list[Operator]] = {}


def operator(
    *op_types: str,
    since: int = 1,
    until: int = NEWEST,
    needs: tuple[Need, ...] = (),
    by_value: tuple[int, ...] = (),
    domain: str = "",
    shape: Callable[[Node], tuple[int, ...]] | None = None,
) -> Callable[[Lowering], Lowering]:
    """Enter a lowering function for operators, in versions from ``since`` to ``until``."""

    def enter(function: Lowering) -> Lowering:
        for op_type in op_types:
            row = Operator(op_type, domain, since, until, function, needs, by_value, shape)
            OPERATORS.setdefault((domain, op_type), []).append(row)
        return function

    return enter


def operator_of(domain: str, op_type: str, version: int) -> Operator | None:
    """The row of an operator in a version of its operator set."""
    for row in OPERATORS.get((domain, op_type), ()):
        if row.since <= version <= row.until:
            return row
    return None
