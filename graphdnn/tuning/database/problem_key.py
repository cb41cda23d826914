"""ProblemKey: what two graphs have in common for which the same configuration is the fastest.

Names, origins, uids and the order in which independent operations were given do not matter; element types, extents,
strides, settings, and which operations share a kernel do. Operations are put into an order that depends on what they
compute, and tensors are numbered as that order meets them.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphdnn.fusion import FusedGraph
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class ProblemKey:
    """``text``: equal for equal problems. ``kernels``: the operations of each one, by their place in the order."""

    text: str
    kernels: tuple[tuple[int, ...], ...]  # in the order of the fused graph that the key was made of


def problem_key(fused: FusedGraph) -> ProblemKey:
    graph = fused.graph
    order = _canonical_order(graph)
    place = {_written(graph.operations[i]): position for position, i in enumerate(order)}
    kernels = tuple(tuple(sorted(place[_written(op)] for op in kernel.operations)) for kernel in fused)
    number: dict[int, int] = {}
    described = [_described(graph.operations[i], number) for i in order]
    text = json.dumps([described, sorted(kernels)], sort_keys=True, default=str)
    return ProblemKey(hashlib.sha256(text.encode()).hexdigest(), kernels)


def _described(op: Operation, number: dict[int, int]) -> list[Any]:
    ports = {port: [number.setdefault(t.uid, len(number)), _tensor(t)] for port, t in op.tensors().items()}
    return [op.tag, _settings(op), ports]


def _settings(op: Operation) -> dict[str, Any]:
    return op.model_dump(exclude={"name", "origin", *(port.split("[")[0] for port in op.tensors())})


def _tensor(tensor: TensorSpec) -> dict[str, Any]:
    return tensor.model_dump(exclude={"name", "uid"})


def _written(op: Operation) -> tuple[int, ...]:
    """What names an operation in its graph: no other one writes these tensors."""
    return tuple(t.uid for t in op.outputs().values())


def _canonical_order(graph: OperationGraph) -> list[int]:
    """An order of execution; of the operations that could come next, the one whose surroundings hash lowest."""
    operations = graph.operations
    own = [_hash([op.tag, _settings(op), {p: _tensor(t) for p, t in op.tensors().items()}]) for op in operations]
    above: list[str] = []  # with everything that leads to it
    for i, op in enumerate(operations):
        from_where = [(p, _source(graph, t.uid, above)) for p, t in op.inputs().items()]
        above.append(_hash([own[i], from_where]))
    below = list(above)  # with everything that it leads to
    for i in reversed(range(len(operations))):
        readers = sorted(
            (port, q, below[j])
            for port, t in operations[i].outputs().items()
            for j in graph.consumers.get(t.uid, ())
            for q, read in operations[j].inputs().items()
            if read.uid == t.uid
        )
        below[i] = _hash([above[i], readers])
    return _sorted(graph, below)


def _source(graph: OperationGraph, uid: int, above: Sequence[str]) -> list[Any]:
    producer = graph.producer.get(uid)
    if producer is None:
        return ["input"]
    port = next(p for p, t in graph.operations[producer].outputs().items() if t.uid == uid)
    return [above[producer], port]


def _sorted(graph: OperationGraph, rank: Sequence[str]) -> list[int]:
    waiting = [len({graph.producer[t.uid] for t in op.inputs().values() if t.uid in graph.producer})
               for op in graph.operations]  # fmt: skip
    ready = [(rank[i], i) for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        readers = {j for t in graph.operations[i].outputs().values() for j in graph.consumers.get(t.uid, ())}
        for j in readers:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, (rank[j], j))
    return order


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
