"""The operands of a stack of matrix products as the copy unit of compute capability 9.0 takes them, and their maps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import is_addressable, whole
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.simt.matmul_simt import Side
from graphdnn.engines.cuda.sm90.tile import PANEL, ROW
from graphdnn.engines.cuda.sm90.wgmma_text import ACROSS_K
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

ALIGNMENT = 16  # bytes, of addresses and strides
MOST_BATCH_AXES = 3  # of a map
_LARGEST_STRIDE = 2**40
_PERMUTED = 32  # lines that change places among each other, at most


@dataclass(frozen=True)
class Matrices:
    """An operand: lines (rows of a, columns of b) and k, in a stack."""

    side: Side

    @property
    def spec(self) -> TensorSpec:
        return self.side.spec

    @property
    def size(self) -> int:
        return ELEMENTS[self.spec.data_type].bytes

    @property
    def _is_rounded(self) -> bool:
        return self.spec.data_type is DataType.FLOAT  # what tensor cores would only cut off

    @cached_property
    def is_across(self) -> bool:
        """Whether neighbours are lines; else they are steps of k."""
        return self._strides[self.side.k] != 1 and self.spec.extents[self.side.k] > 1

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        return whole(self.spec.extents).strides(self.spec)

    @cached_property
    def is_copied(self) -> bool:
        """Neighbours along neither axis, or strides that are no multiples of what the copy unit moves."""
        spec = self.spec
        if not is_addressable(spec) or spec.byte_alignment % ALIGNMENT:
            return True
        if self.is_across and (spec.data_type not in ACROSS_K or self._strides[self.side.outer] != 1):
            return True
        inner = self.side.outer if self.is_across else self.side.k
        apart = [s * self.size for j, s in enumerate(self._strides) if j != inner and spec.extents[j] > 1]
        return any(b <= 0 or b >= _LARGEST_STRIDE or b % ALIGNMENT for b in apart)

    def prepared(self, steps: LaunchSequence) -> Matrices:
        """Itself, or a copy with neighbours along k, made by a launch."""
        if not self.is_copied:
            return self
        extents, strides = self.spec.extents, [0] * self.spec.rank
        quantum = ALIGNMENT // self.size
        pace = -(-extents[self.side.k] // quantum) * quantum
        strides[self.side.k] = 1
        for j in (self.side.outer, *range(self.spec.rank - 3, -1, -1)):
            strides[j] = pace
            pace *= extents[j]
        return Matrices(replace(self.side, spec=steps.relayout(self.spec, tuple(strides))))

    def joined(self, axes: tuple[int, ...]) -> Matrices | None:
        """The lines of a whole stack, whose ``axes`` follow each other in this order, as those of one matrix."""
        extents, strides, pace = [*self.spec.extents], [*self._strides], 0
        for j in reversed(axes):
            if pace and strides[j] != pace:
                return None
            pace = strides[j] * extents[j]
            if not pace:
                return None
        lines, step = prod(extents[j] for j in axes), strides[axes[-1]]
        for j in axes:
            extents[j] = 1
        extents[self.side.outer], strides[self.side.outer] = lines, step
        changes = {"dims": tuple(extents), "strides": tuple(s or 1 for s in strides)}
        return Matrices(replace(self.side, spec=self.spec.model_copy(update=changes)))

    def is_permutable(self, batch: tuple[int, ...]) -> bool:
        """Whether lines can be taken in the order of ``permuted_map``: along k, in whole 32s, one matrix."""
        return not (self.is_across or batch) and self.spec.extents[self.side.outer] % _PERMUTED == 0

    def permuted_map(self, lines: int, neighbours: int) -> TensorMap:
        """As ``permuted_filter_map`` of maps.py: a lane's columns are neighbours."""
        pitch, together = self._strides[self.side.outer] * self.size or ALIGNMENT, 4 * neighbours
        return TensorMap(
            self.spec.data_type,
            (self.spec.extents[self.side.k], 2, 4, neighbours // 2, self.spec.extents[self.side.outer] // together),
            (pitch, neighbours * pitch, 2 * pitch, together * pitch),
            box=(ROW // self.size, 2, 4, neighbours // 2, lines // together),
            is_rounded=self._is_rounded,
        )

    def axis_in_map(self, axis: int | None, batch: tuple[int, ...]) -> int:
        """Of the sizes of ``map``, the place of a batch axis; of the lines for None."""
        return int(not self.is_across) if axis is None else 1 + len(batch) - batch.index(axis)

    def map(self, lines: int, batch: tuple[int, ...]) -> TensorMap:
        """Boxes of 128 bytes by ``lines``, or by as many steps of k where lines are neighbours. ``batch``: axes."""
        inner, other = (self.side.outer, self.side.k) if self.is_across else (self.side.k, self.side.outer)
        axes = (inner, other, *reversed(batch))
        missing = (1,) * (2 + MOST_BATCH_AXES - len(axes))
        extents, strides, size = self.spec.extents, self._strides, self.size
        return TensorMap(
            self.spec.data_type,
            (*[extents[j] for j in axes], *missing),
            (*[strides[j] * size or ALIGNMENT for j in axes[1:]], *[ALIGNMENT] * len(missing)),
            box=(ROW // size, PANEL if self.is_across else lines, *(1,) * MOST_BATCH_AXES),
            is_rounded=self._is_rounded,
        )


def stacked(extents: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Products in a stack of these axes."""
    return prod(extents[j] for j in axes)
