"""The launch that adds the parts of a split product (hopper_sum.cu)."""

from __future__ import annotations

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.engines.cuda.generator.launch import Launch
from graphdnn.engines.cuda.generator.parameters import Packed

# Of every text that may be split, behind hopper_leave.cuh.
PARTS_FILES = ("hopper_parts.cuh", "hopper_tile_parts.cuh")
_UNDER_WAY = 8  # parts that a thread asks for at the same time
_MOST_SLICES = 16
_LEAST_THREADS = 256  # of a block
_UNIT = 8 * 32  # sums of a warp


def sum_constants(parts: int, size: int = 4) -> dict[str, int]:
    """The text's, beside those of the product; none where there is nothing to add. ``size``: bytes of a sum."""
    if parts == 1:
        return {}
    most, slices = _UNDER_WAY * 4 // size, 1
    while slices < _MOST_SLICES and slices * most < parts:
        slices *= 2
    under_way = next(n for n in (2, 4, 8) if n == most or n >= parts)
    return {"SLICES": slices, "UNDER_WAY": under_way, "UNITS": max(1, _LEAST_THREADS // (32 * slices))}


def sum_launch(text: KernelText, sums: int, parts: int, packed: Packed, size: int = 4) -> Launch:
    """``sums``: all that a part has, in whole pieces of 64 rows and 32 columns."""
    constants = sum_constants(parts, size)
    slices, units = constants["SLICES"], constants["UNITS"]
    return Launch(text, "hopper_sum", (sums // (_UNIT * units), 1, 1), 32 * slices * units, packed, starts_early=True)
