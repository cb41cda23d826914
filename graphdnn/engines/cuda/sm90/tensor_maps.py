"""Tensor maps of a convolution's operands: how the copy unit walks through an image, and finds a filter's taps.

Formulas: the walk of one tap visits pixel ``i`` at ``lower + i * step`` along each axis, and the tap's offset is added
to it; ``lower`` belongs to the tap that lies first, so that offsets are never negative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.tensor_cores import INTEGERS
from graphdnn.engines.cuda.conv_geometry.convolution_roles import SPATIAL
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, Residue, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT, Operand
from graphdnn.fusion.fused_graph import FusedOp

# By spatial axes: the lowest and highest corner, and the largest offset, that the copy unit takes.
LIMITS = {1: (-(2**15), 2**15 - 1, 2**16 - 1), 2: (-(2**7), 2**7 - 1, 2**8 - 2), 3: (-(2**4), 2**4 - 1, 2**5 - 1)}
MAX_TRAVERSAL_STRIDE = 8
_SECTOR = 32  # bytes
MAX_VEC_N = 8  # columns of a lane that follow each other
_PAIR = 2  # of a lane, as tensor cores leave them
_PERMUTED_ROWS = 4 * MAX_VEC_N  # rows that change places among each other, at most
CHANNELS_AXIS, FILTERS_AXIS = 0, -1  # of the maps below: channels of an image's groups, k of a filter's


@dataclass(frozen=True, slots=True)
class Im2colBox:
    """How pixels of one residue walk through the gathered image. Tuples have SPATIAL entries, outermost first."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]  # beyond the last pixel of the image, or before it
    origin: tuple[int, ...]  # offset of tap 0
    reach: tuple[int, ...]  # the largest offset


def im2col_box_of(gemm: GemmProblem, residue: Residue) -> Im2colBox:
    axes = range(SPATIAL)
    if not all(residue.taps):
        return Im2colBox((0,) * SPATIAL, (0,) * SPATIAL, (0,) * SPATIAL, (0,) * SPATIAL)
    reach = [(residue.taps[d] - 1) * gemm.dilation[d] for d in axes]
    lower = [residue.start[d] + min(0, reach[d]) for d in axes]
    upper = [lower[d] + (residue.pixels[d] - 1) * gemm.traversal_stride[d] + 1 - gemm.image[d] for d in axes]
    return Im2colBox(tuple(lower), tuple(upper), tuple([max(0, -r) for r in reach]), tuple(map(abs, reach)))


def with_images(map: TensorMap, n: int) -> TensorMap:
    """The map of an image, of so many of them: they are its outermost axis."""
    return with_sizes(map, (*map.sizes[:-1], n))


def with_sizes(map: TensorMap, sizes: tuple[int, ...]) -> TensorMap:
    """The same map of a tensor of other sizes."""
    return TensorMap(
        map.data_type, sizes, map.strides, map.box, map.channels, map.pixels, map.lower, map.upper,
        map.steps, map.row, map.is_rounded,
    )  # fmt: skip


@memoize_for_images
def im2col_boxes_of(op: FusedOp) -> tuple[Im2colBox, ...]:
    """Those of a convolution's residues."""
    gemm = gemm_problem_of(op)
    return tuple([im2col_box_of(gemm, residue) for residue in gemm.residues])


def im2col_map(image: Operand, spatial: int, box: Im2colBox, steps: tuple[int, ...], pixels: int) -> TensorMap:
    """Of x, y or a gradient: ``pixels`` of a walk, 128 bytes of channels each."""
    size, strides = image.size, image.strides
    n, groups, channels, *extents = image.sizes
    axes = range(SPATIAL - 1, SPATIAL - 1 - spatial, -1)  # innermost first
    sizes = (groups * channels, *[extents[d] for d in axes], n)
    return TensorMap(
        image.spec.data_type,
        sizes,
        tuple([_stride(s * size) for s in (*[strides[3 + d] for d in axes], strides[0])]),
        channels=SWIZZLE_BYTES // size,
        pixels=pixels,
        lower=tuple([box.lower[d] for d in axes]),
        upper=tuple([box.upper[d] for d in axes]),
        steps=(1, *[steps[d] for d in axes], 1),
    )


def crosses_groups(gemm: GemmProblem) -> bool:
    """Whether rows of 128 bytes of the summed channels would reach from one group into the next."""
    im2col, _ = im2col_and_dense(gemm.roles)
    is_summed = gemm.roles.problem.groups > 1 and not gemm.is_wgrad
    return is_summed and gemm.channels * ELEMENTS[im2col.data_type].bytes % SWIZZLE_BYTES != 0


def group_maps(whole: TensorMap, axis: int, groups: int) -> list[TensorMap]:
    """One for each group, which ends along ``axis`` where the group does: what a row reaches behind it is zero."""
    sizes = list(whole.sizes)
    group_extent = sizes[axis] // groups
    maps = []
    for group in range(groups):
        sizes[axis] = (group + 1) * group_extent
        maps.append(replace(whole, sizes=tuple(sizes)))
    return maps


