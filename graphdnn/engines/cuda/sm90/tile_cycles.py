"""Cost model of one tile on compute capability 9.0: clocks of its K tiles and of its epilogue.

Its fitted constants are in fitted_h200.json.
"""

from __future__ import annotations

from typing import NamedTuple

from graphdnn.engines.cuda.sm90.fitted_constants import GEMM as FITTED
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape, RowAlignment
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES, Tile

_NARROW = 128  # columns of a narrow tile, at most


class EpilogueClocks(NamedTuple):
    """Clocks of a tile's epilogue."""

    warpgroup: float  # of a warpgroup, for its own results
    multiprocessor: float  # of a multiprocessor, for all bytes that its CTAs move
    alternation: float  # further clocks, if two CTAs share the multiprocessor
    tile: float  # further clocks of a tile

    @classmethod
    def of(cls, tile: Tile, bytes_out: float, are_bytes: bool = False, scalar_clocks: float = 0.0) -> EpilogueClocks:
        """``bytes_out``: bytes that move for an element. ``are_bytes``: results have one byte.

        ``scalar_clocks``: further clocks for an element that is not stored as a part of a vector.
        """
        own = _warpgroup_clocks(tile, bytes_out, are_bytes, scalar_clocks)
        turn = FITTED.cta_alternation_cycles + own if tile.ctas_per_sm > 1 else 0.0
        moved = FITTED.byte_store_bytes if are_bytes else max(bytes_out, FITTED.epilogue_min_bytes)
        return cls(
            own,
            tile.ctas_per_sm * tile.bm * tile.bn * moved / FITTED.epilogue_store_bytes_per_cycle,
            turn,
            FITTED.byte_tile_overhead_cycles if are_bytes else FITTED.tile_overhead_cycles,
        )


class TileClocks(NamedTuple):
    """The cost of a tile that serves, without the extents of the GEMM. ``step``, ``turn`` and ``start`` give a lower
    bound for any number of splits: clocks of each K tile, of each tile, and of the launch.
    """

    tile: Tile
    most: int  # stages that fit
    tile_rows: int
    tile_columns: int
    loaded_step: float  # clocks of a K tile, with the alignment of its rows
    is_mn_major: bool
    extra: float  # further clocks of a tile
    results: EpilogueClocks
    partial_sums: EpilogueClocks
    step: float
    turn: float
    start: float
    ctas_per_sm: int  # CTAs on a multiprocessor
    outside: tuple[float, float]  # clocks before and after all tiles: without split-K, and with it

    @classmethod
    def of(cls, shape: GemmShape, tile: Tile, most: int) -> TileClocks:
        tile_rows, tile_columns = shape.gemm_extents(tile)
        step = _step_clocks(tile, shape.is_mn_major) * _pingpong_factor(shape, tile)
        bytes_by_tma = (1.0 - FITTED.tma_residual_share) * shape.tma_residual_bytes
        bytes_out = shape.result_bytes - bytes_by_tma
        are_bytes = bytes_out < 2 and shape.accumulator_sets == 1
        scalar_clocks = _scalar_store_clocks(shape, tile)
        epilogues = (
            EpilogueClocks.of(tile, bytes_out, are_bytes, scalar_clocks),
            EpilogueClocks.of(tile, 4, scalar_clocks=scalar_clocks),
        )
        least = min(one.warpgroup for one in epilogues)
        loaded_step = max(
            step, copied_clocks(shape, tile), shape.partial_slabs(tile) * SLAB_ROWS * FITTED.tma_partial_slab_row_cycles
        )
        turn = (
            0.0
            if tile.ctas_per_sm > 1 or tile.pingpong_groups > 1
            else min(one.tile + one.warpgroup for one in epilogues)
        )
        own = FITTED.launch_cycles - FITTED.idle_saving_cycles + shape.is_mn_major * FITTED.wgrad_launch_cycles
        extra = FITTED.shared_slab_cycles * tile.shares_tail
        if shape.integer_accumulators and not are_bytes:
            extra += FITTED.integer_epilogue_cycles * (tile.consumers == 3 or tile.swap_ab)
            extra += shape.converts_to_float * tile.bm * tile.bn / FITTED.conversion_results_per_cycle
        outside = (
            own + FITTED.exposed_epilogue_share * epilogues[0].warpgroup,
            own + FITTED.exposed_epilogue_share * epilogues[1].warpgroup,
        )
        return cls(
            tile, most, tile_rows, tile_columns, loaded_step, shape.is_mn_major, extra, *epilogues, step, turn,
            own + FITTED.exposed_epilogue_share * least, tile.ctas_per_sm, outside,
        )  # fmt: skip

    @property
    def most_idle(self) -> float:
        """Clocks that ``start`` and ``outside`` lack for a launch that uses all multiprocessors."""
        return FITTED.idle_saving_cycles

    def idle_among(self, items: int, sms: int) -> float:
        """Clocks that a launch of ``items`` work items saves because multiprocessors idle: at most ``most_idle``."""
        a_sum = FITTED.wgrad_idle_saving_loss_per_result if self.is_mn_major else FITTED.idle_saving_loss_per_result
        return max(0.0, 1.0 - items / sms) * (
            FITTED.idle_saving_cycles - a_sum * self.ctas_per_sm * self.tile.bm * self.tile.bn
        )

    def step_among(self, items: int, sms: int, in_cluster: bool) -> float:
        """Clocks of a K tile with ``items`` work items.

        In filter gradients, active multiprocessors have the L2 bandwidth of idle multiprocessors too. CTAs of a cluster
        have no pixels in common, so they profit less.
        """
        idle = max(0.0, 1.0 - items / sms)
        # Unaligned rows cost more, the more multiprocessors load at the same time.
        loaded_step = self.step + (self.loaded_step - self.step) * (1.0 - idle)
        if not self.is_mn_major:
            return loaded_step * (FITTED.cluster_mainloop_factor if in_cluster else 1.0)
        if in_cluster:
            idle = min(idle, FITTED.wgrad_cluster_max_idle_share)
            return loaded_step / FITTED.wgrad_load_factor * (1.0 - FITTED.wgrad_idle_speedup * idle)
        return loaded_step * (1.0 - FITTED.wgrad_idle_speedup * min(idle, FITTED.wgrad_max_idle_share))


