"""The launch that adds the parts of a split product (text/hopper_sum.cu)."""

from __future__ import annotations

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.engines.cuda.launch import Launch
from graphdnn.engines.cuda.parameters import Packed

_PARTS_OF_A_THREAD = 8  # loads that are under way at the same time
_MOST_SLICES = 16
_LEAST_THREADS = 256
_UNIT = 64 * 4  # sums of 64 threads


def sum_constants(parts: int) -> dict[str, int]:
    """The text's, beside those of the product; none where there is nothing to add."""
    if parts == 1:
        return {}
    slices = 1
    while slices < _MOST_SLICES and slices * _PARTS_OF_A_THREAD < parts:
        slices *= 2
    return {"SLICES": slices, "UNITS": max(1, _LEAST_THREADS // (64 * slices))}


def sum_launch(text: KernelText, sums: int, parts: int, packed: Packed) -> Launch:
    """``sums``: all that a part has, in whole pieces of 64 rows and 32 columns."""
    constants = sum_constants(parts)
    slices, units = constants["SLICES"], constants["UNITS"]
    return Launch(text, "hopper_sum", (sums // (_UNIT * units), 1, 1), 64 * slices * units, packed, starts_early=True)
