"""How many blocks of a kernel share a multiprocessor, from what it takes and what the architecture has.

Units of allocation as in the occupancy calculator that used to come with the toolkit: registers are given out to whole
warps in units of 256, shared memory in units of 128 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.device.multiprocessor import MULTIPROCESSORS, RESERVED, WARP
from graphdnn.text_format import plural

_REGISTERS, _REGISTER_UNIT, _WARP_UNIT = 65_536, 256, 4
_SHARED_UNIT = 128


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
    limits = MULTIPROCESSORS.get(capability)
    if limits is None:
        return None
    warps = -(-threads // WARP)
    per_warp = _rounded(max(registers, 1) * WARP, _REGISTER_UNIT)
    warps_by_registers = _REGISTERS // per_warp // _WARP_UNIT * _WARP_UNIT
    found = {
        "threads": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": warps_by_registers // warps,
        "shared memory": limits.shared // _rounded(shared + RESERVED, _SHARED_UNIT),
    }
    limited_by = min(found, key=lambda name: found[name])
    blocks = found[limited_by]
    return Occupancy(blocks, blocks * warps, limits.warps, limited_by)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
