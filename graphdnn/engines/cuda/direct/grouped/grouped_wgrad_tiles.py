"""Tiles of the filter gradient with groups of 8 to 64 channels, and their choice by a model of an SM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED, WARP
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.direct.grouped.grouped_shape import CHUNK, Pixels, Shape, parts_of_side
from graphdnn.engines.cuda.direct.grouped.grouped_shape import machine_of as general_machine_of
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_DEPTH = 16  # pixels of an MMA
_MOST_PIXELS = 256  # the most pixels of a tile
_LEAST_CHANNELS, _MOST_CHANNELS = 24, 128  # channels of a CTA
_MOST_WARPS = 16
_SHARES, _TURNS, _IMAGES = (1, 2, 3, 4, 5, 6, 8, 9), (1, 2, 4), (1, 2, 4, 8)  # the values that are tried
_LEAST_STAGES, _MOST_STAGES = 2, 4
_PIXEL_BY_PIXEL, _LINE_BY_LINE = 1, 2  # values of the traversal
_SUMS = 160  # the most accumulator registers of a thread
_REGISTERS, _OTHERS, _MOST_REGISTERS = 65536, 48, 255
_MOST_BLOCKS = 4
_QUARTERS = 4  # sub-partitions of an SM, each with its own tensor core and warps
_FOUR_WARPS = 128  # threads of a warpgroup; registers are allocated for whole warpgroups
_EXCHANGED = (32, 64, 128)
_BOX = 1024  # bytes to which a TMA box is aligned in shared memory
_OF_STAGE = 48  # bytes of a stage's mbarriers and of its TileExtent
_LONGEST = 256  # the longest side of a TMA box
_MOST_STRIDE = 2  # the largest column stride of tiles that TMA loads

GROUPS = Knob(KnobType.NUM_C_PER_BLOCK, 0, 16, 1, 0, "groups of a block; 0: chosen by the shape")
HIGH = Knob(KnobType.TILE_ROWS, 0, 64, 1, 0, "rows of dy of a tile; 0: chosen by the shape")
WIDE = Knob(KnobType.TILE_COLS, 0, 64, 1, 0, "columns of a tile; 0: chosen by the shape")
IMAGES = Knob(KnobType.TILE_CGA, 0, 8, 1, 0, "images of a tile that is a whole one; 0: chosen by the shape")
SHARES = Knob(KnobType.SPLIT_RS, 0, 9, 1, 0, "warps that have a group's sums; 0: chosen by the shape")
TURNS = Knob(KnobType.SPLIT_P_SLC, 0, 4, 1, 0, "warps that have the pixels of a tile; 0: chosen by the shape")
WALKS = Knob(KnobType.KERNEL_CFG, 0, 2, 1, 0, "1: pixel by pixel; 2: line by line; 0: chosen by the shape")
STAGES = Knob(KnobType.STAGES, 0, 4, 1, 0, "tiles in shared memory, at least 2; 0: chosen by the shape")
KNOBS = (GROUPS, HIGH, WIDE, IMAGES, SHARES, TURNS, STAGES, WALKS)


class Row(NamedTuple):
    """The layout of pixels in shared memory, for a number of chunks of 8 channels."""

    pitch: int  # bytes from a pixel to the next
    halves: int  # TMA boxes along the channels, of at most 128 bytes each

    @classmethod
    def of(cls, chunks: int, *, is_boxed: bool) -> Row:
        if not is_boxed:  # an odd number of chunks, so that adjacent pixels start in different banks
            return cls((chunks | 1) * 16, 1)
        halves = chunks // CHUNK if chunks % CHUNK == 0 else 1
        return cls(chunks // halves * 16, halves)

    @property
    def exchanged(self) -> int:
        """Bytes of the TMA swizzle; 0: none, as pixels of an odd number of chunks have no bank conflicts."""
        return self.pitch if self.pitch in _EXCHANGED else 0


class Machine(NamedTuple):
    sms: int
    clock: float
    shared_memory: int
    bandwidth: float
    has_boxes: bool


@dataclass(frozen=True, slots=True)
class Tile(Pixels):
    """``shares``, ``turns``: warps of a group along accumulators and along pixels. ``is_boxed``: TMA loads the tile.
    ``walks``: warps slide down the rows of a tile.
    """

    shares: int
    turns: int
    stages: int
    is_boxed: bool = False
    walks: bool = False

    @property
    def warps(self) -> int:
        return self.groups * self.shares * self.turns

    def own(self, shape: Shape) -> int:
        """MMA tiles of a warp along M."""
        return -(-shape.chunks // (2 * self.shares * self.lines(shape)))

    def lines(self, shape: Shape) -> int:
        """Rows of taps that share one loaded row of x (SLIDING_ROWS)."""
        return shape.filter[0] if self.walks else 1

    def sums(self, shape: Shape) -> int:
        return self.lines(shape) * self.own(shape) * shape.channels_out // CHUNK * 4

    def registers(self, shape: Shape) -> int:
        kept = self.lines(shape) * (shape.channels_out // CHUNK + 1) // 2 * 4
        return self.sums(shape) + self.own(shape) + kept + _OTHERS

    def row(self, channels: int) -> Row:
        return Row.of(self.groups * channels // CHUNK, is_boxed=self.is_boxed)

    def columns(self, shape: Shape) -> int:
        """Columns of the halo tile with one residue modulo the stride."""
        return -(-shape.patch(self.high, self.wide)[1] // shape.stride[1])

    def apart(self, shape: Shape) -> int:
        """Bytes of the halo tile's columns with one residue: a TMA box."""
        pixels = self.images * shape.patch(self.high, self.wide)[0] * self.columns(shape)
        return self._box(pixels * self.row(shape.channels_in).pitch)

    def results_box(self, shape: Shape) -> int:
        return self._box(self.pixels * self.row(shape.channels_out).pitch)

    def _box(self, size: int) -> int:
        return -(-size // _BOX) * _BOX if self.is_boxed else size

    def patch_half(self, shape: Shape) -> int:
        return shape.stride[1] * self.apart(shape)

    def patch_bytes(self, shape: Shape) -> int:
        return self.row(shape.channels_in).halves * self.patch_half(shape)

    def stage_bytes(self, shape: Shape) -> int:
        return self.patch_bytes(shape) + self.row(shape.channels_out).halves * self.results_box(shape)

    def landing(self, shape: Shape) -> int:
        """Bytes that TMA loads for a tile."""
        pixels = self.images * shape.patch(self.high, self.wide)[0] * self.columns(shape) * shape.stride[1]
        return 2 * self.groups * (pixels * shape.channels_in + self.pixels * shape.channels_out)

    def shared(self, shape: Shape) -> int:
        exchange = 0 if self.turns == 1 else self.groups * self.shares * WARP * self.sums(shape) * 4
        rings = _OF_STAGE * self.stages if self.is_boxed else 0
        return max(self.stages * self.stage_bytes(shape) + 16 + rings, exchange)


def effective_knobs(tile: Tile) -> Knobs:
    """The knob values of a tile."""
    walks = _LINE_BY_LINE if tile.walks else _PIXEL_BY_PIXEL
    values = tile.groups, tile.high, tile.wide, tile.images, tile.shares, tile.turns, tile.stages, walks
    return {knob.type: value for knob, value in zip(KNOBS, values, strict=True)}


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    resident: int  # CTAs of an SM
    parts: int  # splits: CTAs that share the tiles of the same groups
    seconds: float


def machine_of(shape: Shape, device: DeviceSpec) -> Machine:
    """The machine limits. With a column stride of 2, TMA reads the column residues as an axis, so the width must be
    even.
    """
    stride = shape.stride[1]
    has_boxes = device.compute_capability >= (9, 0) and stride <= _MOST_STRIDE and shape.width % stride == 0
    return Machine(*general_machine_of(device), has_boxes)


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest tile that fits, or None. Knob values that no tile can meet are dropped."""
    machine = machine_of(shape, device)
    asked = tuple(knobs[knob.type] for knob in KNOBS)
    return _fastest(shape, machine, asked) or _fastest(shape, machine, (0,) * len(KNOBS))


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: Machine, asked: tuple[int, ...]) -> Choice | None:
    found = [
        choice
        for tile in _candidates(shape, machine, asked)
        if (choice := _predicted(shape, machine, tile)) is not None
    ]
    best = min(found, key=lambda choice: choice.seconds, default=None)
    return best if best is None or asked[KNOBS.index(STAGES)] else _deepened(shape, machine, best)


def _deepened(shape: Shape, machine: Machine, choice: Choice) -> Choice:
    """The tile with the most stages that do not reduce the resident CTAs; the model cannot tell them apart."""
    for stages in range(_MOST_STAGES, _LEAST_STAGES, -1):
        deeper = _predicted(shape, machine, replace(choice.tile, stages=stages))
        if deeper is not None and deeper.resident == choice.resident:
            return deeper
    return choice


def _candidates(shape: Shape, machine: Machine, asked: tuple[int, ...]) -> Iterator[Tile]:
    groups, high, wide, images, shares, turns, stages, kernel = asked
    most = max(shape.channels_in, shape.channels_out)
    fitting = [n for n in range(1, _MOST_WARPS + 1) if shape.groups % n == 0 and n * most <= _MOST_CHANNELS] or [1]
    chosen = [n for n in fitting if n * most >= _LEAST_CHANNELS] or fitting[-1:]
    can_walk = shape.filter[0] > 1 and shape.stride[0] == shape.dilation[0] == 1
    kinds = (False,) if not can_walk else (kernel == _LINE_BY_LINE,) if kernel else (False, True)
    divisions = list(
        product(
            [groups] if groups in fitting else chosen,
            [shares] if shares else _SHARES,
            [turns] if turns else _TURNS,
            [max(_LEAST_STAGES, stages)],
            kinds,
        )
    )
    heights = [min(high, shape.output[0])] if high else parts_of_side(shape.output[0])
    widths = [min(wide, shape.output[1])] if wide else parts_of_side(shape.output[1])
    for h, w in product(heights, widths):
        is_whole = (h, w) == shape.output
        for i in [images] if images and is_whole else _IMAGES if is_whole else (1,):
            if i * h * w > _MOST_PIXELS or i > shape.images or max(shape.patch(h, w)) > _LONGEST:
                continue
            for n, m, t, s, walks in divisions:
                tile = Tile(n, i, h, w, m, t, s, machine.has_boxes, walks)
                if tile.warps <= _MOST_WARPS and tile.sums(shape) <= _SUMS:
                    yield tile


# The model's constants, in clocks. Fitted to 158 tiles of six layers on an H200: 10 % away from them, and 11 % from 132
# others of 19. The constants of copies by threads are taken from the forward kernel.
_LOAD, _PRODUCT, _STEP = 3.0, 0.58, 7.7  # clocks of an SM for a load, an MMA, a K step
_WAIT, _TURN = 51.0, 8.1  # latency of a warp for the loads of a K step, and for each MMA
_TILE, _ALONE = 1580.0, 700.0  # clocks of a tile; further clocks where threads copy it
_MEETING = 6.0  # clocks for each accumulator that is added across the warps along K
_ROW = 1.5  # clocks of TMA for a pixel of at most 128 bytes
_LINE, _CHUNK = 12.8, 12.1  # clocks of a row and of a chunk that threads copy
_BROKEN = 0.27  # bank conflicts of a load of eight pixels, for each end of a row among them
_STRIDED = 1.8  # factor of the loads of strided pixels
_SUM_PACE = 5.2e12  # bytes per second of the second launch
_START = 5.0e-6
_NORM = 2.16


def _predicted(shape: Shape, machine: Machine, tile: Tile) -> Choice | None:
    registers, threads = tile.registers(shape), tile.warps * WARP
    if registers > _MOST_REGISTERS:
        return None
    by_memory = machine.shared_memory // (tile.shared(shape) + RESERVED)
    by_registers = _REGISTERS // (-(-registers // 8) * 8 * -(-threads // _FOUR_WARPS) * _FOUR_WARPS)
    resident = min(by_memory, by_registers, _MOST_BLOCKS)
    if resident < 1:
        return None
    tiles, slabs = prod(tile.tiles(shape)), shape.groups // tile.groups
    parts = min(tiles, max(1, resident * machine.sms // slabs))
    each, together = -(-tiles // parts), -(-slabs * parts // machine.sms)
    busy, waits = _multiplying(shape, tile, together)
    copying = 0.0
    if tile.is_boxed:
        copying = _ROW * sum(pixels * tile.row(channels).halves for pixels, _, channels in _copied(shape, tile))
    else:
        chunks = tile.groups / CHUNK / WARP
        busy += sum(
            pixels * _CHUNK * chunks * channels + lines * _LINE for pixels, lines, channels in _copied(shape, tile)
        )
        waits += _ALONE
    meeting = _MEETING * (tile.turns - 1) * tile.sums(shape)
    clocks = meeting + each * ((together * busy) ** _NORM + waits**_NORM + (together * copying) ** _NORM) ** (1 / _NORM)
    sums = 8.0 * parts * shape.groups * shape.channels_out * shape.chunks * CHUNK / _SUM_PACE
    seconds = ((clocks / machine.clock) ** 4 + (shape.traffic / machine.bandwidth) ** 4) ** 0.25 + sums + _START
    return Choice(tile, resident, parts, seconds)


def _copied(shape: Shape, tile: Tile) -> tuple[tuple[int, int, int], ...]:
    """Pixels, rows and channels that threads copy for a group, of x and of dy."""
    high, wide = shape.patch(tile.high, tile.wide)
    patch = tile.images * high * wide, tile.images * high, shape.channels_in
    return patch, (tile.pixels, tile.images * tile.high, shape.channels_out)


def _multiplying(shape: Shape, tile: Tile, together: int) -> tuple[float, float]:
    """Clocks of a tile's MMAs: the throughput of an SM with its resident CTAs, and the latency of a warp."""
    chunks, own = shape.channels_out // CHUNK, tile.own(shape)
    runs, depth = -(-tile.pixels // _DEPTH), 1  # warps along K alternate by runs of so many K steps
    if tile.walks:
        runs, depth = -(-(-(-tile.wide // CHUNK) * tile.images) // 2), tile.high + tile.lines(shape) - 1
    products = own * tile.lines(shape) * chunks
    apart = _STRIDED if shape.stride[1] > 1 and not tile.is_boxed else 1.0
    broken = 0.0 if tile.walks else _BROKEN * CHUNK / tile.wide
    loads = _LOAD * (1.0 + broken) * (own * apart + -(-chunks // 2))
    warps = together * tile.warps  # sub-partitions of an SM differ by at most one warp
    uneven = -(-warps // _QUARTERS) * _QUARTERS / warps
    busy = runs * depth * tile.groups * tile.shares * (loads + uneven * (_PRODUCT * products + _STEP))
    return busy, _TILE + -(-runs // tile.turns) * depth * (_WAIT + _TURN * products)
