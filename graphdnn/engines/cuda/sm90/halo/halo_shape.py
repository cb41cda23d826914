"""A convolution of unit stride in terms of hopper_halo.cu: depth slices, rows and columns of pixels, and taps.

Each tap along the depth reads halo tiles of another depth slice, which are further K blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images, memoize_for_lines
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.epilogue_operands import column_operand_bytes
from graphdnn.engines.cuda.sm90.flat_pixels import flat_gemm, is_flat
from graphdnn.engines.cuda.sm90.gemm_fields import tail_mma_steps
from graphdnn.engines.cuda.sm90.halo.halo_tile import Shape
from graphdnn.engines.cuda.sm90.tensor_maps import im2col_box_of, is_permutable
from graphdnn.engines.cuda.sm90.tile import MMA_K_BYTES, SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.tma_operands import is_filter_transposed, operands
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation

_DEPTH_AXIS, _ROW_AXIS, _COLUMN_AXIS = range(3)
_PERMUTED_ROWS = 16  # the unit of permutation of filters


def channels_of_k_block(gemm: GemmProblem) -> int:
    """Channels in a K block of 128 bytes."""
    im2col, _ = im2col_and_dense(gemm.roles)
    return SWIZZLE_BYTES // ELEMENTS[im2col.data_type].bytes


def pixel_bytes_of(gemm: GemmProblem) -> int:
    """Bytes of channels of a pixel in a K block: 64 if all channels fit, because TMA loads full rows faster."""
    im2col, _ = im2col_and_dense(gemm.roles)
    return (
        SWIZZLE_BYTES // 2 if gemm.channels * ELEMENTS[im2col.data_type].bytes <= SWIZZLE_BYTES // 2 else SWIZZLE_BYTES
    )


@memoize
def shape_of(op: FusedOp) -> Shape:
    base = _shape_of_image(op)
    if not is_flat(op):
        assert isinstance(op.anchor, ConvolutionOperation)
        return base._replace(images=op.anchor.problem.n * base.images)
    (residue,) = flat_gemm(gemm_problem_of(op)).residues
    return base._replace(images=1, pixels=(residue.pixels[_ROW_AXIS], residue.pixels[_COLUMN_AXIS]))


@memoize_for_images
def _shape_of_image(op: FusedOp) -> Shape:
    """The shape of one image."""
    (residue,) = gemm_problem_of(op).residues
    pixels = residue.pixels[_ROW_AXIS], residue.pixels[_COLUMN_AXIS]
    return _shape_of_lines(op)._replace(images=residue.pixels[_DEPTH_AXIS], pixels=pixels)


@memoize_for_lines
def _shape_of_lines(op: FusedOp) -> Shape:
    """The shape without the extents of an image. An image with two axes has one depth slice."""
    gemm = gemm_problem_of(op)
    im2col, _ = im2col_and_dense(gemm.roles)
    (residue,) = gemm.residues
    channel_blocks, depth_taps = -(-gemm.channels // channels_of_k_block(gemm)), residue.taps[_DEPTH_AXIS]
    is_mn_major = gemm.roles.direction == "dgrad" and not is_filter_transposed(gemm.roles)
    row, (_, filter) = SWIZZLE_BYTES if is_flat(op) else pixel_bytes_of(gemm), operands(gemm.roles)
    return Shape(
        images=1,
        pixels=(1, 1),
        taps=(residue.taps[_ROW_AXIS], residue.taps[_COLUMN_AXIS]),
        dilation=(abs(gemm.dilation[_ROW_AXIS]), abs(gemm.dilation[_COLUMN_AXIS])),
        k_blocks=channel_blocks * depth_taps,
        mma_k_steps=((channel_blocks - 1) * (SWIZZLE_BYTES // MMA_K_BYTES) + tail_mma_steps(gemm)) * depth_taps,
        columns=gemm.outer_channels,
        column_multiple=SLAB_ROWS if is_mn_major else 1,
        result_bytes=gemm_shape_of(op).result_bytes,
        tma_residual_bytes=0 if is_flat(op) else gemm_shape_of(op).tma_residual_bytes,
        output_slices=1 if is_flat(op) else residue.pixels[_DEPTH_AXIS],
        pixel_bytes=row,
        are_bytes=ELEMENTS[im2col.data_type].bytes == 1,
        column_operand_bytes=column_operand_bytes(op),
        is_permutable=not is_mn_major and is_permutable(filter, row, _PERMUTED_ROWS),
        depth_taps=depth_taps if abs(gemm.dilation[_DEPTH_AXIS]) == gemm.traversal_stride[_DEPTH_AXIS] == 1 else 1,
    )


@dataclass(frozen=True, slots=True)
class Taps:
    """The index in the filter of the tap that reads the first pixels of a halo tile, and strides to the next taps."""

    first: int
    index_stride: tuple[int, int, int]

    @classmethod
    def of(cls, gemm: GemmProblem) -> Taps:
        """Offsets in the image increase. If taps read the image backwards, the last tap of an axis comes first."""
        (residue,) = gemm.residues
        box = im2col_box_of(gemm, residue)
        depth, height, width = gemm.roles.space(gemm.roles.op.roles[1]).sizes[3:]
        assert (depth, height) == residue.taps[:_COLUMN_AXIS], "with unit stride the GEMM has all taps of the filter"
        first, strides = 0, []
        for d, taps_per_step in ((_DEPTH_AXIS, height * width), (_ROW_AXIS, width), (_COLUMN_AXIS, 1)):
            stride = gemm.tap_stride[d] * taps_per_step
            is_backwards = box.origin[d] > 0
            first += residue.first_tap[d] * taps_per_step + ((residue.taps[d] - 1) * stride if is_backwards else 0)
            strides.append(-stride if is_backwards else stride)
        return cls(first, (strides[0], strides[1], strides[2]))
