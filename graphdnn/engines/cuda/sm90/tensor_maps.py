"""Tensor maps of a convolution's operands: im2col boxes of images, and tiles of filters.

Along each axis, a load of one tap reads pixel ``i`` at ``lower + i * traversal_stride + offset``. The offset of the tap
with the smallest coordinate is 0, so offsets are never negative.
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

# By spatial axes: the smallest and largest corner of an im2col box, and the largest offset, that TMA allows.
LIMITS = {1: (-(2**15), 2**15 - 1, 2**16 - 1), 2: (-(2**7), 2**7 - 1, 2**8 - 2), 3: (-(2**4), 2**4 - 1, 2**5 - 1)}
MAX_TRAVERSAL_STRIDE = 8
_SECTOR = 32  # bytes
MAX_VEC_N = 8  # contiguous columns of a thread
_PAIR = 2  # contiguous columns in a thread's accumulators
_PERMUTED_ROWS = 4 * MAX_VEC_N  # the largest unit of rows that are permuted
CHANNELS_AXIS, FILTERS_AXIS = 0, -1  # of the maps below: channels of an image, k of a filter


@dataclass(frozen=True, slots=True)
class Im2colBox:
    """The im2col box of one residue. Tuples have SPATIAL entries, outermost first."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]  # relative to the last pixel of the image
    origin: tuple[int, ...]  # the offset of tap 0
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
    """The same map for ``n`` images, which are its outermost axis."""
    return with_sizes(map, (*map.sizes[:-1], n))


def with_sizes(map: TensorMap, sizes: tuple[int, ...]) -> TensorMap:
    """The same map for a tensor of other sizes."""
    return TensorMap(
        map.data_type, sizes, map.strides, map.box, map.channels, map.pixels, map.lower, map.upper,
        map.steps, map.row, map.is_rounded,
    )  # fmt: skip


@memoize_for_images
def im2col_boxes_of(op: FusedOp) -> tuple[Im2colBox, ...]:
    """The im2col boxes of a convolution's residues."""
    gemm = gemm_problem_of(op)
    return tuple([im2col_box_of(gemm, residue) for residue in gemm.residues])


def im2col_map(image: Operand, spatial: int, box: Im2colBox, steps: tuple[int, ...], pixels: int) -> TensorMap:
    """An im2col map of x, y or a gradient: a load has ``pixels`` of the traversal with 128 bytes of channels each."""
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
    """Whether a row of 128 bytes of the summed channels may have channels of two groups."""
    im2col, _ = im2col_and_dense(gemm.roles)
    is_summed = gemm.roles.problem.groups > 1 and not gemm.is_wgrad
    return is_summed and gemm.channels * ELEMENTS[im2col.data_type].bytes % SWIZZLE_BYTES != 0


def group_maps(whole: TensorMap, axis: int, groups: int) -> list[TensorMap]:
    """A map for each group. A map ends with its group along ``axis``, so TMA fills the remainder of a row with 0."""
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
    """A tiled map of an image or its depth slices. A box has ``rows_of_pixels`` by ``pixels``, ``row`` bytes each."""
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
    """The filter as (channel, tap, k). A box has ``row`` bytes of channels of one tap and ``rows`` k."""
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
    """Whether ``permuted_filter_map`` serves the filter: k is a multiple of ``group_rows``, and rows are whole.

    A row of bytes may also reach into the next tap, because the image has zeros there, and bytes are never NaN.
    """
    groups, k, c, *taps = filter.sizes
    is_whole = c % (row // filter.size) == 0 or taps == [1, 1, 1]
    return k % group_rows == 0 and (is_whole or (groups == 1 and filter.spec.data_type in INTEGERS))


def permuted_vec_n(filter: Operand, result_bytes: int, row: int = SWIZZLE_BYTES) -> int:
    """Contiguous columns of a thread, if the filter's rows are permuted; 0 if rows cannot be permuted.

    It is eight, or four for wide results and if k is only a multiple of 16. Rows that begin within a sector get no 4,
    because TMA would take longer. ``result_bytes``: of the widest element that is written.
    """
    widest = MAX_VEC_N // 2 if result_bytes > 2 else MAX_VEC_N
    splits_sector = row == SWIZZLE_BYTES and filter.sizes[2] * filter.size % _SECTOR != 0
    widths = (widest,) if splits_sector else (widest, MAX_VEC_N // 2)
    return next((n for n in widths if is_permutable(filter, row, 4 * n)), 0)


def vec_n_of(permuted_n: int, width: int) -> int:
    """Contiguous columns of a thread (VEC_N): by permutation of the filter; else two, or eight after an exchange.

    ``width``: elements of a store. More than two need the exchange among four lanes.
    """
    return permuted_n or (MAX_VEC_N if width > _PAIR else _PAIR)


def permuted_filter_map(filter: Operand, rows: int, vec_n: int, row: int = SWIZZLE_BYTES) -> TensorMap:
    """The filter as (channel and tap, pair, four lanes, pairs of a lane, other k).

    Lane q has columns 2q and 2q + 1 of every eight. They are contiguous in k, because row 8j + 2q + i of a box has
    k = vec_n * q + 2j + i.
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
    """The filter as rows of the GEMM: (channel and tap, eight pairs, the two of a pair, other k).

    Lane g has rows g and g + 8 of every 16. They are contiguous in k, because row 8i + g of a box has k = 2g + i.
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
    """Bytes from one k to the next; any valid stride if there is one k."""
    groups, k = filter.sizes[:2]
    strides = filter.strides
    return _stride((strides[1] if k > 1 else strides[0] if groups > 1 else 0) * filter.size)


def _stride(size: int) -> int:
    """``size``, or any valid stride for an axis of one element."""
    return size or ALIGNMENT


assert SLAB_ROWS * 2 == SWIZZLE_BYTES
