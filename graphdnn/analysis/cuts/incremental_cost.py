"""What a cut changes: the kernels around it. The others are those of the whole, so a large graph is not fused again.

A kernel grows along edges, so a cut can change the kernels that it touches, and by them the next ones. Two steps are
looked at, which a test compares with fusing both sides as a whole.
"""

from __future__ import annotations

from collections.abc import Collection

from graphdnn.analysis.cuts.cost import CostEvaluator
from graphdnn.analysis.cuts.cut import RunCost, total
from graphdnn.analysis.cuts.subgraphs import SubgraphBuilder
from graphdnn.fusion import FusedGraph

_STEPS = 2


class IncrementalCost:
    """Costs of the sides of cuts, from the kernels of the whole and from new kernels."""

    def __init__(self, fused: FusedGraph, carver: SubgraphBuilder, prices: CostEvaluator) -> None:
        graph = fused.graph
        self._graph, self._carver, self._prices = graph, carver, prices
        self._members = [
            frozenset(graph.producer[next(iter(step.outputs().values())).uid] for step in op.operations) for op in fused
        ]
        self._kernel_of = {index: kernel for kernel, members in enumerate(self._members) for index in members}
        self._known = {members: prices.of_kernel(op) for members, op in zip(self._members, fused, strict=True)}
        self._beside: list[set[int]] = [set() for _ in self._members]
        for producer, consumer, _ in graph.edges():
            source, target = self._kernel_of[producer], self._kernel_of[consumer]
            self._beside[source].add(target)
            self._beside[target].add(source)

    def price(self, side: frozenset[int], crossing: Collection[int]) -> RunCost:
        """Of the operations on one side of the cut that these tensors pass through."""
        touched = self._touched(crossing)
        near = set(touched)
        for _ in range(_STEPS):
            near.update(*(self._beside[kernel] for kernel in tuple(near)))
        inside = side.intersection(*[set().union(*(self._members[kernel] for kernel in near))])
        far = [self._known[m] for kernel, m in enumerate(self._members) if kernel not in near and m <= side]
        return total([*far, *self._anew(inside, side, crossing, touched)])

    def _touched(self, crossing: Collection[int]) -> set[int]:
        graph = self._graph
        ends = [i for uid in crossing for i in (graph.producer[uid], *graph.consumers.get(uid, ()))]
        return {self._kernel_of[i] for i in ends}

    def _anew(
        self, inside: frozenset[int], side: frozenset[int], crossing: Collection[int], touched: Collection[int]
    ) -> list[RunCost]:
        """The kernels that operations near the cut become."""
        graph = self._graph
        leaving = {
            t.uid
            for i in inside
            for t in graph.operations[i].outputs().values()
            if any(reader in side and reader not in inside for reader in graph.consumers.get(t.uid, ()))
        }
        part = self._carver.part(inside, leaving.union(crossing))
        place = dict(zip(map(id, part.operations), sorted(inside), strict=True))
        untouched = {members for kernel, members in enumerate(self._members) if kernel not in touched}
        found = []
        for op in self._prices.fused(part):
            members = frozenset(place[id(step)] for step in op.operations)
            found.append(self._known[members] if members in untouched else self._prices.of_kernel(op))
        return found
