"""Axes of a reduction: outer axes and reduced axes, in two index spaces.

The space ``x`` has the extents of the input, outer axes first. The space ``y`` has the extents of the result. An axis
that is reduced in groups appears twice in ``x``: the groups are an outer axis, the elements of a group a reduced one.
Adjacent axes that every tensor traverses with one stride are merged, in both spaces together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace, strides_along
from graphdnn.tensors import TensorSpec

_LONGEST = 2**30  # of a merged axis, because coordinates are 32-bit numbers


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
    """``main`` defines the memory order, outermost first. ``before``: tensors that are read in ``x``; ``after``:
    tensors that are accessed in ``y``; ``asked``: logical axes whose own index is needed.
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
    """Merges axes, each with its strides in several tensors; at least one axis of extent 1 remains."""

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
