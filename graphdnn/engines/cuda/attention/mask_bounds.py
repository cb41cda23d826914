"""Band: the keys that masks made of indices let a row see, which is what kernels leave out without looking at scores.

A mask is SELECT(comparison of the row's index with the key's, scores, -infinity): powers of what it hides are 0
whatever the data is. A comparison may move either index by a whole number that the graph states.
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
_WHOLE = (DataType.INT32, DataType.INT64, DataType.FLOAT)  # that hold indices exactly
_MIRRORED = {_M.CMP_GE: _M.CMP_LE, _M.CMP_GT: _M.CMP_LT, _M.CMP_LE: _M.CMP_GE, _M.CMP_LT: _M.CMP_GT}
_SAMPLES = 256  # rows that are looked at
_LARGEST = 2**23  # of indices and what is added to them: floats hold their sums


@dataclass(frozen=True, slots=True)
class Band:
    """Row r sees keys from ``r + first`` to ``r + last``; None where nothing is known of that side. ``masks``:
    identities of the SELECT operations that hide nothing in there.
    """

    first: int | None = None
    last: int | None = None
    masks: frozenset[int] = frozenset()

    def seen(self, row: int, keys: int) -> int:
        """Keys that a row sees."""
        low = 0 if self.first is None else min(keys, max(0, row + self.first))
        high = keys if self.last is None else min(keys, max(0, row + self.last + 1))
        return max(0, high - low)

    def visible(self, rows: int, keys: int) -> float:
        """Scores of one product that are in the band."""
        if self.first is None and self.last is None:
            return float(rows) * keys
        step = max(1, rows // _SAMPLES)
        return float(sum(self.seen(row, keys) * min(step, rows - row) for row in range(0, rows, step)))


def band_of(attention: Attention) -> Band:
    if max(attention.first.c.extents[-2:]) > _LARGEST:
        return Band()
    made = {t.uid: step for step in attention.steps for t in step.outputs().values()}
    first: list[int] = []
    last: list[int] = []
    masks = set[int]()
    select = made.get(attention.scores.uid)
    while select is not None and hides(select):
        found = _bounds(select.inputs()["t"], made, attention.first.c.rank)
        if found is not None:
            masks.add(id(select))
            first += found[0]
            last += found[1]
        select = made.get(select.inputs()["x"].uid)
    return Band(max(first, default=None), min(last, default=None), frozenset(masks))


def hides(step: PointwiseOperation) -> bool:
    """Whether a step lets scores pass or makes them -infinity."""
    return step.spec.mode is _M.BINARY_SELECT and step.inputs()["b"].constant_value == -inf and step.alpha1 == 1.0


def _bounds(
    predicate: TensorSpec, made: Mapping[int, PointwiseOperation], rank: int
) -> tuple[list[int], list[int]] | None:
    """First and last keys, from the row's index, of all that the predicate asks for; None where it asks for more."""
    step = made.get(predicate.uid)
    if step is None:
        return None
    if step.spec.mode is _M.LOGICAL_AND:
        both = [_bounds(t, made, rank) for t in step.inputs().values()]
        if any(found is None for found in both):
            return None
        return tuple([n for found in both if found for n in found[side]] for side in (0, 1))  # type: ignore[return-value]
    if step.spec.mode not in _MIRRORED or step.compute_type not in _WHOLE or (step.alpha1, step.alpha2) != (1.0, 1.0):
        return None
    left, right = (_index(step.inputs()[port], made) for port in ("x", "b"))
    if left is None or right is None or {left[0], right[0]} != {rank - 2, rank - 1}:
        return None
    mode: PointwiseMode = step.spec.mode
    if left[0] == rank - 1:
        left, right, mode = right, left, _MIRRORED[mode]
    shift = left[1] - right[1]  # row + shift against key
    if mode in (_M.CMP_GE, _M.CMP_GT):
        return [], [shift - (mode is _M.CMP_GT)]
    return [shift + (mode is _M.CMP_LT)], []


def _index(spec: TensorSpec, made: Mapping[int, PointwiseOperation]) -> tuple[int, int] | None:
    """The axis whose index a tensor is, and what was added to it."""
    step: Operation | None = made.get(spec.uid)
    if not isinstance(step, PointwiseOperation) or spec.data_type not in _WHOLE or step.compute_type not in _WHOLE:
        return None
    mode = step.spec.mode
    if mode is _M.GEN_INDEX:
        return int(step.spec.parameters()["axis"]), 0
    if mode is _M.IDENTITY and step.alpha1 == 1.0:
        return _index(step.inputs()["x"], made)
    if mode not in (_M.ADD, _M.SUB) or (step.alpha1, step.alpha2) != (1.0, 1.0):
        return None
    found, by = _index(step.inputs()["x"], made), step.inputs()["b"].constant_value
    if found is None or by is None or by != int(by) or abs(by) > _LARGEST:
        return None
    return found[0], found[1] + int(by) * (1 if mode is _M.ADD else -1)
