"""Where a graph can be cut: sets of operations that need nothing of the rest.

Three families, each once: the kernels in execution order, operation by operation (which cuts each edge of a chain
and each boundary between kernels); an operation with all it needs; all but an operation and what needs it. In a chain
they are the same places; where branches run side by side they are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphdnn.fusion import FusedGraph, FusionLimits
from graphdnn.graph.operation_graph import OperationGraph

MOST_BRANCHING = 128  # operations; in larger graphs only the first family is looked at


@dataclass(frozen=True, slots=True)
class Place:
    """``before`` and ``after``: indices of operations. ``uids`` pass through, as they are written."""

    before: frozenset[int]
    after: frozenset[int]
    uids: tuple[int, ...]


def places(fused: FusedGraph) -> Iterator[Place]:
    """Every cut that a tensor passes through, once."""
    graph = fused.graph
    read = [
        (t.uid, index, frozenset(graph.consumers[t.uid]))
        for index, operation in enumerate(graph.operations)
        for t in operation.outputs().values()
        if t.uid in graph.consumers
    ]
    everything, seen = frozenset(range(len(graph.operations))), set[frozenset[int]]()
    for before in _candidates(fused):
        if before in seen:
            continue
        seen.add(before)
        uids = tuple(uid for uid, producer, readers in read if producer in before and not readers <= before)
        if uids:
            yield Place(before, everything - before, uids)


def split_here(graph: OperationGraph, place: Place, limits: FusionLimits) -> FusionLimits:
    """``limits`` with which no kernel has operations of both sides. Kernels grow along edges: only these count."""
    apart = [
        (uid, next(iter(graph.operations[reader].outputs().values())).uid)
        for uid in place.uids
        for reader in graph.consumers[uid]
        if reader in place.after
    ]
    return FusionLimits.of(limits.force, (*limits.forbid, *apart), limits.bound)


def _candidates(fused: FusedGraph) -> Iterator[frozenset[int]]:
    graph = fused.graph
    everything = frozenset(range(len(graph.operations)))
    before: set[int] = set()
    for operation in fused:
        for step in operation.operations:
            (index,) = {graph.producer[t.uid] for t in step.outputs().values()}
            before.add(index)
            if len(before) < len(everything):
                yield frozenset(before)
    if len(everything) > MOST_BRANCHING:
        return
    needed, needing = _closures(graph)
    for index in everything:
        for candidate in (needed[index], everything - needing[index]):
            if candidate and candidate != everything:
                yield candidate


def _closures(graph: OperationGraph) -> tuple[list[frozenset[int]], list[frozenset[int]]]:
    """Of each operation: itself with all it needs, and itself with all that needs it."""
    needed: list[frozenset[int]] = []
    for index, operation in enumerate(graph.operations):
        feeders = {graph.producer[t.uid] for t in operation.inputs().values() if t.uid in graph.producer}
        needed.append(frozenset({index}).union(*(needed[feeder] for feeder in feeders)))
    needing = [frozenset(i for i, needs in enumerate(needed) if index in needs) for index in range(len(needed))]
    return needed, needing
