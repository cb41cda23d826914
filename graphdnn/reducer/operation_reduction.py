"""Fewer operations: some left out, their results fed from outside; some stepped over."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation, PointwiseOperation
from graphdnn.reducer.graph_rebuild import changed, rebuilt, spec_with
from graphdnn.tensors import TensorSpec

Candidate = tuple[str, "partial[OperationGraph]"]


def fewer(graph: OperationGraph) -> Iterator[Candidate]:
    """Large parts first, single operations last."""
    count = len(graph.operations)
    size = count // 2
    while size:
        for start in range(0, count, size):
            out = range(start, min(start + size, count))
            if len(out) < count:
                for part in _parts(graph, [i for i in range(count) if i not in out]):
                    yield _named(graph, part), partial(_only, graph, part)
        size //= 2
    for i, op in enumerate(graph.operations):
        if isinstance(op, PointwiseOperation) and count > 1:
            for operand in op.inputs().values():
                if operand.extents == next(iter(op.outputs().values())).extents:
                    yield f"stepped over {op.label()}", partial(_without, graph, i, operand)


def _named(graph: OperationGraph, kept: list[int]) -> str:
    gone = [op.label() for i, op in enumerate(graph.operations) if i not in kept]
    return f"without {gone[0]}" if len(gone) == 1 else f"without {len(gone)} operations"


def _parts(graph: OperationGraph, kept: list[int]) -> list[list[int]]:
    """What is connected, largest part first: a graph is one part."""
    part = {i: {i} for i in kept}
    first: dict[int, int] = {}
    for i in kept:
        for tensor in graph.operations[i].tensors().values():
            other = first.setdefault(tensor.uid, i)
            if part[other] is not part[i]:
                joined = part[other] | part[i]
                for member in joined:
                    part[member] = joined
    unique = {id(members): sorted(members) for members in part.values()}
    return sorted(unique.values(), key=lambda members: (-len(members), members))


def _only(graph: OperationGraph, kept: list[int]) -> OperationGraph:
    """What left operations wrote is bound now; so is what only they read."""
    operations = [graph.operations[i] for i in kept]
    made = {t.uid for op in operations for t in op.outputs().values()}
    read = {t.uid for op in operations for t in op.inputs().values()}
    had_readers = {uid for uid, users in graph.consumers.items() if users}
    tensors = {
        uid: spec_with(tensor, is_virtual=False)
        for uid, tensor in graph.tensors.items()
        if tensor.is_virtual and (uid not in made or (uid not in read and uid in had_readers))
    }
    return rebuilt(operations, tensors, graph.name)


def _without(graph: OperationGraph, index: int, operand: TensorSpec) -> OperationGraph:
    """The readers of an operation's result read one of its operands."""
    op = graph.operations[index]
    (result,) = op.outputs().values()
    rest = [
        changed(other, lambda t: operand if t.uid == result.uid else t)
        for i, other in enumerate(graph.operations)
        if i != index
    ]
    if result.is_virtual or operand.uid not in graph.producer:
        return _settle(rest, graph)
    # The result was an output: its operand is one now.
    return rebuilt(rest, {operand.uid: spec_with(operand, is_virtual=False)}, graph.name)


def _settle(operations: list[Operation], graph: OperationGraph) -> OperationGraph:
    read = {t.uid for op in operations for t in op.inputs().values()}
    bound = {
        t.uid: spec_with(t, is_virtual=False)
        for op in operations
        for t in op.outputs().values()
        if t.is_virtual and t.uid not in read and graph.consumers.get(t.uid)
    }
    return rebuilt(operations, bound, graph.name)
