"""What a multiprocessor of each compute capability holds.

From the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

WARP = 32  # threads
RESERVED = 1024  # bytes of shared memory that the system takes of each block


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """The most that are there at the same time."""

    warps: int
    blocks: int
    shared: int  # bytes


MULTIPROCESSORS: Mapping[tuple[int, int], Multiprocessor] = MappingProxyType({
    (8, 0): Multiprocessor(64, 32, 164 * 1024),
    (8, 6): Multiprocessor(48, 16, 100 * 1024),
    (8, 7): Multiprocessor(48, 16, 164 * 1024),
    (8, 9): Multiprocessor(48, 24, 100 * 1024),
    (9, 0): Multiprocessor(64, 32, 228 * 1024),
    (10, 0): Multiprocessor(64, 32, 228 * 1024),
    (12, 0): Multiprocessor(48, 24, 100 * 1024),
})  # fmt: skip
LEAST_WARPS = min(each.warps for each in MULTIPROCESSORS.values())
