"""Fused graphs made again: which operations become one kernel, kept by class, where extents do not change it.

The rules of fusion ask of extents only whether two tensors have the same. Operations that a chain may begin with, which
ask for more, edges that stayed unfused, whose reasons name extents, and vectors are fused anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.bounded_cache import BoundedCache
from graphdnn.fusion.fused_graph import FusedGraph, FusedOp, KernelStructure
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import ConvolutionOperation, Matmul, NormBackward, NormForward, Operation, PointwiseOperation
from graphdnn.tensors import TensorSpec

_MOST = 512
_WITHOUT_CHAINS = (ConvolutionOperation, Matmul, NormBackward, NormForward, PointwiseOperation)
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel(KernelStructure):
    """A fused operation by the places of its operations and the uids of its tensors: what its like have in common."""

    rule: str
    anchor: int | None
    prologue: tuple[int, ...]
    epilogue: tuple[int, ...]
    exit: int | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    internal: tuple[int, ...]


_known = BoundedCache[_Key, tuple[_Kernel, ...]](_MOST)


def key_of(graph: OperationGraph) -> _Key:
    """The class, and which of its tensors have the same extents."""
    structure, first = graph.structure_key, dict[tuple[int, ...], int]()
    return structure.number, *[first.setdefault(dims, len(first)) for dims in structure.extents[::2]]


def known(key: _Key, graph: OperationGraph) -> FusedGraph | None:
    """What became of a graph with this key, made of this one."""
    kernels = _known.get(key)
    if kernels is None:
        return None
    operations, tensors = graph.operations, graph.tensors
    fused = [
        FusedOp(
            i,
            k.rule,
            None if k.anchor is None else operations[k.anchor],
            tuple([operations[place] for place in k.prologue]),
            tuple([operations[place] for place in k.epilogue]),
            None if k.exit is None else operations[k.exit],
            tuple([tensors[uid] for uid in k.inputs]),
            tuple([tensors[uid] for uid in k.outputs]),
            tuple([tensors[uid] for uid in k.internal]),
        )
        for i, k in enumerate(kernels)
    ]
    for op, kernel in zip(fused, kernels, strict=True):
        object.__setattr__(op, "structure", kernel)
    return FusedGraph(graph, tuple(fused), ())


def keep(key: _Key, fused: FusedGraph) -> None:
    graph = fused.graph
    if fused.stopped_by or fused.declined_patterns or not all(isinstance(o, _WITHOUT_CHAINS) for o in graph.operations):
        return
    specs = [t for op in fused for t in (*op.inputs, *op.outputs, *op.internal)]
    if any(t != graph.tensors[t.uid] or t.vector_count != 1 for t in specs):
        return
    place = {id(op): i for i, op in enumerate(graph.operations)}
    if len(place) < len(graph.operations):
        return  # one object twice
    _known.remember(key, tuple(_kernel(op, place) for op in fused))


def _kernel(op: FusedOp, place: dict[int, int]) -> _Kernel:
    def at(operation: Operation | None) -> int | None:
        return None if operation is None else place[id(operation)]

    def uids(specs: tuple[TensorSpec, ...]) -> tuple[int, ...]:
        return tuple(t.uid for t in specs)

    prologue, epilogue = (tuple(place[id(step)] for step in steps) for steps in (op.prologue, op.epilogue))
    tensors = uids(op.inputs), uids(op.outputs), uids(op.internal)
    return _Kernel(op.name, op.uses, op.rule, at(op.anchor), prologue, epilogue, at(op.exit), *tensors)