def copied_clocks(shape: GemmShape, tile: Tile, empty: float = 0.0) -> float:
    """Clocks of TMA for a K tile.

    ``empty``: the share of a tile's columns beyond the last column of the GEMM. TMA fills their rows with zeros, as it
    does beyond the last row of the GEMM.
    """
    if shape.is_mn_major:
        return 0.0
    rows, columns = shape.gemm_extents(tile)
    rows = min(rows, shape.loaded_rows(tile)) if shape.skinny_rows else rows
    none = max(0, rows - shape.skinny_rows) if shape.skinny_rows else 0
    filters = (1.0 - empty) * _row_clocks(shape.filter_alignment) + empty * FITTED.tma_zero_row_cycles
    return (rows - none) * _row_clocks(shape.pixel_alignment) + none * FITTED.tma_zero_row_cycles + columns * filters


def _row_clocks(alignment: RowAlignment) -> float:
    """Mean clocks of TMA for a row of 128 bytes."""
    whole = 1.0 - alignment.two_lines - alignment.split_sector - alignment.partial - alignment.volumetric
    others = (
        alignment.two_lines * FITTED.tma_two_lines_cycles
        + alignment.split_sector * FITTED.tma_split_sector_cycles
        + alignment.partial * FITTED.tma_partial_cycles
        + alignment.volumetric * FITTED.tma_volumetric_cycles
    )
    return whole * SWIZZLE_BYTES / FITTED.tma_bytes_per_cycle + others


def _step_clocks(tile: Tile, is_mn_major: bool) -> float:
    """Clocks of a K tile: the longer of wgmma and loads, which overlap."""
    moved = tile.stage_bytes + tile.bm // SLAB_ROWS * (SLAB_ROWS + tile.bn) * SWIZZLE_BYTES
    moving = max(moved / FITTED.smem_bytes_per_cycle, tile.stage_bytes / FITTED.tma_bytes_per_cycle)
    return max(
        tile.bm * tile.bn * FITTED.mma_cycles_per_result, moving * (FITTED.wgrad_load_factor if is_mn_major else 1.0)
    )


def _pingpong_factor(shape: GemmShape, tile: Tile) -> float:
    if tile.pingpong_groups == 1:
        return 1.0
    return FITTED.pingpong_16bit_factor if shape.has_16bit_operands else FITTED.pingpong_factor


def _scalar_store_clocks(shape: GemmShape, tile: Tile) -> float:
    if shape.scalar_stores:
        return FITTED.swap_ab_scalar_store_cycles if tile.swap_ab else FITTED.scalar_store_cycles
    return FITTED.pair_store_cycles if shape.pair_stores and not tile.swap_ab else 0.0


def _warpgroup_clocks(tile: Tile, bytes_out: float, are_bytes: bool, scalar_clocks: float) -> float:
    """Clocks of a warpgroup's epilogue."""
    other = scalar_clocks
    if are_bytes:
        is_late = tile.swap_ab or tile.consumers == 3
        other += FITTED.byte_wide_tile_cycles * (tile.bn > _NARROW) + FITTED.byte_swap_ab_cycles * is_late
    counted = FITTED.byte_epilogue_bytes if are_bytes else max(bytes_out, FITTED.epilogue_min_bytes)
    cycles_per_result = FITTED.epilogue_cycles_per_result + FITTED.epilogue_cycles_per_byte * counted + other
    return tile.bm * tile.bn / tile.tile_consumers * cycles_per_result
