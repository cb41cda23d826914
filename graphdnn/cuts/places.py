"""Where a graph can be cut: sets of operations that need nothing of the rest.

Three families, each once: the kernels in execution order, operation by operation (which cuts each edge of a chain
and each boundary between kernels); an operation with all it needs; all but an operation and what needs it. In a chain
they are the same places; where branches run side by side they are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphdnn.fusion import FusedGraph, Limits
from graphdnn.graph import OperationGraph

MOST_BRANCHING = 128  # operations; in larger graphs only the first family is looked at


def places(fused: FusedGraph) -> Iterator[frozenset[int]]:
    """Indices of the operations before each cut. A tensor passes through every cut."""
    graph = fused.graph
    seen: set[frozenset[int]] = set()
    for before in _candidates(fused):
        if before not in seen and any(True for _ in crossing(graph, before)):
            seen.add(before)
            yield before


def crossing(graph: OperationGraph, before: frozenset[int]) -> Iterator[int]:
    """Uids of the tensors that are written before the cut and read after it, in the order in which they are written."""
    for index in sorted(before):
        for tensor in graph.operations[index].outputs().values():
            if any(reader not in before for reader in graph.consumers.get(tensor.uid, ())):
                yield tensor.uid


def split_here(graph: OperationGraph, after: frozenset[int], uids: Iterable[int], limits: Limits) -> Limits:
    """``limits`` with which no kernel has operations of both sides. Kernels grow along edges: only these count."""
    apart = [
        (uid, next(iter(graph.operations[reader].outputs().values())).uid)
        for uid in uids
        for reader in graph.consumers[uid]
        if reader in after
    ]
    return Limits.of(limits.force, (*limits.forbid, *apart), limits.bound)


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
