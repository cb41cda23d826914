"""Joined: recorded calls of one device and stream as operations of few graphs.

Memory is the edge: what one call writes and a later one reads is one tensor (or a reshape of it, where the extents
differ), virtual once a later call has written over it. A call that sees a part of that memory begins another batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import Any

import networkx as nx
import numpy as np
from numpy.lib.array_utils import byte_bounds

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import Array
from graphdnn.enums import DataType, PointwiseMode, ReshapeMode
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation, PointwiseOperation, PointwiseSpec, Reshape, without_unread
from graphdnn.tensors import TensorSpec, packed_strides

_ALIGNMENT: int = TensorSpec.model_fields["byte_alignment"].default  # of tensors that promise nothing themselves

Key = tuple[int, tuple[int, ...], tuple[int, ...], str]


def key_of(array: Array) -> Key:
    """Where an array lies, and how: the same for all arrays that are the same elements."""
    strides = tuple(0 if extent == 1 else stride for extent, stride in zip(array.shape, array.strides, strict=True))
    return array.__array_interface__["data"][0], array.shape, strides, array.dtype.str


@dataclass(slots=True)
class _Memory:
    """A region that operations read or write, and the tensor that stands for its present contents."""

    array: Array
    spec: TensorSpec
    is_written: bool
    is_copied: bool = False  # an input that a later operation writes over

    def meets(self, other: Array) -> bool:
        return bool(np.may_share_memory(self.array, other))

    def is_refolded(self, other: Array) -> bool:
        """Whether both are all of one region without gaps, in whatever extents."""
        return _region(self.array) == _region(other) is not None and self.array.dtype == other.dtype


@dataclass(frozen=True, slots=True)
class Parts:
    """What a batch became. ``arrays``: the caller's memory by uid. ``copied``: the uids of inputs that the graphs read
    as they were before all of them.
    """

    graphs: tuple[OperationGraph, ...]
    arrays: Mapping[int, Array]
    copied: frozenset[int]

    def bindings(self, graph: OperationGraph) -> dict[int, Array]:
        return {t.uid: self.arrays[t.uid] for t in graph.bound}


@dataclass(eq=False)
class Batch:
    """``uid``: the number of tensors in the batches before, which is the uid of the last of them."""

    device: DeviceSpec
    stream: int
    uid: int = 0
    _operations: list[Operation] = field(default_factory=list)
    _inputs: list[_Memory] = field(default_factory=list)  # read from memory, by their contents before the graph
    _current: dict[Key, _Memory] = field(default_factory=dict)
    _overwritten: set[int] = field(default_factory=set)  # uids whose contents do not last

    def add(self, graph: OperationGraph, arrays: Mapping[int, Array]) -> None:
        """Take the operations of a call, whose arguments lie where ``arrays`` says."""
        self.__dict__.pop("parts", None)
        specs: dict[int, TensorSpec] = {}
        blended = {t.uid for op in graph.operations if getattr(op, "beta", 0.0) != 0.0 for t in op.outputs().values()}
        for uid, array in arrays.items():
            if uid not in graph.producer:
                specs[uid] = self._read(graph.tensors[uid], array)
            elif uid in blended:
                specs[-uid] = self._read(graph.tensors[uid], array)  # the old contents
        for uid in graph.producer.keys() & arrays.keys():
            specs[uid] = self._write(graph.tensors[uid], arrays[uid])
        for operation in graph.operations:
            self._operations += self._rewritten(operation, specs)

    def sees_otherwise(self, arrays: Iterable[Array]) -> bool:
        """Whether these are part of what the batch writes, or all of it in another layout."""
        return any(
            key != key_of(array) and memory.is_written and memory.meets(array) and not memory.is_refolded(array)
            for array in arrays
            for key, memory in self._current.items()
        )

    @cached_property
    def parts(self) -> Parts:
        """The graphs of what was taken so far."""
        graphs = [
            OperationGraph.of(part, name="recorded") for part in _parts(_lasting(self._operations, self._overwritten))
        ]
        written = [m for m in self._current.values() if m.is_written]
        arrays = {m.spec.uid: m.array for m in (*self._inputs, *written)}
        return Parts(tuple(graphs), arrays, frozenset(m.spec.uid for m in self._inputs if m.is_copied))

    def _read(self, tensor: TensorSpec, array: Array) -> TensorSpec:
        found = self._current.get(key_of(array))
        if found is None:
            for memory in self._current.values():
                if memory.is_written and memory.is_refolded(array):
                    return self._refolded(memory, tensor)
            found = _Memory(array, self._bound(tensor, array), is_written=False)
            self._current[key_of(array)] = found
            self._inputs.append(found)
        return found.spec

    def _refolded(self, memory: _Memory, tensor: TensorSpec) -> TensorSpec:
        """Contents that the batch computes, under other extents."""
        seen = self._renamed(tensor.model_copy(update={"is_virtual": True}))
        self._operations.append(Reshape(x=memory.spec, y=seen, mode=ReshapeMode.VIEW_ONLY))
        return seen

    def _write(self, tensor: TensorSpec, array: Array) -> TensorSpec:
        for memory in self._inputs:
            memory.is_copied = memory.is_copied or memory.meets(array)
        for key, before in list(self._current.items()):
            if before.meets(array):  # later reads see the new contents, all of what is written is written over
                del self._current[key]
                self._overwritten |= {before.spec.uid} if before.is_written else set()
        made = _Memory(array, self._bound(tensor, array), is_written=True)
        self._current[key_of(array)] = made
        return made.spec

    def _rewritten(self, operation: Operation, specs: dict[int, TensorSpec]) -> Iterator[Operation]:
        """The operation on the batch's tensors; factors of its result become an operation of their own."""
        fields: dict[str, Any] = {}
        for port, tensor in operation.tensors().items():
            if tensor.uid not in specs:
                specs[tensor.uid] = self._renamed(tensor)
            fields[port] = specs[tensor.uid]
        alpha, beta = getattr(operation, "alpha", 1.0), getattr(operation, "beta", 0.0)
        if alpha == 1.0 and beta == 0.0:
            yield operation.model_copy(update=fields)
            return
        ((port, target),) = operation.outputs().items()
        math = operation.compute_type
        result = self._renamed(_virtual(target, math))
        yield operation.model_copy(update={**fields, port: result, "alpha": 1.0, "beta": 0.0})
        if beta == 0.0:
            spec = PointwiseSpec(mode=PointwiseMode.IDENTITY, math_type=math)
            yield PointwiseOperation(spec=spec, x=result, y=fields[port], alpha1=alpha)
            return
        spec = PointwiseSpec(mode=PointwiseMode.ADD, math_type=math)
        old = specs[-target.uid]
        yield PointwiseOperation(spec=spec, x=result, b=old, y=fields[port], alpha1=alpha, alpha2=beta)

    def _bound(self, tensor: TensorSpec, array: Array) -> TensorSpec:
        """A tensor that promises of its address what the array has, as far as the builder's tensors promise it."""
        alignment = gcd(_ALIGNMENT, key_of(array)[0])
        return self._renamed(tensor.model_copy(update={"byte_alignment": alignment}))

    def _renamed(self, tensor: TensorSpec) -> TensorSpec:
        self.uid += 1
        return tensor.model_copy(update={"uid": self.uid})


