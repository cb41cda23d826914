"""Tiles of convolutions with groups of 8 to 64 channels, and their choice by a model of an SM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from graphdnn.device.multiprocessor import RESERVED, WARP
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.direct.grouped.grouped_shape import CHUNK, Machine, Pixels, Shape, machine_of, parts_of_side
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_ROW = 16  # pixels of an MMA
_PLACE = 8  # bytes of an entry of the pixel table (PixelSlot)
_PIECE = 32  # channels of a contiguous store
_MOST_PIXELS = 512  # the most pixels of a tile
_LEAST_CHANNELS, _MOST_CHANNELS = 48, 128  # channels of a CTA
# Registers of an SM; the most of a thread; of a thread beside accumulators and operands.
_REGISTERS, _MOST_REGISTERS, _OTHERS = 65536, 255, 72
_MOST_BLOCKS = 8

GROUPS = Knob(KnobType.NUM_C_PER_BLOCK, 0, 16, 1, 0, "groups of a block; 0: chosen by the shape")
HIGH = Knob(KnobType.TILE_ROWS, 0, 64, 1, 0, "rows of a tile; 0: chosen by the shape")
WIDE = Knob(KnobType.TILE_COLS, 0, 64, 1, 0, "columns of a tile; 0: chosen by the shape")
IMAGES = Knob(KnobType.TILE_CGA, 0, 8, 1, 0, "images of a tile that is a whole one; 0: chosen by the shape")
ROWS = Knob(KnobType.TILE_M, 0, 4, 1, 0, "times 16 pixels that a warp multiplies at a time, 1, 2 or 4; 0: chosen")
STAGES = Knob(KnobType.STAGES, 0, 2, 1, 0, "patches in shared memory; 0: chosen by the shape")
KNOBS = (GROUPS, HIGH, WIDE, IMAGES, ROWS, STAGES)
THREADS = 256  # threads of a CTA; 128 and 512 were slower


@dataclass(frozen=True, slots=True)
class Tile(Pixels):
    """The tile of a CTA; a warp multiplies ``rows`` MMA tiles of 16 pixels at a time."""

    rows: int
    stages: int

    @property
    def places(self) -> int:
        """Entries of the pixel table."""
        return -(-self.pixels // (_ROW * self.rows)) * _ROW * self.rows

    @property
    def table_bytes(self) -> int:
        return self.places * _PLACE

    def patch_bytes(self, shape: Shape) -> int:
        h, w = shape.patch(self.high, self.wide)
        pixels = self.images * h * -(-w // shape.stride[1]) * shape.stride[1]
        return pixels * (self.groups * shape.channels_in // CHUNK | 1) * 16

    def shared(self, shape: Shape) -> int:
        """Bytes of shared memory: filters, epilogue buffers, pixel table and halo tiles."""
        filters = self.groups * shape.channels_out * (shape.chunks | 1) * 16 + 16
        together = self.joined(shape) * shape.channels_out
        hall = THREADS // WARP * _ROW * (together + (0 if together % 16 else 8)) * 4
        return filters + hall + self.table_bytes + self.stages * self.patch_bytes(shape)

    def joined(self, shape: Shape) -> int:
        """Groups of a warp tile, so that stores are contiguous runs of 64 bytes."""
        return next(n for n in (4, 2, 1) if self.groups % n == 0 and (n == 1 or n * shape.channels_out <= _PIECE))

    def registers(self, shape: Shape) -> int:
        return self.rows * self.joined(shape) * shape.channels_out // 2 + 4 * self.rows + _OTHERS

    def sharing(self, shape: Shape, resident: int, sms: int) -> int:
        """CTAs that share the filters of the same groups: one wave of CTAs, with equal numbers of tiles."""
        tiles = prod(self.tiles(shape))
        staying = max(1, resident * sms // (shape.groups // self.groups))
        return -(-tiles // -(-tiles // min(staying, tiles)))


def effective_knobs(tile: Tile) -> Knobs:
    """The knob values of a tile."""
    values = tile.groups, tile.high, tile.wide, tile.images, tile.rows, tile.stages
    return {knob.type: value for knob, value in zip(KNOBS, values, strict=True)}


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    resident: int  # CTAs of an SM
    seconds: float
    blocks: int


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest tile that fits, or None. Knob values that no tile can meet are dropped."""
    machine = machine_of(device)
    asked = tuple(knobs[knob.type] for knob in KNOBS)
    return _fastest(shape, machine, asked) or _fastest(shape, machine, (0,) * len(KNOBS))


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: Machine, asked: tuple[int, ...]) -> Choice | None:
    found = [choice for tile in _candidates(shape, asked) if (choice := _predicted(shape, machine, tile)) is not None]
    return min(found, key=lambda choice: choice.seconds, default=None)


