"""Place: where an argument of a call goes, and what its plan binds there."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdnn.engines.host.memory import binding_layout
from graphdnn.v6.draft import Slot


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


def _readable_as(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
    """Element types of arrays that stand for such memory: the type itself, bytes, and integers of the other sign."""
    dtype = np.dtype(dtype)
    other = [np.dtype(f"{'u' if dtype.kind == 'i' else 'i'}{dtype.itemsize}")] if dtype.kind in "iu" else []
    return dtype, np.dtype(np.uint8), *other
