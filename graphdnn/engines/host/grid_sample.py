"""Bilinear sampling of [N, C, H, W] at positions [N, P, Q, 2] of (x, y) between -1 and 1, corners on elements.

Elements outside the image are 0 and take no gradient. A position that is not finite, or far outside, reads nothing:
its value is 0, as every neighbour is outside. Sums of gradients run over the positions in row-major order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphdnn.dtypes import Array


@dataclass(frozen=True, slots=True)
class _Corner:
    """One of the four neighbours of every position."""

    row: Array  # clipped into the image
    column: Array
    inside: Array
    weight: Array
    by_x: Array  # the weight's derivative by the position in elements
    by_y: Array


def _corners(grid: Array, height: int, width: int) -> Iterator[_Corner]:
    one = grid.dtype.type(1)
    half_width, half_height = (grid.dtype.type((extent - 1) / 2) for extent in (width, height))
    with np.errstate(all="ignore"):
        x, y = (grid[..., 0] + one) * half_width, (grid[..., 1] + one) * half_height
        left, top = np.floor(x), np.floor(y)
        near = (left >= -1) & (left < width) & (top >= -1) & (top < height)  # False for NaN
        left, top = np.where(near, left, -2), np.where(near, top, -2)
        right_share, bottom_share = np.where(near, x - left, 0), np.where(near, y - top, 0)
    for down, across in ((0, 0), (0, 1), (1, 0), (1, 1)):
        row, column = top.astype(np.int64) + down, left.astype(np.int64) + across
        x_share = right_share if across else one - right_share
        y_share = bottom_share if down else one - bottom_share
        yield _Corner(
            row=np.clip(row, 0, height - 1),
            column=np.clip(column, 0, width - 1),
            inside=near & (row >= 0) & (row < height) & (column >= 0) & (column < width),
            weight=(x_share * y_share).astype(grid.dtype, copy=False),
            by_x=y_share if across else -y_share,
            by_y=x_share if down else -x_share,
        )


def sample(x: Array, grid: Array) -> Array:
    """y[N, C, P, Q] in the dtype of x."""
    y = np.zeros((*x.shape[:2], *grid.shape[1:3]), x.dtype)
    images = np.arange(x.shape[0])[:, None, None]
    with np.errstate(all="ignore"):
        for corner in _corners(grid, *x.shape[2:]):
            values = x.transpose(0, 2, 3, 1)[images, corner.row, corner.column] * corner.weight[..., None]
            y += np.where(corner.inside[..., None], values, 0).transpose(0, 3, 1, 2)
    return y


def sample_backward(x: Array, grid: Array, dy: Array) -> tuple[Array, Array]:
    """(dx, dgrid) from dy[N, C, P, Q]."""
    n, c, height, width = x.shape
    last = dy.transpose(0, 2, 3, 1)
    images = np.arange(n)[:, None, None]
    dx = np.zeros((n, height, width, c), x.dtype)
    dgrid = np.zeros(grid.shape, x.dtype)
    with np.errstate(all="ignore"):
        for corner in _corners(grid, height, width):
            places = np.broadcast_to(images, corner.row.shape)[corner.inside]
            where = places, corner.row[corner.inside], corner.column[corner.inside]
            np.add.at(dx, where, (last * corner.weight[..., None])[corner.inside])
            products = (last * x.transpose(0, 2, 3, 1)[images, corner.row, corner.column]).sum(axis=-1)
            dgrid[..., 0] += np.where(corner.inside, products * corner.by_x, 0)
            dgrid[..., 1] += np.where(corner.inside, products * corner.by_y, 0)
        dgrid[..., 0] *= x.dtype.type((width - 1) / 2)
        dgrid[..., 1] *= x.dtype.type((height - 1) / 2)
    return dx.transpose(0, 3, 1, 2), dgrid
