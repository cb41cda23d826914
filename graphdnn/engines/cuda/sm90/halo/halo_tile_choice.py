"""The table of halo tiles, and the choice of one by a cost model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.halo.halo_tile import HaloTile, Shape
from graphdnn.engines.cuda.sm90.halo.halo_tile_swap_ab import SwappedHaloTile
from graphdnn.engines.cuda.sm90.tile import MMA_K_BYTES, SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_STREAMED_SHARE, _READ_SHARE = (
    0.25,
    4.0,
)  # factors of a residual's bytes: if TMA loads it, if threads do
_MIN_COLUMNS = 64  # columns of a tile with streamed filters

# Constants of the cost model, fitted to 30 measured pairs of a layer and a tile on an H200: within 8 %.
_PRODUCT = 1.04 / 32  # clocks for each result of a tile and 32 bytes of K
_READ = 126.0  # bytes of shared memory that wgmma reads in a clock
_COPIED = 95.0  # bytes that TMA loads in a clock
_BESIDE = 0.0032  # clocks for each byte that is loaded during MMAs: power
_TAP = 360.0  # the fewest clocks of a tap, if a consumer has 64 pixels: it waits for filters
_HALO_TILE = 890.0  # further clocks of a halo tile
_VOLUME_FACTOR = 0.93  # factor for volumes; two layers measured 0.89 and 0.93
# Further clocks of a halo tile with stationary filters; consumers that do not wait for each other divide them.
_STATIONARY_TILE = 430.0
_LEAVING = 16.9  # bytes of results that are stored in a clock
_START = 1240.0  # clocks of a launch
_PACE = 0.916  # the sustained clock rate, as a share of the highest
IDLE = 0.87  # launches: what a grid saves that leaves nearly all multiprocessors idle
# The same for streamed filters of bytes, fitted to 15 measured pairs: within 10 %. Power does not limit the clock rate,
# so everything besides MMAs counts more.
_START_OF_BYTES, _HALO_TILE_OF_BYTES, _LEAVING_OF_BYTES, _PACE_OF_BYTES = 6200.0, 170.0, 9.7, 1.07
_OVERLAPPED_STORES = 21.2  # bytes of results in a clock, if stores overlap MMAs of another consumer
_COPIED_OF_BYTES, _TAP_OF_BYTES = 71.0, 9.0  # bytes that TMA loads in a clock; further clocks of a tap
_RELOADED_OPERANDS = 8.0  # further clocks for each accumulator of a thread, if registers do not keep column operands


TILES: tuple[HaloTile, ...] = (
    *(HaloTile(8, 8, 64, consumers, True) for consumers in (4, 3, 2)),
    *(HaloTile(8, 8, 32, consumers, True) for consumers in (4, 3)),
    *(HaloTile(8, 8, bn, 2, True) for bn in (96, 128)),
    HaloTile(4, 28, 64, 2, True, True),
    *(HaloTile(8, 8, bn, 2, False) for bn in (64, 96, 128, 160, 192, 256)),
    *(HaloTile(8, 16, bn, 2, False) for bn in (64, 96, 128, 160)),
    *(HaloTile(16, 8, bn, 2, False) for bn in (128, 160)),
    *(HaloTile(8, 8, bn, 2, False, halo_tiles=2) for bn in (128, 160)),
    HaloTile(4, 28, 128, 2, False, True),
    HaloTile(7, 14, 128, 2, False, True),
    *(HaloTile(8, 8, 256, consumers, True) for consumers in (2, 1)),
    *(HaloTile(8, 16, bn, 2, True) for bn in (64, 128)),
    HaloTile(8, 8, 32, 4, True, has_depth_slices=True),
    *(SwappedHaloTile(height, 8, 128, 2, False) for height in (28, 32)),
)

TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, if it serves")


@dataclass(frozen=True, slots=True)
class Choice:
    tile: HaloTile
    stages: int
    filter_stages: int
    run: int  # output slices of a work item
    seconds: float
    work_items: int  # the most CTAs that have a tile

    def shared_bytes(self, shape: Shape) -> int:
        return self.tile.shared_bytes(shape, self.stages, self.filter_stages)


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest tile that fits; it replaces a requested tile that does not fit. None if none fits."""
    machine = Machine.of(device)
    return _fastest(shape, machine, knobs[TILE.type]) or _fastest(shape, machine, 0)


