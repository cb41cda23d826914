"""Pooling and interpolation of [N, C, spatial...] on NumPy arrays, forward and backward.

Every mode is separable: maxima, sums and interpolations over a window are
taken along one axis after the other. What an axis does is a table, for every
output position the source elements it reads (its taps) and their weights, and
one loop over taps serves all modes. The gradient of a linear mode reads the
transposed table, which makes it the exact adjoint of the forward pass; the
gradient of a maximum goes where its index says.

Along an axis, output o has the window that starts at o*stride - pre, and there
are 1 + floor((x + pre + post - window)/stride) of them, in fractions. What the
backend documentation leaves open is settled here:

* MAXPOOL and padding: elements of ZERO_PAD (zeros) and EDGE_VAL_PAD (the
  nearest element) take part, those of NEG_INF_PAD do not. A window of nothing
  but NEG_INF_PAD gives -inf (the smallest integer) and an index into padding.
* The index is the row-major position in the window, padding counted, of the
  first maximum. The gradient of a padding zero or -inf goes nowhere, that of
  an edge value to the edge.
* NaN: if propagated, the first NaN of a window is its maximum; if not, NaN
  loses against everything and comes out of windows of NaN only.
* AVGPOOL_INCLUDE_PADDING divides by the volume of the window (EDGE_VAL_PAD
  averages edge values in); AVGPOOL_EXCLUDE_PADDING leaves padding out, whatever
  its mode, and gives 0 for a window of nothing else.
* NEAREST reads the element at floor(o*stride - pre + (window - 1)/2), the
  middle of the window: windows of 1 without pre-padding copy each element k
  times for a stride of 1/k, and those of BILINEAR do so too for the factor 2.
* BILINEAR interpolates at (o + 1/2)*stride - pre, between the elements below
  and above, with weights by distance. A pre-padding of 1/2 puts the samples at
  the centres of the output pixels, for any stride; so the documented 2x
  upsampling (window 2, stride 1/2, pre 1/2, post 1, EDGE_VAL_PAD) has the
  weights 1/4 and 3/4 of the usual half-pixel convention.
* Outside x, interpolation reads zeros or, in EDGE_VAL_PAD, the nearest element.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import floor, lcm, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdnn.enums import PaddingMode, ResampleMode

Array = NDArray[Any]
Positions = NDArray[np.int64]

_EXACT = 2**62  # what 64-bit numbers hold, with room for a window beside it
_FAR = 2**62  # outside of every image


@dataclass(frozen=True, slots=True)
class Resampling:
    """Parameters, one entry per spatial axis, outermost first. Pooling takes whole numbers only."""

    mode: ResampleMode
    padding: PaddingMode
    strides: tuple[Fraction, ...]
    pre: tuple[Fraction, ...]
    post: tuple[Fraction, ...]
    window: tuple[Fraction, ...]
    propagate_nan: bool = False

    def outputs(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """Output extents for the spatial extents of x."""
        axes = zip(spatial, self.pre, self.post, self.window, self.strides, strict=True)
        return tuple(1 + floor((x + pre + post - window) / stride) for x, pre, post, window, stride in axes)


def resample(x: Array, how: Resampling) -> Array:
    """y[N, C, outputs...] of a float x[N, C, spatial...] (MAXPOOL: of integers too), in the dtype of x."""
    if how.mode is ResampleMode.MAXPOOL:
        return maximum(x, how)[0]
    with np.errstate(all="ignore"):
        y = x
        for axis, table in _tables(x.shape[2:], how):
            y = _weighted_sum(y, axis, table)
        return _divided(y, x.shape[2:], how)


def resample_backward(
    dy: Array,
    how: Resampling,
    x_extents: tuple[int, ...],
    *,
    index: Array | None = None,
    x: Array | None = None,
) -> Array:
    """dx of ``x_extents`` from dy; MAXPOOL needs the forward ``index``, or x to find it again."""
    if how.mode is ResampleMode.MAXPOOL:
        if index is None:
            if x is None:
                raise ValueError("the gradient of a maximum needs its index or the forward input")
            index = maximum(x, how)[1]
        return _routed(dy, how, x_extents, index)
    with np.errstate(all="ignore"):
        dx = _divided(dy, x_extents[2:], how)
        for axis, table in _tables(x_extents[2:], how):
            dx = _weighted_sum(dx, axis, _transposed(table, x_extents[axis]))
    return dx


# Tables


@dataclass(frozen=True, slots=True)
class _Taps:
    """What the outputs of one axis read; all arrays are [outputs, taps]."""

    source: Positions  # a valid position in x, also where it is not used
    used: NDArray[np.bool_]
    weight: NDArray[np.float64]


def _tables(spatial: tuple[int, ...], how: Resampling) -> list[tuple[int, _Taps]]:
    """(axis of the array, taps) of every spatial axis."""
    if how.padding is PaddingMode.NEG_INF_PAD and how.mode is not ResampleMode.MAXPOOL:
        raise ValueError("NEG_INF_PAD has a meaning for maxima only")
    outputs = how.outputs(spatial)
    return [(i + 2, _taps(extent, outputs[i], i, how)) for i, extent in enumerate(spatial)]


def _taps(extent: int, outputs: int, i: int, how: Resampling) -> _Taps:
    stride, pre, window = how.strides[i], how.pre[i], how.window[i]
    if how.mode is ResampleMode.NEAREST:
        position, _ = _floor_line(outputs, stride, (window - 1) / 2 - pre)
        taps, weight = position[:, None], np.ones((outputs, 1))
    elif how.mode is ResampleMode.BILINEAR:
        below, fraction = _floor_line(outputs, stride, stride / 2 - pre)
        taps = np.stack((below, below + 1), axis=1)
        weight = np.stack((1.0 - fraction, fraction), axis=1)
    else:
        taps = _window_starts(outputs, i, how)[:, None] + np.arange(int(window))
        weight = np.ones(taps.shape)
    inside = (taps >= 0) & (taps < extent)
    stretches = how.padding is PaddingMode.EDGE_VAL_PAD and how.mode is not ResampleMode.AVGPOOL_EXCLUDE_PADDING
    return _Taps(np.clip(taps, 0, extent - 1), (inside | stretches) & (weight != 0), weight)


def _floor_line(count: int, slope: Fraction, start: Fraction) -> tuple[Positions, NDArray[np.float64]]:
    """Floor and fractional part of o*slope + start for o below ``count``, exact."""
    unit = lcm(slope.denominator, start.denominator)
    step, first = int(slope * unit), int(start * unit)
    if unit <= _EXACT and abs(first) + count * abs(step) <= _EXACT:
        line = np.arange(count, dtype=np.int64) * step + first
        return line // unit, (line % unit) / unit
    pairs = [divmod(o * step + first, unit) for o in range(count)]  # Python's integers have no end
    floors = [min(max(floor, -_FAR), _FAR) for floor, _ in pairs]
    return np.array(floors, np.int64), np.array([rest / unit for _, rest in pairs])


def _window_starts(outputs: int, i: int, how: Resampling) -> Positions:
    return _floor_line(outputs, how.strides[i], -how.pre[i])[0]


def _transposed(table: _Taps, extent: int) -> _Taps:
    """The table by which x gathers what the outputs would have scattered: [extent, readers]."""
    output, tap = np.nonzero(table.used)
    source = table.source[output, tap]
    order = np.argsort(source, kind="stable")
    readers = np.bincount(source, minlength=extent)
    place = np.arange(len(order)) - np.repeat(np.cumsum(readers) - readers, readers)
    shape = (extent, max(int(readers.max(initial=0)), 1))
    result = _Taps(np.zeros(shape, np.int64), np.zeros(shape, np.bool_), np.zeros(shape))
    slot = source[order], place
    result.source[slot] = output[order]
    result.used[slot] = True
    result.weight[slot] = table.weight[output, tap][order]
    return result


# The two loops over taps


def _weighted_sum(x: Array, axis: int, table: _Taps) -> Array:
    result: Array | None = None
    for k in range(table.source.shape[1]):
        values = _gathered(x, axis, table.source[:, k])
        if not (table.weight[:, k] == 1.0).all():
            values = values * _column(table.weight[:, k].astype(x.dtype), axis, x.ndim)
        if not table.used[:, k].all():  # by selection: a weight of 0 would make NaN of an infinity
            values = np.where(_column(table.used[:, k], axis, x.ndim), values, x.dtype.type(0))
        result = values if result is None else result + values
    assert result is not None  # there is at least one tap
    return np.array(result) if table.source.shape[1] == 1 else result  # never a view of x


def maximum(x: Array, how: Resampling) -> tuple[Array, Array]:
    """(y, index) of MAXPOOL over x[N, C, spatial...]; see the module for padding, NaN and the index."""
    best, index = x, np.zeros((1,) * x.ndim, np.int64)
    volume = 1
    with np.errstate(all="ignore"):
        # From the innermost axis out, the first maximum of each axis is the first in row-major order.
        for axis, table in reversed(_tables(x.shape[2:], how)):
            best, index = _first_maximum(best, index, axis, table, how, volume)
            volume *= table.source.shape[1]
    return best, np.array(np.broadcast_to(index, best.shape))


def _first_maximum(
    x: Array, inner: Array, axis: int, table: _Taps, how: Resampling, volume: int
) -> tuple[Array, Array]:
    """Maximum along ``axis`` and its position; ``inner`` are the positions of the values of x so far."""
    zeros = how.padding is PaddingMode.ZERO_PAD
    outside = x.dtype.type(0) if zeros else _lowest(x.dtype)

    def candidate(tap: int) -> tuple[Array, Array, Array]:
        source, inside = table.source[:, tap], _column(table.used[:, tap], axis, x.ndim)
        values = np.where(inside, _gathered(x, axis, source), outside)
        positions = tap * volume + np.where(inside, _gathered(inner, axis, source), 0)
        return values, positions, inside | zeros

    best, index, seen = candidate(0)
    for tap in range(1, table.source.shape[1]):
        values, positions, present = candidate(tap)
        better = present & (~seen | _beats(values, best, how.propagate_nan))
        best, index = np.where(better, values, best), np.where(better, positions, index)
        seen = seen | present
    return best, index


def _beats(challenger: Array, holder: Array, propagate_nan: bool) -> Array:
    greater = np.asarray(challenger > holder)
    if challenger.dtype.kind != "f":
        return greater
    wins, loses = (challenger, holder) if propagate_nan else (holder, challenger)
    return np.asarray(greater | (np.isnan(wins) & ~np.isnan(loses)))


def _lowest(dtype: np.dtype[Any]) -> Any:
    return dtype.type(-np.inf) if dtype.kind == "f" else np.iinfo(dtype).min


def _gathered(x: Array, axis: int, source: Positions) -> Array:
    """Elements ``source`` of the axis, as a view where they are evenly spaced."""
    if x.shape[axis] == 1:
        return x if len(source) == 1 else np.repeat(x, len(source), axis=axis)
    steps = np.diff(source)
    if len(steps) and steps[0] > 0 and (steps == steps[0]).all():
        where = slice(int(source[0]), int(source[-1]) + 1, int(steps[0]))
        return x[(slice(None),) * axis + (where,)]
    return np.take(x, source, axis=axis)


def _column(values: Array, axis: int, rank: int) -> Array:
    """``values`` along one axis of an array of ``rank`` axes."""
    return values.reshape([-1 if a == axis else 1 for a in range(rank)])


# Divisors of the averages, and the gradient of a maximum


def _divided(values: Array, spatial: tuple[int, ...], how: Resampling) -> Array:
    """``values``, of the extents of y, over the number of elements averaged; ``spatial`` are those of x."""
    if how.mode is ResampleMode.AVGPOOL_INCLUDE_PADDING:
        return np.asarray(values / values.dtype.type(int(prod(how.window))))
    if how.mode is not ResampleMode.AVGPOOL_EXCLUDE_PADDING:
        return values
    counts = (_column(table.used.sum(axis=1), axis, values.ndim) for axis, table in _tables(spatial, how))
    return np.asarray(values / np.maximum(reduce(np.multiply, counts), 1).astype(values.dtype))


def _routed(dy: Array, how: Resampling, x_extents: tuple[int, ...], index: Array) -> Array:
    """dx of MAXPOOL. Indices outside the window or, but for edge values, outside x add nothing."""
    rank = len(x_extents)
    kernel = tuple(int(w) for w in how.window)
    lands = (index >= 0) & (index < prod(kernel))
    offsets = np.unravel_index(np.where(lands, index, 0).astype(np.int64), kernel)
    images = np.arange(x_extents[0] * x_extents[1]).reshape(*x_extents[:2], *(1,) * (rank - 2))
    flat: Array = images
    for i, extent in enumerate(x_extents[2:]):
        position = _column(_window_starts(dy.shape[i + 2], i, how), i + 2, rank) + offsets[i]
        clipped = np.clip(position, 0, extent - 1)
        if how.padding is not PaddingMode.EDGE_VAL_PAD:
            lands = lands & (position == clipped)
        flat = flat * extent + clipped
    dx = np.zeros(prod(x_extents), dy.dtype)
    with np.errstate(all="ignore"):
        np.add.at(dx, flat[lands], dy[lands])
    return dx.reshape(x_extents)
