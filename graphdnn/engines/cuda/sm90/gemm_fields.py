"""Kernel parameters of a convolution as implicit GEMM: the run-time fields of conv_work_tile.cuh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_lines
from graphdnn.engines.cuda.codegen.parameters import Parameters, Table
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.tensor_maps import Im2colBox, im2col_boxes_of
from graphdnn.engines.cuda.sm90.tile import MMA_K_BYTES, SWIZZLE_BYTES
from graphdnn.fusion.fused_graph import FusedOp

_OPTIONAL_FIELDS = {
    "HAS_RASTER_GROUPS": "raster_width",
    "HAS_MAPS_PER_GROUP": "maps_per_group",
    "FLAT_PIXELS": "flat_pixels",
    "HAS_EPILOGUE_CTAS": "mainloop_ctas",
}


@dataclass(frozen=True, slots=True)
class TileGrid:
    """The tiles of all residues: the first tile and the tile rows of each, tile columns, and the number of tiles."""

    first_tile: tuple[int, ...]
    tiles_m: tuple[int, ...]
    tiles: int
    tiles_n: int

    @classmethod
    def of(cls, shape: GemmShape, tile_rows: int, tile_columns: int) -> TileGrid:
        """The grid of tiles of ``tile_rows`` by ``tile_columns``."""
        tiles_n = -(-shape.columns // tile_columns)
        tiles_m = [-(-rows // tile_rows) for rows, _ in shape.gemms]
        first_tile = [n * tiles_n * shape.groups for n in accumulate(tiles_m, initial=0)]
        return cls(tuple(first_tile[:-1]), tuple(tiles_m), first_tile[-1], tiles_n)


def tail_mma_steps(gemm: GemmProblem) -> int:
    """MMA K steps (32 bytes) that have channels in the last 128 bytes of a tap."""
    im2col, _ = im2col_and_dense(gemm.roles)
    tail = gemm.channels * ELEMENTS[im2col.data_type].bytes % SWIZZLE_BYTES
    return -(-(tail or SWIZZLE_BYTES) // MMA_K_BYTES)


def work_tile_variants(parameters: Parameters) -> dict[str, bool]:
    """Which optional fields ``Params`` has: macros of conv_work_tile.cuh, epilogue_store.cuh and hopper_gemm.cu.

    Args:
        parameters: All fields of the kernel.
    """
    return {constant: parameters.has(field) for constant, field in _OPTIONAL_FIELDS.items()}


def describe_work_tiles(
    parameters: Parameters,
    gemm: GemmProblem,
    shape: GemmShape,
    layout: TileGrid,
    boxes: Sequence[Im2colBox],
    channel_blocks: int,
    tap_stride: int = 0,
    tap_blocks: int = 0,
    tap_fields: Table | None = None,
) -> None:
    """Add the fields of conv_work_tile.cuh.

    ``boxes``: an im2col box for each residue, unless ``tap_fields`` are given. ``tap_stride``: elements from tap to tap
    of a permuted filter. ``tap_blocks``: columns of a wgrad, in blocks of 64 channels of one tap. ``tap_fields``:
    ``tap_fields_of`` the operation, if its boxes are its own.
    """
    parameters.table({
        "tiles": layout.tiles, "tiles_n": layout.tiles_n,
        "channels": gemm.channels, "channel_blocks": channel_blocks,
        "columns": shape.columns, "tap_blocks": tap_blocks, "tap_stride": tap_stride,
        "first_tile": layout.first_tile,
        "tiles_m": layout.tiles_m,
        "rows": [rows for rows, _ in shape.gemms],
        "k_tiles": [k_tiles for _, k_tiles in shape.gemms],
        "pixels": [v for r in gemm.residues for v in r.pixels],
    })  # fmt: skip
    parameters.add_table(_tap_fields(gemm, boxes) if tap_fields is None else tap_fields)


@memoize_for_lines
def tap_fields_of(op: FusedOp) -> Table:
    """The fields of ``describe_work_tiles`` that do not depend on the extents of the images, with the im2col boxes."""
    return _tap_fields(gemm_problem_of(op), im2col_boxes_of(op))


def _tap_fields(gemm: GemmProblem, boxes: Sequence[Im2colBox]) -> Table:
    filter_sizes = gemm.roles.space(gemm.roles.op.roles[1]).sizes[3:]
    tap_strides = [filter_sizes[1] * filter_sizes[2], filter_sizes[2], 1]  # from tap to tap along an axis, in taps
    return Table.of({
        "taps": [max(1, v) for r in gemm.residues for v in r.taps],
        "out_start": [v for r in gemm.residues for v in r.first_pixel],
        "lower_corner": [v for box in boxes for v in box.lower],
        "tap_origin": [v for box in boxes for v in box.origin],
        "first_filter_tap": [sum(t * s for t, s in zip(r.first_tap, tap_strides, strict=True)) for r in gemm.residues],
        "traversal_stride": gemm.traversal_stride,
        "dilation": gemm.dilation,
        "out_stride": gemm.out_stride,
        "filter_tap_stride": [step * s for step, s in zip(gemm.tap_stride, tap_strides, strict=True)],
    })  # fmt: skip
