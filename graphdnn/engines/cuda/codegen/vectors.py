"""Vector widths: how many contiguous elements of its operands a thread can access at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

MAX_WIDTH = 16  # elements of the widest vector
_MAX_BYTES = 16  # bytes of the widest access


def is_column_operand(space: IndexSpace, spec: TensorSpec, axis: int) -> bool:
    """Whether a tensor in memory varies only along ``axis`` of the space, as a bias varies along the channels."""
    if spec.is_by_value or spec.is_constant or not is_addressable(spec):
        return False
    return all((stride != 0) == (j == axis) for j, stride in enumerate(space.strides(spec)))


def width_for(
    space: IndexSpace,
    tensors: Sequence[TensorSpec],
    axis: int | None = None,
    limit: int = _MAX_BYTES,
    *,
    bits: bool = False,
) -> int:
    """The widest vector that every operand allows: 1, 2, 4, 8 or 16 elements.

    An operand allows a vector if it is constant along the axis, or contiguous with aligned rows.

    Args:
        space: The index space.
        tensors: The operands; by-value operands and constants have no effect.
        axis: The axis along which vectors lie; the last axis unless given.
        limit: The most bytes of a vector of large operands.
        bits: Whether the kernel can access packed booleans by whole bytes.
    """
    j = space.rank - 1 if axis is None else axis
    stored = [t for t in tensors if not (t.is_by_value or t.is_constant)]
    if not stored or not all(is_addressable(t) or (bits and t.vector_count == 1) for t in stored):
        return 1
    largest = max(t.elements for t in stored)
    # Small operands come from the cache, so their vectors may take several accesses.
    element_bytes = max(ELEMENTS[t.data_type].bytes for t in stored if 2 * t.elements >= largest)
    return min(
        MAX_WIDTH,
        max(1, limit // element_bytes),
        gcd(MAX_WIDTH, space.sizes[j]),
        *[_widest(space, t, j) for t in stored],
    )


def _widest(space: IndexSpace, spec: TensorSpec, axis: int) -> int:
    """The widest vector of an operand, a power of two."""
    strides = space.strides(spec)
    if strides[axis] == 0:
        return MAX_WIDTH
    if strides[axis] != 1:
        return 1
    if spec.data_type is DataType.BOOLEAN:
        return widest_of_bits(space, spec, axis)
    rows = gcd(MAX_WIDTH, *[s for j, s in enumerate(strides) if j != axis and space.sizes[j] > 1])
    # Virtual tensors lie in the workspace, whose alignment is larger.
    alignment = gcd(_MAX_BYTES, max(1, spec.byte_alignment))
    return rows if alignment == _MAX_BYTES else min(rows, max(1, alignment // ELEMENTS[spec.data_type].bytes))


def widest_of_bits(space: IndexSpace, spec: TensorSpec, axis: int) -> int:
    """The widest vector of packed booleans, a power of two."""
    strides = space.strides(spec)
    return gcd(MAX_WIDTH, *[s for j, s in enumerate(strides) if j != axis and space.sizes[j] > 1])
