"""Uses: what a fused operation does with its tensors, each by its uid.

A tensor may have more than one use: the image that is convolved is the residual behind the product, too, or its filter.
Who treats an operand as what it is for the anchor (copies it, sees other axes, leaves it to the copy unit) asks here
what else it is, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphdnn.tensors import TensorSpec

if TYPE_CHECKING:
    from graphdnn.fusion.fused_graph import FusedOp


@dataclass(frozen=True, slots=True, eq=False)
class TensorRoles:
    """Sets of uids, which overlap. Of a graph without anchor everything is read behind it."""

    entering: frozenset[int]  # operands of the anchor, from memory or from the prologue
    ahead: frozenset[int]  # what the prologue reads
    behind: frozenset[int]  # what the epilogue and the exit read, from memory or from the anchor
    made: frozenset[int]  # what its operations compute
    doubled: frozenset[int]  # tensors that are two operands of the anchor

    @classmethod
    def of(cls, op: FusedOp) -> TensorRoles:
        operands = [] if op.anchor is None else [t.uid for t in op.anchor.inputs().values()]
        end = () if op.exit is None else (op.exit,)
        return cls(
            entering=frozenset(operands),
            ahead=_uids(t for step in op.prologue for t in step.inputs().values()),
            behind=_uids(t for step in (*op.epilogue, *end) for t in step.inputs().values()),
            made=_uids(t for step in op.operations for t in step.outputs().values()),
            doubled=frozenset([uid for uid in operands if operands.count(uid) > 1]),
        )

    @property
    def front(self) -> frozenset[int]:
        """What is read, or computed, on the way into the anchor."""
        return self.entering | self.ahead

    @property
    def front_only(self) -> frozenset[int]:
        """The same but for what is read once more behind the anchor, where it counts among the end's operands."""
        return self.front - self.behind

    @property
    def again(self) -> frozenset[int]:
        """Operands of the anchor that are read once more behind it."""
        return self.entering & self.behind


def _uids(tensors: Iterable[TensorSpec]) -> frozenset[int]:
    return frozenset([t.uid for t in tensors])
