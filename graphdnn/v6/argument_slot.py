"""Place: where an argument of a call goes, and what its plan binds there."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdnn.engines.host.memory import binding_layout
from graphdnn.v6.call_graph import Slot


class Place:
    """A slot with its layout worked out."""

    __slots__ = (
        "arrays",
        "described",
        "dtype",
        "dtypes",
        "index",
        "is_copy",
        "is_host",
        "is_output",
        "label",
        "shape",
        "size",
        "strides",
        "uid",
    )

    def __init__(self, slot: Slot, *, is_output: bool) -> None:
        self.uid, self.index, self.is_copy, self.is_output = slot.spec.uid, slot.index, slot.is_copy, is_output
        self.dtype, self.shape, self.strides = binding_layout(slot.spec)
        self.dtypes = _readable_as(self.dtype)
        self.size = slot.spec.bytes
        self.label = slot.spec.name.removeprefix("old ").removesuffix(" before")  # the argument, for errors
        self.described = slot.described
        self.is_host = slot.is_host
        self.arrays: dict[int, Any] = {}  # by an address on a device that a plan took

    def layout(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Extents and byte strides as the argument's descriptor has them."""
        if self.described is None:
            return self.shape, self.strides
        return self.described.dims, tuple(step * self.dtype.itemsize for step in self.described.strides)

    def is_in_another_order(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
        """True for a contiguous array with the descriptor's extents in another order in memory: NHWC data under an
        NCHW descriptor, a transposed filter. The call would compute with other elements than the array shows.

        Axes of one element do not count. Row-major memory of the descriptor's own extents is memory that was allocated
        by them, whatever the layout.
        """
        axes, wanted = _long_axes(shape, strides), _long_axes(*self.layout())
        if axes == wanted or sorted(extent for extent, _ in axes) != sorted(extent for extent, _ in wanted):
            return False
        if [extent for extent, _ in axes] == [extent for extent, _ in wanted]:
            return axes != sorted(axes, key=_step, reverse=True)
        in_memory, wanted_in_memory = (
            [extent for extent, _ in sorted(found, key=_step, reverse=True)] for found in (axes, wanted)
        )
        return in_memory != wanted_in_memory


def _long_axes(extents: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """(extent, stride) of the axes with more than one element."""
    return [(extent, step) for extent, step in zip(extents, strides, strict=True) if extent > 1]


def _step(axis: tuple[int, int]) -> int:
    return axis[1]


def _readable_as(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
    """Element types of arrays that stand for such memory: the type itself, bytes, and integers of the other sign."""
    dtype = np.dtype(dtype)
    other = [np.dtype(f"{'u' if dtype.kind == 'i' else 'i'}{dtype.itemsize}")] if dtype.kind in "iu" else []
    return dtype, np.dtype(np.uint8), *other
