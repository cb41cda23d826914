"""How a convolution is cut: the filter into parts, positions into blocks, and x into patches for a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from graphdnn.engines.host.convolution_matrices import flat_view, has_positions_inner, is_channels_last, spatial
from graphdnn.operations.conv_problem import ConvProblem

Array = NDArray[Any]

BLOCK_BYTES = 4 << 20  # of patches; BLAS packs the filter anew for each block, and large blocks leave the caches
_FILTER_BYTES = 16 << 20
_DEPTH = 1 << 14  # products summed by one matrix product, so that a block has at least some dozens of positions
_FEW = 4  # times fewer outputs than channels from which other things than patches of x are smaller
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Extents of one part (g, k, c, *filter) and of one block of positions (n, *output), and buffer sizes."""

    part: tuple[int, ...]
    block: tuple[int, ...]
    by_taps: bool  # fprop multiplies windows, not patches
    sizes: tuple[int, ...]  # bytes of the buffers

    @property
    def bytes(self) -> int:
        return sum(self.sizes) + _ALIGNMENT

    def buffers(self, memory: Array) -> Buffers:
        start = -memory.__array_interface__["data"][0] % _ALIGNMENT
        pieces = []
        for size in self.sizes:
            pieces.append(memory[start : start + size])
            start += size
        return Buffers(*pieces)


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes of scratch by use."""

    window: Array  # x, padded and converted
    patches: Array
    filter: Array  # w as a matrix, in wgrad the product of one block
    rows: Array  # dy of a block as a matrix, in fprop its product


def few_outputs(problem: ConvProblem) -> bool:
    """Whether patches of x are several times larger than all taps' products of x, and than patches of dy."""
    return problem.taps > 1 and problem.k * prod(problem.stride) * _FEW <= problem.c


