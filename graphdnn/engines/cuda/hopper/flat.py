"""Pixels of all images as one axis, where they lie in a row: a convolution of one tap is a product of matrices."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.engines.cuda.generator.space import Space
from graphdnn.engines.cuda.hopper.gemm import sizes_of
from graphdnn.engines.cuda.hopper.operands import ALIGNMENT, Operand, operands
from graphdnn.engines.cuda.hopper.result import lies_in_row, pixels_of
from graphdnn.engines.cuda.hopper.tiles import ROW
from graphdnn.engines.cuda.simt.implicit_product import Product, product_of
from graphdnn.engines.once import once
from graphdnn.enums import DataType
from graphdnn.fusion.fused import FusedOp

_PIXELS = (0, 3, 4, 5)  # axes of an image's coordinates: n, and those of space
_LAST = 5
_MEASURED = (DataType.FLOAT,)


@once
def is_flat(op: FusedOp) -> bool:
    """One tap of unit stride, and what is read and written has its pixels in a row."""
    product = product_of(op)
    image, _ = operands(product.roles)
    if image.spec.data_type not in _MEASURED or image.is_copied or not sizes_of(op).may_be_turned:
        return False
    (residue,) = product.residues
    is_point = set(residue.taps) == set(product.pixel_step) == {1} and residue.pixels == product.image
    return is_point and lies_in_row(*pixels_of(image.space, image.spec))


def flat_product(product: Product) -> Product:
    (residue,) = product.residues
    return replace(product, residues=(replace(residue, pixels=(1, 1, product.pixel_count(residue))),))


def flat_space(space: Space) -> Space:
    axes = list(space.axes)
    # An axis of one element says nothing of where pixels lie.
    innermost = next((axes[j] for j in reversed(_PIXELS) if axes[j].size > 1), axes[_LAST])
    pixels = replace(innermost, size=prod(axes[j].size for j in _PIXELS))
    for j in _PIXELS:
        axes[j] = replace(axes[j], size=1)
    axes[_LAST] = pixels
    return replace(space, axes=tuple(axes))


def flat_map(image: Operand, pixels: int) -> TensorMap:
    """``pixels`` that follow each other, 128 bytes of channels of each."""
    space = flat_space(image.space)
    pitch = space.strides(image.spec)[_LAST] * image.size or ALIGNMENT
    return TensorMap(
        image.spec.data_type,
        (image.sizes[1] * image.sizes[2], space.sizes[_LAST], 1, 1),
        (pitch, ALIGNMENT, ALIGNMENT),
        box=(ROW // image.size, pixels, 1, 1),
    )
