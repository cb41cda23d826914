"""Tiles of the TF32 data gradient whose filters pass through registers, and the choice of one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_RESERVED = RESERVED + 256  # bytes of shared memory: the system's part, and alignment
_BARRIERS = 16  # bytes for each stage
_MAX_STAGES = 8

# Constants of the cost model, fitted to 30 measured pairs of a layer and a tile on an H200, together with the model of
# cuda_hopper_gemm_tf32 for the same layers: the prediction decides between the two engines.
_PRODUCT = 0.02525  # clocks for each result and K tile
_BESIDE = 0.006  # clocks for each byte of a K tile
_TILE = 3360.0  # further clocks of a tile
_BYTE_OUT = 0.0203  # clocks of a warpgroup for each byte of its results
_LEAVING = 12.9  # bytes of results that a multiprocessor stores in a clock
_START = -2040.0  # clocks of a launch
IDLE = 0.4  # launches: what a grid saves that leaves nearly all multiprocessors idle
_PACE = 0.9  # the sustained clock rate, as a share of the highest


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
        step = self.channels * self.pixels * _PRODUCT + self.stage_bytes * _BESIDE
        epilogue = SLAB_ROWS * self.columns * _BYTE_OUT * shape.result_bytes
        moved = self.channels * self.pixels * shape.result_bytes / _LEAVING
        tile = max(k_tiles * step + _TILE + epilogue, moved)
        return (-(-self.work_items(shape) // sms) * tile + _START) / (clock * _PACE)


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
