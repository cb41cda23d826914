"""Loops: whether a kernel would wait for itself if an operation, or another kernel, joined it.

Kernels wait for each other as their operations do. Looks from both ends in turn, one edge at a time, and stops where
either has nothing left: one side of a long graph is usually short.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphdnn.fusion.templates import POINTWISE_RULE, GrowingKernel
from graphdnn.graph.operation_graph import OperationGraph

_END: Any = object()  # of what there is to look at


class Loops:
    """Of the kernels of a graph while they grow."""

    def __init__(self, graph: OperationGraph, group_of: Mapping[int, GrowingKernel]) -> None:
        """``group_of``: the kernel of each operation that has one already, by index; it changes meanwhile."""
        before = [
            {graph.producer[t.uid] for t in op.inputs().values() if t.uid in graph.producer} for op in graph.operations
        ]
        self._group_of, self._feeders = group_of, before  # by index
        self._readers: list[list[int]] = [[] for _ in before]
        for index, producers in enumerate(before):
            for producer in producers:
                self._readers[producer].append(index)

    def reenters(self, group: GrowingKernel, index: int) -> bool:
        """True when an operand of ``index`` from another kernel depends on ``group``: joining would close a loop."""
        others = {id(other): other for p in self._feeders[index] if (other := self._group_of[p]) is not group}
        return bool(others) and self._waits(others, {id(group): group})

    def returns(self, group: GrowingKernel, other: GrowingKernel, index: int) -> bool:
        """True when ``group``, with ``index`` in it, waits for a kernel that waits for ``other``, or, where one of
        them has an anchor, but for ``index`` for ``other`` itself.
        """
        if group.rule is not POINTWISE_RULE or other.rule is not POINTWISE_RULE:
            fed = (self._group_of[f] for i in group.members if i != index for f in self._feeders[i])
            if any(feeder is other for feeder in fed):
                return True
        elif len(other.epilogue) < len(group.epilogue):
            between = self._beside(other, self._readers, group)
            return bool(between) and self._waits({id(group): group}, between)
        between = self._beside(group, self._feeders, other)
        return bool(between) and self._waits(between, {id(other): other})

    def _beside(
        self, group: GrowingKernel, neighbours: Sequence[Collection[int]], other: GrowingKernel
    ) -> dict[int, GrowingKernel]:
        """Kernels next to ``group``, but for ``other``."""
        found = {id(g): g for i in group.members for n in neighbours[i] if (g := self._group_of.get(n)) is not None}
        return {key: near for key, near in found.items() if near is not group and near is not other}

    def _waits(self, later: Mapping[int, GrowingKernel], earlier: Mapping[int, GrowingKernel]) -> bool:
        """True when one of ``later`` waits for one of ``earlier``."""
        below, above = self._reached(earlier.values(), self._readers), self._reached(later.values(), self._feeders)
        while True:
            follower, source = next(below, _END), next(above, _END)
            if id(follower) in later or id(source) in earlier:
                return True
            if follower is _END or source is _END:
                return False

    def _reached(
        self, start: Iterable[GrowingKernel], neighbours: Sequence[Collection[int]]
    ) -> Iterator[GrowingKernel | None]:
        """Kernels that wait for the first ones, or that those wait for; None for an edge to one that is known."""
        waiting = list(start)
        found = {id(group) for group in waiting}
        while waiting:
            for member in waiting.pop().members:
                for neighbour in neighbours[member]:
                    group = self._group_of.get(neighbour)
                    if group is None or id(group) in found:
                        yield None
                    else:
                        found.add(id(group))
                        waiting.append(group)
                        yield group
