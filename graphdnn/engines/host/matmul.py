"""Matrix products over stacks, with the backend's two ways to share a matrix between batches.

The Matmul operation ends here. Floats go to BLAS, integers to ``integers``,
where nothing rounds.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from graphdnn.engines.host.integers import exact_matmul

Array = NDArray[Any]


def matmul(a: Array, b: Array, compute: DTypeLike) -> Array:
    """c[batch..., M, N] = a[batch..., M, K] @ b[batch..., K, N] in ``compute`` (float32/64, int32/64).

    Ranks are equal. Per batch axis the extents are equal or one divides the other: then as many consecutive
    batches as the quotient says share one matrix (extent 1 is ordinary broadcasting, a true divisor the
    grouped form of attention). Integers are exact, modulo 2**32 or 2**64.
    """
    dtype = np.dtype(compute)
    grouped_a, grouped_b, batch = _grouped(a, b)
    if dtype.kind == "i":
        stacked = exact_matmul(grouped_a, grouped_b, dtype)
    else:
        with np.errstate(all="ignore"):
            stacked = np.asarray(np.matmul(_for_blas(grouped_a, dtype), _for_blas(grouped_b, dtype)))
    return stacked.reshape(*batch, a.shape[-2], b.shape[-1])


def _grouped(a: Array, b: Array) -> tuple[Array, Array, tuple[int, ...]]:
    """Views in which each batch axis is split in two, (batches of the smaller operand, their sharers)."""
    split_a: list[int] = []
    split_b: list[int] = []
    for extent_a, extent_b in zip(a.shape[:-2], b.shape[:-2], strict=True):
        groups = min(extent_a, extent_b)
        if max(extent_a, extent_b) % groups:
            raise ValueError(f"batch extents {extent_a} and {extent_b} do not divide each other")
        split_a += [groups, extent_a // groups]
        split_b += [groups, extent_b // groups]
    batch = tuple(max(pair) for pair in zip(a.shape[:-2], b.shape[:-2], strict=True))
    return a.reshape(*split_a, *a.shape[-2:]), b.reshape(*split_b, *b.shape[-2:]), batch


def _for_blas(x: Array, dtype: np.dtype[Any]) -> Array:
    """``x`` in ``dtype`` with a contiguous matrix axis: NumPy multiplies anything else in a slow loop."""
    converted = x.astype(dtype, copy=False)
    rows, columns = converted.strides[-2:]
    step = dtype.itemsize
    blas = (columns == step and rows >= step * x.shape[-1]) or (rows == step and columns >= step * x.shape[-2])
    return converted if blas or prod(x.shape[-2:]) == 1 else np.ascontiguousarray(converted)
