"""Convolutions of one tap whose pixels are one contiguous axis: the pixels of all images become one plane.

The width of the plane is free. It is chosen such that tiles of 8 x 8 pixels waste the fewest pixels.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.engines.batch_invariance import memoize_for_lines
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, axis_of
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of
from graphdnn.engines.cuda.sm90.epilogue_operands import is_contiguous, pixel_axes
from graphdnn.engines.cuda.sm90.tile import SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT, Operand, operands
from graphdnn.fusion.fused_graph import FusedOp

_PIXEL_AXES = (0, 3, 4, 5)  # n and the spatial axes
_ROW_AXIS, _COLUMN_AXIS = 4, 5
_TILE = 8
_MAX_IMAGE_ROWS = 64  # image rows in a row of the plane


@memoize_for_lines
def is_flat(op: FusedOp) -> bool:
    """Whether the convolution has one tap of unit stride, and pixels are one axis of all its tensors."""
    gemm = gemm_problem_of(op)
    image, _ = operands(gemm.roles)
    if image.is_copied or not gemm_shape_of(op).may_swap_ab:
        return False
    (residue,) = gemm.residues
    is_point = set(residue.taps) == set(gemm.traversal_stride) == {1} and residue.pixels == gemm.image
    return is_point and is_contiguous(*pixel_axes(image.space, image.spec))


def _plane(sizes: tuple[int, ...]) -> tuple[int, int]:
    """Height and width of the plane for images of these sizes."""
    count, width = prod(sizes[j] for j in _PIXEL_AXES), sizes[_COLUMN_AXIS]
    rows_of_pixels = count // width
    widths = [width * n for n in range(1, min(rows_of_pixels, _MAX_IMAGE_ROWS) + 1) if rows_of_pixels % n == 0]
    width = min(widths, key=lambda w: _tiles_of_eight(w) * _tiles_of_eight(count // w))
    return count // width, width


def _tiles_of_eight(size: int) -> int:
    return -(-size // _TILE)


def flat_gemm(gemm: GemmProblem) -> GemmProblem:
    (residue,) = gemm.residues
    plane = _plane((gemm.roles.problem.n, 1, 1, *residue.pixels))
    return replace(gemm, residues=(replace(residue, pixels=(1, *plane)),))


def flat_space(space: IndexSpace, *, is_plane: bool = True) -> IndexSpace:
    """The index space with the pixels of all images as a plane, or as one axis."""
    sizes, axes = space.sizes, list(space.axes)
    rows_of_pixels, width = _plane(sizes) if is_plane else (1, prod([sizes[j] for j in _PIXEL_AXES]))
    # An axis of one element has no stride.
    pixel = next((axes[j] for j in reversed(_PIXEL_AXES) if axes[j].size > 1), axes[_COLUMN_AXIS])
    for j in _PIXEL_AXES:
        axes[j] = axis_of(1, axes[j].logical, axes[j].multiplier)
    axes[_COLUMN_AXIS] = axis_of(width, pixel.logical, pixel.multiplier)
    if is_plane:
        axes[_ROW_AXIS] = axis_of(rows_of_pixels, pixel.logical, pixel.multiplier * width)
    return IndexSpace(space.extents, tuple(axes))


def flat_map(image: Operand, rows_of_pixels: int, pixels: int) -> TensorMap:
    """A map of the plane: a box has ``rows_of_pixels`` by ``pixels`` with 128 bytes of channels each."""
    space = flat_space(image.space)
    pixel_stride = flat_space(image.space, is_plane=False).strides(image.spec)[_COLUMN_AXIS] * image.size or ALIGNMENT
    width = space.sizes[_COLUMN_AXIS]
    return TensorMap(
        image.spec.data_type,
        (image.sizes[1] * image.sizes[2], width, space.sizes[_ROW_AXIS], 1),
        (pixel_stride, pixel_stride * width, ALIGNMENT),
        box=(SWIZZLE_BYTES // image.size, pixels, rows_of_pixels, 1),
    )
