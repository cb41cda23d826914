"""Parts of a graph as graphs of their own: same uids; tensors that pass through the cut are in memory on both sides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation, ports
from graphdnn.tensors import TensorSpec


class SubgraphBuilder:
    """Makes parts of one graph. An operation whose tensors stay as they are is the same object in every part."""

    def __init__(self, graph: OperationGraph) -> None:
        self.graph = graph
        self._tensors: dict[int, TensorSpec] = {}
        self._operations: dict[tuple[int, frozenset[int]], Operation] = {}

    def part(self, members: Iterable[int], bound: Collection[int]) -> OperationGraph:
        """These operations; ``bound``: uids of virtual tensors that get memory.

        Nothing is checked: the whole was, and ``connected`` says whether a part falls apart.
        """
        chosen = tuple(self._with_memory(index, bound) for index in sorted(members))
        tensors: dict[int, TensorSpec] = {}
        producer: dict[int, int] = {}
        consumers: dict[int, list[int]] = {}
        for place, operation in enumerate(chosen):
            for tensor in operation.tensors().values():
                tensors.setdefault(tensor.uid, tensor)
            for tensor in operation.outputs().values():
                producer[tensor.uid] = place
            for uid in {t.uid for t in operation.inputs().values()}:
                consumers.setdefault(uid, []).append(place)
        readers = {uid: tuple(places) for uid, places in consumers.items()}
        return OperationGraph(chosen, tensors, producer, readers, self.graph.name)

    def _with_memory(self, index: int, bound: Collection[int]) -> Operation:
        operation = self.graph.operations[index]
        changed = frozenset(t.uid for t in operation.tensors().values() if t.is_virtual and t.uid in bound)
        if not changed:
            return operation
        key = index, changed
        if key not in self._operations:
            self._operations[key] = operation.model_copy(update=self._fields(operation, changed))
        return self._operations[key]

    def _fields(self, operation: Operation, changed: frozenset[int]) -> Mapping[str, object]:
        fields: dict[str, object] = {}
        for name in (*ports(type(operation), "input"), *ports(type(operation), "output")):
            value = getattr(operation, name)
            if isinstance(value, TensorSpec) and value.uid in changed:
                fields[name] = self._in_memory(value)
            elif isinstance(value, tuple):
                fields[name] = tuple(self._in_memory(t) if t.uid in changed else t for t in value)
        return fields

    def _in_memory(self, tensor: TensorSpec) -> TensorSpec:
        if tensor.uid not in self._tensors:
            self._tensors[tensor.uid] = tensor.model_copy(update={"is_virtual": False})
        return self._tensors[tensor.uid]


def connected(graph: OperationGraph, members: Collection[int]) -> tuple[frozenset[int], ...]:
    """The operations in groups that share no tensor, as graphs have to be; in execution order."""
    leader = {index: index for index in members}

    def first_of(index: int) -> int:
        while leader[index] != index:
            leader[index] = index = leader[leader[index]]
        return index

    holder: dict[int, int] = {}  # uid -> an operation that has the tensor
    for index in sorted(members):
        for tensor in graph.operations[index].tensors().values():
            low, high = sorted((first_of(holder.setdefault(tensor.uid, index)), first_of(index)))
            leader[high] = low
    groups: dict[int, list[int]] = {}
    for index in sorted(members):
        groups.setdefault(first_of(index), []).append(index)
    return tuple(frozenset(group) for group in groups.values())
