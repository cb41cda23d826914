"""Thinning: a graph on some of its images or channels, for an oracle that would take too long on all of them.

Where every operation treats the positions along an axis alike and apart, the results at a few of them are what the
whole graph computes there: images of a batch, channels of a normalization, rows of a product.
The kernels that are tried run on all of them; only what they are compared with is thinned out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.analysis.oracle import with_tensors
from graphdnn.dtypes import Array
from graphdnn.engines.host.memory import axes_of, empty, is_plain
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import (
    BnBackwardWeights,
    BnFinalize,
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionOperation,
    GenStats,
    Matmul,
    NormBackward,
    NormForward,
    Operation,
    PointwiseOperation,
    Reduction,
    ResampleBackward,
    ResampleForward,
)
from graphdnn.tensors import ordered_strides, stride_order

_PER_CHANNEL = (GenStats, BnFinalize, BnBackwardWeights)
_ALIKE = (PointwiseOperation, Reduction, ResampleForward, ResampleBackward, NormForward, NormBackward, *_PER_CHANNEL)
# The axis that filters or channels of a convolution have in its tensors; the third tensor is read as a whole.
_FILTERS: dict[type[ConvolutionOperation], dict[str, int]] = {
    ConvForward: {"w": 0, "y": 1},
    ConvBackwardData: {"w": 1, "dx": 1},
    ConvBackwardFilter: {"x": 1, "dw": 1},
}
Axes = dict[int, int]  # uid -> axis, of the tensors that are cut


@dataclass(frozen=True, slots=True)
class Slices:
    """A graph can be cut into ``count`` slices: the tensors ``axes`` along those axes."""

    count: int
    axes: Axes
    name: str  # what a slice is


@dataclass(frozen=True, slots=True)
class SlicedGraph:
    """``graph`` has the slices ``kept``."""

    graph: OperationGraph
    kept: tuple[int, ...]
    slices: Slices

    def bindings(self, full: Mapping[int, Any]) -> dict[int, Any]:
        """The kept slices of arrays that have all of them."""
        return {uid: self._part(uid, array) if uid in self.slices.axes else array for uid, array in full.items()}

    def _part(self, uid: int, array: Array) -> Array:
        thin = empty(self.graph.tensors[uid])
        axes = axes_of(array)  # slices are copied as they lie, which is many times faster
        thin.transpose(axes)[...] = np.take(array.transpose(axes), self.kept, axes.index(self.slices.axes[uid]))
        return thin


def slices_of(graph: OperationGraph) -> Slices | None:
    """Images, where they are treated alike and apart; else channels or rows; None where neither is."""
    for axis, name in ((0, "images"), (1, "channels")):
        found = _cut(graph, axis)
        if found is not None:
            is_of_rows = any(isinstance(op, Matmul) for op in graph.operations)
            return Slices(*found, "rows" if axis and is_of_rows else name)
    return None


def _cut(graph: OperationGraph, axis: int) -> tuple[int, Axes] | None:
    carries: dict[int, int | None] = {}
    count = 0
    for op in graph.operations:
        found = _axes_of(op, axis)
        if found is None:
            return None
        size, mine = found
        if count not in (0, size) or any(carries.get(uid, where) != where for uid, where in mine.items()):
            return None
        count = size
        carries.update(mine)
    axes = {uid: where for uid, where in carries.items() if where is not None}
    for tensor in map(graph.tensors.__getitem__, axes):
        if tensor.data_type is DataType.BOOLEAN or (axis and not is_plain(tensor)):
            return None  # bits of several slices share a byte, channels of several a vector
    return (count, axes) if count > 1 else None


def _axes_of(op: Operation, axis: int) -> tuple[int, dict[int, int | None]] | None:
    """(slices, uid -> the axis that they are along) of one operation's tensors."""
    tensors = op.tensors()
    if isinstance(op, ConvolutionOperation):
        return _of_images(op) if axis == 0 else _of_filters(op)
    if isinstance(op, Matmul):
        if set(tensors) != {"a", "b", "c"} or op.c.rank <= 2:
            return None
        if axis == op.c.rank - 2:  # rows
            return op.c.extents[axis], {op.a.uid: axis, op.b.uid: None, op.c.uid: axis}
    elif not isinstance(op, _ALIKE) or (isinstance(op, PointwiseOperation) and op.spec.mode is PointwiseMode.GEN_INDEX):
        return None
    elif isinstance(op, (NormForward, NormBackward)):
        if axis in op.axes:
            return None
    elif isinstance(op, _PER_CHANNEL) and axis != 1:
        return None
    extents = {t.uid: t.extents[axis] if t.rank > axis else 1 for t in tensors.values()}
    size = max(extents.values())
    if not set(extents.values()) <= {1, size} or any(extents[t.uid] != size for t in op.outputs().values()):
        return None
    return size, {uid: axis if extent == size else None for uid, extent in extents.items()}


def _of_images(op: ConvolutionOperation) -> tuple[int, dict[int, int | None]] | None:
    if isinstance(op, ConvBackwardFilter):
        return None
    found: dict[int, int | None] = {t.uid: None if port == "w" else 0 for port, t in op.tensors().items()}
    sizes = {t.extents[0] for t in op.tensors().values() if found[t.uid] == 0}
    return (sizes.pop(), found) if len(sizes) == 1 else None


def _of_filters(op: ConvolutionOperation) -> tuple[int, dict[int, int | None]] | None:
    if op.problem.groups != 1 or len({t.rank for t in op.tensors().values()}) > 1:
        return None
    axes = _FILTERS[type(op)]
    cut = {t.uid: axes.get(port) for port, t in op.tensors().items()}
    sizes = {t.extents[axes[port]] for port, t in op.tensors().items() if port in axes}
    return (sizes.pop(), cut) if len(sizes) == 1 else None


def thinned(graph: OperationGraph, slices: Slices, kept: Sequence[int]) -> SlicedGraph:
    """The graph on some of its slices; tensors that are cut lie without gaps, their axes in the same order."""
    tensors = dict(graph.tensors)
    for uid, axis in slices.axes.items():
        t = tensors[uid]
        dims = (*t.dims[:axis], len(kept), *t.dims[axis + 1 :])
        strides = t.strides if axis == 0 else ordered_strides(dims, stride_order(t.dims, t.strides))
        tensors[uid] = t.model_copy(update={"dims": dims, "strides": strides})
    operations: Sequence[Operation] = [with_tensors(op, tensors) for op in graph.operations]
    return SlicedGraph(OperationGraph.of(operations, name=graph.name), tuple(kept), slices)
