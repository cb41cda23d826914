"""IndexSpace: the coordinates that a kernel iterates over, and the strides of each tensor along them.

A kernel addresses every operand as ``pointer + sum(coord[j] * stride[j])`` over one list of axes. These axes may differ
from the axes of the tensors: a convolution separates groups and channels even where a tensor has both in one axis, and
a pointwise graph merges axes that are contiguous in every operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from graphdnn.bounded_cache import BoundedCache
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec, stride_order

_MAX_CACHED = 64  # tensors of one space
LONGEST = 2**30  # the largest size of a merged axis, as kernels have 32-bit coordinates
INT_MAX = 2**31 - 1  # the largest coordinate, and the largest 32-bit offset


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of ``size`` coordinates. A step moves ``multiplier`` elements along the tensors' axis ``logical``."""

    size: int
    logical: int
    multiplier: int = 1


axis_of = lru_cache(maxsize=4096)(Axis)  # one object for equal axes, which most shapes have in common


@dataclass(frozen=True)
class IndexSpace:
    """The coordinates of a kernel.

    Args:
        extents: The extents of the tensors; a tensor's axis of extent 1 is broadcast.
        axes: The axes, outermost first.
    """

    extents: tuple[int, ...]
    axes: tuple[Axis, ...]
    _strides: BoundedCache[int, tuple[TensorSpec, tuple[int, ...]]] = field(
        default_factory=lambda: BoundedCache(_MAX_CACHED), init=False, compare=False, repr=False
    )  # by identity of the tensor, which the entry keeps alive

    @property
    def rank(self) -> int:
        return len(self.axes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple([axis.size for axis in self.axes])

    def strides(self, spec: TensorSpec) -> tuple[int, ...]:
        """Strides in elements along each axis; 0 where the tensor is broadcast."""
        cached = self._strides.get(id(spec))
        if cached is None:
            cached = self._strides.remember(id(spec), (spec, strides_along(self.axes, spec)))
        return cached[1]


def strides_along(axes: Sequence[Axis], spec: TensorSpec) -> tuple[int, ...]:
    """Strides in elements along each axis; 0 where the tensor is broadcast."""
    extents, steps, vector = spec.extents, spec.strides, spec.vector_count
    return tuple(
        [0 if a.size == 1 or extents[a.logical] == 1 else steps[a.logical] * a.multiplier * vector for a in axes]
    )


def is_addressable(spec: TensorSpec) -> bool:
    """Whether an address is a sum over axes. Vectorized channels and packed booleans have no such addresses."""
    return spec.vector_count == 1 and spec.data_type is not DataType.BOOLEAN


def whole(extents: Sequence[int]) -> IndexSpace:
    """The index space of the tensors' own axes."""
    return _whole(tuple(extents))


@lru_cache(maxsize=256)
def _whole(extents: tuple[int, ...]) -> IndexSpace:
    return IndexSpace(extents, tuple(Axis(size, i) for i, size in enumerate(extents)))


def collapsed(
    space: IndexSpace, main: TensorSpec, tensors: Sequence[TensorSpec], separate: frozenset[int] = frozenset()
) -> IndexSpace:
    """The same elements in fewer axes, in the order of ``main`` in memory.

    Adjacent axes are merged if one stride leads through both axes in every tensor.

    Args:
        space: The space.
        main: The tensor whose strides determine the order.
        tensors: All tensors in memory.
        separate: Logical axes that are not merged, because an operation reads their index.
    """
    order = stride_order(main.dims, main.strides)
    separate = separate | {t.vectorized_dimension for t in tensors if t.vector_count != 1}
    axes = [a for a in sorted(space.axes, key=lambda a: order.index(a.logical)) if a.size != 1]
    steps = [strides_along(axes, t) for t in tensors]
    merged: list[Axis] = []
    last: tuple[int, ...] = ()
    for axis, strides in zip(axes, zip(*steps, strict=True) if steps else [()] * len(axes), strict=True):
        logical = {axis.logical, merged[-1].logical} if merged else set()
        fits = bool(merged) and axis.size * merged[-1].size <= LONGEST
        if merged and fits and not logical & separate and last == tuple(s * axis.size for s in strides):
            merged[-1] = Axis(axis.size * merged[-1].size, axis.logical, axis.multiplier)
        else:
            merged.append(axis)
        last = strides
    return IndexSpace(space.extents, tuple(merged) or (Axis(1, 0),))