def _candidates(shape: Shape, asked: tuple[int, ...]) -> Iterator[Tile]:
    groups, high, wide, images, rows, stages = asked
    most = max(shape.channels_in, shape.channels_out)
    fitting = [n for n in range(1, 17) if shape.groups % n == 0 and n * most <= _MOST_CHANNELS] or [1]
    # A filter of many taps may leave shared memory for one group only.
    chosen = sorted({1, *(n for n in fitting if n * most >= _LEAST_CHANNELS)})
    for n in [groups] if groups in fitting else chosen:
        for h in [min(high, shape.output[0])] if high else parts_of_side(shape.output[0]):
            for w in [min(wide, shape.output[1])] if wide else parts_of_side(shape.output[1]):
                is_whole = (h, w) == shape.output
                for i in [images] if images and is_whole else (1, 2, 4, 8) if is_whole else (1,):
                    if i * h * w > _MOST_PIXELS or i > shape.images:
                        continue
                    for m in [rows] if rows in (1, 2, 4) else (2, 4):
                        for s in [stages] if stages else (1, 2):
                            yield Tile(n, i, h, w, m, s)


# The model's constants, in clocks: throughput of an SM, then latency of a warp. Fitted to 207 tiles of 18
# layers on an H200: 10 % away from them, and the chosen tile 3 % slower than the best one.
_LOAD, _PRODUCT, _LEAVE, _LINE, _CHUNK = 3.5, 0.2, 27.6, 12.8, 12.1
_JOB, _EACH, _COPY_LINE = 2270.0, 7.0, 315.0
_ALONE = 759.0  # clocks of a halo tile's load without a concurrent multiplication
_STRIDED = 1.8  # factor of the loads of strided pixels
_FILTER_PACE = 19.2  # bytes of filters per clock
_NORM = 2.7
START = 2.0e-6  # seconds of a launch
IDLE = 0.27  # the part of a launch's time that a grid saves if it leaves nearly all SMs idle


def _predicted(shape: Shape, machine: Machine, tile: Tile) -> Choice | None:
    shared = tile.shared(shape)
    by_memory = machine.shared_memory // (shared + RESERVED)
    by_registers = _REGISTERS // (min(_MOST_REGISTERS, -(-tile.registers(shape) // 8) * 8) * THREADS)
    resident = min(by_memory, by_registers, _MOST_BLOCKS)
    if resident < 1 or tile.registers(shape) > _MOST_REGISTERS:
        return None
    count, down, across = tile.tiles(shape)
    tiles, slabs = count * down * across, shape.groups // tile.groups
    warps, m, chunks = THREADS // WARP, tile.rows, shape.channels_out // CHUNK
    joined = tile.joined(shape)
    jobs, steps = -(-tile.pixels // (_ROW * m)) * tile.groups // joined, joined * shape.steps
    sharing = tile.sharing(shape, resident, machine.sms)
    each, together = -(-tiles // sharing), -(-slabs * sharing // machine.sms)
    high, wide = shape.patch(tile.high, tile.wide)
    lines, copies = tile.images * high, wide * tile.groups * shape.channels_in / CHUNK / WARP
    loads = _LOAD * (m + -(-chunks // 2)) * (_STRIDED if shape.stride[1] > 1 else 1.0)
    busy = jobs * (steps * (loads + _PRODUCT * m * chunks) + m * (joined * chunks + 1) * _LEAVE)
    busy += lines * (_LINE + _CHUNK * copies)
    waits = -(-jobs // warps) * (_JOB + steps * _EACH * m * chunks)
    waits += lines / warps * _COPY_LINE + (_ALONE if tile.stages == 1 else 0.0)
    filters = tile.groups * shape.channels_out * shape.chunks * 16
    clocks = each * ((together * busy) ** _NORM + waits**_NORM) ** (1 / _NORM) + together * filters / _FILTER_PACE
    own, memory = clocks / machine.clock, shape.traffic / machine.bandwidth
    return Choice(tile, resident, (own**4 + memory**4) ** 0.25 + START, slabs * sharing)