def _max_columns(shape: Shape) -> int:
    """The most columns of a tile that is not mostly empty."""
    return max(_MIN_COLUMNS, shape.columns + _MIN_COLUMNS // 2)


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: Machine, number: int) -> Choice | None:
    best: tuple[float, int, _Candidate] | None = None
    kind = shape._replace(images=1, pixels=(1, 1), output_slices=1)
    for candidate in _candidates(kind, machine.shared_memory, number):
        for run in candidate.depth_runs(shape):
            clocks = candidate.clocks(shape, machine.sms, run)
            if best is None or clocks < best[0]:
                best = clocks, run, candidate
    if best is None:
        return None
    clocks, run, candidate = best
    seconds = clocks / (machine.clock * _PACE)
    return Choice(
        candidate.tile, candidate.stages, candidate.filter_stages, run, seconds, candidate.work_items(shape, run)
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A tile that fits, with its costs that do not depend on the extents of the image, in clocks."""

    tile: HaloTile
    stages: int
    filter_stages: int
    start: float  # of a launch
    tile_clocks: float  # of each wave
    consumer_clocks: float  # of a tile, if its consumer is alone on the tensor cores; only with stationary filters
    tiles_n: int  # along the columns

    @classmethod
    def of(cls, tile: HaloTile, stages: int, filter_stages: int, shape: Shape) -> _Candidate:
        columns = tile.columns(shape)
        mma_tiles, taps = tile.mma_tiles(shape), shape.tap_count * shape.k_blocks // tile.depth_slices(shape)
        smem_read = (SLAB_ROWS + columns) * SWIZZLE_BYTES / _READ
        filled_share = shape.mma_k_steps * MMA_K_BYTES / (shape.k_blocks * SWIZZLE_BYTES)
        mma_clocks = mma_tiles * filled_share * max(SLAB_ROWS * columns * _PRODUCT, smem_read)
        residual_share = (
            1.0 if tile.is_weight_stationary else _STREAMED_SHARE if tile.loads_residual(shape) else _READ_SHARE
        )
        result_bytes = shape.result_bytes + (residual_share - 1.0) * shape.tma_residual_bytes
        tiles_n = -(-shape.columns // tile.bn)
        stored_columns = columns if tile.swap_ab else -(-shape.columns // tiles_n)
        epilogue = mma_tiles * SLAB_ROWS * stored_columns * result_bytes / _LEAVING
        fixed = tile, stages, filter_stages
        if tile.is_weight_stationary:
            k_blocks = shape.k_blocks // tile.depth_slices(shape)
            overlapping = tile.consumers if tile.has_depth_slices or stages > k_blocks else 1
            tile_clocks = max(
                taps * mma_clocks + _STATIONARY_TILE / overlapping,
                k_blocks * tile.load_bytes(shape) / _COPIED,
                epilogue,
            )
            start = _START + shape.tap_count * shape.k_blocks * tile.filter_bytes(shape) / _COPIED
            return cls(*fixed, start, tile_clocks, taps * mma_clocks + _HALO_TILE + epilogue, tiles_n)
        loaded = tile.filter_bytes(shape) + tile.halo_tiles_per_cta * tile.load_bytes(shape) / shape.tap_count
        loading = loaded / (_COPIED_OF_BYTES if shape.are_bytes else _COPIED)
        tap_clocks = max(tile.consumers * mma_clocks, loading) + _BESIDE * loaded + _TAP_OF_BYTES * shape.are_bytes
        if mma_tiles == 1 and shape.columns >= _MIN_COLUMNS and not shape.are_bytes:
            tap_clocks = max(tap_clocks, _TAP)
        if shape.are_bytes:
            if tile.swap_ab:
                epilogue_clocks = tile.consumers * epilogue * _LEAVING / _OVERLAPPED_STORES / 3
            else:
                reload = 0.0 if tile.keeps_operands(shape) else _RELOADED_OPERANDS * tile.accumulators(shape)
                epilogue_clocks = (
                    _HALO_TILE_OF_BYTES + reload + tile.consumers * epilogue * _LEAVING / _LEAVING_OF_BYTES / 3
                )
            clock_ratio = _PACE / _PACE_OF_BYTES
            tile_clocks = clock_ratio * (taps * tap_clocks + epilogue_clocks)
            return cls(*fixed, clock_ratio * _START_OF_BYTES, tile_clocks, 0.0, tiles_n)
        return cls(*fixed, _START, taps * tap_clocks + _HALO_TILE + tile.consumers * epilogue / 3, 0.0, tiles_n)

    def depth_runs(self, shape: Shape) -> Iterable[int]:
        """Numbers of output slices of a work item: equal parts of all slices."""
        slices = shape.output_slices
        if slices == 1 or not self.tile.has_depth_slices:
            return (1,)
        return sorted({-(-slices // parts) for parts in range(1, slices + 1)})

    def work_items(self, shape: Shape, run: int) -> int:
        """Work items: halo tiles of a CTA's stage, by tiles along the columns."""
        tile, (height, width) = self.tile, shape.pixels
        halo_tiles = shape.images * -(-height // tile.height) * -(-width // tile.width)
        if tile.has_depth_slices:
            halo_tiles = halo_tiles // shape.output_slices * -(-shape.output_slices // run)
        return halo_tiles if tile.is_weight_stationary else -(-halo_tiles // tile.halo_tiles_per_cta) * self.tiles_n

    def clocks(self, shape: Shape, sms: int, run: int) -> float:
        tile, waves = self.tile, -(-self.work_items(shape, run) // sms)
        if tile.is_weight_stationary:
            slices = run + shape.depth_taps - 1 if tile.has_depth_slices else 1
            return self.start + slices * max(
                waves * self.tile_clocks, -(-waves // tile.consumers) * self.consumer_clocks
            )
        return self.start + waves * self.tile_clocks * (_VOLUME_FACTOR if shape.output_slices > 1 else 1.0)


@lru_cache(maxsize=256)
def _candidates(kind: Shape, shared_memory: int, number: int) -> tuple[_Candidate, ...]:
    """The tiles that fit. ``kind``: a shape with one image of one pixel.

    Tiles with stationary filters come alone: if one fits, no tile with streamed filters is faster.
    """
    stationary = [tile for tile in TILES if tile.is_weight_stationary and kind.columns <= tile.bn]
    streamed = [tile for tile in TILES if not tile.is_weight_stationary and tile.bn <= _max_columns(kind)]
    for tiles in ([TILES[number - 1]],) if number else (stationary, streamed):
        fitting = [(tile, stages) for tile in tiles if (stages := tile.stages(kind, shared_memory)) is not None]
        if fitting:
            return tuple(_Candidate.of(tile, *stages, kind) for tile, stages in fitting)
    return ()
