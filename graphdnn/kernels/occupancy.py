"""How many blocks of a kernel share a multiprocessor, from what it takes and what the architecture has.

Limits and units of allocation: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the
occupancy calculator that used to come with the toolkit. Registers are given out to whole warps in units of 256, shared
memory in units of 128 bytes, of which the driver takes 1024 for each block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from graphdnn.text import plural

WARP = 32
_REGISTERS, _REGISTER_UNIT, _WARP_UNIT = 65_536, 256, 4
_SHARED_UNIT, _RESERVED = 128, 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one multiprocessor."""

    warps: int
    blocks: int
    shared: int  # bytes


LIMITS: Mapping[tuple[int, int], Limits] = MappingProxyType({
    (8, 0): Limits(64, 32, 164 * 1024),
    (8, 6): Limits(48, 16, 100 * 1024),
    (8, 7): Limits(48, 16, 164 * 1024),
    (8, 9): Limits(48, 24, 100 * 1024),
    (9, 0): Limits(64, 32, 228 * 1024),
    (10, 0): Limits(64, 32, 228 * 1024),
    (12, 0): Limits(48, 24, 100 * 1024),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Of one launch on one multiprocessor."""

    blocks: int  # 0: the kernel does not fit
    warps: int
    most_warps: int
    limited_by: str  # "registers", "shared memory", "threads" or "blocks"

    @property
    def share(self) -> float:
        return self.warps / self.most_warps

    def __str__(self) -> str:
        blocks = plural(self.blocks, "block")
        return f"{self.share:.0%}: {blocks} of {self.warps} warps in all, limited by {self.limited_by}"


def occupancy(capability: tuple[int, int], threads: int, registers: int, shared: int) -> Occupancy | None:
    """``registers`` of a thread, ``shared`` bytes of a block. None for an architecture that is not in the table."""
    limits = LIMITS.get(capability)
    if limits is None:
        return None
    warps = -(-threads // WARP)
    per_warp = _rounded(max(registers, 1) * WARP, _REGISTER_UNIT)
    warps_by_registers = _REGISTERS // per_warp // _WARP_UNIT * _WARP_UNIT
    found = {
        "threads": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": warps_by_registers // warps,
        "shared memory": limits.shared // _rounded(shared + _RESERVED, _SHARED_UNIT),
    }
    limited_by = min(found, key=lambda name: found[name])
    blocks = found[limited_by]
    return Occupancy(blocks, blocks * warps, limits.warps, limited_by)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
