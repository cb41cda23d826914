"""Clocks of one tile of a product on compute capability 9.0: its steps, and its results as they leave."""

from __future__ import annotations

from typing import NamedTuple

from graphdnn.engines.cuda.sm90.gemm_shape import Pieces, Sizes
from graphdnn.engines.cuda.sm90.tile import PANEL, ROW, Tile

# Constants here and in product_clocks.py were fitted by benchmarks/fit_predictions.py to 1,700 pairs of a problem and a
# tile (convolutions and matrix products, of 16-bit floats and TF32), operands from memory, on an H200: the choice is
# 1.2 % slower than the best one.
_PRODUCT = 0.0386  # clocks for each sum of a tile, and step of k
_SHARED = 135.0  # bytes of shared memory a clock, that products read or copies write
_COPIED = 67.5  # bytes a clock from the second level of cache
_TILE = 1490.0  # clocks of a tile besides
_TURN = 1770.0  # of which remain where two blocks take turns
_LEAVING = 12.5  # bytes a clock of results, and of what is read for them
_STREAMED_SHARE = 0.56  # of the bytes of a residual that comes through the ring
_SUM_OUT = 0.0077  # clocks of a warpgroup for each of its sums
_BYTE_OUT = 0.027  # and for each byte that it moves then
_LEAST_OUT = 2.41  # bytes of an element that leaves: a byte takes instructions as well
_ALONE, _TURNED_ALONE, _PAIRS = 3.03, 0.93, 0.6  # and where they leave alone, or by two
_LAST_OUT = 0.448  # times these clocks: nothing is left to be multiplied while the last tiles leave
_START = -3190.0  # clocks of a launch: less than others take, as it starts while the one before ends
# Where multiprocessors idle, in proportion to how many: the next launch is there at once.
_IDLE = 2430.0  # clocks that a launch does not take then
_IDLE_SUM, _IDLE_SUM_ACROSS = 0.11, 0.16  # of which it takes so many for each sum of a tile, of filter gradients
# Times what products take elsewhere, where teams have tiles in turns; of 16 bits, which were 0.97 to 1.46 of the model.
_IN_TURNS, _HALVES_IN_TURNS = 1.01, 1.06
_IN_CLUSTER = 1.02  # times what products take elsewhere, where blocks of a cluster add their sums
# The same where results are bytes, fitted to 36 pairs of 10 layers.
_OF_BYTES = 1540.0  # clocks of a tile besides
_BYTE_LEAVES, _BYTE_MOVES = 2.3, 1.5  # bytes that one counts as, of a warpgroup's and of all that leave
_BYTE_WIDE = 0.075  # clocks for each sum besides: of more than 128 columns
_BYTE_APART = 0.1  # and of turned ones, or of three warpgroups
_NARROW = 128  # columns
# Sums of bytes that leave as words, fitted to 4 layers: clocks of a tile besides.
_LATE_OF_INTEGERS = 2400.0  # where three warpgroups multiply, or results leave turned
_CONVERTED = 24.0  # sums that become floats in one
# Filter gradients, whose operands both come from memory: fitted to 180 pairs of 34 layers.
_START_ACROSS = 600.0  # clocks of a launch besides
_MOVED_ACROSS = 0.93  # times what moving the bytes of a step takes elsewhere
_IDLE_ACROSS = 0.6  # of the share of multiprocessors that idle, by which a step takes less
_MOST_IDLE_ACROSS, _IDLE_IN_CLUSTER = 0.6, 0.2  # that share at most, and in clusters
_SHARING = 1300.0  # clocks of a tile besides, where it shares a panel
_PARTIAL_ROW = 4.45  # clocks of a copied row of less than 128 bytes
# Clocks of the copy unit for a row of 128 bytes, where it is more than the second level of cache takes.
_IN_TWO, _ODD, _PARTIAL, _DEEP, _EMPTY = 2.56, 5.56, 4.12, 4.5, 9.0


class Leaving(NamedTuple):
    """Clocks with which a tile's results leave."""

    own: float  # of a warpgroup, for its own sums
    all: float  # of everything that a multiprocessor's blocks move
    turn: float  # besides, where two blocks take turns
    tile: float  # of a tile besides

    @classmethod
    def of(cls, tile: Tile, bytes_out: float, are_bytes: bool = False, apart: float = 0.0) -> Leaving:
        """``bytes_out``: of an element. ``are_bytes``: the results; ``apart``: clocks for each that leaves alone."""
        own = _own_clocks(tile, bytes_out, are_bytes, apart)
        turn = _TURN + own if tile.blocks > 1 else 0.0
        moved = _BYTE_MOVES if are_bytes else max(bytes_out, _LEAST_OUT)
        return cls(own, tile.blocks * tile.bm * tile.bn * moved / _LEAVING, turn, _OF_BYTES if are_bytes else _TILE)


