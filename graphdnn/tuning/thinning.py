"""Thinning: a graph on some of its images, for an oracle that would take too long on all of them.

Where every operation treats the images of a batch alike and apart, the results of a few of them are what the whole
graph computes there. The kernels that are tried run on all images; only what they are compared with is thinned out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphdnn.dtypes import Array
from graphdnn.engines.host.memory import empty
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.graph import OperationGraph
from graphdnn.operations import (
    ConvBackwardData,
    ConvForward,
    Matmul,
    Operation,
    PointwiseOperation,
    ResampleForward,
)
from graphdnn.oracle import with_tensors


@dataclass(frozen=True, slots=True)
class Thinned:
    """``graph`` has the images ``kept`` of ``batch``; ``uids`` are the tensors that carry them."""

    graph: OperationGraph
    kept: tuple[int, ...]
    batch: int
    uids: frozenset[int]

    def bindings(self, full: Mapping[int, Any]) -> dict[int, Any]:
        """The kept images of arrays that have all of them."""
        return {uid: self.part(uid, array) if uid in self.uids else array for uid, array in full.items()}

    def part(self, uid: int, array: Array) -> Array:
        thin = empty(self.graph.tensors[uid])
        thin[...] = array[list(self.kept)]
        return thin


def batch_tensors(graph: OperationGraph) -> tuple[int, frozenset[int]] | None:
    """(images, tensors whose first axis they are); None where images are not treated alike and apart."""
    carries: dict[int, bool] = {}
    batch = 0
    for op in graph.operations:
        found = _carriers(op)
        if found is None:
            return None
        size, mine = found
        if batch not in (0, size) or any(carries.get(uid, flag) is not flag for uid, flag in mine.items()):
            return None
        batch = size
        carries.update(mine)
    uids = frozenset(uid for uid, flag in carries.items() if flag)
    if batch < 2 or any(graph.tensors[uid].data_type is DataType.BOOLEAN for uid in uids):
        return None  # bits of several images share a byte
    return batch, uids


def _carriers(op: Operation) -> tuple[int, dict[int, bool]] | None:
    """(images, uid -> whether it carries them) of one operation's tensors."""
    if isinstance(op, (ConvForward, ConvBackwardData, ResampleForward)):
        weights = {t.uid for port, t in op.tensors().items() if port == "w"}
        mine = {t.uid: t.uid not in weights for t in op.tensors().values()}
        sizes = {t.extents[0] for t in op.tensors().values() if mine[t.uid]}
        return (sizes.pop(), mine) if len(sizes) == 1 else None
    broadcasts = isinstance(op, PointwiseOperation) and op.spec.mode is not PointwiseMode.GEN_INDEX
    if not broadcasts and not (isinstance(op, Matmul) and set(op.tensors()) == {"a", "b", "c"} and op.c.rank > 2):
        return None
    (result,) = op.outputs().values()
    size = result.extents[0]
    return size, {t.uid: t.extents[0] == size and size > 1 for t in op.tensors().values()}


def thinned(graph: OperationGraph, kept: Sequence[int]) -> Thinned | None:
    """The graph on some of its images; None where it cannot be thinned."""
    found = batch_tensors(graph)
    if found is None or found[0] <= len(kept):
        return None
    batch, uids = found
    tensors = {
        uid: t.model_copy(update={"dims": (len(kept), *t.dims[1:])}) if uid in uids else t
        for uid, t in graph.tensors.items()
    }
    operations: Sequence[Operation] = [with_tensors(op, tensors) for op in graph.operations]
    return Thinned(OperationGraph.of(operations, name=graph.name), tuple(kept), batch, uids)
