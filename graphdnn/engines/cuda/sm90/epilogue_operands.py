"""Tensors that the epilogue of a convolution reads and writes, and the residual that TMA may load."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS, SPATIAL
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of
from graphdnn.engines.cuda.sm90.halo.halo_tile import RESIDUAL_BOX_BYTES
from graphdnn.engines.cuda.sm90.tile import SWIZZLE_BYTES
from graphdnn.engines.cuda.sm90.tile_choice import Choice
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT, LARGEST_STRIDE
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

_MOST_BYTES = 4  # of an element


def result_space(op: FusedOp) -> IndexSpace:
    """The index space of a convolution's result."""
    roles = gemm_problem_of(op).roles
    return roles.space(roles.output)


def epilogue_tensors(op: FusedOp) -> list[TensorSpec]:
    """The tensors that the epilogue reads from memory and writes there."""
    return [t for t in op.at_end() if not (t.is_by_value or t.is_constant)]


def column_operand_bytes(op: FusedOp) -> int:
    """Bytes of column operands (bias, scale) for each column."""
    front_only, whole = op.uses.front_only, gemm_problem_of(op).roles.output.elements
    column_operands = [t for t in op.inputs if t.uid not in front_only and 1 < t.elements < whole]
    return sum([ELEMENTS[t.data_type].bytes for t in column_operands])


def pixel_axes(space: IndexSpace, spec: TensorSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and sizes of the axes n, d, h and w."""
    strides, sizes = space.strides(spec), space.sizes
    return (strides[0], *strides[3:]), (sizes[0], *sizes[3:])


def is_contiguous(strides: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether the axes are one axis with one stride, or the tensor is broadcast along all of them."""
    if not any(strides):
        return True
    expected = 0
    for stride, size in zip(reversed(strides), reversed(sizes), strict=True):
        if size == 1:
            continue
        if stride == 0 or stride != (expected or stride):
            return False
        expected = stride * size
    return True


def tma_residual(op: FusedOp, gemm: GemmProblem) -> TensorSpec | None:
    """An operand of the epilogue as large as the result whose pixels are one axis, so that TMA can load it; else None.

    It may be the image itself.
    """
    if gemm.is_wgrad or len(gemm.residues) > 1 or set(gemm.out_stride) != {1} or gemm.roles.problem.groups > 1:
        return None
    space = gemm.roles.space(gemm.roles.output)
    inputs = {t.uid for t in op.inputs}
    for spec in epilogue_tensors(op):
        if spec.uid not in inputs or spec.elements < gemm.roles.output.elements or not is_addressable(spec):
            continue
        size, pixel_stride = ELEMENTS[spec.data_type].bytes, _pixel_stride(space, spec)
        if size > _MOST_BYTES or space.strides(spec)[CHANNELS] != 1 or not is_contiguous(*pixel_axes(space, spec)):
            continue
        if spec.byte_alignment % ALIGNMENT or pixel_stride * size % ALIGNMENT or pixel_stride * size >= LARGEST_STRIDE:
            continue
        return spec
    return None


def fits_residual(choice: Choice, spec: TensorSpec) -> bool:
    """Whether the stages hold a tile's residual. With one MMA tile for each warpgroup, any stages suffice."""
    tile = choice.tile
    if tile.bm == 64 * tile.tile_consumers and not tile.swap_ab:
        return True
    pixels, channels = (tile.bn, tile.bm) if tile.swap_ab else (tile.bm, tile.bn)
    slabs, slabs_per_stage = -(-channels * ELEMENTS[spec.data_type].bytes // SWIZZLE_BYTES), 1 + channels // pixels
    return -(-slabs // slabs_per_stage) <= choice.stages


def _pixel_stride(space: IndexSpace, spec: TensorSpec) -> int:
    """Elements from one pixel to the next; 0 if there is one pixel."""
    strides, sizes = pixel_axes(space, spec)
    return next((s for s, n in zip(reversed(strides), reversed(sizes), strict=True) if n > 1), 0)


def residual_map(gemm: GemmProblem, spec: TensorSpec, rows: int) -> TensorMap:
    """The residual as (channel, pixel of all images). A box has 128 bytes of channels and ``rows`` pixels."""
    space, size = gemm.roles.space(gemm.roles.output), ELEMENTS[spec.data_type].bytes
    pixel_stride = _pixel_stride(space, spec) * size or ALIGNMENT
    pixels = prod(pixel_axes(space, spec)[1])
    return TensorMap(
        spec.data_type,
        (space.sizes[CHANNELS], 1, pixels),
        (pixel_stride, pixel_stride),
        box=(SWIZZLE_BYTES // size, 1, rows),
    )


def residual_tile_map(space: IndexSpace, spec: TensorSpec, rows_of_pixels: int, pixels: int, spatial: int) -> TensorMap:
    """The residual as (channel, w, h, d if there are three axes, n).

    A box has 64 bytes of channels, and ``rows_of_pixels`` by ``pixels``.
    """
    size, strides = ELEMENTS[spec.data_type].bytes, space.strides(spec)
    outer = (4, 3, 0) if spatial == SPATIAL else (4, 0)
    return TensorMap(
        spec.data_type,
        tuple(space.sizes[d] for d in (CHANNELS, 5, *outer)),
        tuple(strides[d] * size or ALIGNMENT for d in (5, *outer)),
        box=(RESIDUAL_BOX_BYTES // size, pixels, rows_of_pixels, *(1 for _ in outer[1:])),
        row=0,
    )
