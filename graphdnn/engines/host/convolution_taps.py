"""Convolution one filter tap at a time: plain slicing and one contraction per tap. The oracle.

Shares nothing with the blocked implementation beside it. Integers are
multiplied and summed in the compute type, which wraps like the hardware does.
Taps outside x are left out, so padding contributes nothing even to a filter value that is not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdnn.operations.conv_problem import ConvProblem

Array = NDArray[Any]
_Index = tuple[Any, ...]
_PART = 1 << 17  # elements of a result that are summed at a time


def _direction(sums: Callable[[ConvProblem, Array, Array], Array]) -> Callable[..., Array]:
    """``sums`` of operands of one type, as engines call a direction: of any types, in ``compute``."""

    @np.errstate(all="ignore")
    @wraps(sums)
    def direction(
        problem: ConvProblem,
        first: Array,
        second: Array,
        *,
        compute: np.dtype[Any],
        out: Array | None = None,
        scratch: Array | None = None,
    ) -> Array:
        """``out`` is written and returned where given; ``scratch`` is not used."""
        result = sums(problem, first.astype(compute, copy=False), second.astype(compute, copy=False))
        if out is None:
            return result
        out[...] = result
        return out

    return direction


@_direction
def fprop_by_taps(problem: ConvProblem, x: Array, w: Array) -> Array:
    """y ``[N, G, K, *output]`` from x ``[N, G, C, *input]`` and w ``[G, K, C, *filter]``."""
    y = np.zeros(problem.y_extents, x.dtype)
    for part in _images(y):
        images, sums = x[part], y[part]
        for tap, xs, ys in _taps(problem):
            sums[ys] += (w[tap].copy() @ _matrices(images[xs])).reshape(sums[ys].shape)
    return y


@_direction
def dgrad_by_taps(problem: ConvProblem, dy: Array, w: Array) -> Array:
    """dx ``[N, G, C, *input]`` from dy and w; positions that the forward never reads get 0."""
    dx = np.zeros(problem.x_extents, dy.dtype)
    for part in _images(dx):
        images, sums = dy[part], dx[part]
        for tap, xs, ys in _taps(problem):
            sums[xs] += (w[tap].swapaxes(1, 2).copy() @ _matrices(images[ys])).reshape(sums[xs].shape)
    return dx


@_direction
def wgrad_by_taps(problem: ConvProblem, x: Array, dy: Array) -> Array:
    """dw ``[G, K, C, *filter]`` from x and dy; a tap that meets only padding gets 0."""
    dw = np.zeros(problem.w_extents, x.dtype)
    for tap, xs, ys in _taps(problem):
        images = _matrices(dy[ys]) @ _matrices(x[xs]).swapaxes(2, 3)
        dw[tap] += images.sum(axis=0, dtype=dw.dtype)
    return dw


def _images(result: Array) -> Iterator[slice]:
    """A few images at a time: their sums stay in the cache, and each sum has the same order."""
    count = max(1, _PART * len(result) // max(result.size, 1))
    return (slice(first, first + count) for first in range(0, len(result), count))


def _taps(problem: ConvProblem) -> Iterator[tuple[_Index, _Index, _Index]]:
    """(index of w, of x, of y) of every tap, cut to where the tap lies inside x."""
    for tap in product(*map(range, problem.filter)):
        cut = [_inside(problem, axis, i) for axis, i in enumerate(tap)]
        if any(ys.start >= ys.stop for _, ys in cut):
            continue
        index = tuple(f - 1 - i for f, i in zip(problem.filter, tap, strict=True)) if problem.flip else tap
        yield (..., *index), (..., *(xs for xs, _ in cut)), (..., *(ys for _, ys in cut))


def _inside(problem: ConvProblem, axis: int, tap: int) -> tuple[slice, slice]:
    """Positions of x that a tap reads on one axis, and the outputs p that it reads them for."""
    stride, size = problem.stride[axis], problem.input[axis]
    offset = tap * problem.dilation[axis] - problem.pre_padding[axis]
    first = max(0, -(offset // stride))  # smallest p with p*stride + offset >= 0
    last = min(problem.output[axis] - 1, (size - 1 - offset) // stride)  # largest with p*stride + offset < size
    return slice(first * stride + offset, last * stride + offset + 1, stride), slice(first, last + 1)


def _matrices(array: Array) -> Array:
    """[n, g, channels, positions], contiguous: BLAS adds in an order that depends on the layout of its operands."""
    return np.ascontiguousarray(array.reshape(*array.shape[:3], -1))
