"""Recording: calls become operations of one graph, which runs when the block ends or when a result is read.

    with v6.record() as r:
        cudnnConvolutionForward(...); cudnnAddTensor(...); cudnnActivationForward(...)
    print(r.explain())

Each call is checked and drawn as ever; instead of running, its operations join those before. Memory is the edge: what
one call writes and a later one reads is one tensor (or a reshape of it, where the extents differ), virtual once a later
call has written over it. A call that sees a part of pending memory lets what is pending run first. Inputs are read
when the graph runs, not when a call is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import gcd
from typing import Any

import networkx as nx
import numpy as np
from numpy.lib.array_utils import byte_bounds

from graphdnn.dtypes import Array
from graphdnn.enums import DataType, PointwiseMode, ReshapeMode, Status
from graphdnn.fusion.fused_graph import FusedGraph
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation, PointwiseOperation, PointwiseSpec, Reshape, without_unread
from graphdnn.pipeline import rank
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec, packed_strides
from graphdnn.v6 import device_memory, migration
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.memory_aliases import Run
from graphdnn.v6.pending_array import Pending
from graphdnn.v6.thread_state import Call, current_stream, listening

NESTED = Rule(
    id="v6.record.nested",
    expected="one recording at a time",
    reason="this thread is recording already",
    fix="leave the outer block first",
    status=Status.BAD_PARAM,
)

_ALIGNMENT: int = TensorSpec.model_fields["byte_alignment"].default  # of tensors that promise nothing themselves

Key = tuple[int, tuple[int, ...], tuple[int, ...], str]


@dataclass(slots=True)
class _Memory:
    """A region that pending operations read or write, and the tensor that stands for its present contents."""

    array: Array
    spec: TensorSpec
    is_written: bool
    is_copied: bool = False  # an input that a later operation writes over

    def meets(self, other: Array) -> bool:
        return bool(np.may_share_memory(self.array, other))

    def is_refolded(self, other: Array) -> bool:
        """Whether both are all of one region without gaps, in whatever extents."""
        return _region(self.array) == _region(other) is not None and self.array.dtype == other.dtype


@dataclass(eq=False)
class Recording:
    """What ``record()`` gives. ``graphs`` and ``fused``: what has run, in order."""

    graphs: list[OperationGraph] = field(default_factory=list)
    fused: list[FusedGraph] = field(default_factory=list)
    bound: list[dict[int, Array]] = field(default_factory=list)  # for each graph: uid -> the caller's memory
    calls: list[str] = field(default_factory=list)
    _batches: list[int] = field(default_factory=list)  # for each graph: how many had run when it began
    _operations: list[Operation] = field(default_factory=list)
    _inputs: list[_Memory] = field(default_factory=list)  # read from memory, by their contents before the graph
    _current: dict[Key, _Memory] = field(default_factory=dict)
    _overwritten: set[int] = field(default_factory=set)  # uids whose contents do not last
    _device: Any = None
    _stream: int = 0
    _alive: list[Any] = field(default_factory=list)  # what pending work, or work of a device, uses
    _uid: int = 0

    # What a caller asks for.

    def array(self, shape: Sequence[int], dtype: Any = np.float32) -> Pending:
        """Memory for a result that knows this recording: reading it lets the pending operations run."""
        return Pending(np.zeros(shape, dtype), self.run)

    def explain(self) -> str:
        """Graphs, what was fused, and every edge that was not with its reason."""
        self.run()
        return "\n\n".join(f"{graph}\n\n{fused}" for graph, fused in zip(self.graphs, self.fused, strict=True))

    def migration(self) -> str:
        """The same as a script for the graph builder."""
        self.run()
        return migration.script(self.graphs, [Run(*run) for run in zip(self.bound, self._batches, strict=True)])

    # What calls do.

    def add(self, call: Call, arrays: Mapping[int, Array], data: Sequence[Any]) -> None:
        """Take a call's operations."""
        graph = call.plan.config.fused.graph
        operations = graph.operations
        device, stream = call.plan.config.device, current_stream()
        moved = self._device is not None and (self._device is not device or self._stream != stream)
        if moved or self._is_seen_otherwise(arrays.values()):
            self.run()
        self._device, self._stream = device, stream
        self._alive.append(data)
        self.calls.append(call.call)
        specs: dict[int, TensorSpec] = {}
        blended = {t.uid for op in operations if getattr(op, "beta", 0.0) != 0.0 for t in op.outputs().values()}
        for uid, array in arrays.items():
            if uid not in graph.producer:
                specs[uid] = self._read(graph.tensors[uid], array)
            elif uid in blended:
                specs[-uid] = self._read(graph.tensors[uid], array)  # the old contents
        for uid in graph.producer.keys() & arrays.keys():
            specs[uid] = self._write(graph.tensors[uid], arrays[uid])
        for operation in operations:
            self._operations += self._rewritten(operation, specs)

    def _is_seen_otherwise(self, arrays: Iterable[Array]) -> bool:
        """Whether a call reads or writes part of what is pending, or all of it in another layout."""
        return any(
            key != _key(array) and memory.is_written and memory.meets(array) and not memory.is_refolded(array)
            for array in arrays
            for key, memory in self._current.items()
        )

    def _read(self, tensor: TensorSpec, array: Array) -> TensorSpec:
        found = self._current.get(_key(array))
        if found is None:
            for memory in self._current.values():
                if memory.is_written and memory.is_refolded(array):
                    return self._refolded(memory, tensor)
            found = _Memory(array, self._bound(tensor, array), is_written=False)
            self._current[_key(array)] = found
            self._inputs.append(found)
        return found.spec

    def _refolded(self, memory: _Memory, tensor: TensorSpec) -> TensorSpec:
        """Pending contents under other extents."""
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
        self._current[_key(array)] = made
        return made.spec

    def _rewritten(self, operation: Operation, specs: dict[int, TensorSpec]) -> Iterator[Operation]:
        """The operation on the recording's tensors; factors of its result become an operation of their own."""
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
        alignment = gcd(_ALIGNMENT, _key(array)[0])
        return self._renamed(tensor.model_copy(update={"byte_alignment": alignment}))

    def _renamed(self, tensor: TensorSpec) -> TensorSpec:
        self._uid += 1
        return tensor.model_copy(update={"uid": self._uid})

    # Running.

    def run(self) -> None:
        """Execute what is pending, as few graphs as its parts allow."""
        operations, inputs, current = self._operations, self._inputs, self._current
        overwritten, device = self._overwritten, self._device
        self._operations, self._inputs, self._current, self._overwritten = [], [], {}, set()
        self._device = None
        if not operations:
            return
        alive, self._alive = self._alive, []
        named = {m.spec.uid: m.array for m in (*inputs, *(m for m in current.values() if m.is_written))}
        copied = {m.spec.uid for m in inputs if m.is_copied}
        parts = [OperationGraph.of(part, name="recorded") for part in _parts(_lasting(operations, overwritten))]
        with listening(None):
            plans = [ExecutionPlan(rank(graph, device).best) for graph in parts]
            if device.kind == "cpu":
                arrays = {uid: _copy(array) if uid in copied else array for uid, array in named.items()}
                for plan in plans:
                    plan.execute(_bindings(plan, arrays), plan.new_workspace())
            else:
                self._alive = [alive, *device_memory.run_recorded(plans, named, copied, self._stream)]
        self._batches += [len(self.graphs)] * len(plans)
        for plan in plans:
            self.graphs.append(plan.config.fused.graph)
            self.fused.append(plan.config.fused)
            self.bound.append(_bindings(plan, named))


