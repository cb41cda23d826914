"""The GemmShape of a convolution: the facts by which a tile is chosen."""

from __future__ import annotations

from math import gcd, prod

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images, memoize_for_lines
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.codegen.pointwise_program import gen_index_axes
from graphdnn.engines.cuda.codegen.tensor_cores import INTEGERS
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.sm90.epilogue_operands import epilogue_tensors, is_contiguous, pixel_axes, tma_residual
from graphdnn.engines.cuda.sm90.fitted_constants import GEMM
from graphdnn.engines.cuda.sm90.gemm_shape import ALIGNED, GemmShape, RowAlignment
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT, is_filter_transposed
from graphdnn.engines.cuda.sm90.wgmma_text import promotion_interval
from graphdnn.engines.memoization import memoize
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation

_CHANNELS = 2  # axis of an image's coordinates
_SECTOR = 32  # bytes
_VOLUME_AXES = 3  # spatial axes of a volume


@memoize
def gemm_shape_of(op: FusedOp) -> GemmShape:
    """The shape that the choice of a tile depends on."""
    base, n = _shape_of_image(op), _anchor(op).problem.n
    if not base.is_mn_major:
        gemms = tuple([(n * pixels, k_tiles) for pixels, k_tiles in base.gemms])
        moved = bytes_moved(op) * (GEMM.shared_line_traffic_factor if _shares_cache_lines(op) else 1.0)
        return base._replace(gemms=gemms, bytes_moved=round(moved))
    ((rows, pixels),) = base.gemms
    read = _anchor(op).inputs()
    bytes_read = read["dy"].bytes + round(read["x"].bytes * _read_share(op))
    return base._replace(gemms=((rows, -(-n * pixels // SLAB_ROWS)),), bytes_read=bytes_read)


@memoize_for_images
def _shape_of_image(op: FusedOp) -> GemmShape:
    """The shape for one image. The K of a wgrad is in pixels, not in K tiles."""
    gemm = gemm_problem_of(op)
    tile_k = tile_k_of(gemm)
    gemms = []
    for residue in gemm.residues:
        pixels = prod(residue.pixels)
        k_tiles = prod(residue.taps) * -(-gemm.channels // tile_k)
        gemms.append((gemm.outer_channels, pixels) if gemm.is_wgrad else (pixels, k_tiles))
    return _shape_of_lines(op)._replace(gemms=tuple(gemms))


@memoize_for_lines
def _shape_of_lines(op: FusedOp) -> GemmShape:
    """The shape without its GEMMs."""
    gemm = gemm_problem_of(op)
    columns = tap_blocks_of(gemm) * SLAB_ROWS if gemm.is_wgrad else gemm.outer_channels
    front_only, most = op.uses.front_only, gemm.roles.output.elements
    whole = [t for t in (*op.inputs, *op.outputs) if t.uid not in front_only and t.elements >= most]
    result = sum([ELEMENTS[t.data_type].bytes for t in whole]) or 1
    residual = tma_residual(op, gemm)
    integer_accumulators = not gemm.is_wgrad and im2col_and_dense(gemm.roles)[0].data_type in INTEGERS
    unit = 1 if gemm.roles.direction == "fprop" or is_filter_transposed(gemm.roles) else SLAB_ROWS
    return GemmShape(
        gemms=(),
        columns=columns,
        groups=gemm.roles.problem.groups,
        column_multiple=unit,
        result_bytes=result,
        swap_ab=_needs_swap_ab(op, gemm),
        is_mn_major=gemm.is_wgrad,
        accumulator_sets=2 if promotion_interval_of(gemm) else 1,
        pixel_alignment=ALIGNED if gemm.is_wgrad else _loaded_alignment(gemm),
        filter_alignment=ALIGNED if gemm.is_wgrad else _filter_alignment(gemm),
        has_next_group=gemm.roles.problem.groups > 1,
        scalar_stores=not gemm.is_wgrad and _is_unaligned(op, gemm, 2),
        pair_stores=not (gemm.is_wgrad or _needs_swap_ab(op, gemm)) and _is_unaligned(op, gemm, 4),
        integer_accumulators=integer_accumulators,
        converts_to_float=integer_accumulators and any(ELEMENTS[t.data_type].kind != "int" for t in whole),
        may_swap_ab=_may_swap_ab(op, gemm),
        may_pingpong=len(gemm.residues) == 1 and not (gemm.is_wgrad or integer_accumulators),
        has_16bit_operands=ELEMENTS[im2col_and_dense(gemm.roles)[0].data_type].bytes == 2,
        may_share_tail=gemm.is_wgrad,
        tma_residual_bytes=0 if residual is None else ELEMENTS[residual.data_type].bytes,
        partial_slab_rows=gemm.outer_channels if gemm.is_wgrad and gemm.outer_channels % SLAB_ROWS else 0,
        partial_tap_blocks=-(-gemm.channels // SLAB_ROWS) if gemm.is_wgrad and gemm.channels % SLAB_ROWS else 0,
    )


@memoize_for_images
def _shares_cache_lines(op: FusedOp) -> bool:
    """Whether a tap skips pixels whose channels share cache lines with pixels that the tap reads."""
    gemm = gemm_problem_of(op)
    return max(gemm.traversal_stride) > 1 and _pixel_alignment(gemm) != ALIGNED


@memoize_for_images
def _read_share(op: FusedOp) -> float:
    """The share of x that is read: less than 1 if the stride is longer than the filter."""
    gemm = gemm_problem_of(op)
    return prod(
        [min(1.0, taps / step) for taps, step in zip(gemm.residues[0].taps, gemm.traversal_stride, strict=True)]
    )


def _anchor(op: FusedOp) -> ConvolutionOperation:
    assert isinstance(op.anchor, ConvolutionOperation)
    return op.anchor


def _pixel_alignment(gemm: GemmProblem) -> RowAlignment:
    im2col, _ = im2col_and_dense(gemm.roles)
    size, groups = ELEMENTS[im2col.data_type].bytes, gemm.roles.problem.groups
    pitch = -(-gemm.channels * groups * size // ALIGNMENT) * ALIGNMENT
    return _alignment(gemm.channels * size, pitch if groups == 1 else gcd(pitch, gemm.channels * size))


def _loaded_alignment(gemm: GemmProblem) -> RowAlignment:
    """The alignment of the im2col operand. Pixels of a volume take TMA longer. Tiles with more columns than one slab
    were measured to hide that.
    """
    taps, alignment = gemm.roles.problem.filter, _pixel_alignment(gemm)
    is_volumetric = len(taps) == _VOLUME_AXES and min(taps) > 1 and len(gemm.residues) == 1
    is_volumetric = is_volumetric and alignment == ALIGNED and gemm.outer_channels <= SLAB_ROWS
    return RowAlignment(volumetric=1.0) if is_volumetric else alignment


def _filter_alignment(gemm: GemmProblem) -> RowAlignment:
    """The alignment of the filter. A K-major row has summed channels, an MN-major row channels of the result."""
    _, dense = im2col_and_dense(gemm.roles)
    size = ELEMENTS[dense.data_type].bytes
    is_mn_major = gemm.roles.direction == "dgrad" and not is_filter_transposed(gemm.roles)
    channels = (gemm.outer_channels if is_mn_major else gemm.channels) * size
    return _alignment(channels, -(-channels // ALIGNMENT) * ALIGNMENT)


def _alignment(size: int, pitch: int) -> RowAlignment:
    """The alignment of rows of ``size`` bytes that begin at multiples of ``pitch`` bytes."""
    if pitch % _SECTOR:
        return RowAlignment(split_sector=1.0)
    partial = (size % SWIZZLE_BYTES != 0) / -(-size // SWIZZLE_BYTES)
    return RowAlignment(two_lines=0.0 if pitch % SWIZZLE_BYTES == 0 else 1.0 - partial, partial=partial)


def _is_unaligned(op: FusedOp, gemm: GemmProblem, count: int) -> bool:
    """Whether a vector of ``count`` elements may be unaligned in the result."""
    space = gemm.roles.space(gemm.roles.output)
    strides, sizes = space.strides(op.outputs[0]), space.sizes
    return any(stride % count for stride, size in zip(strides, sizes, strict=True) if size > 1 and stride != 1)


def promotion_interval_of(gemm: GemmProblem) -> int:
    im2col, _ = im2col_and_dense(gemm.roles)
    return promotion_interval(im2col.data_type)


def _needs_swap_ab(op: FusedOp, gemm: GemmProblem) -> bool:
    """Whether pixels must be the columns: pixels of an image are contiguous in the result, and channels are not."""
    if not _may_flatten_pixels(op, gemm):
        return False
    space = gemm.roles.space(gemm.roles.output)
    if 1 in space.strides(op.outputs[0])[1:3]:
        return False
    return all(is_contiguous(space.strides(t)[3:], space.sizes[3:]) for t in epilogue_tensors(op))


def _may_swap_ab(op: FusedOp, gemm: GemmProblem) -> bool:
    """Whether pixels may be the columns with channels last: the pixels of all images are one contiguous axis."""
    if not _may_flatten_pixels(op, gemm) or gemm.roles.problem.groups > 1:
        return False
    space = gemm.roles.space(gemm.roles.output)
    if space.strides(op.outputs[0])[_CHANNELS] != 1:
        return False
    return all(is_addressable(t) and is_contiguous(*pixel_axes(space, t)) for t in epilogue_tensors(op))


def _may_flatten_pixels(op: FusedOp, gemm: GemmProblem) -> bool:
    """Whether pixels may become one axis: the GEMM has all pixels in order, and the epilogue needs no coordinates."""
    if gemm.is_wgrad or len(gemm.residues) > 1 or set(gemm.out_stride) != {1}:
        return False
    return not gen_index_axes(op.epilogue)


def tile_k_of(gemm: GemmProblem) -> int:
    im2col, _ = im2col_and_dense(gemm.roles)
    return SWIZZLE_BYTES // ELEMENTS[im2col.data_type].bytes


def tap_blocks_of(gemm: GemmProblem) -> int:
    """Tap blocks, the columns of a wgrad: 64 channels of one tap each."""
    taps = gemm.residues[0].taps
    return taps[0] * taps[1] * taps[2] * -(-gemm.channels // SLAB_ROWS)
