"""A strided data gradient in terms of hopper_halo_dgrad.cu: coarse pixels, tap groups, and the im2col box of dy."""

from __future__ import annotations

from math import prod

from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_tiles import Shape
from graphdnn.engines.cuda.sm90.halo.halo_shape import channels_of_k_block
from graphdnn.engines.cuda.sm90.halo.tap_groups import tap_groups_of
from graphdnn.engines.cuda.sm90.tensor_maps import Im2colBox
from graphdnn.engines.cuda.sm90.tma_operands import is_filter_transposed
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp

_ROW_AXIS, _COLUMN_AXIS = 1, 2  # of three spatial axes; the first has extent 1


def coarse_extents_of(op: FusedOp, is_disjoint: bool) -> tuple[int, int]:
    """Height and width of the traversal. Unless ``is_disjoint``, a row continues for the taps of its last pixels."""
    gemm = gemm_problem_of(op)
    height, width = (max(residue.pixels[d] for residue in gemm.residues) for d in (_ROW_AXIS, _COLUMN_AXIS))
    return height, width + (0 if is_disjoint else tap_groups_of(gemm).reach)


def load_box_of(op: FusedOp, is_disjoint: bool) -> Im2colBox:
    """The im2col box of dy for all coarse pixels and loads."""
    gemm, extents = gemm_problem_of(op), coarse_extents_of(op, is_disjoint)
    tap_groups = tap_groups_of(gemm)
    lower = 0, tap_groups.rows[0], tap_groups.column
    upper = [lower[d] + extents[d - 1] - gemm.image[d] for d in (_ROW_AXIS, _COLUMN_AXIS)]
    reach = tap_groups.rows[-1] - tap_groups.rows[0], tap_groups.reach
    return Im2colBox(lower, (0, *upper), (0, 0, 0), (0, *reach))


@memoize
def shape_of(op: FusedOp) -> Shape:
    gemm = gemm_problem_of(op)
    tap_groups = tap_groups_of(gemm)
    return Shape(
        coarse_pixels=gemm.roles.problem.n * prod(coarse_extents_of(op, True)),
        padded_coarse_pixels=gemm.roles.problem.n * prod(coarse_extents_of(op, False)),
        residues=len(gemm.residues),
        rows=len(tap_groups.rows),
        reach=tap_groups.reach,
        tap_groups=len(tap_groups.offsets),
        taps=len(tap_groups.taps),
        channel_blocks=-(-gemm.channels // channels_of_k_block(gemm)),
        columns=gemm.outer_channels,
        is_mn_major=not is_filter_transposed(gemm.roles),
        result_bytes=gemm_shape_of(op).result_bytes,
    )
