"""A strided data gradient as hopper_halo_dgrad.cu walks through it: places in dy, and what their taps read."""

from __future__ import annotations

from math import prod

from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import sizes_of
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_tiles import Shape
from graphdnn.engines.cuda.sm90.halo.halo_shape import channels_of_row
from graphdnn.engines.cuda.sm90.halo.tap_groups import meetings_of
from graphdnn.engines.cuda.sm90.tensor_maps import Walk
from graphdnn.engines.cuda.sm90.tma_operands import is_exchanged
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp

_LINE, _PIXEL = 1, 2  # the spatial axes that there are, of three


def walked_of(op: FusedOp, is_apart: bool) -> tuple[int, int]:
    """Lines and pixels of the walk. Where taps read behind what is copied for the first, a line goes on for it."""
    product = gemm_problem_of(op)
    lines, pixels = (max(residue.pixels[d] for residue in product.residues) for d in (_LINE, _PIXEL))
    return lines, pixels + (0 if is_apart else meetings_of(product).reach)


def walk_through(op: FusedOp, is_apart: bool) -> Walk:
    product, meetings, walked = gemm_problem_of(op), meetings_of(gemm_problem_of(op)), walked_of(op, is_apart)
    first = 0, meetings.lines[0], meetings.pixel
    upper = [first[d] + walked[d - 1] - product.image[d] for d in (_LINE, _PIXEL)]
    reach = meetings.lines[-1] - meetings.lines[0], meetings.reach
    return Walk(first, (0, *upper), (0, 0, 0), (0, *reach))


@memoize
def shape_of(op: FusedOp) -> Shape:
    product = gemm_problem_of(op)
    meetings = meetings_of(product)
    return Shape(
        places=product.roles.problem.n * prod(walked_of(op, True)),
        places_in_lines=product.roles.problem.n * prod(walked_of(op, False)),
        residues=len(product.residues),
        lines=len(meetings.lines),
        reach=meetings.reach,
        meetings=len(meetings.places),
        taps=len(meetings.taps),
        blocks=-(-product.channels // channels_of_row(product)),
        columns=product.outer_channels,
        is_across=not is_exchanged(product.roles),
        result_bytes=sizes_of(op).result_bytes,
    )
