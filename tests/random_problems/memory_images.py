"""Images: the memory of a bound tensor on the host, with margins, gaps and poison, and what must not change in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdnn import TensorSpec
from graphdnn.dtypes import Array, cast
from graphdnn.engines.host.memory import binding_layout, load, store
from graphdnn.enums import DataType

MARGIN = 512  # bytes before and behind
_WORD = 4  # bytes


class Image:
    """``bytes`` is all of the memory; ``array`` is the binding that lies in it, aligned no better than promised."""

    def __init__(self, spec: TensorSpec, values: Any, poison: int, alignment: int) -> None:
        self.spec = spec
        raw = np.empty(spec.bytes + 2 * MARGIN + 256 + _WORD, np.uint8)
        start = -raw.ctypes.data % 256
        self.offset = MARGIN + (alignment if alignment < 256 else 0)
        end = self.offset + spec.bytes
        # A packed boolean is changed in the aligned word around it, the other bits of which stay as they are.
        behind = max(MARGIN, -end % _WORD if spec.data_type is DataType.BOOLEAN else 0)
        self.bytes = raw[start : start + end + behind]
        self.bytes[...] = poison
        self.array = self._view(self.bytes)
        if values is not None:
            given = cast(np.asarray(values).reshape(spec.extents), spec.data_type)
            store(given, self.array, spec)
        self.before = self.bytes.copy()

    def _view(self, memory: Array) -> Array:
        dtype, shape, strides = binding_layout(self.spec)
        return np.ndarray(shape, dtype, buffer=memory, offset=self.offset, strides=strides)

    def logical(self) -> Array:
        """The tensor's elements as they are now, in an array of their own."""
        return np.array(load(self.array, self.spec))

    def elements(self) -> Array:
        """Ones in the bits that are elements of the tensor."""
        mask = np.zeros_like(self.bytes)
        if self.spec.data_type is DataType.BOOLEAN:
            store(np.ones(self.spec.extents, np.bool_), self._view(mask), self.spec)
            return mask
        dtype, shape, strides = binding_layout(self.spec)
        parts = np.ndarray((*shape, dtype.itemsize), np.uint8, mask, self.offset, (*strides, 1))
        parts[...] = 0xFF
        return mask

    def trespass(self, *, written: bool) -> str:
        """What changed that is no element (or, in an input, anything at all); empty if nothing did."""
        changed = self.bytes ^ self.before
        if written:
            changed &= ~self.elements()
        places = np.flatnonzero(changed)
        if not len(places):
            return ""
        first, last = (int(p) - self.offset for p in (places[0], places[-1]))
        what = "no elements" if written else "read only"
        return f"{self.spec.label()}: {len(places)} bytes that are {what} changed, from {first} to {last} of {self.spec.bytes}"

    def badly_stored(self) -> str:
        """Booleans of a byte are 0 or 1."""
        if self.spec.data_type is not DataType.BYTE_BOOLEAN:
            return ""
        stored = np.unique(self.array.view(np.uint8))
        return (
            "" if set(stored.tolist()) <= {0, 1} else f"{self.spec.label()}: booleans stored as {stored.tolist()[:8]}"
        )
