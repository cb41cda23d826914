"""A convolution of unit stride as hopper_halo.cu walks through it: slices, lines and pixels, and its taps in them.

Each tap along the first of three axes reads patches of another slice: they are further blocks of what is summed.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images, memoize_for_lines
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.sm90.conv_gemm_shape import sizes_of
from graphdnn.engines.cuda.sm90.epilogue_operands import kept_bytes
from graphdnn.engines.cuda.sm90.flat_pixels import flat_product, is_flat
from graphdnn.engines.cuda.sm90.gemm_fields import last_slices
from graphdnn.engines.cuda.sm90.halo.halo_tile import Shape
from graphdnn.engines.cuda.sm90.tensor_maps import is_permutable, walk_of
from graphdnn.engines.cuda.sm90.tile import PANEL, ROW, SLICE
from graphdnn.engines.cuda.sm90.tma_operands import is_exchanged, operands
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation

_SLICE, _LINE, _PIXEL = range(3)
_PERMUTED = 16  # filters that change places among each other


def channels_of_row(product: GemmProblem) -> int:
    """In 128 bytes."""
    gathered, _ = im2col_and_dense(product.roles)
    return ROW // ELEMENTS[gathered.data_type].bytes


def row_of(product: GemmProblem) -> int:
    """Bytes of channels that are copied at a time: rows that few channels do not fill take three times as long."""
    gathered, _ = im2col_and_dense(product.roles)
    return ROW // 2 if product.channels * ELEMENTS[gathered.data_type].bytes <= ROW // 2 else ROW


@memoize
def shape_of(op: FusedOp) -> Shape:
    kept = _of_images(op)
    if not is_flat(op):
        assert isinstance(op.anchor, ConvolutionOperation)
        return kept._replace(images=op.anchor.problem.n * kept.images)
    (residue,) = flat_product(gemm_problem_of(op)).residues
    return kept._replace(images=1, pixels=(residue.pixels[_LINE], residue.pixels[_PIXEL]))


@memoize_for_images
def _of_images(op: FusedOp) -> Shape:
    """What the number of images does not change; of one image."""
    (residue,) = gemm_problem_of(op).residues
    pixels = residue.pixels[_LINE], residue.pixels[_PIXEL]
    return _besides(op)._replace(images=residue.pixels[_SLICE], pixels=pixels)


@memoize_for_lines
def _besides(op: FusedOp) -> Shape:
    """All but the lines and pixels of an image; there is one slice of a plane."""
    product = gemm_problem_of(op)
    gathered, _ = im2col_and_dense(product.roles)
    (residue,) = product.residues
    blocks, depth = -(-product.channels // channels_of_row(product)), residue.taps[_SLICE]
    is_across = product.roles.direction == "dgrad" and not is_exchanged(product.roles)
    row, (_, filter) = ROW if is_flat(op) else row_of(product), operands(product.roles)
    return Shape(
        images=1,
        pixels=(1, 1),
        taps=(residue.taps[_LINE], residue.taps[_PIXEL]),
        step=(abs(product.dilation[_LINE]), abs(product.dilation[_PIXEL])),
        blocks=blocks * depth,
        slices=(blocks * ROW // SLICE - (ROW // SLICE - last_slices(product))) * depth,
        columns=product.outer_channels,
        column_unit=PANEL if is_across else 1,
        result_bytes=sizes_of(op).result_bytes,
        streamed_bytes=0 if is_flat(op) else sizes_of(op).streamed_bytes,
        slices_out=1 if is_flat(op) else residue.pixels[_SLICE],
        row=row,
        are_bytes=ELEMENTS[gathered.data_type].bytes == 1,
        kept_bytes=kept_bytes(op),
        is_permutable=not is_across and is_permutable(filter, row, _PERMUTED),
        deep=depth if abs(product.dilation[_SLICE]) == product.traversal_stride[_SLICE] == 1 else 1,
    )


@dataclass(frozen=True, slots=True)
class Taps:
    """Number in the filter of the tap that reads the first pixels of a patch, and of those after it."""

    first: int
    pace: tuple[int, int, int]

    @classmethod
    def of(cls, product: GemmProblem) -> Taps:
        """An image is walked through forwards: a tap that lies ``o`` steps from the first is read ``o`` steps on."""
        (residue,) = product.residues
        walk = walk_of(product, residue)
        depth, height, width = product.roles.space(product.roles.op.roles[1]).sizes[3:]
        assert (depth, height) == residue.taps[:_PIXEL], "all taps of a filter meet at unit stride"
        first, paces = 0, []
        for d, apart in ((_SLICE, height * width), (_LINE, width), (_PIXEL, 1)):
            pace = product.tap_stride[d] * apart
            is_backwards = walk.origin[d] > 0
            first += residue.first_tap[d] * apart + ((residue.taps[d] - 1) * pace if is_backwards else 0)
            paces.append(-pace if is_backwards else pace)
        return cls(first, (paces[0], paces[1], paces[2]))
