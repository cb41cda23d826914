"""Operators that move elements or show them under other extents."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch

from graphdnn.builder.tensor import Tensor
from graphdnn.enums import PointwiseMode
from graphdnn.torch.lowering import Lowering, lowers

aten = torch.ops.aten

VIEWS = frozenset({
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default,
    aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.t.default,
    aten.transpose.int, aten.permute.default, aten.slice.Tensor, aten.select.int, aten.expand.default,
    aten.detach.default, aten.alias.default, aten.as_strided.default, aten.split.Tensor,
    aten.split_with_sizes.default, aten.unbind.int,
})  # fmt: skip  # for which PyTorch moves no element
CONSTANTS = frozenset({
    aten.full.default, aten.scalar_tensor.default, aten.zeros_like.default, aten.ones_like.default,
})  # fmt: skip  # which are numbers in a graph


@lowers(
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default,
    aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
)  # fmt: skip
def reshape(low: Lowering, x: Tensor, *sizes: Any) -> Tensor:
    return low.view(x, low.result.shape)


@lowers(aten.permute.default)
def permute(low: Lowering, x: Tensor, dims: Sequence[int]) -> Tensor:
    rank = len(x.get_dim())
    return low.typed(low.graph.transpose(x, [axis % rank for axis in dims], name=low.node.name))


@lowers(aten.t.default)
def t(low: Lowering, x: Tensor) -> Tensor:
    rank = len(low.result.shape)
    return permute(low, x, [*range(rank)][::-1])


@lowers(aten.transpose.int)
def transpose(low: Lowering, x: Tensor, first: int, second: int) -> Tensor:
    order = [*range(len(x.get_dim()))]
    order[first], order[second] = order[second], order[first]
    return permute(low, x, order)


@lowers(aten.slice.Tensor)
def slice(
    low: Lowering, x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    return _part(low, x, dim, builtins.slice(start, end, step))


def _part(low: Lowering, x: Tensor, dim: int, part: builtins.slice) -> Tensor:
    extents = x.get_dim()
    parts = [builtins.slice(0, n, 1) for n in extents]
    parts[dim] = builtins.slice(*part.indices(extents[dim]))
    if parts[dim].start == 0 and parts[dim].stop == extents[dim] and parts[dim].step == 1:
        return x
    return low.typed(low.graph.slice(x, parts, name=low.node.name))


@lowers(aten.select.int)
def select(low: Lowering, x: Tensor, dim: int, index: int) -> Tensor:
    index %= x.get_dim()[dim]
    return low.view(_part(low, x, dim, builtins.slice(index, index + 1, 1)), low.result.shape)


@lowers(aten.split.Tensor)
def split(low: Lowering, x: Tensor, split_size: int, dim: int = 0) -> list[Tensor | None]:
    extent = x.get_dim()[dim]
    starts = range(0, extent, split_size)
    return _parts(low, x, dim, [(i, min(i + split_size, extent)) for i in starts])


def _parts(low: Lowering, x: Tensor, dim: int, bounds: Sequence[tuple[int, int]]) -> list[Tensor | None]:
    """The parts between bounds; None for each part that no operator reads."""
    found = enumerate(bounds)
    return [_part(low, x, dim, builtins.slice(*ends, 1)) if low.is_read(i) else None for i, ends in found]


@lowers(aten.split_with_sizes.default)
def split_with_sizes(low: Lowering, x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor | None]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return _parts(low, x, dim, [(end - size, end) for end, size in zip(ends, sizes, strict=True)])


@lowers(aten.unbind.int)
def unbind(low: Lowering, x: Tensor, dim: int = 0) -> list[Tensor | None]:
    parts = _parts(low, x, dim, [(i, i + 1) for i in range(x.get_dim()[dim])])
    pairs = zip(parts, low.result, strict=True)
    return [None if part is None else low.view(part, fake.shape) for part, fake in pairs]


@lowers(aten.cat.default)
def cat(low: Lowering, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    if len(tensors) == 1:
        return tensors[0]
    wanted = low.data_type(low.result.dtype)
    same = [
        x if x.get_data_type() is wanted else low.pointwise(PointwiseMode.IDENTITY, x).set_data_type(wanted)
        for x in tensors
    ]
    axis = dim % len(tensors[0].get_dim())
    return low.typed(low.graph.concatenate(same, axis, name=low.node.name))


@lowers(aten.expand.default)
def expand(low: Lowering, x: Tensor, size: Sequence[int], implicit: bool = False) -> Tensor:
    """The operand with leading axes of one element: its readers are elementwise, and broadcast it themselves."""
    wanted, have = list(low.result.shape), x.get_dim()
    padded = [1] * (len(wanted) - len(have)) + have
    return low.view(x, padded)


@lowers(aten.as_strided.default)
def as_strided(
    low: Lowering, x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """The same elements with other strides of axes that have one element."""
    fake = low.node.args[0].meta["val"]
    wanted = [(n, step) for n, step in zip(size, stride, strict=True) if n != 1]
    have = [(n, step) for n, step in zip(fake.shape, fake.stride(), strict=True) if n != 1]
    if wanted != have or (storage_offset or 0) != fake.storage_offset():
        raise low.refuse(
            "size, stride", (list(size), list(stride)), "those of the input, except for axes of one element",
            "a graph has no access to the memory behind a tensor", "leave the operator to PyTorch",
        )  # fmt: skip
    return low.view(x, size)


@lowers(aten.constant_pad_nd.default)
def constant_pad(low: Lowering, x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """Slices for negative padding, then a concatenation with constants for each padded axis."""
    if any(n < 0 for n in pad):
        raise low.refuse("pad", list(pad), "at least 0", "a graph cuts with slices", "slice the tensor first")
    kind = low.data_type(low.result.dtype)
    for which in range(len(pad) // 2):
        axis = len(low.result.shape) - 1 - which
        before, after = pad[2 * which : 2 * which + 2]
        pieces = [*_filled(low, x, axis, before, value), x, *_filled(low, x, axis, after, value)]
        if len(pieces) > 1:
            x = low.graph.concatenate(pieces, axis, name=low.node.name).set_data_type(kind)
    return x


def _filled(low: Lowering, x: Tensor, axis: int, extent: int, value: float) -> list[Tensor]:
    """Constants with the extents of ``x``, which have ``extent`` elements on an axis together.

    An elementwise operation has the extents of an operand, so each constant is ``0 * index + value`` of a part of x.
    """
    kind = low.data_type(low.result.dtype)
    compute = low.arithmetic(kind)
    made = []
    while extent > 0:
        size = min(extent, x.get_dim()[axis])
        index = low.graph.gen_index(_part(low, x, axis, builtins.slice(0, size)), axis=axis, compute_data_type=compute)
        zero = low.pointwise(PointwiseMode.MUL, index.set_data_type(compute), 0, compute=compute).set_data_type(compute)
        made.append(low.pointwise(PointwiseMode.ADD, zero, value, compute=compute).set_data_type(kind))
        extent -= size
    return made


@lowers(aten.full.default, aten.scalar_tensor.default)
def full(low: Lowering, *arguments: Any, **options: Any) -> Any:
    """A number, which readers broadcast."""
    return arguments[-1]


@lowers(aten.zeros_like.default)
def zeros_like(low: Lowering, x: Tensor, **options: Any) -> Any:
    """The number 0, which readers broadcast."""
    return 0


@lowers(aten.ones_like.default)
def ones_like(low: Lowering, x: Tensor, **options: Any) -> Any:
    """The number 1, which readers broadcast."""
    return 1


@lowers(aten.roll.default)
def roll(low: Lowering, x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """The last elements of each axis, then the others."""
    if not dims:
        raise low.refuse(
            "dims", list(dims), "axes", "an axis is rolled at a time", "flatten the tensor and name axis 0"
        )
    for shift, dim in zip(shifts, dims, strict=True):
        axis = dim % len(x.get_dim())
        extent = x.get_dim()[axis]
        start = -shift % extent
        if start:
            pieces = [_part(low, x, axis, builtins.slice(start, extent)), _part(low, x, axis, builtins.slice(0, start))]
            x = low.typed(low.graph.concatenate(pieces, axis, name=low.node.name))
    return x
