"""IndexSpace: the coordinates that a kernel iterates over, and the strides of each tensor along them.

A kernel addresses every operand as ``pointer + sum(at[j] * stride[j])`` over one list of axes. These axes may differ
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

_KEPT = 64  # cached tensors of one space
LONGEST = 2**30  # steps of an axis: kernels count them in 32 bits
INT_MAX = 2**31 - 1  # the largest coordinate, and the largest offset of 32 bits


@dataclass(frozen=True, slots=True)
class Axis:
    """``size`` steps; each moves ``multiplier`` elements along a tensor's axis ``logical``."""

    size: int
    logical: int
    multiplier: int = 1


axis_of = lru_cache(maxsize=4096)(Axis)  # one object for equal ones: most are those of shapes before


@dataclass(frozen=True)
class IndexSpace:
    """Axes, outermost first. ``extents`` are those of the tensors, whose shorter axes (extent 1) are broadcast."""

    extents: tuple[int, ...]
    axes: tuple[Axis, ...]
    _known: BoundedCache[int, tuple[TensorSpec, tuple[int, ...]]] = field(
        default_factory=lambda: BoundedCache(_KEPT), init=False, compare=False, repr=False
    )  # by identity, which the tensor in it keeps

    @property
    def rank(self) -> int:
        return len(self.axes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple([axis.size for axis in self.axes])

    def strides(self, spec: TensorSpec) -> tuple[int, ...]:
        """Strides in elements along each axis; 0 where the tensor is broadcast."""
        known = self._known.get(id(spec))
        if known is None:
            known = self._known.remember(id(spec), (spec, strides_along(self.axes, spec)))
        return known[1]


def strides_along(axes: Sequence[Axis], spec: TensorSpec) -> tuple[int, ...]:
    """Strides in elements along each axis; 0 where the tensor is broadcast."""
    extents, steps, vector = spec.extents, spec.strides, spec.vector_count
    return tuple(
        [0 if a.size == 1 or extents[a.logical] == 1 else steps[a.logical] * a.multiplier * vector for a in axes]
    )


def is_addressable(spec: TensorSpec) -> bool:
    """Whether an address is a sum over axes, which it is not for vectorized channels and packed booleans."""
    return spec.vector_count == 1 and spec.data_type is not DataType.BOOLEAN


def whole(extents: Sequence[int]) -> IndexSpace:
    """The index space of the tensors' own axes."""
    return _whole(tuple(extents))


@lru_cache(maxsize=256)
def _whole(extents: tuple[int, ...]) -> IndexSpace:
    return IndexSpace(extents, tuple(Axis(size, i) for i, size in enumerate(extents)))


def collapsed(
    space: IndexSpace, main: TensorSpec, tensors: Sequence[TensorSpec], kept: frozenset[int] = frozenset()
) -> IndexSpace:
    """The same elements in fewer axes, ordered as ``main`` lies in memory.

    Neighbouring axes are merged where every tensor steps through both with one stride. ``kept``: logical axes that are
    not merged, because an operation reads their index.
    """
    order = stride_order(main.dims, main.strides)
    kept = kept | {t.vectorized_dimension for t in tensors if t.vector_count != 1}
    axes = [a for a in sorted(space.axes, key=lambda a: order.index(a.logical)) if a.size != 1]
    steps = [strides_along(axes, t) for t in tensors]
    merged: list[Axis] = []
    last: tuple[int, ...] = ()
    for axis, here in zip(axes, zip(*steps, strict=True) if steps else [()] * len(axes), strict=True):
        joined = {axis.logical, merged[-1].logical} if merged else set()
        fits = bool(merged) and axis.size * merged[-1].size <= LONGEST
        if merged and fits and not joined & kept and last == tuple(s * axis.size for s in here):
            merged[-1] = Axis(axis.size * merged[-1].size, axis.logical, axis.multiplier)
        else:
            merged.append(axis)
        last = here
    return IndexSpace(space.extents, tuple(merged) or (Axis(1, 0),))
