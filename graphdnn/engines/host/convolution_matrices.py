"""Matrices out of arrays of more axes, in given memory, and their products: what the blocked convolution rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Array = NDArray[Any]

_NARROW = 16  # channels per group below which runs of them are too short to copy one by one


def flat_view(buffer: Array, count: int, dtype: np.dtype[Any]) -> Array:
    return buffer[: count * dtype.itemsize].view(dtype)


def stack(buffer: Array, extents: Sequence[int], dtype: np.dtype[Any], transposed: bool) -> Array:
    """A stack of matrices in a buffer, contiguous along rows, or along columns if ``transposed``."""
    *stack, rows, columns = extents
    flat = flat_view(buffer, prod(extents), dtype)
    return flat.reshape(*stack, columns, rows).swapaxes(-1, -2) if transposed else flat.reshape(extents)


def matrices(array: Array, groups: tuple[int, ...], dtype: np.dtype[Any], buffer: Array, transposed: bool) -> Array:
    """``array`` as a stack of matrices in ``dtype`` that BLAS takes, its axes merged as ``groups`` says.

    A view where there is one, a copy in the buffer otherwise, laid out as ``transposed`` says.
    """
    view = for_blas(array, groups, dtype)
    if view is not None:
        return view
    ends = np.cumsum((0, *groups))
    matrices = stack(buffer, [prod(array.shape[a:b]) for a, b in pairwise(ends)], dtype, transposed)
    np.copyto(matrices.reshape(array.shape), array, casting="unsafe")  # reshape splits axes: a view
    return matrices


def collapse(array: Array, *groups: int) -> Array | None:
    """The view whose axes merge so many consecutive ones each, None where memory does not allow it."""
    shape, strides, axis = [], [], 0
    for count in groups:
        extent, stride = 1, 0
        for a in reversed(range(axis, axis + count)):
            if array.shape[a] == 1:
                continue
            if extent > 1 and array.strides[a] != stride * extent:
                return None
            stride = stride if extent > 1 else array.strides[a]
            extent *= array.shape[a]
        shape.append(extent)
        strides.append(stride)
        axis += count
    return as_strided(array, shape, strides)


def for_blas(array: Array, groups: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """A view as matrices that BLAS takes, contiguous along one axis and overlapping nowhere; None if there is none."""
    stack = collapse(array, *groups) if array.dtype == dtype else None
    if stack is None:
        return None
    (rows, columns), (down, across), size = stack.shape[-2:], stack.strides[-2:], dtype.itemsize
    along_rows = (across == size or columns == 1) and (down >= columns * size or rows == 1)
    along_columns = (down == size or rows == 1) and (across >= rows * size or columns == 1)
    return stack if (along_rows or along_columns) and down % size == across % size == 0 else None


def is_transposed(stack: Array) -> bool:
    """True for matrices that are contiguous along columns, not along rows."""
    return stack.strides[-1] != stack.itemsize and stack.strides[-2] == stack.itemsize


def multiply(a: Array, b: Array, out: Array) -> None:
    """out = a @ b for stacks of matrices. BLAS writes along rows, so it may be the transposed product to ask for."""
    if out.strides[-1] == out.itemsize or out.shape[-1] == 1:
        np.matmul(a, b, out=out)
    else:
        np.matmul(b.swapaxes(-1, -2), a.swapaxes(-1, -2), out=out.swapaxes(-1, -2))


def is_channels_last(array: Array) -> bool:
    """True where channels lie closer together than positions."""
    channel = 2 if array.shape[2] > 1 else 1
    wide = [abs(array.strides[a]) for a in range(3, array.ndim) if array.shape[a] > 1]
    return array.shape[channel] > 1 and (not wide or abs(array.strides[channel]) < min(wide))


def has_positions_inner(array: Array) -> bool:
    """True where matrices of it are to have positions innermost, as NCHW has them; narrow groups of NHWC, too."""
    return not is_channels_last(array) or (array.shape[1] > 1 and array.shape[2] < _NARROW)


def spatial(array: Array, index: Iterable[Any]) -> Array:
    """``array[..., *index]``."""
    key: tuple[Any, ...] = (..., *index)
    return np.asarray(array[key])
