"""Tiles of channels by pixels of data gradients whose filters come through registers, and the choice of one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.gemm_shape import Sizes
from graphdnn.engines.cuda.sm90.tile import PANEL, ROW
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_KEPT = RESERVED + 256  # bytes of shared memory: the system's, and what is left of barriers
_BARRIERS = 16  # bytes for each stage
_MOST_STAGES = 8

# The model's constants: fitted to 30 pairs of a layer and a tile, on an H200, beside what tiles.py says of the same
# layers, so that the faster of both engines is predicted to be.
_PRODUCT = 0.02525  # clocks for each sum of a tile, and step of k
_BESIDE = 0.006  # clocks of a byte of a step
_TILE = 3360.0  # clocks of a tile besides
_BYTE_OUT = 0.0203  # clocks of a warpgroup for each byte of its sums that it moves
_LEAVING = 12.9  # bytes a clock of results
_START = -2040.0  # clocks of a launch
IDLE = 0.4  # of a launch, that pieces do not take which leave nearly all multiprocessors idle
_PACE = 0.9  # of the highest clock


@dataclass(frozen=True)
class Tile:
    """``down`` consumers have 64 channels each, ``across`` so many columns of the same channels."""

    down: int
    across: int
    columns: int  # pixels of a consumer

    @property
    def consumers(self) -> int:
        return self.down * self.across

    @property
    def channels(self) -> int:
        return PANEL * self.down

    @property
    def pixels(self) -> int:
        return self.columns * self.across

    @property
    def name(self) -> str:
        return f"{self.channels}x{self.across}x{self.columns}" if self.across > 1 else f"{self.channels}x{self.columns}"

    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies and of one that copies."""
        return {1: (240, 56), 2: (232, 40), 3: (160, 24)}[self.consumers]

    @property
    def stage_bytes(self) -> int:
        return (self.channels + self.pixels) * ROW

    def stages(self, shared_memory: int) -> int:
        return min(_MOST_STAGES, (shared_memory - _KEPT) // (self.stage_bytes + _BARRIERS))

    def pieces(self, sizes: Sizes) -> int:
        """Of the result."""
        return -(-sizes.products[0][0] // self.pixels) * -(-sizes.columns // self.channels)

    def seconds(self, sizes: Sizes, sms: int, clock: float) -> float:
        depth = sizes.products[0][1]
        step = self.channels * self.pixels * _PRODUCT + self.stage_bytes * _BESIDE
        leaving = PANEL * self.columns * _BYTE_OUT * sizes.result_bytes
        moved = self.channels * self.pixels * sizes.result_bytes / _LEAVING
        tile = max(depth * step + _TILE + leaving, moved)
        return (-(-self.pieces(sizes) // sms) * tile + _START) / (clock * _PACE)


TILES: tuple[Tile, ...] = (
    *(Tile(2, 1, columns) for columns in (128, 96, 160, 192, 256)),
    *(Tile(1, 2, columns) for columns in (128, 64, 96)),
    Tile(3, 1, 160),
)
TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a tile")


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    stages: int
    seconds: float
    pieces: int


def choose(sizes: Sizes, device: DeviceSpec, knobs: Knobs, memory: float) -> Choice:
    """``memory``: seconds that no tile is below; of those that come to no more, the first."""
    return _fastest(sizes, Machine.of(device), knobs[TILE.type], memory)


@lru_cache(maxsize=256)
def _fastest(sizes: Sizes, machine: Machine, number: int, memory: float) -> Choice:
    filled = [tile for tile in TILES if tile.channels - PANEL < sizes.columns]
    tiles = [TILES[number - 1]] if number else filled
    sms, clock = machine.sms, machine.clock
    chosen = min(tiles, key=lambda tile: max(memory, tile.seconds(sizes, sms, clock)))
    seconds = chosen.seconds(sizes, sms, clock)
    return Choice(chosen, chosen.stages(machine.shared_memory), seconds, chosen.pieces(sizes))
