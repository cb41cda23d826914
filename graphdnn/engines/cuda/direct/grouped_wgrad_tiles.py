"""Tiles of the filter gradient of narrow groups, and the choice of one: a model of what a multiprocessor does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.direct.grouped_tiles import CHUNK, Machine, Shape, machine_of, parts_of_side
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType
from graphdnn.multiprocessor import RESERVED, WARP

_DEPTH = 16  # pixels of a product
_MOST_PIXELS = 256  # of a tile
_LEAST_CHANNELS, _MOST_CHANNELS = 24, 128  # of a block
_MOST_WARPS = 16
_SUMS = 160  # registers of a thread
_REGISTERS, _OTHERS, _MOST_REGISTERS = 65536, 48, 255
_MOST_BLOCKS = 4

GROUPS = Knob(KnobType.NUM_C_PER_BLOCK, 0, 16, 1, 0, "groups of a block; 0: chosen by the shape")
HIGH = Knob(KnobType.TILE_ROWS, 0, 64, 1, 0, "rows of dy of a tile; 0: chosen by the shape")
WIDE = Knob(KnobType.TILE_COLS, 0, 64, 1, 0, "columns of a tile; 0: chosen by the shape")
IMAGES = Knob(KnobType.TILE_CGA, 0, 8, 1, 0, "images of a tile that is a whole one; 0: chosen by the shape")
SHARES = Knob(KnobType.SPLIT_RS, 0, 8, 1, 0, "warps that have a group's sums; 0: chosen by the shape")
TURNS = Knob(KnobType.SPLIT_P_SLC, 0, 4, 1, 0, "warps that have the pixels of a tile; 0: chosen by the shape")
STAGES = Knob(KnobType.STAGES, 0, 4, 1, 0, "tiles in shared memory, at least 2; 0: chosen by the shape")
KNOBS = (GROUPS, HIGH, WIDE, IMAGES, SHARES, TURNS, STAGES)


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block has at a time. ``shares``, ``turns``: warps of a group, by its sums and by pixels."""

    groups: int
    images: int
    high: int
    wide: int
    shares: int
    turns: int
    stages: int

    @property
    def pixels(self) -> int:
        return self.images * self.high * self.wide

    @property
    def warps(self) -> int:
        return self.groups * self.shares * self.turns

    def own(self, shape: Shape) -> int:
        """Products side by side, of a warp."""
        return -(-shape.chunks // (2 * self.shares))

    def sums(self, shape: Shape) -> int:
        return self.own(shape) * shape.channels_out // CHUNK * 4

    def registers(self, shape: Shape) -> int:
        return self.sums(shape) + self.own(shape) + shape.channels_out // 4 + _OTHERS

    def patch_bytes(self, shape: Shape) -> int:
        h, w = shape.patch(self.high, self.wide)
        pixels = self.images * h * -(-w // shape.stride[1]) * shape.stride[1]
        return pixels * (self.groups * shape.channels_in // CHUNK | 1) * 16

    def stage_bytes(self, shape: Shape) -> int:
        return self.patch_bytes(shape) + self.pixels * (self.groups * shape.channels_out // CHUNK | 1) * 16

    def shared(self, shape: Shape) -> int:
        exchange = 0 if self.turns == 1 else self.groups * self.shares * WARP * self.sums(shape) * 4
        return max(self.stages * self.stage_bytes(shape) + 16, exchange)

    def tiles(self, shape: Shape) -> tuple[int, int, int]:
        """Along the images, down and across."""
        return (
            -(-shape.images // self.images), -(-shape.output[0] // self.high), -(-shape.output[1] // self.wide),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    resident: int  # blocks of a multiprocessor
    parts: int  # blocks that share the tiles of some groups
    seconds: float


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest tile that fits. What is asked for and cannot be gives way; None where nothing fits."""
    machine = machine_of(device)
    asked = tuple(knobs[knob.type] for knob in KNOBS)
    return _fastest(shape, machine, asked) or _fastest(shape, machine, (0,) * len(KNOBS))


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: Machine, asked: tuple[int, ...]) -> Choice | None:
    found = [choice for tile in _candidates(shape, asked) if (choice := _predicted(shape, machine, tile)) is not None]
    return min(found, key=lambda choice: choice.seconds, default=None)


def _candidates(shape: Shape, asked: tuple[int, ...]) -> Iterator[Tile]:
    groups, high, wide, images, shares, turns, stages = asked
    most = max(shape.channels_in, shape.channels_out)
    fitting = [n for n in range(1, _MOST_WARPS + 1) if shape.groups % n == 0 and n * most <= _MOST_CHANNELS] or [1]
    chosen = [n for n in fitting if n * most >= _LEAST_CHANNELS] or fitting[-1:]
    for n in [groups] if groups in fitting else chosen:
        for h in [min(high, shape.output[0])] if high else parts_of_side(shape.output[0]):
            for w in [min(wide, shape.output[1])] if wide else parts_of_side(shape.output[1]):
                is_whole = (h, w) == shape.output
                for i in [images] if images and is_whole else (1, 2, 4, 8) if is_whole else (1,):
                    if i * h * w > _MOST_PIXELS or i > shape.images:
                        continue
                    for m in [shares] if shares else (1, 2, 4, 6, 8):
                        for t in [turns] if turns else (1, 2, 4):
                            for s in [max(2, stages)] if stages else (2, 3):
                                tile = Tile(n, i, h, w, m, t, s)
                                if tile.warps <= _MOST_WARPS and tile.sums(shape) <= _SUMS:
                                    yield tile


# The model's constants, in clocks.
_LOAD, _PRODUCT, _STEP, _LINE, _CHUNK = 4.0, 1.7, 25.0, 12.8, 12.1
_WAIT, _TURN = 90.0, 7.0  # of a warp: for what a step reads, and for each product
_TILE = 900.0
_STRIDED = 1.8  # times the loads of pixels that lie apart
_SUM_PACE = 2.5e12  # bytes a second
_START = 5.0e-6
_NORM = 2.7


def _predicted(shape: Shape, machine: Machine, tile: Tile) -> Choice | None:
    shared, registers, threads = tile.shared(shape), tile.registers(shape), tile.warps * WARP
    if registers > _MOST_REGISTERS:
        return None
    by_memory = machine.shared_memory // (shared + RESERVED)
    by_registers = _REGISTERS // (-(-registers // 8) * 8 * threads)
    resident = min(by_memory, by_registers, _MOST_BLOCKS)
    if resident < 1:
        return None
    tiles, slabs = prod(tile.tiles(shape)), shape.groups // tile.groups
    parts = min(tiles, max(1, resident * machine.sms // slabs))
    each, together = -(-tiles // parts), -(-slabs * parts // machine.sms)
    high, wide = shape.patch(tile.high, tile.wide)
    chunks, own = shape.channels_out // CHUNK, tile.own(shape)
    steps = -(-tile.pixels // _DEPTH)
    loads = _LOAD * (own * (_STRIDED if shape.stride[1] > 1 else 1.0) + -(-chunks // 2))
    busy = steps * tile.groups * tile.shares * (loads + _PRODUCT * own * chunks + _STEP)
    lines = ((tile.images * high, wide, shape.channels_in), (tile.images * tile.high, tile.wide, shape.channels_out))
    busy += sum(n * (_LINE + _CHUNK * w * tile.groups * c / CHUNK / WARP) for n, w, c in lines)
    waits = _TILE + -(-steps // tile.turns) * (_WAIT + _TURN * own * chunks)
    clocks = each * ((together * busy) ** _NORM + waits**_NORM) ** (1 / _NORM)
    sums = 8.0 * parts * shape.groups * shape.channels_out * shape.chunks * CHUNK / _SUM_PACE
    seconds = ((clocks / machine.clock) ** 4 + (shape.traffic / machine.bandwidth) ** 4) ** 0.25 + sums + _START
    return Choice(tile, resident, parts, seconds)