def _bindings(plan: ExecutionPlan, arrays: Mapping[int, Array]) -> dict[int, Array]:
    return {t.uid: arrays[t.uid] for t in plan.config.fused.graph.bound}


@contextmanager
def record() -> Iterator[Recording]:
    """Inside, calls of this thread that compute are collected; they run at the end, or when a ``Pending`` is read.

    An exception that leaves the block drops what is pending.
    """
    recording = Recording()
    with listening(recording) as before:
        if before is not None:
            raise CudnnError(NESTED.reject("record", "record", "inside another"))
        yield recording
    recording.run()


def _key(array: Array) -> Key:
    strides = tuple(0 if extent == 1 else stride for extent, stride in zip(array.shape, array.strides, strict=True))
    return array.__array_interface__["data"][0], array.shape, strides, array.dtype.str


def _region(array: Array) -> tuple[int, int] | None:
    """Address and bytes of an array that fills its memory; None for one with gaps."""
    low, high = byte_bounds(array)
    return (low, high - low) if high - low == array.nbytes else None


def _copy(array: Array) -> Array:
    """The same elements with the same strides, elsewhere."""
    low, high = byte_bounds(array)
    copy: Array = np.ndarray(array.shape, array.dtype, np.empty(high - low, np.uint8).data, strides=array.strides)
    copy[...] = array
    return copy


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