class TileClocks(NamedTuple):
    """A tile that serves, with what extents do not change. ``step``, ``turn`` and ``start`` make a bound below what
    products come to with any number of parts: clocks of each step, of each tile and of all of them.
    """

    tile: Tile
    most: int  # stages that there is room for
    rows_held: int
    columns_held: int
    paced: float  # clocks of a step, where copied pixels come row by row
    is_across: bool
    besides: float  # clocks of a tile
    whole: Leaving
    part: Leaving
    step: float
    turn: float
    start: float
    blocks: int  # that share a multiprocessor
    outside: tuple[float, float]  # clocks before and after all tiles: of whole ones, and of parts

    @classmethod
    def of(cls, sizes: Sizes, tile: Tile, most: int) -> TileClocks:
        rows_held, columns_held = sizes.sides(tile)
        step = _step_clocks(tile, sizes.is_across) * _turns(sizes, tile)
        bytes_out = sizes.result_bytes - (1.0 - _STREAMED_SHARE) * sizes.streamed_bytes  # that threads read themselves
        are_bytes = bytes_out < 2 and sizes.sets == 1
        apart = _apart_clocks(sizes, tile)
        leaving = Leaving.of(tile, bytes_out, are_bytes, apart), Leaving.of(tile, 4, apart=apart)
        least = min(one.own for one in leaving)
        paced = max(step, copied_clocks(sizes, tile), sizes.partial_panels(tile) * PANEL * _PARTIAL_ROW)
        turn = 0.0 if tile.blocks > 1 or tile.teams > 1 else min(one.tile + one.own for one in leaving)
        own = _START - _IDLE + sizes.is_across * _START_ACROSS
        besides = _SHARING * tile.shares
        if sizes.of_integers and not are_bytes:
            besides += _LATE_OF_INTEGERS * (tile.consumers == 3 or tile.is_turned)
            besides += sizes.are_converted * tile.bm * tile.bn / _CONVERTED
        outside = own + _LAST_OUT * leaving[0].own, own + _LAST_OUT * leaving[1].own
        return cls(
            tile, most, rows_held, columns_held, paced, sizes.is_across, besides, *leaving, step, turn,
            own + _LAST_OUT * least, tile.blocks, outside,
        )  # fmt: skip

    @property
    def most_idle(self) -> float:
        """Clocks by which ``start`` and ``outside`` are below what a launch takes that busies all multiprocessors."""
        return _IDLE

    def idle_among(self, pieces: int, sms: int) -> float:
        """Clocks that a launch of so many pieces takes less because multiprocessors idle, ``_IDLE`` at most."""
        a_sum = _IDLE_SUM_ACROSS if self.is_across else _IDLE_SUM
        return max(0.0, 1.0 - pieces / sms) * (_IDLE - a_sum * self.blocks * self.tile.bm * self.tile.bn)

    def paced_among(self, pieces: int, sms: int, in_cluster: bool) -> float:
        """Clocks of a step, of so many pieces. Of filter gradients, multiprocessors that idle leave others their share
        of the cache; blocks of a cluster, which have no pixels in common, make use of little of it.
        """
        idle = max(0.0, 1.0 - pieces / sms)
        # Rows that are no whole lines take longer where many ask the cache for them.
        paced = self.step + (self.paced - self.step) * (1.0 - idle)
        if not self.is_across:
            return paced * (_IN_CLUSTER if in_cluster else 1.0)
        if in_cluster:
            return paced / _MOVED_ACROSS * (1.0 - _IDLE_ACROSS * min(idle, _IDLE_IN_CLUSTER))
        return paced * (1.0 - _IDLE_ACROSS * min(idle, _MOST_IDLE_ACROSS))


def copied_clocks(sizes: Sizes, tile: Tile, empty: float = 0.0) -> float:
    """Of the copy unit for a step, by the rows that it copies. ``empty``: the share of the columns that is behind the
    last one, where it fills rows with zeros, as it does behind a product's last row.
    """
    if sizes.is_across:
        return 0.0
    rows, columns = sizes.sides(tile)
    rows = min(rows, sizes.rows_filled(tile)) if sizes.few_rows else rows
    none = max(0, rows - sizes.few_rows) if sizes.few_rows else 0
    filters = (1.0 - empty) * _row_clocks(sizes.filter_rows) + empty * _EMPTY
    return (rows - none) * _row_clocks(sizes.pixel_rows) + none * _EMPTY + columns * filters


def _row_clocks(pieces: Pieces) -> float:
    """Of a row of 128 bytes, in the mean."""
    whole = 1.0 - pieces.in_two - pieces.odd - pieces.partial - pieces.deep
    others = pieces.in_two * _IN_TWO + pieces.odd * _ODD + pieces.partial * _PARTIAL + pieces.deep * _DEEP
    return whole * ROW / _COPIED + others


def _step_clocks(tile: Tile, is_across: bool) -> float:
    """A stage is multiplied while the next one is copied."""
    moved = tile.stage_bytes + tile.bm // PANEL * (PANEL + tile.bn) * ROW
    moving = max(moved / _SHARED, tile.stage_bytes / _COPIED)
    return max(tile.bm * tile.bn * _PRODUCT, moving * (_MOVED_ACROSS if is_across else 1.0))


def _turns(sizes: Sizes, tile: Tile) -> float:
    if tile.teams == 1:
        return 1.0
    return _HALVES_IN_TURNS if sizes.are_halves else _IN_TURNS


def _apart_clocks(sizes: Sizes, tile: Tile) -> float:
    if sizes.are_alone:
        return _TURNED_ALONE if tile.is_turned else _ALONE
    return _PAIRS if sizes.are_pairs and not tile.is_turned else 0.0


def _own_clocks(tile: Tile, bytes_out: float, are_bytes: bool, apart: float) -> float:
    """A warpgroup's, for its own sums to leave."""
    other = apart
    if are_bytes:
        other += _BYTE_WIDE * (tile.bn > _NARROW) + _BYTE_APART * (tile.is_turned or tile.consumers == 3)
    counted = _BYTE_LEAVES if are_bytes else max(bytes_out, _LEAST_OUT)
    return tile.bm * tile.bn / tile.sharers * (_SUM_OUT + _BYTE_OUT * counted + other)
