"""Operands of batched matrix products for TMA, and their tensor maps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import is_addressable, whole
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.simt.matmul_simt import Side
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.wgmma_text import ACROSS_K
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

ALIGNMENT = 16  # bytes, of addresses and strides
MOST_BATCH_AXES = 3  # of a tensor map
_LARGEST_STRIDE = 2**40
_PERMUTED_ROWS = 32  # the unit of permutation of a map with eight contiguous columns


@dataclass(frozen=True)
class MatrixOperand:
    """An operand with axes K, rows (of A) or columns (of B), and batch. Below, rows means rows of A or columns of B."""

    side: Side

    @property
    def spec(self) -> TensorSpec:
        return self.side.spec

    @property
    def element_bytes(self) -> int:
        return ELEMENTS[self.spec.data_type].bytes

    @property
    def _is_rounded(self) -> bool:
        return self.spec.data_type is DataType.FLOAT  # TMA rounds to TF32; tensor cores would truncate

    @cached_property
    def is_mn_major(self) -> bool:
        """Whether the rows are contiguous; otherwise K is."""
        return self._strides[self.side.k] != 1 and self.spec.extents[self.side.k] > 1

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        return whole(self.spec.extents).strides(self.spec)

    @cached_property
    def is_copied(self) -> bool:
        """TMA cannot read it: no contiguous axis, unaligned strides, or a type that must be K-major."""
        spec = self.spec
        if not is_addressable(spec) or spec.byte_alignment % ALIGNMENT:
            return True
        if self.is_mn_major and (spec.data_type not in ACROSS_K or self._strides[self.side.outer] != 1):
            return True
        inner = self.side.outer if self.is_mn_major else self.side.k
        other_strides = [
            s * self.element_bytes for j, s in enumerate(self._strides) if j != inner and spec.extents[j] > 1
        ]
        return any(b <= 0 or b >= _LARGEST_STRIDE or b % ALIGNMENT for b in other_strides)

    def prepared(self, steps: LaunchSequence) -> MatrixOperand:
        """The operand itself, or its K-major copy, which a launch makes."""
        if not self.is_copied:
            return self
        extents, strides = self.spec.extents, [0] * self.spec.rank
        quantum = ALIGNMENT // self.element_bytes
        stride = -(-extents[self.side.k] // quantum) * quantum
        strides[self.side.k] = 1
        for j in (self.side.outer, *range(self.spec.rank - 3, -1, -1)):
            strides[j] = stride
            stride *= extents[j]
        return MatrixOperand(replace(self.side, spec=steps.relayout(self.spec, tuple(strides))))

    def flattened(self, axes: tuple[int, ...]) -> MatrixOperand | None:
        """One matrix with the rows of the whole batch, if ``axes`` are contiguous in this order; None otherwise."""
        extents, strides, stride = [*self.spec.extents], [*self._strides], 0
        for j in reversed(axes):
            if stride and strides[j] != stride:
                return None
            stride = strides[j] * extents[j]
            if not stride:
                return None
        rows, step = prod(extents[j] for j in axes), strides[axes[-1]]
        for j in axes:
            extents[j] = 1
        extents[self.side.outer], strides[self.side.outer] = rows, step
        changes = {"dims": tuple(extents), "strides": tuple(s or 1 for s in strides)}
        return MatrixOperand(replace(self.side, spec=self.spec.model_copy(update=changes)))

    def is_permutable(self, batch: tuple[int, ...]) -> bool:
        """Whether ``permuted_map`` exists: the operand is one K-major matrix with a multiple of 32 rows."""
        return not (self.is_mn_major or batch) and self.spec.extents[self.side.outer] % _PERMUTED_ROWS == 0

    def permuted_map(self, rows: int, vec_n: int) -> TensorMap:
        """A map whose boxes have permuted rows, as ``permuted_filter_map`` (tensor_maps.py)."""
        row_stride, group_rows = self._strides[self.side.outer] * self.element_bytes or ALIGNMENT, 4 * vec_n
        return TensorMap(
            self.spec.data_type,
            (self.spec.extents[self.side.k], 2, 4, vec_n // 2, self.spec.extents[self.side.outer] // group_rows),
            (row_stride, vec_n * row_stride, 2 * row_stride, group_rows * row_stride),
            box=(SWIZZLE_BYTES // self.element_bytes, 2, 4, vec_n // 2, rows // group_rows),
            is_rounded=self._is_rounded,
        )

    def axis_in_map(self, axis: int | None, batch: tuple[int, ...]) -> int:
        """The position of a batch axis in the sizes of ``map``; of the rows for None."""
        return int(not self.is_mn_major) if axis is None else 1 + len(batch) - batch.index(axis)

    def map(self, rows: int, batch: tuple[int, ...]) -> TensorMap:
        """Boxes of 128 bytes of K by ``rows``; of 128 bytes of rows by 64 K, if MN-major. ``batch``: the batch axes."""
        inner, other = (self.side.outer, self.side.k) if self.is_mn_major else (self.side.k, self.side.outer)
        axes = (inner, other, *reversed(batch))
        missing = (1,) * (2 + MOST_BATCH_AXES - len(axes))
        extents, strides, element_bytes = self.spec.extents, self._strides, self.element_bytes
        return TensorMap(
            self.spec.data_type,
            (*[extents[j] for j in axes], *missing),
            (*[strides[j] * element_bytes or ALIGNMENT for j in axes[1:]], *[ALIGNMENT] * len(missing)),
            box=(SWIZZLE_BYTES // element_bytes, SLAB_ROWS if self.is_mn_major else rows, *(1,) * MOST_BATCH_AXES),
            is_rounded=self._is_rounded,
        )


def batch_size(extents: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """GEMMs in a batch of these axes."""
    return prod(extents[j] for j in axes)
