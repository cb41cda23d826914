"""Cost model of one tile on compute capability 9.0: clocks of its K tiles and of its epilogue."""

from __future__ import annotations

from typing import NamedTuple

from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape, RowAlignment
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES, Tile

# The constants here and in gemm_time.py were fitted by benchmarks/fit_predictions.py to 1,700 measured pairs of a
# problem and a tile (convolutions and matrix products of 16-bit floats and TF32, operands in memory) on an H200. The
# chosen tile is 1.2 % slower than the best one, in the geometric mean.
_PRODUCT = 0.0386  # clocks for each result of a tile and K tile
_SHARED = 135.0  # bytes of shared memory that wgmma reads, or TMA writes, in a clock
_COPIED = 67.5  # bytes that TMA loads from L2 in a clock
_TILE = 1490.0  # further clocks of a tile
_TURN = 1770.0  # further clocks of a tile, if two CTAs share the multiprocessor
_LEAVING = 12.5  # bytes of results and of epilogue operands that move in a clock
_STREAMED_SHARE = 0.56  # the share of a residual's bytes that counts, if TMA loads it
_SUM_OUT = 0.0077  # clocks of a warpgroup for each of its results
_BYTE_OUT = 0.027  # and for each byte that its epilogue moves
_LEAST_OUT = 2.41  # the fewest bytes that an element counts: a byte takes instructions as well
_ALONE, _TURNED_ALONE, _PAIRS = (
    3.03,
    0.93,
    0.6,
)  # factors, if elements are stored one by one (with ``swap_ab``), or in pairs
_LAST_OUT = 0.448  # the share of the epilogue that no main loop overlaps, of the last tiles
_START = -3190.0  # clocks of a launch: negative, because it starts while the previous one ends
# Idle multiprocessors start the next launch at once.
_IDLE = 2430.0  # clocks that a launch saves, if all multiprocessors idle
_IDLE_SUM, _IDLE_SUM_ACROSS = 0.11, 0.16  # clocks less for each result of a tile; the same of a filter gradient
# Factors of a K tile with ping-pong groups; with 16-bit operands, which measured 0.97 to 1.46 of the model.
_IN_TURNS, _HALVES_IN_TURNS = 1.01, 1.06
_IN_CLUSTER = 1.02  # factor of a K tile, if a cluster reduces splits
# Results of one byte, fitted to 36 pairs of 10 layers.
_OF_BYTES = 1540.0  # further clocks of a tile
_BYTE_LEAVES, _BYTE_MOVES = (
    2.3,
    1.5,
)  # bytes that a byte counts as: in a warpgroup's epilogue, and in all bytes that move
_BYTE_WIDE = 0.075  # further clocks for each result, of a tile with more than 128 columns
_BYTE_APART = 0.1  # and of a tile with ``swap_ab``, or with three consumers
_NARROW = 128  # columns
# Integer accumulators that are stored as words, fitted to 4 layers: further clocks of a tile.
_LATE_OF_INTEGERS = 2400.0  # with three consumers, or with ``swap_ab``
_CONVERTED = 24.0  # results that become floats in a clock
# Filter gradients, which read both operands from memory: fitted to 180 pairs of 34 layers.
_START_ACROSS = 600.0  # further clocks of a launch
_MOVED_ACROSS = 0.93  # factor of the loads of a K tile
_IDLE_ACROSS = 0.6  # how much less a K tile takes, times the share of idle multiprocessors
_MOST_IDLE_ACROSS, _IDLE_IN_CLUSTER = 0.6, 0.2  # the largest share that counts, and the largest in clusters
_SHARING = 1300.0  # further clocks of a tile with a shared slab
_PARTIAL_ROW = 4.45  # clocks of TMA for a row of less than 128 bytes
# Clocks of TMA for a row of 128 bytes, by its alignment, if they exceed those of L2 (RowAlignment); an empty row.
_IN_TWO, _ODD, _PARTIAL, _DEEP, _EMPTY = 2.56, 5.56, 4.12, 4.5, 9.0


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
        turn = _TURN + own if tile.ctas_per_sm > 1 else 0.0
        moved = _BYTE_MOVES if are_bytes else max(bytes_out, _LEAST_OUT)
        return cls(
            own, tile.ctas_per_sm * tile.bm * tile.bn * moved / _LEAVING, turn, _OF_BYTES if are_bytes else _TILE
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
        bytes_out = shape.result_bytes - (1.0 - _STREAMED_SHARE) * shape.tma_residual_bytes  # without what TMA loads
        are_bytes = bytes_out < 2 and shape.accumulator_sets == 1
        scalar_clocks = _scalar_store_clocks(shape, tile)
        epilogues = (
            EpilogueClocks.of(tile, bytes_out, are_bytes, scalar_clocks),
            EpilogueClocks.of(tile, 4, scalar_clocks=scalar_clocks),
        )
        least = min(one.warpgroup for one in epilogues)
        loaded_step = max(step, copied_clocks(shape, tile), shape.partial_slabs(tile) * SLAB_ROWS * _PARTIAL_ROW)
        turn = (
            0.0
            if tile.ctas_per_sm > 1 or tile.pingpong_groups > 1
            else min(one.tile + one.warpgroup for one in epilogues)
        )
        own = _START - _IDLE + shape.is_mn_major * _START_ACROSS
        extra = _SHARING * tile.shares_tail
        if shape.integer_accumulators and not are_bytes:
            extra += _LATE_OF_INTEGERS * (tile.consumers == 3 or tile.swap_ab)
            extra += shape.converts_to_float * tile.bm * tile.bn / _CONVERTED
        outside = own + _LAST_OUT * epilogues[0].warpgroup, own + _LAST_OUT * epilogues[1].warpgroup
        return cls(
            tile, most, tile_rows, tile_columns, loaded_step, shape.is_mn_major, extra, *epilogues, step, turn,
            own + _LAST_OUT * least, tile.ctas_per_sm, outside,
        )  # fmt: skip

    @property
    def most_idle(self) -> float:
        """Clocks that ``start`` and ``outside`` lack for a launch that uses all multiprocessors."""
        return _IDLE

    def idle_among(self, items: int, sms: int) -> float:
        """Clocks that a launch of ``items`` work items saves because multiprocessors idle: at most ``_IDLE``."""
        a_sum = _IDLE_SUM_ACROSS if self.is_mn_major else _IDLE_SUM
        return max(0.0, 1.0 - items / sms) * (_IDLE - a_sum * self.ctas_per_sm * self.tile.bm * self.tile.bn)

    def step_among(self, items: int, sms: int, in_cluster: bool) -> float:
        """Clocks of a K tile with ``items`` work items.

        In filter gradients, the bandwidth of L2 that idle multiprocessors leave speeds the others up. CTAs of a cluster
        have no pixels in common, so they profit less.
        """
        idle = max(0.0, 1.0 - items / sms)
        # Unaligned rows cost more, the more multiprocessors load at the same time.
        loaded_step = self.step + (self.loaded_step - self.step) * (1.0 - idle)
        if not self.is_mn_major:
            return loaded_step * (_IN_CLUSTER if in_cluster else 1.0)
        if in_cluster:
            return loaded_step / _MOVED_ACROSS * (1.0 - _IDLE_ACROSS * min(idle, _IDLE_IN_CLUSTER))
        return loaded_step * (1.0 - _IDLE_ACROSS * min(idle, _MOST_IDLE_ACROSS))


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
    filters = (1.0 - empty) * _row_clocks(shape.filter_alignment) + empty * _EMPTY
    return (rows - none) * _row_clocks(shape.pixel_alignment) + none * _EMPTY + columns * filters


def _row_clocks(alignment: RowAlignment) -> float:
    """Mean clocks of TMA for a row of 128 bytes."""
    whole = 1.0 - alignment.two_lines - alignment.split_sector - alignment.partial - alignment.volumetric
    others = (
        alignment.two_lines * _IN_TWO
        + alignment.split_sector * _ODD
        + alignment.partial * _PARTIAL
        + alignment.volumetric * _DEEP
    )
    return whole * SWIZZLE_BYTES / _COPIED + others


def _step_clocks(tile: Tile, is_mn_major: bool) -> float:
    """Clocks of a K tile: the longer of wgmma and loads, which overlap."""
    moved = tile.stage_bytes + tile.bm // SLAB_ROWS * (SLAB_ROWS + tile.bn) * SWIZZLE_BYTES
    moving = max(moved / _SHARED, tile.stage_bytes / _COPIED)
    return max(tile.bm * tile.bn * _PRODUCT, moving * (_MOVED_ACROSS if is_mn_major else 1.0))


def _pingpong_factor(shape: GemmShape, tile: Tile) -> float:
    if tile.pingpong_groups == 1:
        return 1.0
    return _HALVES_IN_TURNS if shape.has_16bit_operands else _IN_TURNS


def _scalar_store_clocks(shape: GemmShape, tile: Tile) -> float:
    if shape.scalar_stores:
        return _TURNED_ALONE if tile.swap_ab else _ALONE
    return _PAIRS if shape.pair_stores and not tile.swap_ab else 0.0


def _warpgroup_clocks(tile: Tile, bytes_out: float, are_bytes: bool, scalar_clocks: float) -> float:
    """Clocks of a warpgroup's epilogue."""
    other = scalar_clocks
    if are_bytes:
        other += _BYTE_WIDE * (tile.bn > _NARROW) + _BYTE_APART * (tile.swap_ab or tile.consumers == 3)
    counted = _BYTE_LEAVES if are_bytes else max(bytes_out, _LEAST_OUT)
    return tile.bm * tile.bn / tile.tile_consumers * (_SUM_OUT + _BYTE_OUT * counted + other)
