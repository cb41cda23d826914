"""Averages over windows of what averages over the same windows gave, as the gradient of a local response
normalization needs them: one kernel.

    x -> [pointwise ...] -> MEAN of windows -> [pointwise ...] -> MEAN of windows -> [pointwise DAG] -> dx, ...

Windows move along one axis, one element at a time: what a block holds of that axis serves both.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphdnn.dtypes import FLOAT_COMPUTE
from graphdnn.enums import DataType, PaddingMode, ResampleMode
from graphdnn.fusion.patterns.pattern import Chain, Link
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation, PointwiseOperation, ResampleForward

_LARGEST = 16  # elements of a window, as many as the legacy calls take
_MOST = 32  # operations that are looked at, so that long graphs take time in proportion


def window_axis(operation: Operation) -> int | None:
    """The logical axis along which an average moves one element at a time; None for everything else."""
    if not isinstance(operation, ResampleForward) or operation.x.extents != operation.y.extents:
        return None
    spec = operation.spec
    moving = [axis for axis, window in enumerate(spec.window_dims, 2) if window != 1]
    is_plain = (
        spec.mode is ResampleMode.AVGPOOL_INCLUDE_PADDING
        and spec.padding_mode is PaddingMode.ZERO_PAD
        and spec.compute_type in (*FLOAT_COMPUTE, DataType.DOUBLE)
        and all(stride == 1 for stride in spec.strides)
        and operation.index is None
        and (operation.alpha, operation.beta) == (1.0, 0.0)
    )
    if not is_plain or len(moving) != 1 or spec.window_dims[moving[0] - 2] > _LARGEST:
        return None
    return moving[0]


def window_chains(graph: OperationGraph) -> Iterator[tuple[Chain, tuple[Link, ...]]]:
    """Every chain with the edge that the guards are to be asked about."""
    for index, operation in enumerate(graph.operations):
        if isinstance(operation, ResampleForward) and window_axis(operation) is not None:
            found = _chain(graph, index, operation)
            if found is not None:
                yield found


def _chain(graph: OperationGraph, index: int, last: ResampleForward) -> tuple[Chain, tuple[Link, ...]] | None:
    if graph.consumers.get(last.x.uid) != (index,) or not last.x.is_virtual:
        return None
    around = _before(graph, index, last)
    if around is None:
        return None
    anchor, steps = around
    first = graph.operations[anchor]
    assert isinstance(first, ResampleForward)
    if not _moves_alike(first, last):
        return None
    behind, members = {anchor}, {anchor, index}
    for step in sorted(steps):  # steps that wait for the first average
        if behind.intersection(_producers(graph, step)):
            behind.add(step)
    for step in sorted(steps, reverse=True):
        (result,) = graph.operations[step].outputs().values()
        if step in behind or (result.is_virtual and members.issuperset(graph.consumers.get(result.uid, ()))):
            members.add(step)
    # What comes from elsewhere is there before the first average is: nothing of it waits for this kernel.
    if any(made >= anchor for member in members for made in _producers(graph, member) if made not in members):
        return None
    x = next(t for m in sorted(members) for t in graph.operations[m].inputs().values() if t.extents == last.x.extents)
    chain = Chain(anchor, tuple(sorted(members)), x, rule="windows")
    return chain, (Link(graph, frozenset(members), last.x.extents, last.x, index),)


def _before(graph: OperationGraph, index: int, last: ResampleForward) -> tuple[int, set[int]] | None:
    """The one average that comes before, and the pointwise operations that lead from there or beside it."""
    waiting, steps, averages = [index], set[int](), set[int]()
    while waiting:
        for made in _producers(graph, waiting.pop()):
            operation = graph.operations[made]
            if window_axis(operation) is not None and made not in averages:
                averages.add(made)
                waiting.append(made)
            elif isinstance(operation, PointwiseOperation) and made not in steps:
                (result,) = operation.outputs().values()
                if result.extents == last.x.extents:
                    steps.add(made)
                    waiting.append(made)
        if len(steps) > _MOST or len(averages) > 1:
            return None
    return (averages.pop(), steps) if averages else None


def _producers(graph: OperationGraph, index: int) -> set[int]:
    uids = (t.uid for t in graph.operations[index].inputs().values())
    return {graph.producer[uid] for uid in uids if uid in graph.producer}


def _moves_alike(first: ResampleForward, last: ResampleForward) -> bool:
    return (
        window_axis(first) == window_axis(last)
        and first.spec.window_dims == last.spec.window_dims
        and first.spec.compute_type is last.spec.compute_type
        and first.y.extents == last.x.extents
        and first.y.is_virtual
    )
