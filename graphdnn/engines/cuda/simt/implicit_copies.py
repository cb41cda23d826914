"""Copies that replace operands of the SIMT implicit GEMM: in another layout, or with zeros around the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, is_addressable
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.conv_geometry.convolution_roles import SPATIAL, Roles, padded
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem
from graphdnn.engines.cuda.simt.implicit_tiles import Shape, has_one_tap
from graphdnn.engines.cuda.simt.padded_copy import add_padded_copy
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

_AS_STAGED = {
    "float": DataType.FLOAT,
    "double": DataType.DOUBLE,
    "int": DataType.INT32,
    "long long": DataType.INT64,
}
_WORTH_COPYING = 0.1  # the largest part of the predicted time that a copy of an operand may take


def copying_seconds(size: int, device: DeviceSpec) -> float:
    """Predicted seconds of a copy; a transpose reaches half of the bandwidth."""
    return device.launch + 4 * size / device.bandwidth


def is_worth_padding(product: GemmProblem, shape: Shape, im2col: TensorSpec, device: DeviceSpec) -> bool:
    """Whether a padded copy is cheap and saves the bounds checks of every element, as taps change within a K tile."""
    margins = product.margins
    # In wgrad one pixel address serves a whole row of a tile, so bounds checks cost less than a copy.
    if product.is_wgrad or has_one_tap(product, shape.tile) or not any(b or a for b, a in margins):
        return False
    grown = prod((b + a + n) / n for (b, a), n in zip(margins, im2col.dims[-len(margins) :], strict=True))
    copying = device.launch + im2col.bytes * (1 + grown) / device.bandwidth
    return copying < _WORTH_COPYING * shape.seconds


def is_worth_relayout(product: GemmProblem, shape: Shape, filters: TensorSpec, device: DeviceSpec) -> bool:
    """Whether a copy of the filter with contiguous channels pays: otherwise each element is a load of its own, from a
    cache line of its own.
    """
    if product.is_wgrad or (is_addressable(filters) and 1 in product.roles.space(filters).strides(filters)[1:3]):
        return False
    return copying_seconds(filters.bytes, device) < _WORTH_COPYING * shape.seconds


def _filter_axes(product: GemmProblem, filters: TensorSpec) -> tuple[int, int, list[int], list[int]]:
    """The axes of the outer channel, the summed channel, the taps (fastest first) and the groups."""
    rank = len(filters.extents)
    explicit = rank == product.roles.problem.spatial + 3
    outer, summed = (0, 1) if product.roles.direction == "fprop" else (1, 0)
    return outer + explicit, summed + explicit, [*range(2 + explicit, rank)][::-1], [0] * explicit


def outer_first(product: GemmProblem, filters: TensorSpec) -> tuple[int, ...]:
    """Strides with the outer channels contiguous, then the summed ones."""
    outer, summed, taps, groups = _filter_axes(product, filters)
    return _strides_in(filters.extents, [outer, summed, *taps, *groups])


def summed_first(product: GemmProblem, filters: TensorSpec) -> tuple[int, ...]:
    """Strides with the summed channels contiguous."""
    outer, summed, taps, groups = _filter_axes(product, filters)
    return _strides_in(filters.extents, [summed, *taps, outer, *groups])


def channels_last(image: TensorSpec, roles: Roles) -> tuple[int, ...]:
    rank, explicit = len(image.extents), len(image.extents) == roles.problem.spatial + 3
    return _strides_in(image.extents, [1 + explicit, *[1] * explicit, *range(rank - 1, 1 + explicit, -1), 0])


def _strides_in(extents: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """Packed strides with the axes in this order, the fastest first."""
    strides, size = [0] * len(extents), 1
    for axis in order:
        strides[axis] = size
        size *= extents[axis]
    return tuple(strides)


def padded_problem(
    steps: LaunchSequence, product: GemmProblem, im2col: TensorSpec, space: IndexSpace, staged: str
) -> tuple[GemmProblem, TensorSpec, IndexSpace]:
    """The GEMM problem of a zero-padded copy of the image, the copy, and its coordinates."""
    margins = product.margins
    outer = (0,) * (im2col.rank - len(margins))
    before, after = ((*outer, *(m[i] for m in margins)) for i in (0, 1))
    wide = _AS_STAGED[staged]  # converted once, instead of once for every tap
    copy = add_padded_copy(steps, im2col, before, after, wide, staged)
    first = SPATIAL - len(margins)
    sizes = copy.dims[-len(margins) :]
    axes = tuple(
        replace(axis, size=sizes[j - 3 - first]) if j >= 3 + first else axis for j, axis in enumerate(space.axes)
    )
    moved = product.moved(padded(tuple(b for b, _ in margins), 0), padded(sizes, 1))
    return moved, copy, IndexSpace(copy.extents, axes)
