"""Axes of a reduction: those that are kept and those that are reduced, in two spaces.

``x`` counts in the extents of what is reduced, kept axes first; ``y`` in those of the
result. An axis that is reduced in groups is in ``x`` twice: the groups are kept, the
elements of a group reduced. Neighbouring axes that every tensor steps through at one
pace become one, on both sides together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace, strides_along
from graphdnn.tensors import TensorSpec

_LONGEST = 2**30  # of a merged axis: coordinates are 32-bit numbers


@dataclass(frozen=True, slots=True)
class ReducedAxes:
    x: IndexSpace
    y: IndexSpace

    @property
    def kept(self) -> tuple[int, ...]:
        return self.y.sizes

    @property
    def reduced(self) -> tuple[int, ...]:
        return self.x.sizes[self.y.rank :]


def reduced_axes(
    x_extents: Sequence[int],
    y_extents: Sequence[int],
    main: TensorSpec,
    before: Sequence[TensorSpec],
    after: Sequence[TensorSpec],
    asked: frozenset[int],
) -> ReducedAxes:
    """``main`` gives the order, outermost in memory first. ``before`` and ``after``: tensors in memory that are read
    in ``x`` and accessed in ``y``. ``asked``: logical axes whose own index is needed.
    """
    apart = asked | {t.vectorized_dimension for t in (*before, *after) if t.vector_count != 1}
    pairs = [(wide // narrow, narrow) for wide, narrow in zip(x_extents, y_extents, strict=True)]
    kept = [(Axis(narrow, i, group), Axis(narrow, i)) for i, (group, narrow) in enumerate(pairs)]
    reduced = [(Axis(group, i),) for i, (group, _) in enumerate(pairs)]
    x, y = tuple(x_extents), tuple(y_extents)
    joined = _merged(kept, main, (before, after), apart)
    summed = _merged(reduced, main, (before,), apart)
    return ReducedAxes(
        IndexSpace(x, (*[sides[0] for sides in joined], *[sides[0] for sides in summed])),
        IndexSpace(y, tuple([sides[1] for sides in joined])),
    )


def _merged(
    axes: Sequence[tuple[Axis, ...]],
    main: TensorSpec,
    tensors: Sequence[Sequence[TensorSpec]],
    apart: frozenset[int],
) -> list[tuple[Axis, ...]]:
    """Fewer axes, each seen from several sides; one of extent 1 when nothing is left."""

    def strides(sides: tuple[Axis, ...]) -> tuple[int, ...]:
        return tuple(
            [s for axis, group in zip(sides, tensors, strict=True) for t in group for s in strides_along((axis,), t)]
        )

    def place(sides: tuple[Axis, ...]) -> tuple[bool, int]:
        (stride,) = strides_along(sides[:1], main)
        return stride != 0, -stride

    merged: list[tuple[Axis, ...]] = []
    last: tuple[int, ...] = ()
    for sides in sorted((s for s in axes if s[0].size != 1), key=place):
        size, here = sides[0].size, strides(sides)
        outer = merged[-1] if merged else None
        if (
            outer is not None
            and not {sides[0].logical, outer[0].logical} & apart
            and last == tuple(s * size for s in here)
            and prod((size, outer[0].size)) <= _LONGEST
        ):
            merged[-1] = tuple([Axis(size * outer[0].size, side.logical, side.multiplier) for side in sides])
        else:
            merged.append(sides)
        last = here
    return merged or [tuple(Axis(1, 0) for _ in tensors)]
