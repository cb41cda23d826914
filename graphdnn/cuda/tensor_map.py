"""TensorMap: a tensor as the copy unit of compute capability 9.0 (TMA) sees it, and the driver's encoding of it.

A kernel gets the 128 encoded bytes in its struct. They hold the tensor's address, so a plan writes them when it
meets a tensor, and puts another address in when the next one lies elsewhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from graphdnn.cuda.driver_library import driver_functions, error_of
from graphdnn.enums import DataType

BYTES = 128
WORDS = BYTES // 8

# CUtensorMapDataType; types of one size without arithmetic during the copy are alike.
ELEMENT_NUMBERS = {
    DataType.INT8: 0, DataType.UINT8: 0, DataType.FP8_E4M3: 0, DataType.FP8_E5M2: 0,
    DataType.INT16: 1, DataType.INT32: 3, DataType.INT64: 5, DataType.HALF: 6, DataType.BFLOAT16: 9, DataType.FLOAT: 7,
}  # fmt: skip
TF32_NUMBER = 11
SWIZZLE_NUMBERS = {0: 0, 32: 1, 64: 2, 128: 3}  # by the bytes of a row
_NO_INTERLEAVING, _CACHE_LINES_OF_128_BYTES, _ZEROS_OUTSIDE = 0, 2, 0


@dataclass(frozen=True, slots=True)
class TensorMap:
    """What one copy takes: a box, or ``pixels`` of a walk through an image (im2col), a row of ``row`` bytes for each;
    0: rows of a box as long as they are, whose parts are not exchanged.

    ``sizes``: elements along each axis, innermost first. ``strides``: bytes between neighbours, along all axes but the
    innermost. ``steps``: elements from one to the next that is taken. ``lower`` and ``upper``: how far the walk's box
    is moved in from the first and the last pixel, spatial axes innermost first; negative is outwards.
    """

    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    row: int = 128
    is_rounded: bool = False  # floats, to TF32

    def writer(self, at: int) -> Callable[[int], None]:
        """A function that writes the map of a tensor at the address it is given to ``at``, in host memory.

        The first call encodes everything, the later ones replace the address.
        """
        replace = functions().replace
        argument = ctypes.c_void_p.from_param  # takes half as long as an object with this address
        map = argument(at)
        is_written = False

        def write(address: int) -> None:
            nonlocal is_written
            if is_written:
                code = replace(map, argument(address))
            else:
                code = self._encode(at, address)
            if code:
                raise error_of("cuTensorMapReplaceAddress" if is_written else "cuTensorMapEncode", code)
            is_written = True

        return write

    def _encode(self, at: int, address: int) -> int:
        rank = len(self.sizes)
        u64, u32, i32 = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank, ctypes.c_int * max(1, rank - 2)
        kind = TF32_NUMBER if self.is_rounded else ELEMENT_NUMBERS[self.data_type]
        head = (
            ctypes.c_void_p(at), kind, ctypes.c_uint32(rank), ctypes.c_void_p(address),
            u64(*self.sizes), u64(*self.strides),
        )  # fmt: skip
        steps = u32(*(self.steps or (1,) * rank))
        tail = (_NO_INTERLEAVING, SWIZZLE_NUMBERS[self.row], _CACHE_LINES_OF_128_BYTES, _ZEROS_OUTSIDE)
        if self.box:
            return int(functions().tiled(*head, u32(*self.box), steps, *tail))
        corners = i32(*self.lower), i32(*self.upper)
        walk = ctypes.c_uint32(self.channels), ctypes.c_uint32(self.pixels)
        return int(functions().im2col(*head, *corners, *walk, steps, *tail))


@dataclass(frozen=True, slots=True)
class _Functions:
    tiled: Any
    im2col: Any
    replace: Any


@cache
def functions() -> _Functions:
    """Through ctypes: the bindings keep maps in memory that is not aligned as the driver wants it."""
    names = ("cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col", "cuTensorMapReplaceAddress")
    return _Functions(*driver_functions(*names, since="12.0"))