def _region(array: Array) -> tuple[int, int] | None:
    """Address and bytes of an array that fills its memory; None for one with gaps."""
    low, high = byte_bounds(array)
    return (low, high - low) if high - low == array.nbytes else None


def _virtual(like: TensorSpec, data_type: DataType) -> TensorSpec:
    """The result of an operation in its arithmetic, before factors."""
    return TensorSpec(
        uid=like.uid, data_type=data_type, dims=like.extents, strides=packed_strides(like.extents), is_virtual=True
    )


def _lasting(operations: Sequence[Operation], overwritten: set[int]) -> list[Operation]:
    """Operations whose results are read or last; what is written over is virtual."""
    needed: list[Operation] = []
    read: set[int] = set()
    for operation in reversed(operations):
        outputs = operation.outputs().values()
        if all((t.is_virtual or t.uid in overwritten) and t.uid not in read for t in outputs):
            continue
        read |= {t.uid for t in operation.inputs().values()}
        needed.append(operation)
    return without_unread(_with_virtual(op, overwritten) for op in reversed(needed))


def _with_virtual(operation: Operation, uids: set[int]) -> Operation:
    """What is written over lies where a plan likes, no longer in the caller's memory."""
    virtual = {"is_virtual": True, "byte_alignment": _ALIGNMENT}
    changed = {p: t.model_copy(update=virtual) for p, t in operation.tensors().items() if t.uid in uids}
    return operation.model_copy(update=changed) if changed else operation


def _parts(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Operations that share a tensor belong to one graph; in the order of their first operations."""
    links: nx.Graph[tuple[str, int]] = nx.Graph()
    for i, operation in enumerate(operations):
        links.add_node(("operation", i))
        links.add_edges_from(
            (("operation", i), ("tensor", t.uid)) for t in operation.tensors().values() if not t.is_constant
        )
    found = [sorted(i for kind, i in part if kind == "operation") for part in nx.connected_components(links)]
    return [[operations[i] for i in part] for part in sorted(found)]
