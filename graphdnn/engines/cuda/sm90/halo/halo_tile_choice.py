"""The table of halo tiles, and the choice of one by a cost model.

Fitted constants of the cost model are in fitted_h200.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.fitted_constants import HALO as FITTED
from graphdnn.engines.cuda.sm90.halo.halo_tile import HaloTile, Shape
from graphdnn.engines.cuda.sm90.halo.halo_tile_swap_ab import SwappedHaloTile
from graphdnn.engines.cuda.sm90.tile import MMA_K_BYTES, SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_MIN_COLUMNS = 64  # columns of a tile with streamed filters


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
    """The fastest tile that fits. It replaces a requested tile that does not fit. None if no tile fits."""
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
    seconds = clocks / (machine.clock * FITTED.sustained_clock_share)
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
        columns, mma_tiles = tile.columns(shape), tile.mma_tiles(shape)
        smem_read = (SLAB_ROWS + columns) * SWIZZLE_BYTES / FITTED.smem_bytes_per_cycle
        filled_share = shape.mma_k_steps * MMA_K_BYTES / (shape.k_blocks * SWIZZLE_BYTES)
        mma_clocks = mma_tiles * filled_share * max(SLAB_ROWS * columns * FITTED.mma_cycles_per_result, smem_read)
        fixed, tiles_n = (tile, stages, filter_stages), -(-shape.columns // tile.bn)
        epilogue = _epilogue_clocks(tile, shape, tiles_n)
        if tile.is_weight_stationary:
            taps = shape.tap_count * shape.k_blocks // tile.depth_slices(shape)
            start, tile_clocks = _stationary_clocks(tile, stages, shape, mma_clocks, epilogue)
            return cls(*fixed, start, tile_clocks, taps * mma_clocks + FITTED.tile_overhead_cycles + epilogue, tiles_n)
        start, tile_clocks = _streamed_clocks(tile, shape, mma_clocks, epilogue)
        return cls(*fixed, start, tile_clocks, 0.0, tiles_n)

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
        return self.start + waves * self.tile_clocks * (FITTED.volume_factor if shape.output_slices > 1 else 1.0)


def _epilogue_clocks(tile: HaloTile, shape: Shape, tiles_n: int) -> float:
    """Clocks in which a consumer stores its results and loads its residual."""
    if tile.is_weight_stationary:
        residual_share = 1.0
    else:
        residual_share = FITTED.tma_residual_factor if tile.loads_residual(shape) else FITTED.thread_residual_factor
    result_bytes = shape.result_bytes + (residual_share - 1.0) * shape.tma_residual_bytes
    stored_columns = tile.columns(shape) if tile.swap_ab else -(-shape.columns // tiles_n)
    rows = tile.mma_tiles(shape) * SLAB_ROWS
    return rows * stored_columns * result_bytes / FITTED.epilogue_store_bytes_per_cycle


def _stationary_clocks(
    tile: HaloTile, stages: int, shape: Shape, mma_clocks: float, epilogue: float
) -> tuple[float, float]:
    """Clocks of the launch and of a tile, if filters are stationary."""
    k_blocks = shape.k_blocks // tile.depth_slices(shape)
    taps = shape.tap_count * shape.k_blocks // tile.depth_slices(shape)
    overlapping = tile.consumers if tile.has_depth_slices or stages > k_blocks else 1
    tile_clocks = max(
        taps * mma_clocks + FITTED.stationary_tile_overhead_cycles / overlapping,
        k_blocks * tile.load_bytes(shape) / FITTED.tma_bytes_per_cycle,
        epilogue,
    )
    filter_bytes = shape.tap_count * shape.k_blocks * tile.filter_bytes(shape)
    return FITTED.launch_cycles + filter_bytes / FITTED.tma_bytes_per_cycle, tile_clocks


def _streamed_clocks(tile: HaloTile, shape: Shape, mma_clocks: float, epilogue: float) -> tuple[float, float]:
    """Clocks of the launch and of a tile, if filters are streamed."""
    taps = shape.tap_count * shape.k_blocks // tile.depth_slices(shape)
    loaded = tile.filter_bytes(shape) + tile.halo_tiles_per_cta * tile.load_bytes(shape) / shape.tap_count
    loading = loaded / (FITTED.byte_tma_bytes_per_cycle if shape.are_bytes else FITTED.tma_bytes_per_cycle)
    tap_clocks = max(tile.consumers * mma_clocks, loading) + FITTED.mma_cycles_per_loaded_byte * loaded
    tap_clocks += FITTED.byte_tap_overhead_cycles * shape.are_bytes
    if tile.mma_tiles(shape) == 1 and shape.columns >= _MIN_COLUMNS and not shape.are_bytes:
        tap_clocks = max(tap_clocks, FITTED.min_tap_cycles)
    if not shape.are_bytes:
        exposed = tile.consumers * epilogue / FITTED.streamed_epilogue_divisor
        return FITTED.launch_cycles, taps * tap_clocks + FITTED.tile_overhead_cycles + exposed
    clock_ratio = FITTED.sustained_clock_share / FITTED.byte_sustained_clock_share
    epilogue_clocks = _byte_epilogue_clocks(tile, shape, epilogue)
    return clock_ratio * FITTED.byte_launch_cycles, clock_ratio * (taps * tap_clocks + epilogue_clocks)


def _byte_epilogue_clocks(tile: HaloTile, shape: Shape, epilogue: float) -> float:
    """Clocks of a tile's epilogue that no main loop overlaps, for operands of one byte."""
    divisor = FITTED.streamed_epilogue_divisor
    stored_bytes = tile.consumers * epilogue * FITTED.epilogue_store_bytes_per_cycle
    if tile.swap_ab:
        return stored_bytes / FITTED.byte_overlapped_store_bytes_per_cycle / divisor
    reload = 0.0 if tile.keeps_operands(shape) else FITTED.byte_operand_reload_cycles * tile.accumulators(shape)
    return FITTED.byte_tile_overhead_cycles + reload + stored_bytes / FITTED.byte_store_bytes_per_cycle / divisor


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
