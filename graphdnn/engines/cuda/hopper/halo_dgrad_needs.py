"""What the engine whose strided data gradients share a copied piece of dy among residues asks of a convolution."""

from __future__ import annotations

from math import prod

from graphdnn.engines.cuda.hopper.gemm import sizes_of
from graphdnn.engines.cuda.hopper.halo_dgrad_meetings import meetings_of
from graphdnn.engines.cuda.hopper.halo_dgrad_tiles import Shape
from graphdnn.engines.cuda.hopper.halo_shape import channels_of_row
from graphdnn.engines.cuda.hopper.operands import is_exchanged
from graphdnn.engines.cuda.simt.implicit_product import product_of
from graphdnn.engines.once import once
from graphdnn.fusion.fused import FusedOp


def walked_of(op: FusedOp) -> tuple[int, int]:
    """Lines and pixels of the walk through dy: a line goes on for what taps read behind its last place."""
    product = product_of(op)
    lines, pixels = (max(r.pixels[d] for r in product.residues) for d in (1, 2))
    return lines, pixels + meetings_of(product).reach


@once
def shape_of(op: FusedOp) -> Shape:
    product = product_of(op)
    meetings = meetings_of(product)
    return Shape(
        places=product.roles.problem.n * prod(walked_of(op)),
        residues=len(product.residues),
        lines=len(meetings.lines),
        reach=meetings.reach,
        meetings=len(meetings.places),
        filters=len(meetings.taps),
        blocks=-(-product.channels // channels_of_row(product)),
        columns=product.outer_channels,
        is_across=not is_exchanged(product.roles),
        result_bytes=sizes_of(op).result_bytes,
    )
