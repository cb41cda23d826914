"""OperationGraph: operations joined by tensor uids, frozen and checked on creation.

An edge exists exactly where an output uid of one operation is an input uid of
another. Uids are local to the graph. Every problem found is reported at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphdnn.enums import Status
from graphdnn.errors import Rejection, raise_if
from graphdnn.escaped import escaped
from graphdnn.graph.structure_key import StructureKey, structure_key_of
from graphdnn.graph.traversal import Successors, loop, parts, topological
from graphdnn.operations import Operation
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec
from graphdnn.text_format import plural

EMPTY = Rule(
    id="graph.empty",
    expected="at least one operation",
    reason="there is nothing to compute",
    fix="add an operation",
)
NOT_AN_OPERATION = Rule(
    id="graph.operation.type",
    expected="an operation",
    reason="a graph is made of operations; tensors and settings belong to them",
    fix="pass operation specs only",
)
UID_CONFLICT = Rule(
    id="graph.uid.conflict",
    expected="one description for one uid: {first}",
    reason="uid {uid} names two different tensors ({difference}); within a graph a uid is the tensor",
    fix="use the same spec on both ends of the edge, or another uid",
    status=Status.BAD_PARAM_DUPLICATED_ENTRIES,
)
TWO_PRODUCERS = Rule(
    id="graph.producer.duplicate",
    expected="one producer",
    reason="each tensor is written by at most one operation; here {first} and {second} write it",
    fix="give one of the outputs its own uid",
    status=Status.BAD_PARAM_DUPLICATED_ENTRIES,
)
CYCLE = Rule(
    id="graph.cycle",
    expected="no cycle",
    reason="these operations wait for each other",
    fix="give the output that closes the loop a uid of its own",
)
DANGLING = Rule(
    id="graph.virtual.dangling",
    expected="a producer in this graph",
    reason="a virtual tensor has no memory, so its value has to come from an operation",
    fix="add the operation that writes it, or clear is_virtual and bind data to it",
)
UNREAD = Rule(
    id="graph.virtual.unread",
    expected="a result in memory, or one that an operation reads",
    reason="a virtual tensor has no memory, so what nothing in the graph reads is lost, and the work with it",
    fix="clear is_virtual on the result (set_output(True) in the builder), or leave the operation out",
)
WRITTEN_SCALAR = Rule(
    id="graph.by_value.output",
    expected="a tensor in memory or a virtual one",
    reason="a by-value tensor is read from the host and cannot be written",
    fix="clear is_by_value on the output",
)
DISCONNECTED = Rule(
    id="graph.disconnected",
    expected="one connected graph",
    reason="the operations fall into {parts} parts that share no tensor",
    fix="build one graph for each part",
)
BETA_IN_GRAPH = Rule(
    id="graph.beta",
    expected="beta = 0",
    reason="beta reads the old output, so it only has a meaning in a graph of one operation, with an output in memory",
    fix="add the old value with a pointwise ADD instead",
    status=Status.NOT_SUPPORTED_GRAPH_PATTERN,
)

_NOT_COMPARED = {"name"}


@dataclass(frozen=True, slots=True, eq=False)
class OperationGraph:
    """A checked graph that cannot change. ``operations`` are in execution order."""

    operations: tuple[Operation, ...]
    tensors: Mapping[int, TensorSpec]
    producer: Mapping[int, int]  # uid -> index of the operation that writes it
    consumers: Mapping[int, tuple[int, ...]]  # uid -> indices of the operations that read it
    name: str = ""
    _key: list[str] = field(default_factory=list, repr=False)
    _structure_key: list[StructureKey] = field(default_factory=list, repr=False)

    def __repr__(self) -> str:
        return f"<OperationGraph {self.name!r}: {plural(len(self.operations), 'operation')}>"

    @classmethod
    def of(cls, operations: Iterable[Operation], name: str = "") -> OperationGraph:
        """Check operations and freeze them as a graph.

        Args:
            operations: The operations, in any order.
            name: The name of the graph in reports.

        Returns:
            The graph.

        Raises:
            BadParam: The operations do not make a graph. The error lists every problem.
            NotSupported: The graph is valid and not served.
        """
        given = tuple(operations)
        where = f"OPERATIONGRAPH '{escaped(name)}'" if name else "OPERATIONGRAPH"
        raise_if(_not_operations(given, where), given)
        tensors, producer, found = _collect(given, where)
        consumers = _consumers(given)
        found += _tensor_problems(tensors, producer, where)
        found += _unread_problems(given, consumers, where)
        found += _beta_problems(given, where)
        successors = _successors(given, producer)
        found += _structure_problems(given, successors, where, parts_known=not found)
        raise_if(found, given)
        order = topological(successors)
        position = {old: new for new, old in enumerate(order)}
        return cls(
            operations=tuple(given[i] for i in order),
            tensors=tensors,
            producer={uid: position[i] for uid, i in producer.items()},
            consumers={uid: tuple(sorted(position[i] for i in users)) for uid, users in consumers.items()},
            name=name,
        )

    @property
    def bound(self) -> tuple[TensorSpec, ...]:
        """The tensors that an execution binds, by ascending uid."""
        return tuple([t for _, t in sorted(self.tensors.items()) if t.is_bound])

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The bound tensors that no operation writes."""
        return tuple(t for t in self.bound if t.uid not in self.producer)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The bound tensors that an operation writes."""
        return tuple(t for t in self.bound if t.uid in self.producer)

    def edges(self) -> Iterator[tuple[int, int, TensorSpec]]:
        """Every edge as (index of the producer, index of the consumer, tensor)."""
        for uid, users in self.consumers.items():
            if uid in self.producer:
                for user in users:
                    yield self.producer[uid], user, self.tensors[uid]

    @property
    def key(self) -> str:
        """A hash of everything that changes the result. Names and source lines are left out."""
        if not self._key:
            import hashlib

            text = json.dumps([_identity(op) for op in self.operations], sort_keys=True, default=str)
            self._key.append(hashlib.sha256(text.encode()).hexdigest())
        return self._key[0]

    @property
    def structure_key(self) -> StructureKey:
        """The structure key and the extents of the graph; together they identify its operations."""
        if not self._structure_key:
            self._structure_key.append(structure_key_of(self.operations))
        return self._structure_key[0]

    def __str__(self) -> str:
        lines = [f"graph {self.name!r}: {len(self.operations)} operations"]
        for op in self.operations:
            ins = ", ".join(f"{p}={t.uid}" for p, t in op.inputs().items())
            outs = ", ".join(f"{p}={t.uid}" for p, t in op.outputs().items())
            lines.append(f"  {op.label()}: {ins} -> {outs}")
        return "\n".join(lines)


def _identity(op: Operation) -> list[Any]:
    settings = op.model_dump(exclude={"name", "origin", *(p.split("[")[0] for p in op.tensors())})
    ports = {p: t.model_dump(exclude=_NOT_COMPARED) for p, t in op.tensors().items()}
    return [op.tag, settings, ports]


def _not_operations(given: Sequence[object], where: str) -> Iterator[Rejection]:
    if not given:
        yield EMPTY.reject(where, "operations", "none")
    for i, item in enumerate(given):
        if not isinstance(item, Operation):
            yield NOT_AN_OPERATION.reject(where, f"operations[{i}]", type(item).__name__)


def _collect(
    operations: Sequence[Operation], where: str
) -> tuple[dict[int, TensorSpec], dict[int, int], list[Rejection]]:
    tensors: dict[int, TensorSpec] = {}
    producer: dict[int, int] = {}
    found: list[Rejection] = []
    for i, op in enumerate(operations):
        for port, tensor in op.tensors().items():
            known = tensors.setdefault(tensor.uid, tensor)
            if known is not tensor and (difference := _difference(known, tensor)):
                found.append(
                    UID_CONFLICT.reject(
                        where, f"{op.label()}.{port}", difference, first=_difference(tensor, known),
                        uid=tensor.uid, difference=", ".join(item.split("=")[0] for item in difference.split("; ")),
                    )
                )  # fmt: skip
        for port, tensor in op.outputs().items():
            if tensor.uid in producer:
                first, second = operations[producer[tensor.uid]].label(), op.label()
                if first == second:
                    first, second = f"operation {producer[tensor.uid]}", f"operation {i} (both {second})"
                found.append(
                    TWO_PRODUCERS.reject(where, f"{op.label()}.{port}", tensor.label(), first=first, second=second)
                )
            producer[tensor.uid] = i
    return tensors, producer, found


def _difference(known: TensorSpec, other: TensorSpec) -> str:
    """What ``other`` has that ``known`` has not, as ``field=value; ...``; names may differ."""
    fields = (f for f in TensorSpec.model_fields if f not in _NOT_COMPARED)
    return "; ".join(f"{f}={getattr(other, f)}" for f in fields if getattr(known, f) != getattr(other, f))


def _consumers(operations: Sequence[Operation]) -> dict[int, list[int]]:
    consumers: dict[int, list[int]] = {}
    for i, op in enumerate(operations):
        for uid in {t.uid for t in op.inputs().values()}:
            consumers.setdefault(uid, []).append(i)
    return consumers


def _tensor_problems(tensors: Mapping[int, TensorSpec], producer: Mapping[int, int], where: str) -> Iterator[Rejection]:
    for uid, tensor in tensors.items():
        if tensor.is_virtual and uid not in producer:
            yield DANGLING.reject(where, tensor.label(), "virtual and never written")
        if tensor.is_by_value and uid in producer:
            yield WRITTEN_SCALAR.reject(where, tensor.label(), "is_by_value=True and written")


def _unread_problems(
    operations: Sequence[Operation], consumers: Mapping[int, Sequence[int]], where: str
) -> Iterator[Rejection]:
    for op in operations:
        results = op.outputs().values()
        if all(t.is_virtual and t.uid not in consumers for t in results):
            lost = ", ".join(t.label() for t in results)
            yield UNREAD.reject(where, f"{op.label()}.outputs", f"{lost}: virtual and never read")


def _beta_problems(operations: Sequence[Operation], where: str) -> Iterator[Rejection]:
    for op in operations:
        if op.reads_output and (len(operations) > 1 or any(t.is_virtual for t in op.outputs().values())):
            yield BETA_IN_GRAPH.reject(where, f"{op.label()}.beta", getattr(op, "beta", None))


def _successors(operations: Sequence[Operation], producer: Mapping[int, int]) -> list[set[int]]:
    """For each operation the operations that read its outputs."""
    found: list[set[int]] = [set() for _ in operations]
    for i, op in enumerate(operations):
        for tensor in op.inputs().values():
            if tensor.uid in producer:
                found[producer[tensor.uid]].add(i)
    return found


def _structure_problems(
    operations: Sequence[Operation], successors: Successors, where: str, *, parts_known: bool
) -> Iterator[Rejection]:
    cycle = loop(successors)
    if cycle:
        yield CYCLE.reject(where, "operations", " -> ".join(operations[i].label() for i in cycle))
    # Two operations that only read the same input belong together as well.
    users: dict[int, int] = {}
    together = ((users.setdefault(t.uid, i), i) for i, op in enumerate(operations) for t in op.tensors().values())
    count = parts(len(operations), together)
    if count > 1 and parts_known:
        yield DISCONNECTED.reject(where, "operations", f"{count} parts", parts=count)
