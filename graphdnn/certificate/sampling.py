"""Errors of grid sampling, from data.

A value is a sum of four elements, each times a weight; the weights are at least 0 and their sum is 1. So the error that
the elements bring along is at most the largest of them, and what the arithmetic adds at most ``gamma_8`` times the
largest magnitude in the image: four roundings of a weight and its parts, one of the product, three of the sum (Higham
(2002), lemma 3.1). As a function of the position the value is continuous, because elements outside count as 0, and
linear between neighbours; its slope along an axis is at most their largest difference along it. A position
``(g + 1) (extent - 1) / 2`` is off by three roundings and by the error of g times ``(extent - 1) / 2``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphdnn.certificate.box import Box
from graphdnn.certificate.normalizations import Arithmetic
from graphdnn.certificate.units import gamma
from graphdnn.dtypes import Array
from graphdnn.engines.host.grid_sample import sample
from graphdnn.operations.grid_sample import GridSample

_SUM, _POSITION = 8, 3  # roundings


def grid_sample(op: GridSample, operands: Mapping[str, Box], arithmetic: Arithmetic) -> dict[str, Box]:
    """Sums of four are too short for their errors to be random: both bounds are one."""
    x, grid = operands["x"], operands["grid"]
    u = arithmetic.u
    image, carried = np.broadcast_to(x.low, op.x.extents), np.broadcast_to(x.error, op.x.extents)
    largest = _of_image(np.broadcast_to(x.reach, op.x.extents))
    error = _of_image(carried) + gamma(_SUM, u) * largest + _SUM * arithmetic.floor * (1 + largest)
    error = np.where(largest > arithmetic.top, np.inf, error)
    is_outside = np.zeros((), bool)  # also where the position is computed
    for place, axis in ((0, 3), (1, 2)):  # positions are (x, y)
        half = (op.x.extents[axis] - 1) / 2
        at, off = (np.broadcast_to(v, op.grid.extents)[..., place] for v in (grid.low, grid.error))
        moved = half * off + gamma(_POSITION, u) * half * (np.abs(at) + 1 + off)
        position = (at + 1) * half
        is_outside = is_outside | (position < -1 - moved) | (position > op.x.extents[axis] + moved)
        outside = [(1, 1) if i == axis else (0, 0) for i in range(4)]
        slope = _of_image(np.abs(np.diff(np.pad(image, outside), axis=axis)))
        error = error + slope * moved[:, None]
    error = np.where(is_outside[:, None], 0.0, error)
    return {"y": Box.of(sample(image, np.broadcast_to(grid.low, op.grid.extents))).with_error(error)}


def _of_image(values: Array) -> Array:
    """The largest of each image and channel: [N, C, 1, 1]."""
    return np.asarray(values.max(axis=(2, 3), keepdims=True))
