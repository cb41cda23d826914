"""Tiles of the TF32 data gradient whose filters pass through registers, and the choice of one.

Fitted constants of the cost model are in fitted_h200.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.fitted_constants import DGRAD_TF32 as FITTED
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_RESERVED = RESERVED + 256  # bytes of shared memory: the system's part, and alignment
_BARRIERS = 16  # bytes for each stage
_MAX_STAGES = 8


@dataclass(frozen=True)
class Tile:
    """``consumers_m`` consumers have 64 channels each; ``consumers_n`` consumers share these channels by pixels."""

    consumers_m: int
    consumers_n: int
    columns: int  # pixels of a consumer

    @property
    def consumers(self) -> int:
        return self.consumers_m * self.consumers_n

    @property
    def channels(self) -> int:
        return SLAB_ROWS * self.consumers_m

    @property
    def pixels(self) -> int:
        return self.columns * self.consumers_n

    @property
    def name(self) -> str:
        return (
            f"{self.channels}x{self.consumers_n}x{self.columns}"
            if self.consumers_n > 1
            else f"{self.channels}x{self.columns}"
        )

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a consumer thread and of a producer thread."""
        return {1: (240, 56), 2: (232, 40), 3: (160, 24)}[self.consumers]

    @property
    def stage_bytes(self) -> int:
        return (self.channels + self.pixels) * SWIZZLE_BYTES

    def stages(self, shared_memory: int) -> int:
        return min(_MAX_STAGES, (shared_memory - _RESERVED) // (self.stage_bytes + _BARRIERS))

    def work_items(self, shape: GemmShape) -> int:
        """Tiles of the result."""
        return -(-shape.gemms[0][0] // self.pixels) * -(-shape.columns // self.channels)

    def seconds(self, shape: GemmShape, sms: int, clock: float) -> float:
        k_tiles = shape.gemms[0][1]
        step = self.channels * self.pixels * FITTED.mma_cycles_per_result
        step += self.stage_bytes * FITTED.mma_cycles_per_loaded_byte
        epilogue = SLAB_ROWS * self.columns * FITTED.epilogue_cycles_per_byte * shape.result_bytes
        moved = self.channels * self.pixels * shape.result_bytes / FITTED.epilogue_store_bytes_per_cycle
        tile = max(k_tiles * step + FITTED.tile_overhead_cycles + epilogue, moved)
        clocks = -(-self.work_items(shape) // sms) * tile + FITTED.launch_cycles
        return clocks / (clock * FITTED.sustained_clock_share)


TILES: tuple[Tile, ...] = (
    *(Tile(2, 1, columns) for columns in (128, 96, 160, 192, 256)),
    *(Tile(1, 2, columns) for columns in (128, 64, 96)),
    Tile(3, 1, 160),
)
TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile")


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    stages: int
    seconds: float
    work_items: int


def choose(shape: GemmShape, device: DeviceSpec, knobs: Knobs, memory: float) -> Choice:
    """The fastest tile. ``memory``: seconds that every tile takes at least; the first of the tiles that reach it."""
    return _fastest(shape, Machine.of(device), knobs[TILE.type], memory)


@lru_cache(maxsize=256)
def _fastest(shape: GemmShape, machine: Machine, number: int, memory: float) -> Choice:
    filled = [tile for tile in TILES if tile.channels - SLAB_ROWS < shape.columns]
    tiles = [TILES[number - 1]] if number else filled
    sms, clock = machine.sms, machine.clock
    chosen = min(tiles, key=lambda tile: max(memory, tile.seconds(shape, sms, clock)))
    seconds = chosen.seconds(shape, sms, clock)
    return Choice(chosen, chosen.stages(machine.shared_memory), seconds, chosen.work_items(shape))