def halo_tile_map(
    image: Operand, rows_of_pixels: int, pixels: int, row: int = SWIZZLE_BYTES, spatial: int = 2
) -> TensorMap:
    """Of an image, or of a slice of three axes: ``row`` bytes of channels, ``pixels`` of each of ``rows_of_pixels``."""
    size, strides = image.size, image.strides
    n, groups, channels, depth, height, width = image.sizes
    slices = () if spatial < SPATIAL else (depth,)
    return TensorMap(
        image.spec.data_type,
        (groups * channels, width, height, *slices, n),
        tuple(_stride(strides[d] * size) for d in ((5, 4, 3, 0) if slices else (5, 4, 0))),
        box=(row // size, pixels, rows_of_pixels, *(1 for _ in slices), 1),
        row=row,
    )


def filter_map(filter: Operand, rows: int, row: int = SWIZZLE_BYTES) -> TensorMap:
    """Of the filter as (channel, tap, k): a box of one tap, ``row`` bytes of channels, ``rows`` of k."""
    size = filter.size
    groups, k, c, *taps = filter.sizes
    return TensorMap(
        filter.spec.data_type,
        (c, taps[0] * taps[1] * taps[2], groups * k),
        (_stride(filter.tap_stride * size), _k_stride(filter)),
        box=(row // size, 1, rows),
        row=row,
    )


def is_permutable(filter: Operand, row: int = SWIZZLE_BYTES, group_rows: int = _PERMUTED_ROWS) -> bool:
    """Whether the filter's rows can be taken in the order of ``permuted_filter_map``, in whole ``group_rows``s of k.

    Its rows of channels may end in the next tap's, which pixels multiply by zeros: that is nothing for bytes, which are
    never NaN.
    """
    groups, k, c, *taps = filter.sizes
    is_whole = c % (row // filter.size) == 0 or taps == [1, 1, 1]
    return k % group_rows == 0 and (is_whole or (groups == 1 and filter.spec.data_type in INTEGERS))


def permuted_vec_n(filter: Operand, result_bytes: int, row: int = SWIZZLE_BYTES) -> int:
    """Columns of a lane that follow each other when the filter's rows lie permuted; 0 where these cannot be.

    Eight or, of wide results and where k is a whole number of 16s only, four: not of rows that begin within a sector,
    which take the copy unit longer then. ``result_bytes``: of the widest element that is written.
    """
    widest = MAX_VEC_N // 2 if result_bytes > 2 else MAX_VEC_N
    splits_sector = row == SWIZZLE_BYTES and filter.sizes[2] * filter.size % _SECTOR != 0
    widths = (widest,) if splits_sector else (widest, MAX_VEC_N // 2)
    return next((n for n in widths if is_permutable(filter, row, 4 * n)), 0)


def vec_n_of(permuted_n: int, width: int) -> int:
    """Columns of a lane that follow each other: as the filter's rows lie; else two, or eight where four lanes exchange
    theirs, which results ask for that leave more than two at a time. ``width``: so many.
    """
    return permuted_n or (MAX_VEC_N if width > _PAIR else _PAIR)


def permuted_filter_map(filter: Operand, rows: int, vec_n: int, row: int = SWIZZLE_BYTES) -> TensorMap:
    """Of the filter as (channel and tap, pair, four lanes, pairs of a lane, the rest of k).

    A lane gets columns 2q and 2q + 1 of every eight. With row 8j + 2q + i that of k = neighbours * q + 2j + i, they are
    neighbours.
    """
    size, k_stride = filter.size, _k_stride(filter)
    groups, k, c, *taps = filter.sizes
    width = c + (taps[0] * taps[1] * taps[2] - 1) * filter.tap_stride
    group_rows = 4 * vec_n
    return TensorMap(
        filter.spec.data_type,
        (width, 2, 4, vec_n // 2, groups * k // group_rows),
        (k_stride, vec_n * k_stride, 2 * k_stride, group_rows * k_stride),
        box=(row // size, 2, 4, vec_n // 2, rows // group_rows),
        row=row,
    )


def row_pair_filter_map(filter: Operand, rows: int, row: int = SWIZZLE_BYTES) -> TensorMap:
    """Of the filter as (channel and tap, eights of pairs, the two of a pair, the rest of k): the rows of a product.

    A lane gets rows g and g + 8 of every sixteen. With row 8i + g that of k = 2g + i, they are neighbours.
    """
    size, k_stride = filter.size, _k_stride(filter)
    groups, k, c, *taps = filter.sizes
    width = c + (taps[0] * taps[1] * taps[2] - 1) * filter.tap_stride
    return TensorMap(
        filter.spec.data_type,
        (width, 8, 2, groups * k // 16),
        (2 * k_stride, k_stride, 16 * k_stride),
        box=(row // size, 8, 2, rows // 16),
        row=row,
    )


def _k_stride(filter: Operand) -> int:
    """Bytes from one k to the next."""
    groups, k = filter.sizes[:2]
    strides = filter.strides
    return _stride((strides[1] if k > 1 else strides[0] if groups > 1 else 0) * filter.size)


def _stride(size: int) -> int:
    """An axis of one element has no stride of its own."""
    return size or ALIGNMENT


assert SLAB_ROWS * 2 == SWIZZLE_BYTES
