"""Tiles of hopper_halo_wgrad.cu, and the choice of one by a cost model.

Fitted constants of the cost model are in fitted_h200.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.fitted_constants import HALO_WGRAD as FITTED
from graphdnn.engines.cuda.sm90.tile import SWIZZLE_BYTES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_RESERVED = RESERVED + 256  # bytes of shared memory: the system's part, and barriers
_BARRIERS = 16  # bytes for each stage
_MAX_STAGES, _MIN_STAGES = 8, 3
_BLOCK_ROWS = 64  # channels k of a filter block
_ELEMENT_BYTES = 2
_MAX_TAP_ROWS, _MAX_ROW_TAPS = 3, 4  # rows of taps: consumer warpgroups; taps of a row: columns of one MMA
_MAX_BOX = 256  # elements of a TMA box along an axis
_REGISTER_FILE = 65536  # 32-bit registers of a multiprocessor
_OTHER_REGISTERS = 26  # of a thread beside its accumulators: ptxas requires as many


class Shape(NamedTuple):
    """What the choice depends on. Pairs are (height, width)."""

    images: int
    pixels: tuple[int, int]  # of dy
    taps: tuple[int, int]
    dilation: tuple[int, int]
    rows: int  # channels of dy
    channels: int  # of x
    result_bytes: int  # of an element that is stored, and of its epilogue operands
    depth_taps: int = 1  # taps along the depth; depth slices of dy count as images

    @property
    def tap_count(self) -> int:
        return self.taps[0] * self.taps[1]


@dataclass(frozen=True)
class HaloTile:
    """A tile of ``height`` x ``width`` pixels of dy, and the channels of x in a filter block."""

    height: int
    width: int
    channels: int

    @property
    def name(self) -> str:
        return f"{self.height}x{self.width}x{self.channels}"

    def halo_extents(self, shape: Shape) -> tuple[int, int]:
        """Height and width of the halo tile: the pixels of x that the taps of a tile read."""
        reach = [(taps - 1) * dilation for taps, dilation in zip(shape.taps, shape.dilation, strict=True)]
        return self.height + reach[0], self.width + reach[1]

    def stage_bytes(self, shape: Shape) -> int:
        halo_height, halo_width = self.halo_extents(shape)
        image = -(-halo_height * halo_width * self.channels * _ELEMENT_BYTES // 1024) * 1024
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
        """Whether a thread of a CTA of ``threads`` threads has registers for its accumulators.

        ptxas compiles a kernel for an equal part of the register file, whatever ``setmaxnreg`` gives a warpgroup later.
        """
        return taps_per_row * self.channels // 2 + _OTHER_REGISTERS <= _REGISTER_FILE // threads // 8 * 8

    def halo_tiles(self, shape: Shape) -> tuple[int, int]:
        """Tiles along the height and the width of dy."""
        return shape.pixels[0] // self.height, shape.pixels[1] // self.width

    def filter_blocks(self, shape: Shape) -> tuple[int, int, int]:
        """Filter blocks along k, along c, and along the depth of the filter."""
        return -(-shape.rows // _BLOCK_ROWS), -(-shape.channels // self.channels), shape.depth_taps


TILES: tuple[HaloTile, ...] = tuple(
    HaloTile(height, width, channels)
    for channels in (64, 32)
    for height, width in ((8, 8), (14, 8), (16, 8), (8, 16), (4, 8), (2, 8))
)
TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, if it serves")
SPLITS = Knob(KnobType.SPLIT_K, 0, 256, 1, 0, "splits of the sum, computed side by side; 0: chosen by the shape")


class Choice(NamedTuple):
    tile: HaloTile
    stages: int
    unsplit_blocks: int  # filter blocks that are not split: all, or as many as fill whole waves
    splits: int  # of each other filter block
    seconds: float


def registers(rows_of_taps: int) -> tuple[int, int]:
    """Registers of a consumer thread and of a producer thread, by rows of taps."""
    return {1: (240, 56), 2: (232, 40), 3: (160, 24)}[rows_of_taps]


def overlapped_registers(taps: tuple[int, int], tile: HaloTile) -> tuple[int, int, int] | None:
    """The same for a kernel that leaves registers for the launch that reduces splits, and the threads of its launch
    bounds. Only three rows of up to three taps with 32 channels need few enough registers; None otherwise.
    """
    rows_of_taps, taps_per_row = taps
    return (96, 24, 768) if (rows_of_taps, tile.channels) == (3, 32) and tile.has_registers(768, taps_per_row) else None


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest tile that serves. It replaces a requested tile that does not serve. None if no tile serves."""
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
    """A tile that fits, with its costs that do not depend on the extents of the image."""

    tile: HaloTile
    stages: int
    filter_blocks: int  # in the filter
    halo_tile_clocks: float
    results: int  # of a filter block
    epilogue: float  # clocks of a filter block, if its results are stored

    @classmethod
    def of(cls, tile: HaloTile, kind: Shape, shared_memory: int) -> _Candidate:
        rows_of_taps, taps_per_row = kind.taps
        columns = taps_per_row * tile.channels
        smem_read = (_BLOCK_ROWS + columns) * _ELEMENT_BYTES / FITTED.smem_bytes_per_cycle
        pixel = max(_BLOCK_ROWS * columns / FITTED.mma_products_per_cycle, smem_read)
        loading = tile.stage_bytes(kind) / FITTED.tma_bytes_per_cycle
        mainloop = max(rows_of_taps * tile.height * tile.width * pixel, loading)
        halo_tile_clocks = mainloop + FITTED.tile_overhead_cycles
        results = _BLOCK_ROWS * tile.channels * kind.tap_count
        epilogue = results * kind.result_bytes / FITTED.epilogue_store_bytes_per_cycle
        return cls(
            tile, tile.stages(kind, shared_memory), prod(tile.filter_blocks(kind)), halo_tile_clocks, results, epilogue
        )

    def seconds(self, unsplit_blocks: int, splits: int, halo_tiles: int, machine: Machine) -> float:
        split_blocks = self.filter_blocks - unsplit_blocks
        overhead = FITTED.filter_block_overhead_cycles
        partial_epilogue = self.results * 4 / FITTED.epilogue_store_bytes_per_cycle
        clocks = -(-unsplit_blocks // machine.sms) * (halo_tiles * self.halo_tile_clocks + self.epilogue + overhead)
        split_clocks = -(-halo_tiles // splits) * self.halo_tile_clocks + partial_epilogue + overhead
        clocks = clocks + -(-(split_blocks * splits) // machine.sms) * split_clocks + FITTED.launch_cycles
        seconds = clocks / (machine.clock * FITTED.sustained_clock_share)
        if split_blocks:  # partial sums are stored, loaded and added
            partial_bytes = 4.0 * split_blocks * self.results * splits
            seconds += FITTED.split_reduction_launches * machine.launch + partial_bytes / machine.bandwidth
        return seconds


@lru_cache(maxsize=256)
def _fitting(kind: Shape, shared_memory: int, number: int) -> tuple[_Candidate, ...]:
    """The tiles that fit. ``kind``: a shape with one image of one pixel."""
    tiles = (TILES[number - 1],) if number else TILES
    return tuple(_Candidate.of(tile, kind, shared_memory) for tile in tiles if tile.fits(kind, shared_memory))


def _splits(filter_blocks: int, halo_tiles: int, sms: int, requested: int) -> Iterator[tuple[int, int]]:
    """Numbers of unsplit filter blocks, each with the splits of the other blocks.

    With a requested number of splits, the time is monotonic in the unsplit blocks, so the fewest or the most are best.
    Otherwise only the filter blocks of the last wave, or of the last two, are split.
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
