"""The numbers of a convolution's products that differ from shape to shape, as fields of a kernel's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_lines
from graphdnn.engines.cuda.codegen.parameters import Parameters, Table
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.sm90.gemm_shape import Sizes
from graphdnn.engines.cuda.sm90.tensor_maps import Walk, walks_of
from graphdnn.engines.cuda.sm90.tile import ROW, SLICE
from graphdnn.fusion.fused_graph import FusedOp


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each residue's tiles begin, and how many there are."""

    first: tuple[int, ...]
    down: tuple[int, ...]
    tiles: int
    across: int

    @classmethod
    def of(cls, sizes: Sizes, rows_held: int, columns_held: int) -> Layout:
        """For tiles that hold so much of the products."""
        across = -(-sizes.columns // columns_held)
        down = [-(-rows // rows_held) for rows, _ in sizes.products]
        first = [n * across * sizes.groups for n in accumulate(down, initial=0)]
        return cls(tuple(first[:-1]), tuple(down), first[-1], across)


def last_slices(product: GemmProblem) -> int:
    """Pieces of 32 bytes of k, which one instruction multiplies, in a filter's last 128 bytes of channels."""
    gathered, _ = im2col_and_dense(product.roles)
    rest = product.channels * ELEMENTS[gathered.data_type].bytes % ROW
    return -(-(rest or ROW) // SLICE)


def describe_work(
    parameters: Parameters,
    product: GemmProblem,
    sizes: Sizes,
    layout: Layout,
    walks: Sequence[Walk],
    channel_blocks: int,
    tap_pitch: int = 0,
    units: int = 0,
    known: Table | None = None,
) -> None:
    """Fields of conv_work_tile.cuh. ``tap_stride``: elements from tap to tap of a permuted filter; ``units``: the
    columns of a wgrad, pairs of a tap and a block of channels. ``known``: ``taps_of`` the operation, where the walks
    are its own.
    """
    parameters.table({
        "tiles": layout.tiles, "tiles_n": layout.across,
        "channels": product.channels, "channel_blocks": channel_blocks,
        "columns": sizes.columns, "tap_blocks": units, "tap_stride": tap_pitch,
        "first_tile": layout.first,
        "tiles_m": layout.down,
        "rows": [rows for rows, _ in sizes.products],
        "k_tiles": [depth for _, depth in sizes.products],
        "pixels": [v for r in product.residues for v in r.pixels],
    })  # fmt: skip
    parameters.rows(_of_taps(product, walks) if known is None else known)


@memoize_for_lines
def taps_of(op: FusedOp) -> Table:
    """``known`` fields of ``describe_work``, for the convolution's own walks: images' extents change none."""
    return _of_taps(gemm_problem_of(op), walks_of(op))


def _of_taps(product: GemmProblem, walks: Sequence[Walk]) -> Table:
    filter_sizes = product.roles.space(product.roles.op.roles[1]).sizes[3:]
    pace = [filter_sizes[1] * filter_sizes[2], filter_sizes[2], 1]  # in taps
    return Table.of({
        "taps": [max(1, v) for r in product.residues for v in r.taps],
        "out_start": [v for r in product.residues for v in r.first_pixel],
        "lower_corner": [v for walk in walks for v in walk.lower],
        "tap_origin": [v for walk in walks for v in walk.origin],
        "first_filter_tap": [sum(f * s for f, s in zip(r.first_tap, pace, strict=True)) for r in product.residues],
        "traversal_stride": product.traversal_stride,
        "dilation": product.dilation,
        "out_stride": product.out_stride,
        "filter_tap_stride": [pitch * s for pitch, s in zip(product.tap_stride, pace, strict=True)],
    })  # fmt: skip
