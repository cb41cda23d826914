"""GemmShape: the facts by which a tile is chosen on compute capability 9.0."""

from __future__ import annotations

from typing import NamedTuple

from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, Tile

_LOADED_ROWS_MULTIPLE = 16
_MAX_SWAPPED_ACCUMULATORS = 96  # of a thread, beside a residual that TMA loads


class RowAlignment(NamedTuple):
    """How an operand's rows of 128 bytes lie in memory: the share of rows for each case that costs TMA more."""

    two_lines: float = 0.0  # rows that span two cache lines of 128 bytes
    split_sector: float = 0.0  # rows that begin within a sector of 32 bytes
    partial: float = 0.0  # rows that channels fill in part
    volumetric: float = 0.0  # rows of pixels of an image with three axes


ALIGNED = RowAlignment()


class GemmShape(NamedTuple):
    """The GEMMs of an operation, and the properties of its operands and result that costs depend on."""

    gemms: tuple[tuple[int, int], ...]  # (rows, K tiles) of each residue
    columns: int  # of each GEMM
    groups: int
    column_multiple: int  # the columns of a tile are a multiple
    result_bytes: int  # of an element that is stored, and of the operands as large as the result
    swap_ab: bool = False  # all tiles swap A and B: pixels are the columns
    is_mn_major: bool = False  # both operands are MN-major: a filter gradient
    accumulator_sets: int = 1  # 2 with promotion, 1 otherwise
    pixel_alignment: RowAlignment = ALIGNED  # of the im2col operand
    filter_alignment: RowAlignment = ALIGNED  # of the dense operand
    skinny_rows: int = 0  # rows of the GEMM, if fewer than a tile may have; 0 otherwise
    has_next_group: bool = False  # TMA loads beyond the last column read the next group
    scalar_stores: bool = False  # results are unaligned: elements are stored one by one
    pair_stores: bool = False  # results are aligned to pairs only: elements are stored in pairs
    integer_accumulators: bool = False
    converts_to_float: bool = False  # accumulators are integers and results are floats
    may_swap_ab: bool = False  # a tile may swap A and B
    may_pingpong: bool = False  # a tile may have ping-pong groups
    has_16bit_operands: bool = False  # a convolution with 16-bit operands: power limits ping-pong groups
    may_share_tail: bool = False  # a tile may share a slab of columns with adjacent tiles
    bytes_read: int = 0  # operands of filter gradients and of matrix products, from memory
    tma_residual_bytes: int = 0  # the part of ``result_bytes`` that TMA loads through the stages
    bytes_moved: int = 0  # by other convolutions: a lower bound of their time, without the reduction of splits
    partial_slab_rows: int = 0  # rows of an MN-major GEMM whose last slab is partial; 0 otherwise
    partial_tap_blocks: int = 0  # tap blocks of each tap, if the last one is partial; 0 otherwise

    def gemm_extents(self, tile: Tile) -> tuple[int, int]:
        """Rows and columns of the GEMM that a tile has: pixels and channels, with swapped operands too."""
        return (tile.bn, tile.bm) if self.swap_ab or tile.swap_ab else (tile.bm, tile.bn)

    def loaded_rows(self, tile: Tile) -> int:
        """Rows of a tile that TMA loads: a multiple of 16, which covers all rows of a skinny GEMM."""
        filled = -(-self.skinny_rows // _LOADED_ROWS_MULTIPLE) * _LOADED_ROWS_MULTIPLE
        return min(tile.bm, filled) if self.skinny_rows else tile.bm

    def tiles(self, tile: Tile) -> int:
        """Tiles of all GEMMs."""
        tile_rows, tile_columns = self.gemm_extents(tile)
        across = -(-self.columns // tile_columns) * self.groups
        return across * sum(-(-rows // tile_rows) for rows, _ in self.gemms)

    def partial_slabs(self, tile: Tile) -> int:
        """The most slabs of a tile whose rows of 128 bytes are partial, of MN-major operands."""
        missing = (
            -(-self.partial_slab_rows // tile.bm) * tile.bm - self.partial_slab_rows // SLAB_ROWS * SLAB_ROWS
            if self.partial_slab_rows
            else 0
        )
        return missing // SLAB_ROWS + (
            -(-tile.bn // SLAB_ROWS // self.partial_tap_blocks) if self.partial_tap_blocks else 0
        )

    def allows(self, tile: Tile) -> bool:
        """Whether the tile serves this shape."""
        if tile.swap_ab and not self.may_swap_ab:
            return False
        if tile.pingpong_groups > 1 and not self.may_pingpong:
            return False
        if tile.bn < SLAB_ROWS and self.has_next_group:  # these tiles are not measured
            return False
        if tile.swap_ab and self.tma_residual_bytes and tile.accumulators >= _MAX_SWAPPED_ACCUMULATORS:
            return False
        if tile.shares_tail:
            return self.may_share_tail
        return tile.fits_registers(self.accumulator_sets) and (
            self.column_multiple == 1 or self.gemm_extents(tile)[1] % self.column_multiple == 0
        )

    @property
    def may_split_k(self) -> bool:
        return len(self.gemms) == 1 and not self.scalar_stores
