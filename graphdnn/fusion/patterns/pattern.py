"""Chains: operations that are one kernel before anything joins it, and the guards that their edges have to pass."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphdnn.checks import AtMost, Equals
from graphdnn.fusion.limits import LIMIT_GUARDS, UNLIMITED, Resolved
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Reduction
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

_LONGEST = 57344  # elements of two operands in 16 bits that fit into the shared memory of a multiprocessor


@dataclass(frozen=True, slots=True)
class Chain:
    """``anchor``: the index of the first reduction, average or product; ``x``: what the chain begins with, or of
    attention the result, whose extents those of the epilogue are; ``rule``: the id of its fusion rule.
    """

    anchor: int
    members: tuple[int, ...]
    x: TensorSpec
    rule: str = "softmax"


@dataclass(frozen=True, slots=True)
class Link:
    """An edge of a chain."""

    graph: OperationGraph
    members: frozenset[int]
    rows: tuple[int, ...]  # extents of what the chain's anchor gives
    tensor: TensorSpec
    consumer: int
    limits: Resolved = UNLIMITED
    elements: tuple[int, ...] = ()  # extents of what a gradient's rows are of, where the tensor is their sum

    @property
    def joined(self) -> frozenset[int]:
        return self.members

    @property
    def length(self) -> int:
        """Of a gradient's row, on the edge that the sum leaves by."""
        return prod(self.elements) // prod(self.rows)

    @property
    def sum(self) -> TensorSpec | None:
        """The result of the reduction that the edge leads to."""
        operation = self.graph.operations[self.consumer]
        return operation.y if isinstance(operation, Reduction) else None

    @property
    def readers_outside(self) -> int:
        return len(set(self.graph.consumers.get(self.tensor.uid, ())) - self.members)


CHAIN_GUARDS: tuple[Constraint, ...] = (
    Constraint(
        id="fuse.softmax.rows",
        attribute="consumer",
        look=lambda link: f"a sum of extents {link.sum.extents}",
        check=lambda link: Equals(f"a sum of extents {link.rows}"),
        when=lambda link: link.sum is not None and link.sum.extents != link.rows,
        reason="one group of threads computes the maximum and the sum of a row",
        fix="reduce the maximum and the sum over the same axes",
    ),
    Constraint(
        id="fuse.softmax.virtual",
        attribute="tensor",
        look=lambda link: "in memory",
        check=Equals("a virtual tensor"),
        when=lambda link: not link.elements and not link.tensor.is_virtual,
        reason="the rows' elements pass from one reduction to the next in registers",
        fix="mark the tensor virtual, or keep it: the operations are then kernels of their own",
    ),
    Constraint(
        id="fuse.softmax.readers",
        attribute="tensor",
        look=lambda link: f"{link.readers_outside} readers outside of the softmax",
        check=Equals("no other reader"),
        when=lambda link: not link.elements and link.readers_outside > 0,
        reason="the rows' elements pass from one reduction to the next in registers",
        fix="let the other operation compute its own copy",
    ),
    Constraint(
        id="fuse.softmax.length",
        attribute="elements of a row",
        look=lambda link: link.length,
        check=AtMost(_LONGEST),
        when=lambda link: link.length > _LONGEST,
        reason="no block can hold a row of this length, so the gradient reads the row twice in any case; a separate "
        "sum uses more blocks",
        fix="nothing to do: the sum and what follows it are kernels of their own",
    ),
    *LIMIT_GUARDS,
)
