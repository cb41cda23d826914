"""Tiles of hopper_halo_dgrad.cu, and the choice of one by a cost model.

Fitted constants of the cost model are in fitted_h200.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.fitted_constants import HALO_DGRAD as FITTED
from graphdnn.engines.cuda.sm90.tile import MMA_K_BYTES, SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_RESERVED = RESERVED + 64  # bytes of shared memory: the system's part, and alignment
_BARRIERS, _BARRIER = 16, 8  # bytes of barriers for each stage, and for the filters of each channel block
_MAX_STAGES, _MIN_STAGES = 8, 2


class Shape(NamedTuple):
    """What the choice depends on."""

    coarse_pixels: int  # a tile has 64
    padded_coarse_pixels: int  # with those beyond the end of a row
    residues: int
    rows: int  # of dy that the taps of a coarse pixel read
    reach: int  # columns of dy from the first to the last that they read
    tap_groups: int  # taps that read the same pixels are a group
    taps: int
    channel_blocks: int  # of 128 bytes of summed channels
    columns: int
    is_mn_major: bool  # the filter is MN-major
    result_bytes: int  # of an element that is stored, and of its epilogue operands


@dataclass(frozen=True)
class Tile:
    """``bn``: channels of each residue. A consumer has 64 coarse pixels.

    ``is_disjoint``: each tap group has a load of its own; otherwise the groups of a row share one. ``a_in_registers``:
    wgmma RS.
    """

    bn: int
    consumers: int
    is_disjoint: bool = False
    a_in_registers: bool = False

    @property
    def name(self) -> str:
        return f"{self.bn}_{self.consumers}{'apart' if self.is_disjoint else ''}{'held' if self.a_in_registers else ''}"

    def coarse_pixels(self, shape: Shape) -> int:
        return shape.coarse_pixels if self.is_disjoint else shape.padded_coarse_pixels

    def work_items(self, shape: Shape) -> int:
        return -(-self.coarse_pixels(shape) // SLAB_ROWS)

    def loads(self, shape: Shape) -> int:
        return shape.tap_groups if self.is_disjoint else shape.rows

    def reach(self, shape: Shape) -> int:
        return 0 if self.is_disjoint else shape.reach

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a consumer thread and of a producer thread."""
        return {1: (240, 56), 2: (232, 40), 3: (160, 24)}[self.consumers]

    def stage_bytes(self, shape: Shape) -> int:
        return -(-(SLAB_ROWS + self.reach(shape)) * SWIZZLE_BYTES // 1024) * 1024

    def filter_bytes(self, shape: Shape) -> int:
        """Bytes of one tap of the filter in one channel block."""
        return SLAB_ROWS * self.bn * 2 if shape.is_mn_major else self.bn * SWIZZLE_BYTES

    def filter_smem_bytes(self, shape: Shape) -> int:
        """Bytes of the filters in shared memory, and of their barriers."""
        return shape.channel_blocks * (shape.taps * self.filter_bytes(shape) + _BARRIER)

    def stages(self, shape: Shape, shared_memory: int) -> int:
        left = shared_memory - _RESERVED - self.filter_smem_bytes(shape)
        return min(_MAX_STAGES, left // (self.consumers * (self.stage_bytes(shape) + _BARRIERS)))

    def fits(self, shape: Shape, shared_memory: int) -> bool:
        accumulators = shape.residues * self.bn // 2
        return (
            bool(shape.taps)
            and (
                shape.reach > 0 or not self.is_disjoint
            )  # with one tap group in a row, both kinds of loads are the same
            and accumulators < self.registers[0]
            and self.stages(shape, shared_memory) >= (self.loads(shape) if self.a_in_registers else _MIN_STAGES)
        )


TILES: tuple[Tile, ...] = (
    Tile(64, 3),
    *(Tile(64, 2, is_disjoint) for is_disjoint in (False, True)),
    *(Tile(32, consumers) for consumers in (2, 3)),
    Tile(32, 3, a_in_registers=True),
)
TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, if it serves")


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    stages: int
    seconds: float

    def shared_bytes(self, shape: Shape) -> int:
        return self.tile.consumers * self.stages * (
            self.tile.stage_bytes(shape) + _BARRIERS
        ) + self.tile.filter_smem_bytes(shape)

    def orders_mainloops(self, shape: Shape) -> bool:
        """Whether consumers run their main loops one after another: stages hold more than half of a tile's loads."""
        return _orders_mainloops(self.tile, shape, self.stages)


def _orders_mainloops(tile: Tile, shape: Shape, stages: int) -> bool:
    return 2 * stages > shape.channel_blocks * tile.loads(shape)


def ctas_of(shape: Shape, tile: Tile, sms: int) -> int:
    """CTAs of a launch: equally many for each tile of columns."""
    tiles_n = -(-shape.columns // tile.bn)
    return tiles_n * max(1, min(sms // tiles_n, tile.work_items(shape)))


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest tile that fits. It replaces a requested tile that does not fit. None if no tile fits."""
    machine = Machine.of(device)
    return _fastest(shape, machine, knobs[TILE.type]) or _fastest(shape, machine, 0)


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: Machine, number: int) -> Choice | None:
    tiles = [tile for tile in ((TILES[number - 1],) if number else TILES) if tile.fits(shape, machine.shared_memory)]
    if not tiles:
        return None
    tile = min(tiles, key=lambda tile: _clocks(shape, tile, machine))
    seconds = _clocks(shape, tile, machine) / (machine.clock * FITTED.sustained_clock_share)
    return Choice(tile, tile.stages(shape, machine.shared_memory), seconds)


def _clocks(shape: Shape, tile: Tile, machine: Machine) -> float:
    rows, columns = SLAB_ROWS * MMA_K_BYTES, tile.bn * MMA_K_BYTES  # bytes that an MMA reads
    if tile.a_in_registers:
        smem_read = (shape.tap_groups * rows + shape.taps * columns) / FITTED.rs_smem_bytes_per_cycle
    else:
        smem_read = shape.taps * (rows + columns) / FITTED.smem_bytes_per_cycle
    stages = tile.stages(shape, machine.shared_memory)
    latency = shape.channel_blocks * tile.loads(shape) * FITTED.tma_latency_cycles / stages
    mainloop = max(
        shape.channel_blocks * (SWIZZLE_BYTES // MMA_K_BYTES) * max(shape.taps * tile.bn / 2, smem_read), latency
    )
    epilogue = shape.residues * SLAB_ROWS * tile.bn * shape.result_bytes / FITTED.epilogue_store_bytes_per_cycle
    tiles_n = -(-shape.columns // tile.bn)
    waves = -(-tile.work_items(shape) * tiles_n // ctas_of(shape, tile, machine.sms))
    return FITTED.launch_cycles + waves * (mainloop + epilogue)
