"""Reductions on NumPy arrays, and the sum that all statistics are built on.

The Reduction operation ends here, and so does every mean of the normalizations.
Sums of floats are pairwise: NumPy adds pairwise only along the fastest axis of
memory and one after the other elsewhere, so the reduced elements are brought
into one contiguous row first. The error then grows with log(n) rather than n,
and the bits of a sum depend on the logical order of its elements alone, not on
the layout. Integers wrap in their own dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdnn.enums import ReductionOperator

Array = NDArray[Any]


def reduce(x: Array, y_extents: tuple[int, ...], operator: ReductionOperator) -> Array:
    """y of ``y_extents``: ``operator`` over the elements of x that fall onto each element of y.

    Every extent of y divides that of x; groups of consecutive elements are reduced, which for an extent of 1
    is the whole axis. The operators are those of the backend documentation, section "reduction":
    MUL_NO_ZEROS of zeros alone is 1, MIN, MAX and AMAX hand NaN on. AVG and NORM2 are for floats.
    The result has the dtype of x.
    """
    if len(y_extents) != x.ndim or any(wide % narrow for wide, narrow in zip(x.shape, y_extents, strict=True)):
        raise ValueError(f"extents {x.shape} do not reduce to {y_extents}")
    pairs = [(narrow, wide // narrow) for wide, narrow in zip(x.shape, y_extents, strict=True)]
    grouped = x.reshape([extent for pair in pairs for extent in pair])
    rows = _rows(grouped, tuple(range(1, 2 * x.ndim, 2)))
    with np.errstate(all="ignore"):
        return np.asarray(_OPERATORS[operator](rows)).astype(x.dtype, copy=False).reshape(y_extents)


def total(x: Array, axes: tuple[int, ...]) -> Array:
    """Sum of floats over ``axes``, which keep extent 1; pairwise (see the module)."""
    kept = tuple(1 if a in axes else extent for a, extent in enumerate(x.shape))
    with np.errstate(all="ignore"):
        return np.asarray(_sum(_rows(x, axes))).reshape(kept)


def _rows(x: Array, axes: tuple[int, ...]) -> Array:
    """Two axes, [kept, reduced], contiguous."""
    kept = [a for a in range(x.ndim) if a not in axes]
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    return np.ascontiguousarray(x.transpose(*kept, *axes)).reshape(-1, count)


def _sum(rows: Array) -> Any:
    return np.add.reduce(rows, axis=1)  # int32 in int64, which wraps to the same int32 in the end


def _product(rows: Array) -> Any:
    return np.multiply.reduce(rows, axis=1)


_OPERATORS: dict[ReductionOperator, Callable[[Array], Any]] = {
    ReductionOperator.ADD: _sum,
    ReductionOperator.MUL: _product,
    ReductionOperator.MIN: lambda rows: np.minimum.reduce(rows, axis=1),
    ReductionOperator.MAX: lambda rows: np.maximum.reduce(rows, axis=1),
    ReductionOperator.AMAX: lambda rows: np.maximum.reduce(np.abs(rows), axis=1),
    ReductionOperator.AVG: lambda rows: _sum(rows) / rows.dtype.type(rows.shape[1]),
    ReductionOperator.NORM1: lambda rows: _sum(np.abs(rows)),
    ReductionOperator.NORM2: lambda rows: np.sqrt(_sum(rows * rows)),
    ReductionOperator.MUL_NO_ZEROS: lambda rows: _product(np.where(rows == 0, rows.dtype.type(1), rows)),
}
