"""Tiles of strided data gradients whose residues share what is copied, and the choice of one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.tile import PANEL, ROW
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_KEPT = RESERVED + 64  # bytes of shared memory: the system's, and what aligns barriers
_BARRIERS, _BARRIER = 16, 8  # bytes for each stage, and for the filters of a block of channels
_MOST_STAGES, _LEAST_STAGES = 8, 2

_STEP = 32  # bytes of k of an instruction

# The model's constants, fitted to 23 measured pairs of a problem and a tile on an H200: 15 % from these, in the mean.
_READ, _HELD_READ = 96.0, 60.4  # bytes of shared memory a clock that products read, from there and through registers
_LEAVING = 39.3  # bytes a clock of results
_START = 4740.0  # clocks of a launch
_UNDER_WAY = 1100.0  # clocks from a request to its pixels: a ring of few stages runs dry
_PACE = 1.08  # of the clock of the device's rate
IDLE = 1.2  # of a launch, that pieces do not take which leave nearly all multiprocessors idle


class Shape(NamedTuple):
    """What the choice depends on."""

    places: int  # 64 of them are a piece
    places_in_lines: int  # with those behind the end of a line
    residues: int
    lines: int  # of dy that a place's taps read
    reach: int  # pixels of a line that they read behind the first
    meetings: int  # of taps that read the same pixels
    taps: int
    blocks: int  # 128 bytes of channels that are summed
    columns: int
    is_across: bool  # the filter is read across k
    result_bytes: int  # of an element that leaves, and of what is read for it


@dataclass(frozen=True)
class Tile:
    """``bn``: columns of each residue; a consumer has 64 places."""

    bn: int
    consumers: int
    is_apart: bool = False
    is_held: bool = False

    @property
    def name(self) -> str:
        return f"{self.bn}_{self.consumers}{'apart' if self.is_apart else ''}{'held' if self.is_held else ''}"

    def places(self, shape: Shape) -> int:
        return shape.places if self.is_apart else shape.places_in_lines

    def pieces(self, shape: Shape) -> int:
        return -(-self.places(shape) // PANEL)

    def copies(self, shape: Shape) -> int:
        return shape.meetings if self.is_apart else shape.lines

    def reach(self, shape: Shape) -> int:
        return 0 if self.is_apart else shape.reach

    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies and of one that copies."""
        return {1: (240, 56), 2: (232, 40), 3: (160, 24)}[self.consumers]

    def stage_bytes(self, shape: Shape) -> int:
        return -(-(PANEL + self.reach(shape)) * ROW // 1024) * 1024

    def filter_bytes(self, shape: Shape) -> int:
        """Of one tap, and 128 bytes of channels (or 64 of them) that are summed."""
        return PANEL * self.bn * 2 if shape.is_across else self.bn * ROW

    def held_bytes(self, shape: Shape) -> int:
        """Of filters and their barriers."""
        return shape.blocks * (shape.taps * self.filter_bytes(shape) + _BARRIER)

    def stages(self, shape: Shape, shared_memory: int) -> int:
        left = shared_memory - _KEPT - self.held_bytes(shape)
        return min(_MOST_STAGES, left // (self.consumers * (self.stage_bytes(shape) + _BARRIERS)))

    def fits(self, shape: Shape, shared_memory: int) -> bool:
        sums = shape.residues * self.bn // 2
        return (
            bool(shape.taps)
            and (shape.reach > 0 or not self.is_apart)  # one pixel of a line: there is nothing to be apart
            and sums < self.registers[0]
            and self.stages(shape, shared_memory) >= (self.copies(shape) if self.is_held else _LEAST_STAGES)
        )


TILES: tuple[Tile, ...] = (
    Tile(64, 3),
    *(Tile(64, 2, is_apart) for is_apart in (False, True)),
    *(Tile(32, consumers) for consumers in (2, 3)),
    Tile(32, 3, is_held=True),
)
TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a tile, if it serves")


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    stages: int
    seconds: float

    def shared_bytes(self, shape: Shape) -> int:
        return self.tile.consumers * self.stages * (self.tile.stage_bytes(shape) + _BARRIERS) + self.tile.held_bytes(
            shape
        )

    def takes_turns(self, shape: Shape) -> bool:
        """Whether consumers multiply one after the other: a ring has half of a piece's copies when its turn comes."""
        return _takes_turns(self.tile, shape, self.stages)


def _takes_turns(tile: Tile, shape: Shape, stages: int) -> bool:
    return 2 * stages > shape.blocks * tile.copies(shape)


def blocks_of(shape: Shape, tile: Tile, sms: int) -> int:
    """In a launch: as many for each tile of columns."""
    across = -(-shape.columns // tile.bn)
    return across * max(1, min(sms // across, tile.pieces(shape)))


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest that fits; a tile that was asked for and does not gives way to it. None if none fits."""
    machine = Machine.of(device)
    return _fastest(shape, machine, knobs[TILE.type]) or _fastest(shape, machine, 0)


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: Machine, number: int) -> Choice | None:
    tiles = [tile for tile in ((TILES[number - 1],) if number else TILES) if tile.fits(shape, machine.shared_memory)]
    if not tiles:
        return None
    tile = min(tiles, key=lambda tile: _clocks(shape, tile, machine))
    seconds = _clocks(shape, tile, machine) / (machine.clock * _PACE)
    return Choice(tile, tile.stages(shape, machine.shared_memory), seconds)


def _clocks(shape: Shape, tile: Tile, machine: Machine) -> float:
    rows, columns = PANEL * _STEP, tile.bn * _STEP  # bytes that a step of a product reads
    if tile.is_held:
        read = (shape.meetings * rows + shape.taps * columns) / _HELD_READ
    else:
        read = shape.taps * (rows + columns) / _READ
    waiting = shape.blocks * tile.copies(shape) * _UNDER_WAY / tile.stages(shape, machine.shared_memory)
    products = max(shape.blocks * (ROW // _STEP) * max(shape.taps * tile.bn / 2, read), waiting)
    leaving = shape.residues * PANEL * tile.bn * shape.result_bytes / _LEAVING
    across = -(-shape.columns // tile.bn)
    rounds = -(-tile.pieces(shape) * across // blocks_of(shape, tile, machine.sms))
    return _START + rounds * (products + leaving)
