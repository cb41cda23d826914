"""The operands of a stack of matrix products as the copy unit of compute capability 9.0 takes them, and their maps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.hopper_product import ACROSS_K
from graphdnn.engines.cuda.hopper_tiles import PANEL, ROW
from graphdnn.engines.cuda.matmul import Side
from graphdnn.engines.cuda.space import is_addressable, whole
from graphdnn.engines.cuda.steps import Steps
from graphdnn.tensors import TensorSpec

ALIGNMENT = 16  # bytes, of addresses and strides
MOST_BATCH_AXES = 3  # of a map
_LARGEST_STRIDE = 2**40


@dataclass(frozen=True, slots=True)
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
    def is_across(self) -> bool:
        """Whether neighbours are lines; else they are steps of k."""
        return self._strides[self.side.k] != 1 and self.spec.extents[self.side.k] > 1

    @property
    def _strides(self) -> tuple[int, ...]:
        return whole(self.spec.extents).strides(self.spec)

    @property
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

    def prepared(self, steps: Steps) -> Matrices:
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
        return Matrices(replace(self.side, spec=steps.relaid(self.spec, tuple(strides))))

    def map(self, lines: int, batch: tuple[int, ...]) -> TensorMap:
        """Boxes of 128 bytes by ``lines``, or by as many steps of k where lines are neighbours. ``batch``: axes."""
        inner, other = (self.side.outer, self.side.k) if self.is_across else (self.side.k, self.side.outer)
        axes = (inner, other, *reversed(batch))
        missing = (1,) * (2 + MOST_BATCH_AXES - len(axes))
        extents, strides = self.spec.extents, self._strides
        return TensorMap(
            self.spec.data_type,
            (*(extents[j] for j in axes), *missing),
            (*(strides[j] * self.size or ALIGNMENT for j in axes[1:]), *(ALIGNMENT * m for m in missing)),
            box=(ROW // self.size, PANEL if self.is_across else lines, *(1,) * MOST_BATCH_AXES),
        )


def stacked(extents: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Products in a stack of these axes."""
    return prod(extents[j] for j in axes)
