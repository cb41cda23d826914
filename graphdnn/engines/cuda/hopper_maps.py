"""Tensor maps of a convolution's operands: how the copy unit walks through an image, and finds a filter's taps.

Formulas: the walk of one tap visits pixel ``i`` at ``lower + i * step`` along each axis, and the tap's offset is added
to it; ``lower`` belongs to the tap that lies first, so that offsets are never negative.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.convolution_roles import SPATIAL, Roles
from graphdnn.engines.cuda.hopper_tiles import PANEL, ROW
from graphdnn.engines.cuda.implicit_product import Product, Residue
from graphdnn.tensors import TensorSpec

# By spatial axes: the lowest and highest corner, and the largest offset, that the copy unit takes.
LIMITS = {1: (-(2**15), 2**15 - 1, 2**16 - 1), 2: (-(2**7), 2**7 - 1, 2**8 - 2), 3: (-(2**4), 2**4 - 1, 2**5 - 1)}
LONGEST_STEP = 8
_PERMUTED = 32  # rows that change places among each other, at most
ALIGNMENT = 16  # bytes, of addresses and strides


@dataclass(frozen=True, slots=True)
class Walk:
    """How pixels of one residue walk through the gathered image. Tuples have SPATIAL entries, outermost first."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]  # beyond the last pixel of the image, or before it
    origin: tuple[int, ...]  # offset of tap 0
    reach: tuple[int, ...]  # the largest offset


def walk_of(product: Product, residue: Residue) -> Walk:
    axes = range(SPATIAL)
    if not all(residue.taps):
        return Walk((0,) * SPATIAL, (0,) * SPATIAL, (0,) * SPATIAL, (0,) * SPATIAL)
    reach = [(residue.taps[d] - 1) * product.tap_step[d] for d in axes]
    lower = [residue.start[d] + min(0, reach[d]) for d in axes]
    upper = [lower[d] + (residue.pixels[d] - 1) * product.pixel_step[d] + 1 - product.image[d] for d in axes]
    return Walk(tuple(lower), tuple(upper), tuple(max(0, -r) for r in reach), tuple(map(abs, reach)))


def image_map(roles: Roles, spec: TensorSpec, walk: Walk, steps: tuple[int, ...], pixels: int) -> TensorMap:
    """Of x, y or a gradient: ``pixels`` of a walk, 128 bytes of channels each."""
    spatial = roles.problem.spatial
    size = ELEMENTS[spec.data_type].bytes
    n, groups, channels, *image = roles.space(spec).sizes
    strides = roles.space(spec).strides(spec)
    used = range(SPATIAL - 1, SPATIAL - 1 - spatial, -1)  # innermost first
    sizes = (groups * channels, *(image[d] for d in used), n)
    return TensorMap(
        spec.data_type,
        sizes,
        tuple(_stride(s * size) for s in (*(strides[3 + d] for d in used), strides[0])),
        channels=ROW // size,
        pixels=pixels,
        lower=tuple(walk.lower[d] for d in used),
        upper=tuple(walk.upper[d] for d in used),
        steps=(1, *(steps[d] for d in used), 1),
    )


def filter_map(roles: Roles, spec: TensorSpec, rows: int) -> TensorMap:
    """Of the filter as (channel, tap, k): a box of one tap, 128 bytes of channels, ``rows`` of k."""
    size = ELEMENTS[spec.data_type].bytes
    groups, k, c, *taps = roles.space(spec).sizes
    strides = roles.space(spec).strides(spec)
    count = taps[0] * taps[1] * taps[2]
    return TensorMap(
        spec.data_type,
        (c, count, groups * k),
        (_stride(tap_stride(roles, spec) * size), _stride(strides[1] * size)),
        box=(ROW // size, 1, rows),
    )


def is_permutable(roles: Roles, spec: TensorSpec) -> bool:
    """Whether the filter's rows can be taken in the order of ``permuted_filter_map``: whole rows and whole 32s of them."""
    _, k, c, *taps = roles.space(spec).sizes
    block = ROW // ELEMENTS[spec.data_type].bytes
    return k % _PERMUTED == 0 and (c % block == 0 or taps == [1, 1, 1])


def permuted_filter_map(roles: Roles, spec: TensorSpec, rows: int, neighbours: int) -> TensorMap:
    """Of the filter as (channel and tap, pair, four lanes, pairs of a lane, the rest of k).

    A lane gets columns 2q and 2q + 1 of every eight. With row 8j + 2q + i that of k = neighbours * q + 2j + i, they are
    neighbours.
    """
    size = ELEMENTS[spec.data_type].bytes
    groups, k, c, *taps = roles.space(spec).sizes
    pitch = _stride(roles.space(spec).strides(spec)[1] * size)
    width = c + (taps[0] * taps[1] * taps[2] - 1) * tap_stride(roles, spec)
    together = 4 * neighbours
    return TensorMap(
        spec.data_type,
        (width, 2, 4, neighbours // 2, groups * k // together),
        (pitch, neighbours * pitch, 2 * pitch, together * pitch),
        box=(ROW // size, 2, 4, neighbours // 2, rows // together),
    )


def _stride(size: int) -> int:
    """An axis of one element has no stride of its own."""
    return size or ALIGNMENT


def tap_stride(roles: Roles, spec: TensorSpec) -> int:
    """Elements from one tap to the next; -1 where taps do not lie at one distance, the last axis fastest."""
    taps, strides = roles.space(spec).sizes[3:], roles.space(spec).strides(spec)[3:]
    step, count = 0, 1
    for size, stride in zip(reversed(taps), reversed(strides), strict=True):
        if size == 1:
            continue
        if step == 0:
            step = stride
        elif stride != step * count:
            return -1
        count *= size
    return step


assert PANEL * 2 == ROW
