"""What the end of a product reads and writes, and which of it the copy unit may bring (hopper_residual.cuh)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.conv_geometry.convolution_roles import CHANNELS, SPATIAL
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of
from graphdnn.engines.cuda.sm90.halo.halo_tile import BOX_ROW
from graphdnn.engines.cuda.sm90.tile import ROW
from graphdnn.engines.cuda.sm90.tile_choice import Choice
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT, LARGEST_STRIDE
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

_MOST_BYTES = 4  # of an element


def result_space(op: FusedOp) -> IndexSpace:
    """The coordinates of what a convolution writes."""
    roles = gemm_problem_of(op).roles
    return roles.space(roles.output)


def written_and_read(op: FusedOp) -> list[TensorSpec]:
    """What the end of a product reads from memory and writes there."""
    return [t for t in op.at_end() if not (t.is_by_value or t.is_constant)]


def kept_bytes(op: FusedOp) -> int:
    """That the end of a product reads for each of its columns, the same for all rows."""
    front_only, whole = op.uses.front_only, gemm_problem_of(op).roles.output.elements
    narrow = [t for t in op.inputs if t.uid not in front_only and 1 < t.elements < whole]
    return sum([ELEMENTS[t.data_type].bytes for t in narrow])


def pixels_of(space: IndexSpace, spec: TensorSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and sizes of the axes that pixels of all images have."""
    strides, sizes = space.strides(spec), space.sizes
    return (strides[0], *strides[3:]), (sizes[0], *sizes[3:])


def lies_in_row(strides: Sequence[int], sizes: Sequence[int]) -> bool:
    """Every axis goes on where the next one ends, or the tensor does not change along any."""
    if not any(strides):
        return True
    pace = 0
    for stride, size in zip(reversed(strides), reversed(sizes), strict=True):
        if size == 1:
            continue
        if stride == 0 or stride != (pace or stride):
            return False
        pace = stride * size
    return True


def streamed_residual(op: FusedOp, product: GemmProblem) -> TensorSpec | None:
    """An operand of the epilogue as large as the result, whose pixels are rows for the copy unit; the image itself,
    maybe, of which that is a second map.
    """
    if (
        product.is_wgrad
        or len(product.residues) > 1
        or set(product.out_stride) != {1}
        or product.roles.problem.groups > 1
    ):
        return None
    space = product.roles.space(product.roles.output)
    inputs = {t.uid for t in op.inputs}
    for spec in written_and_read(op):
        if spec.uid not in inputs or spec.elements < product.roles.output.elements or not is_addressable(spec):
            continue
        size, pitch = ELEMENTS[spec.data_type].bytes, _pitch(space, spec)
        if size > _MOST_BYTES or space.strides(spec)[CHANNELS] != 1 or not lies_in_row(*pixels_of(space, spec)):
            continue
        if spec.byte_alignment % ALIGNMENT or pitch * size % ALIGNMENT or pitch * size >= LARGEST_STRIDE:
            continue
        return spec
    return None


def holds_residual(choice: Choice, spec: TensorSpec) -> bool:
    """Whether the ring has the stages that are full at once: all of a tile's where a warpgroup's rows come in turns."""
    tile = choice.tile
    if tile.bm == 64 * tile.sharers and not tile.is_turned:
        return True
    pixels, channels = (tile.bn, tile.bm) if tile.is_turned else (tile.bm, tile.bn)
    panels, held = -(-channels * ELEMENTS[spec.data_type].bytes // ROW), 1 + channels // pixels
    return -(-panels // held) <= choice.stages


def _pitch(space: IndexSpace, spec: TensorSpec) -> int:
    """Elements from one pixel to the next; 0 where there is only one."""
    strides, sizes = pixels_of(space, spec)
    return next((s for s, n in zip(reversed(strides), reversed(sizes), strict=True) if n > 1), 0)


def residual_map(product: GemmProblem, spec: TensorSpec, rows: int) -> TensorMap:
    """Of (channel, pixel of all images): a box of 128 bytes of channels and ``rows`` pixels."""
    space, size = product.roles.space(product.roles.output), ELEMENTS[spec.data_type].bytes
    pitch = _pitch(space, spec) * size or ALIGNMENT
    pixels = prod(pixels_of(space, spec)[1])
    return TensorMap(spec.data_type, (space.sizes[CHANNELS], 1, pixels), (pitch, pitch), box=(ROW // size, 1, rows))


def residual_patch_map(space: IndexSpace, spec: TensorSpec, lines: int, pixels: int, spatial: int) -> TensorMap:
    """Of (channel, pixel of a line, line, slice where there are three axes, image): a box of 64 bytes of channels,
    ``pixels`` of each of ``lines``.
    """
    size, strides = ELEMENTS[spec.data_type].bytes, space.strides(spec)
    outer = (4, 3, 0) if spatial == SPATIAL else (4, 0)
    return TensorMap(
        spec.data_type,
        tuple(space.sizes[d] for d in (CHANNELS, 5, *outer)),
        tuple(strides[d] * size or ALIGNMENT for d in (5, *outer)),
        box=(BOX_ROW // size, pixels, lines, *(1 for _ in outer[1:])),
        row=0,
    )
