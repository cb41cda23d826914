"""Pixels of all images as one plane, where they lie in a row: a convolution of one tap is a product of matrices.

How long the plane's lines are is for us to say: patches of eight lines leave the fewest pixels out, and what
multiprocessors store at a time lies apart.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.engines.batch_invariance import memoize_for_lines
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, axis_of
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of
from graphdnn.engines.cuda.sm90.conv_gemm_shape import sizes_of
from graphdnn.engines.cuda.sm90.epilogue_operands import lies_in_row, pixels_of
from graphdnn.engines.cuda.sm90.tile import ROW
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT, Operand, operands
from graphdnn.fusion.fused_graph import FusedOp

_PIXELS = (0, 3, 4, 5)  # axes of an image's coordinates: n, and those of space
_LINE, _PIXEL = 4, 5
_EIGHT = 8
_MOST_LINES = 64  # of images, in a line of the plane


@memoize_for_lines
def is_flat(op: FusedOp) -> bool:
    """One tap of unit stride, and what is read and written has its pixels in a row."""
    product = gemm_problem_of(op)
    image, _ = operands(product.roles)
    if image.is_copied or not sizes_of(op).may_be_turned:
        return False
    (residue,) = product.residues
    is_point = set(residue.taps) == set(product.traversal_stride) == {1} and residue.pixels == product.image
    return is_point and lies_in_row(*pixels_of(image.space, image.spec))


def _plane(sizes: tuple[int, ...]) -> tuple[int, int]:
    """Lines, and pixels of one, of images of these coordinates."""
    count, width = prod(sizes[j] for j in _PIXELS), sizes[_PIXEL]
    lines = count // width
    widths = [width * n for n in range(1, min(lines, _MOST_LINES) + 1) if lines % n == 0]
    width = min(widths, key=lambda w: _eights(w) * _eights(count // w))
    return count // width, width


def _eights(size: int) -> int:
    return -(-size // _EIGHT)


def flat_product(product: GemmProblem) -> GemmProblem:
    (residue,) = product.residues
    plane = _plane((product.roles.problem.n, 1, 1, *residue.pixels))
    return replace(product, residues=(replace(residue, pixels=(1, *plane)),))


def flat_space(space: IndexSpace, *, is_plane: bool = True) -> IndexSpace:
    """The same coordinates where pixels are a plane, or one axis."""
    sizes, axes = space.sizes, list(space.axes)
    lines, width = _plane(sizes) if is_plane else (1, prod([sizes[j] for j in _PIXELS]))
    # An axis of one element says nothing of where pixels lie.
    pixel = next((axes[j] for j in reversed(_PIXELS) if axes[j].size > 1), axes[_PIXEL])
    for j in _PIXELS:
        axes[j] = axis_of(1, axes[j].logical, axes[j].multiplier)
    axes[_PIXEL] = axis_of(width, pixel.logical, pixel.multiplier)
    if is_plane:
        axes[_LINE] = axis_of(lines, pixel.logical, pixel.multiplier * width)
    return IndexSpace(space.extents, tuple(axes))


def flat_map(image: Operand, lines: int, pixels: int) -> TensorMap:
    """``pixels`` of each of ``lines`` of the plane, 128 bytes of channels of each."""
    space = flat_space(image.space)
    pitch = flat_space(image.space, is_plane=False).strides(image.spec)[_PIXEL] * image.size or ALIGNMENT
    width = space.sizes[_PIXEL]
    return TensorMap(
        image.spec.data_type,
        (image.sizes[1] * image.sizes[2], width, space.sizes[_LINE], 1),
        (pitch, pitch * width, ALIGNMENT),
        box=(ROW // image.size, pixels, lines, 1),
    )
