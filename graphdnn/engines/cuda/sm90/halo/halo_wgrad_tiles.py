"""Patches of pixels of a filter gradient whose taps share them, and the choice of one: a model of a block's clocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.tile import SWIZZLE_BYTES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_RESERVED = RESERVED + 256  # bytes of shared memory: the system's, and barriers
_BARRIERS = 16  # bytes for each stage
_MAX_STAGES, _MIN_STAGES = 8, 3
_BLOCK_ROWS = 64  # of a block's tile: channels of the gradient
_ELEMENT = 2  # bytes
_MAX_TAP_ROWS, _MAX_ROW_TAPS = 3, 4  # of taps: warpgroups that multiply, and taps in one product
_MAX_BOX = 256
_REGISTER_FILE = 65536  # 32-bit registers of a multiprocessor
_OTHER_REGISTERS = 26  # of a thread beside its accumulators: ptxas asks for as many

# The model's constants: 14 measured pairs of a layer and a patch lie within 4 % of it, on an H200.
_PRODUCTS = 2130.0  # of 16-bit numbers, a clock
_READ = 120.0  # bytes of shared memory a clock that products read
_COPIED = 60.0  # bytes a clock into shared memory
_HALO_TILE = 12.0  # clocks of a patch besides
_LEAVING = 27.0  # bytes a clock of sums
_TILE = 1000.0  # clocks of a tile besides
_START = -2540.0  # of a launch
_PACE = 0.95  # of the highest clock
_SUM = 0.8  # launches' time that a split costs


class Shape(NamedTuple):
    """What the choice depends on. Pairs are of lines and of pixels in a line."""

    images: int
    pixels: tuple[int, int]  # of the gradient
    taps: tuple[int, int]
    dilation: tuple[int, int]  # from tap to tap
    rows: int  # channels of the gradient
    channels: int  # of the image
    result_bytes: int  # of an element that leaves, and of what is read for it
    depth_taps: int = 1  # taps along the first of three axes, whose slices of the gradient count as images

    @property
    def tap_count(self) -> int:
        return self.taps[0] * self.taps[1]


@dataclass(frozen=True)
class HaloTile:
    """A patch of the gradient, and how many of the image's channels a block takes."""

    height: int
    width: int
    channels: int

    @property
    def name(self) -> str:
        return f"{self.height}x{self.width}x{self.channels}"

    def halo_extents(self, shape: Shape) -> tuple[int, int]:
        """Lines and pixels of the image that a patch's taps read."""
        reach = [(taps - 1) * dilation for taps, dilation in zip(shape.taps, shape.dilation, strict=True)]
        return self.height + reach[0], self.width + reach[1]

    def stage_bytes(self, shape: Shape) -> int:
        rows_of_taps, pitch = self.halo_extents(shape)
        image = -(-rows_of_taps * pitch * self.channels * _ELEMENT // 1024) * 1024
        return image + self.height * self.width * SWIZZLE_BYTES

    def stages(self, shape: Shape, shared_memory: int) -> int:
        return min(_MAX_STAGES, (shared_memory - _RESERVED) // (self.stage_bytes(shape) + _BARRIERS))

    def serves(self, shape: Shape, shared_memory: int) -> bool:
        return self.is_whole(shape) and self.fits(shape, shared_memory)

    def is_whole(self, shape: Shape) -> bool:
        return shape.pixels[0] % self.height == shape.pixels[1] % self.width == 0

    def fits(self, kind: Shape, shared_memory: int) -> bool:
        """Whether ptxas compiles the taps with this tile, TMA takes its box, and shared memory has enough stages."""
        rows_of_taps, taps_per_row = kind.taps
        return (
            rows_of_taps <= _MAX_TAP_ROWS
            and taps_per_row <= _MAX_ROW_TAPS
            and self.has_registers(128 * (rows_of_taps + 1), taps_per_row)
            and max(self.halo_extents(kind)) <= _MAX_BOX
            and self.stages(kind, shared_memory) >= _MIN_STAGES
        )

    def has_registers(self, threads: int, taps_per_row: int) -> bool:
        """Whether a thread of a CTA of so many threads has registers for its accumulators.

        ptxas compiles a kernel for an equal part of the register file, whatever ``setmaxnreg`` gives a warpgroup later.
        """
        return taps_per_row * self.channels // 2 + _OTHER_REGISTERS <= _REGISTER_FILE // threads // 8 * 8

    def halo_tiles(self, shape: Shape) -> tuple[int, int]:
        """Down and across an image."""
        return shape.pixels[0] // self.height, shape.pixels[1] // self.width

    def filter_blocks(self, shape: Shape) -> tuple[int, int, int]:
        """Tiles down and across the products, and taps between slices."""
        return -(-shape.rows // _BLOCK_ROWS), -(-shape.channels // self.channels), shape.depth_taps


TILES: tuple[HaloTile, ...] = tuple(
    HaloTile(height, width, channels)
    for channels in (64, 32)
    for height, width in ((8, 8), (14, 8), (16, 8), (8, 16), (4, 8), (2, 8))
)
TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a patch, if it serves")
SPLITS = Knob(KnobType.SPLIT_K, 0, 256, 1, 0, "parts of the sum, computed side by side; 0: chosen by the shape")


class Choice(NamedTuple):
    tile: HaloTile
    stages: int
    unsplit_blocks: int  # shares that are not split: all, or as many as fill the device some times
    splits: int  # of each of the others
    seconds: float


def registers(rows_of_taps: int) -> tuple[int, int]:
    """Of a thread that multiplies and of one that copies, for so many lines of taps."""
    return {1: (240, 56), 2: (232, 40), 3: (160, 24)}[rows_of_taps]


def overlapped_registers(taps: tuple[int, int], tile: HaloTile) -> tuple[int, int, int] | None:
    """The same, and the threads that a multiprocessor's registers are divided among at the start, where a block leaves
    room for others: three lines of taps of 32 channels need few for their sums, unless a line has four taps.
    """
    rows_of_taps, taps_per_row = taps
    return (96, 24, 768) if (rows_of_taps, tile.channels) == (3, 32) and tile.has_registers(768, taps_per_row) else None


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest that serves; a patch that was asked for and does not gives way to it. None if none does."""
    machine = Machine.of(device)
    requested = knobs[SPLITS.type]
    return _fastest(shape, machine, knobs[TILE.type], requested) or _fastest(shape, machine, 0, requested)


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: Machine, number: int, requested: int) -> Choice | None:
    best: Choice | None = None
    for candidate in _fitting(shape._replace(images=1, pixels=(1, 1)), machine.shared_memory, number):
        if not candidate.tile.is_whole(shape):
            continue
        tiles_h, tiles_w = candidate.tile.halo_tiles(shape)
        halo_tiles = shape.images * tiles_h * tiles_w
        for unsplit_blocks, splits in _splits(candidate.filter_blocks, halo_tiles, machine.sms, requested):
            seconds = candidate.seconds(unsplit_blocks, splits, halo_tiles, machine)
            if best is None or seconds < best.seconds:
                best = Choice(candidate.tile, candidate.stages, unsplit_blocks, splits, seconds)
    return best


class _Candidate(NamedTuple):
    """A patch that fits, with what the size of the image does not change."""

    tile: HaloTile
    stages: int
    filter_blocks: int  # tiles of the products
    halo_tile_clocks: float  # clocks
    results: int  # of a tile
    epilogue: float  # clocks of a tile, its sums stored as results

    @classmethod
    def of(cls, tile: HaloTile, kind: Shape, shared_memory: int) -> _Candidate:
        rows_of_taps, taps_per_row = kind.taps
        columns = taps_per_row * tile.channels
        pixel = max(_BLOCK_ROWS * columns / _PRODUCTS, (_BLOCK_ROWS + columns) * _ELEMENT / _READ)
        halo_tile_clocks = (
            max(rows_of_taps * tile.height * tile.width * pixel, tile.stage_bytes(kind) / _COPIED) + _HALO_TILE
        )
        results = _BLOCK_ROWS * tile.channels * kind.tap_count
        epilogue = results * kind.result_bytes / _LEAVING
        return cls(
            tile, tile.stages(kind, shared_memory), prod(tile.filter_blocks(kind)), halo_tile_clocks, results, epilogue
        )

    def seconds(self, unsplit_blocks: int, splits: int, halo_tiles: int, machine: Machine) -> float:
        split_blocks = self.filter_blocks - unsplit_blocks
        clocks = -(-unsplit_blocks // machine.sms) * (halo_tiles * self.halo_tile_clocks + self.epilogue + _TILE)
        split_clocks = -(-halo_tiles // splits) * self.halo_tile_clocks + self.results * 4 / _LEAVING + _TILE
        clocks = clocks + -(-(split_blocks * splits) // machine.sms) * split_clocks + _START
        seconds = clocks / (machine.clock * _PACE)
        if split_blocks:  # written, read and added
            seconds += _SUM * machine.launch + 4.0 * split_blocks * self.results * splits / machine.bandwidth
        return seconds


@lru_cache(maxsize=256)
def _fitting(kind: Shape, shared_memory: int, number: int) -> tuple[_Candidate, ...]:
    """``kind``: a shape with one pixel."""
    tiles = (TILES[number - 1],) if number else TILES
    return tuple(_Candidate.of(tile, kind, shared_memory) for tile in tiles if tile.fits(kind, shared_memory))


def _splits(filter_blocks: int, halo_tiles: int, sms: int, requested: int) -> Iterator[tuple[int, int]]:
    """Whole shares, and parts of the others.

    Where parts of so many are asked for, the time rises or falls evenly with the whole shares: the first number or the
    last is best. Else parts are for the shares that do not fill the device once more.
    """
    if requested in (0, 1) or halo_tiles == 1:
        yield filter_blocks, 1
    if requested == 1:
        return
    last = (filter_blocks - 1) // sms * sms
    for unsplit_blocks in dict.fromkeys((0, last) if requested else (max(0, last - sms), last)):
        for waves in (1, 2, 3):
            splits = min(requested or waves * sms // (filter_blocks - unsplit_blocks), halo_tiles, SPLITS.maximum)
            if splits > 1:
                yield unsplit_blocks, splits