@lru_cache(maxsize=1024)
def plan_for(problem: ConvProblem, compute: np.dtype[Any], by_taps: bool, block_bytes: int | None = None) -> Plan:
    size = compute.itemsize
    block_bytes = block_bytes or BLOCK_BYTES
    part = _part_extents(problem, problem.filter, size, block_bytes)
    block = _block_extents(problem, part, size, by_taps, block_bytes)
    if _window_elements(problem, part, block) > block_bytes // size:
        # The taps of even one output are too far apart: take them one at a time, which leaves no gaps.
        part = _part_extents(problem, (1,) * problem.spatial, size, block_bytes)
        block = _block_extents(problem, part, size, by_taps, block_bytes)
    g, k, c, *filter = part
    window, rows = _window_elements(problem, part, block), g * prod(block)
    patches = (window // c * k if by_taps else rows * c) * prod(filter)
    elements = (window, patches, prod(part), rows * k)
    return Plan(part, block, by_taps, tuple(-(-e * size // _ALIGNMENT) * _ALIGNMENT for e in elements))


def _part_extents(problem: ConvProblem, filter: tuple[int, ...], itemsize: int, block_bytes: int) -> tuple[int, ...]:
    """(g, k, c, *filter) of a part, with at most ``filter`` taps."""
    contraction = _tile((problem.c, *filter), _DEPTH)
    (k,) = _tile((problem.k,), _FILTER_BYTES // itemsize // prod(contraction))
    (g,) = _tile((problem.groups,), block_bytes // itemsize // max(k, prod(contraction)))
    return (g, k, *contraction)


def _block_extents(
    problem: ConvProblem, part: tuple[int, ...], itemsize: int, by_taps: bool, block_bytes: int
) -> tuple[int, ...]:
    """(n, *output) of a block whose window, patches and products keep to the limit, if any block does."""
    g, k, c, *filter = part
    limit = block_bytes // itemsize
    positions = (problem.n, *problem.output)
    widest = max(k * prod(filter), c) if by_taps else max(k, c * prod(filter))
    block = _tile(positions, limit // (g * widest))
    while _window_elements(problem, part, block) > limit and prod(block) > 1:
        block = _tile(positions, prod(block) // 2)
    return block


def _tile(extents: Sequence[int], limit: int) -> tuple[int, ...]:
    """Largest block of at most ``limit`` elements (but one at least) that is filled from the last axis on."""
    tile = [1] * len(extents)
    for axis in reversed(range(len(extents))):
        most = max(1, limit // prod(tile))
        pieces = -(-extents[axis] // most)
        tile[axis] = -(-extents[axis] // pieces)  # pieces of about equal size
        if pieces > 1:
            break
    return tuple(tile)


def slices(extents: Sequence[int], tile: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    starts = (range(0, e, t) for e, t in zip(extents, tile, strict=True))
    for corner in product(*starts):
        yield tuple(slice(a, min(a + t, e)) for a, t, e in zip(corner, tile, extents, strict=True))


def _window_elements(problem: ConvProblem, part: tuple[int, ...], block: tuple[int, ...]) -> int:
    spans = []
    axes = (problem.output, block[1:], part[3:], problem.stride, problem.dilation)
    for outputs, o, f, stride, dilation in zip(*axes, strict=True):
        step = _common_step(outputs, f, stride, dilation)
        spans.append(_span(o, f, stride // step, dilation // step))
    return block[0] * part[0] * part[2] * prod(spans)


def _span(outputs: int, taps: int, stride: int, dilation: int) -> int:
    """Inputs from the first to the last that some consecutive outputs read."""
    return (outputs - 1) * stride + (taps - 1) * dilation + 1


def _common_step(outputs: int, taps: int, stride: int, dilation: int) -> int:
    """Divides the distance between any two inputs that are read."""
    return gcd(stride if outputs > 1 else 0, dilation if taps > 1 else 0) or 1


@dataclass(frozen=True, slots=True)
class _Part:
    """A problem over some channels and taps, and where its operands lie in those of the whole."""

    problem: ConvProblem
    x: tuple[slice | Any, ...]
    w: tuple[slice, ...]
    y: tuple[slice | Any, ...]
    adds: bool  # an earlier part has written the same outputs


def parts_of(problem: ConvProblem, plan: Plan) -> Iterator[_Part]:
    for g, k, c, *taps in slices(problem.w_extents, plan.part):
        filter = tuple(t.stop - t.start for t in taps)
        if problem.flip:  # tap i is element filter-1-i
            starts = tuple(f - t.stop for f, t in zip(problem.filter, taps, strict=True))
        else:
            starts = tuple(t.start for t in taps)
        shift = zip(problem.pre_padding, starts, problem.dilation, strict=True)
        yield _Part(
            problem=replace(
                problem,
                groups=g.stop - g.start,
                k=k.stop - k.start,
                c=c.stop - c.start,
                filter=filter,
                pre_padding=tuple(pre - start * dilation for pre, start, dilation in shift),
            ),
            x=(slice(None), g, c),
            w=(g, k, c, *taps),
            y=(slice(None), g, k),
            adds=c.start > 0 or any(t.start for t in taps),
        )


def without_gaps(problem: ConvProblem, x: Array) -> tuple[ConvProblem, Array]:
    """The same problem on every ``step``-th element of x alone, where none of the others is ever read."""
    steps = [
        _common_step(o, f, stride, dilation)
        for o, f, stride, dilation in zip(problem.output, problem.filter, problem.stride, problem.dilation, strict=True)
    ]
    if all(step == 1 for step in steps):
        return problem, x
    firsts = [-pre % step for pre, step in zip(problem.pre_padding, steps, strict=True)]
    narrow = spatial(x, (slice(first, None, step) for first, step in zip(firsts, steps, strict=True)))
    paddings = zip(problem.pre_padding, firsts, steps, strict=True)
    reduced = replace(
        problem,
        input=narrow.shape[3:],
        pre_padding=tuple((pre + first) // step for pre, first, step in paddings),
        # Rounded only on an axis with a single output or tap, where nothing is that far apart.
        stride=tuple(max(1, stride // step) for stride, step in zip(problem.stride, steps, strict=True)),
        dilation=tuple(dilation // step for dilation, step in zip(problem.dilation, steps, strict=True)),
    )
    return reduced, narrow


def patches_of(problem: ConvProblem, x: Array, block: tuple[slice, ...], dtype: np.dtype[Any], buffer: Array) -> Array:
    """View [g, n, *output, c, *filter] of what a block (n, *output) of outputs reads, in ``dtype``."""
    window = window_of(problem, x, block, dtype, buffer)
    n, g, c, *spatial = window.strides
    positions = tuple(o.stop - o.start for o in block[1:])
    per_output = _paces(spatial, problem.stride, positions)
    per_tap = _paces(spatial, problem.dilation, problem.filter)
    shape = (window.shape[1], window.shape[0], *positions, window.shape[2], *problem.filter)
    view = as_strided(window, shape, (g, n, *per_output, c, *per_tap))
    return np.flip(view, tuple(range(-problem.spatial, 0))) if problem.flip else view


def _paces(strides: Sequence[int], factors: Sequence[int], extents: Sequence[int]) -> tuple[int, ...]:
    """Bytes from one element of a view to the next; along an axis of one element any, whatever its factor is."""
    return tuple([s * factor if size > 1 else s for s, factor, size in zip(strides, factors, extents, strict=True)])


def window_of(
    problem: ConvProblem, x: Array, block: tuple[slice, ...], dtype: np.dtype[Any], buffer: Array, copy: bool = False
) -> Array:
    """The box [n, g, c, *span] of x that a block of outputs reads, zero outside x.

    A view of x itself where that will do, unless ``copy`` asks for one that is contiguous.
    """
    images, *outputs = block
    x = x[images]
    spans, inside, source = [], [], []
    axes = (outputs, problem.filter, problem.stride, problem.dilation, problem.pre_padding, problem.input)
    for o, f, stride, dilation, pre, size in zip(*axes, strict=True):
        low = o.start * stride - pre
        span = _span(o.stop - o.start, f, stride, dilation)
        first = min(max(-low, 0), span)
        last = max(min(size - low, span), first)
        spans.append(span)
        inside.append(slice(first, last))
        source.append(slice(low + first, low + last) if last > first else slice(0))
    core = spatial(x, source)
    positions_inner = has_positions_inner(x)
    rearranged = positions_inner and is_channels_last(x) and problem.taps > 1  # once here spares every tap from it
    if core.shape[3:] == tuple(spans) and x.dtype == dtype and not (copy or rearranged):
        return core
    n, g, c = x.shape[:3]
    flat = flat_view(buffer, n * g * c * prod(spans), dtype)
    if positions_inner:
        window = flat.reshape(n, g, c, *spans)
    else:
        window = np.moveaxis(flat.reshape(n, *spans, g, c), (-2, -1), (1, 2))
    for axis, (i, span) in enumerate(zip(inside, spans, strict=True), start=3):
        before = (slice(None),) * axis
        window[(*before, slice(i.start))] = 0
        window[(*before, slice(i.stop, span))] = 0
    np.copyto(spatial(window, inside), core, casting="unsafe")
    return window
