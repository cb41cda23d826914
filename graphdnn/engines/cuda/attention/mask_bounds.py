"""Bounds of masks: the keys that index masks let a row see. Kernels skip key tiles outside without reading scores.

A mask is SELECT(comparison of the row index with the key index, scores, -infinity): hidden scores have probability 0
for any data. A comparison may shift either index by an integer constant of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from graphdnn.enums import DataType, PointwiseMode
from graphdnn.fusion.patterns.attention import Attention
from graphdnn.operations import Operation, PointwiseOperation
from graphdnn.tensors import TensorSpec

_M = PointwiseMode
_WHOLE = (DataType.INT32, DataType.INT64, DataType.FLOAT)  # types that represent indices exactly
_MIRRORED = {_M.CMP_GE: _M.CMP_LE, _M.CMP_GT: _M.CMP_LT, _M.CMP_LE: _M.CMP_GE, _M.CMP_LT: _M.CMP_GT}
_SAMPLES = 256  # rows at which visible keys are counted
_LARGEST = 2**23  # largest index and largest shift: floats represent their sums


@dataclass(frozen=True, slots=True)
class MaskBounds:
    """Row r sees keys from ``r + first`` to ``r + last``; None where that side has no bound. ``masks``: identities of
    the SELECT operations that hide no score inside the bounds.
    """

    first: int | None = None
    last: int | None = None
    masks: frozenset[int] = frozenset()

    def seen(self, row: int, keys: int) -> int:
        """The number of keys that a row sees."""
        low = 0 if self.first is None else min(keys, max(0, row + self.first))
        high = keys if self.last is None else min(keys, max(0, row + self.last + 1))
        return max(0, high - low)

    def visible(self, rows: int, keys: int) -> float:
        """The number of visible scores of one head."""
        if self.first is None and self.last is None:
            return float(rows) * keys
        step = max(1, rows // _SAMPLES)
        return float(sum(self.seen(row, keys) * min(step, rows - row) for row in range(0, rows, step)))


def mask_bounds_of(attention: Attention) -> MaskBounds:
    if max(attention.first.c.extents[-2:]) > _LARGEST:
        return MaskBounds()
    producers = {t.uid: step for step in attention.steps for t in step.outputs().values()}
    first: list[int] = []
    last: list[int] = []
    masks = set[int]()
    select = producers.get(attention.scores.uid)
    while select is not None and hides(select):
        bounds = _bounds(select.inputs()["t"], producers, attention.first.c.rank)
        if bounds is not None:
            masks.add(id(select))
            first += bounds[0]
            last += bounds[1]
        select = producers.get(select.inputs()["x"].uid)
    return MaskBounds(max(first, default=None), min(last, default=None), frozenset(masks))


def hides(step: PointwiseOperation) -> bool:
    """Whether a step selects between scores and -infinity."""
    return step.spec.mode is _M.BINARY_SELECT and step.inputs()["b"].constant_value == -inf and step.alpha1 == 1.0


def _bounds(
    predicate: TensorSpec, producers: Mapping[int, PointwiseOperation], rank: int
) -> tuple[list[int], list[int]] | None:
    """Lower and upper bounds of keys minus row, where the predicate consists of bounds alone; None otherwise."""
    step = producers.get(predicate.uid)
    if step is None:
        return None
    if step.spec.mode is _M.LOGICAL_AND:
        both = [_bounds(t, producers, rank) for t in step.inputs().values()]
        if any(bounds is None for bounds in both):
            return None
        return tuple([n for bounds in both if bounds for n in bounds[side]] for side in (0, 1))  # type: ignore[return-value]
    if step.spec.mode not in _MIRRORED or step.compute_type not in _WHOLE or (step.alpha1, step.alpha2) != (1.0, 1.0):
        return None
    left, right = (_index(step.inputs()[port], producers) for port in ("x", "b"))
    if left is None or right is None or {left[0], right[0]} != {rank - 2, rank - 1}:
        return None
    mode: PointwiseMode = step.spec.mode
    if left[0] == rank - 1:
        left, right, mode = right, left, _MIRRORED[mode]
    shift = left[1] - right[1]  # row + shift against key
    if mode in (_M.CMP_GE, _M.CMP_GT):
        return [], [shift - (mode is _M.CMP_GT)]
    return [shift + (mode is _M.CMP_LT)], []


def _index(spec: TensorSpec, producers: Mapping[int, PointwiseOperation]) -> tuple[int, int] | None:
    """The axis whose index a tensor contains, and the shift; None where it is no shifted index."""
    step: Operation | None = producers.get(spec.uid)
    if not isinstance(step, PointwiseOperation) or spec.data_type not in _WHOLE or step.compute_type not in _WHOLE:
        return None
    mode = step.spec.mode
    if mode is _M.GEN_INDEX:
        return int(step.spec.parameters()["axis"]), 0
    if mode is _M.IDENTITY and step.alpha1 == 1.0:
        return _index(step.inputs()["x"], producers)
    if mode not in (_M.ADD, _M.SUB) or (step.alpha1, step.alpha2) != (1.0, 1.0):
        return None
    index, shift = _index(step.inputs()["x"], producers), step.inputs()["b"].constant_value
    if index is None or shift is None or shift != int(shift) or abs(shift) > _LARGEST:
        return None
    return index[0], index[1] + int(shift) * (1 if mode is _M.ADD else -1)
