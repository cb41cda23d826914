"""What products look like to the choice of a tile on compute capability 9.0."""

from __future__ import annotations

from typing import NamedTuple

from graphdnn.engines.cuda.sm90.tile import PANEL, Tile

_FILLED_BY = 16  # rows
_MOST_TURNED_SUMS = 96  # of a thread, beside a residual


class Pieces(NamedTuple):
    """Rows of 128 bytes that are not one whole line of memory, as shares of an operand's rows."""

    in_two: float = 0.0  # that reach from one line into the next
    odd: float = 0.0  # that do so within a sector of 32 bytes
    partial: float = 0.0  # of which channels fill a part
    deep: float = 0.0  # of pixels that have neighbours along three axes


WHOLE = Pieces()


class Sizes(NamedTuple):
    """What the choice depends on."""

    products: tuple[tuple[int, int], ...]  # rows and steps of k, for each residue
    columns: int  # of each product
    groups: int
    column_unit: int  # columns that a tile holds a whole number of
    result_bytes: int  # of an element that leaves, and of what is read for it
    is_turned: bool = False  # every tile's rows are the products' columns
    is_across: bool = False  # operands lie across k
    sets: int = 1  # of sums: two where tensor cores keep them for a few steps only
    pixel_rows: Pieces = WHOLE  # as channels of pixels are copied
    filter_rows: Pieces = WHOLE  # and those of filters
    few_rows: int = 0  # all of a product's, where a tile may hold more
    are_followed: bool = False  # columns of a group: behind the last one are the next group's
    are_alone: bool = False  # results begin at odd places: they leave one by one
    are_pairs: bool = False  # not at multiples of four: they leave by two
    of_integers: bool = False  # sums
    are_converted: bool = False  # of which floats are made
    may_be_turned: bool = False  # some tiles' rows may be
    may_take_turns: bool = False  # teams may have tiles in turns
    are_halves: bool = False  # operands of convolutions, of 16 bits: power slows teams down
    may_share: bool = False  # some tiles' columns may end within a panel
    bytes_read: int = 0  # by filter gradients, and products of matrices
    streamed_bytes: int = 0  # of those of a result, what comes through the ring
    bytes_moved: int = 0  # by others: no product is faster than memory, but a launch that adds parts comes on top
    odd_rows: int = 0  # of a product across k, where the last panel is not whole
    odd_blocks: int = 0  # of columns for each tap, where the last one is not whole

    def sides(self, tile: Tile) -> tuple[int, int]:
        """What a tile holds of the products' rows and columns."""
        return (tile.bn, tile.bm) if self.is_turned or tile.is_turned else (tile.bm, tile.bn)

    def rows_filled(self, tile: Tile) -> int:
        """Rows of a tile that are copied: whole sixteens, none behind the last of a product with few."""
        filled = -(-self.few_rows // _FILLED_BY) * _FILLED_BY
        return min(tile.bm, filled) if self.few_rows else tile.bm

    def tiles(self, tile: Tile) -> int:
        """That hold all products."""
        rows_held, columns_held = self.sides(tile)
        across = -(-self.columns // columns_held) * self.groups
        return across * sum(-(-rows // rows_held) for rows, _ in self.products)

    def partial_panels(self, tile: Tile) -> int:
        """Of operands across k: those of a tile, at most, whose rows are not whole."""
        missing = -(-self.odd_rows // tile.bm) * tile.bm - self.odd_rows // PANEL * PANEL if self.odd_rows else 0
        return missing // PANEL + (-(-tile.bn // PANEL // self.odd_blocks) if self.odd_blocks else 0)

    def takes(self, tile: Tile) -> bool:
        """Whether a tile may hold these products."""
        if tile.is_turned and not self.may_be_turned:
            return False
        if tile.teams > 1 and not self.may_take_turns:
            return False
        if tile.bn < PANEL and self.are_followed:  # not measured
            return False
        if tile.is_turned and self.streamed_bytes and tile.sums >= _MOST_TURNED_SUMS:
            return False
        if tile.shares:
            return self.may_share
        return tile.holds(self.sets) and (self.column_unit == 1 or self.sides(tile)[1] % self.column_unit == 0)

    @property
    def may_be_split(self) -> bool:
        return len(self.products) == 1 and not self.are_alone
