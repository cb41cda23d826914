"""A convolution of unit stride as hopper_halo.cu walks through it: slices, lines and pixels, and its taps in them.

Each tap along the first of three axes reads patches of another slice: they are further blocks of what is summed.
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

_SLICE, _LINE, _PIXEL = range(3)
_PERMUTED = 16  # filters that change places among each other


def channels_of_row(gemm: GemmProblem) -> int:
    """In 128 bytes."""
    im2col, _ = im2col_and_dense(gemm.roles)
    return SWIZZLE_BYTES // ELEMENTS[im2col.data_type].bytes


def row_of(gemm: GemmProblem) -> int:
    """Bytes of channels that are copied at a time: rows that few channels do not fill take three times as long."""
    im2col, _ = im2col_and_dense(gemm.roles)
    return (
        SWIZZLE_BYTES // 2 if gemm.channels * ELEMENTS[im2col.data_type].bytes <= SWIZZLE_BYTES // 2 else SWIZZLE_BYTES
    )


@memoize
def shape_of(op: FusedOp) -> Shape:
    kept = _of_images(op)
    if not is_flat(op):
        assert isinstance(op.anchor, ConvolutionOperation)
        return kept._replace(images=op.anchor.problem.n * kept.images)
    (residue,) = flat_gemm(gemm_problem_of(op)).residues
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
    gemm = gemm_problem_of(op)
    im2col, _ = im2col_and_dense(gemm.roles)
    (residue,) = gemm.residues
    blocks, depth = -(-gemm.channels // channels_of_row(gemm)), residue.taps[_SLICE]
    is_mn_major = gemm.roles.direction == "dgrad" and not is_filter_transposed(gemm.roles)
    row, (_, filter) = SWIZZLE_BYTES if is_flat(op) else row_of(gemm), operands(gemm.roles)
    return Shape(
        images=1,
        pixels=(1, 1),
        taps=(residue.taps[_LINE], residue.taps[_PIXEL]),
        step=(abs(gemm.dilation[_LINE]), abs(gemm.dilation[_PIXEL])),
        blocks=blocks * depth,
        slices=(blocks * SWIZZLE_BYTES // MMA_K_BYTES - (SWIZZLE_BYTES // MMA_K_BYTES - tail_mma_steps(gemm))) * depth,
        columns=gemm.outer_channels,
        column_multiple=SLAB_ROWS if is_mn_major else 1,
        result_bytes=gemm_shape_of(op).result_bytes,
        tma_residual_bytes=0 if is_flat(op) else gemm_shape_of(op).tma_residual_bytes,
        slices_out=1 if is_flat(op) else residue.pixels[_SLICE],
        row=row,
        are_bytes=ELEMENTS[im2col.data_type].bytes == 1,
        column_operand_bytes=column_operand_bytes(op),
        is_permutable=not is_mn_major and is_permutable(filter, row, _PERMUTED),
        deep=depth if abs(gemm.dilation[_SLICE]) == gemm.traversal_stride[_SLICE] == 1 else 1,
    )


@dataclass(frozen=True, slots=True)
class Taps:
    """The index in the filter of the tap that reads the first pixels of a halo tile, and strides to the next taps."""

    first: int
    index_stride: tuple[int, int, int]

    @classmethod
    def of(cls, gemm: GemmProblem) -> Taps:
        """Offsets in the image increase, so where taps read it backwards, the last tap of an axis comes first."""
        (residue,) = gemm.residues
        box = im2col_box_of(gemm, residue)
        depth, height, width = gemm.roles.space(gemm.roles.op.roles[1]).sizes[3:]
        assert (depth, height) == residue.taps[:_PIXEL], "with unit stride the GEMM has all taps of the filter"
        first, strides = 0, []
        for d, taps_per_step in ((_SLICE, height * width), (_LINE, width), (_PIXEL, 1)):
            stride = gemm.tap_stride[d] * taps_per_step
            is_backwards = box.origin[d] > 0
            first += residue.first_tap[d] * taps_per_step + ((residue.taps[d] - 1) * stride if is_backwards else 0)
            strides.append(-stride if is_backwards else stride)
        return cls(first, (strides[0], strides[1], strides[2]))
