"""The launch that adds the parts of a split product (text/hopper_sum.cu)."""

from __future__ import annotations

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.engines.cuda.launch import Launch
from graphdnn.engines.cuda.parameters import Packed

_BYTES_OF_A_THREAD = 128  # that are under way at the same time
_LEAST_THREADS, _MOST_THREADS = 256, 1024  # of a block; half as many of sums of 8 bytes, which need the registers
_UNIT = 64 * 4  # sums of 64 threads


def sum_constants(parts: int, size: int = 4) -> dict[str, int]:
    """The text's, beside those of the product; none where there is nothing to add. ``size``: bytes of a sum."""
    if parts == 1:
        return {}
    slices, at_once = 1, _BYTES_OF_A_THREAD // (4 * size)
    while slices < _MOST_THREADS // 64 // (size // 4) and slices * at_once < parts:
        slices *= 2
    return {"SLICES": slices, "UNITS": max(1, _LEAST_THREADS // (64 * slices))}


def sum_launch(text: KernelText, sums: int, parts: int, packed: Packed, size: int = 4) -> Launch:
    """``sums``: all that a part has, in whole pieces of 64 rows and 32 columns."""
    constants = sum_constants(parts, size)
    slices, units = constants["SLICES"], constants["UNITS"]
    return Launch(text, "hopper_sum", (sums // (_UNIT * units), 1, 1), 64 * slices * units, packed, starts_early=True)
