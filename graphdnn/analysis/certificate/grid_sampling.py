"""Errors of grid sampling and of its gradients, from data.

A value is a sum of four elements, each times a weight; the weights are at least 0 and their sum is 1. So the error
that the elements bring along is at most the largest of them, and what the arithmetic adds at most ``gamma_8`` times
the largest magnitude in the image: four roundings of a weight and its parts, one of the product, three of the sum
(Higham (2002), lemma 3.1). As a function of the position the value is continuous, because elements outside count as
0, and linear between neighbours; its slope along an axis is at most their largest difference along it. A position
``(g + 1) (extent - 1) / 2`` is off by three roundings and by the error of g times ``(extent - 1) / 2``.

Gradients of an image are sums over positions of dy times a weight; a weight, too, is continuous in the position, with
a slope of at most 1 along each axis. The gradient of a grid jumps where a position passes an element. Positions are
rounded alike by everyone (a sum and a product), and so by the reference, which has the same arithmetic: both stray
from the exact sums, and where the grid itself is exact that is all. Else a position that may be in another cell may
have that cell's slope, which is at most the largest difference between neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.normalizations import Arithmetic
from graphdnn.analysis.certificate.roundoff import compute_of, gamma
from graphdnn.dtypes import Array
from graphdnn.engines.host.grid_sample import sample, sample_backward
from graphdnn.operations.grid_sample import GridSample, GridSampleBackward

_SUM, _POSITION = 8, 3  # roundings


def grid_sample(
    op: GridSample, operands: Mapping[str, ErrorInterval], arithmetic: Arithmetic
) -> dict[str, ErrorInterval]:
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
    return {"y": ErrorInterval.of(sample(image, np.broadcast_to(grid.low, op.grid.extents))).with_error(error)}


def grid_sample_backward(
    op: GridSampleBackward, operands: Mapping[str, ErrorInterval], arithmetic: Arithmetic
) -> dict[str, ErrorInterval]:
    """Twice the roundings: the reference has them as well."""
    x, dy, grid = operands["x"], operands["dy"], operands["grid"]
    image, image_off = (np.broadcast_to(v, op.x.extents) for v in (x.low, x.error))
    out, out_off = (np.broadcast_to(v, op.dy.extents) for v in (dy.low, dy.error))
    at, off = (np.broadcast_to(v, op.grid.extents) for v in (grid.low, grid.error))
    u, floor, top = arithmetic.u, arithmetic.floor, arithmetic.top
    reach, halves = np.abs(out) + out_off, ((op.x.extents[3] - 1) / 2, (op.x.extents[2] - 1) / 2)
    slope = 2 * _of_image(np.abs(image) + image_off)  # between neighbours, those outside included
    rounded = at.astype(compute_of(op.compute_type))  # positions as everyone has them
    dx, dgrid = sample_backward(image, rounded, out)
    spread, _ = sample_backward(image, rounded, reach)  # sums of magnitudes
    terms = op.grid.extents[1] * op.grid.extents[2]
    carried, _ = sample_backward(image, rounded, out_off)
    error = carried + 2 * arithmetic.of_sums(terms + _SUM) * spread + 2 * terms * floor * (1 + _of_image(reach))
    # A position that is off moves at most so much of its dy from element to element, wherever that is.
    moved = []
    for i, half in enumerate(halves):
        far = gamma(_POSITION, u) * half * (np.abs(at[..., i]) + 1 + off[..., i])
        moved.append(np.where(off[..., i] > 0, half * off[..., i] + far, 0.0))
    error = error + np.sum(reach * np.minimum(moved[0] + moved[1], 1.0)[:, None], axis=(2, 3), keepdims=True)
    # sum |dy| over all positions is at least what any element adds up on the way.
    error = np.where(np.sum(reach, axis=(2, 3), keepdims=True) > top, np.inf, error)

    channels, found = op.x.extents[1], np.empty(op.grid.extents)
    may_jump = np.zeros(op.grid.extents[:3], bool)
    for i, half in enumerate(halves):
        position = (at[..., i] + 1) * half
        may_jump |= (moved[i] > 0) & (np.floor(position - moved[i]) != np.floor(position + moved[i]))
    for i, half in enumerate(halves):
        most = np.sum(reach * slope, axis=1)  # of all channels
        operands_off = np.sum(out_off * slope + reach * 2 * _of_image(image_off), axis=1)
        across = np.minimum(moved[1 - i], 1.0) * 2 * most
        own = 2 * arithmetic.of_sums(4 * channels + _SUM) * _largest_sum(image, image_off, reach)
        local = operands_off + across + own + np.where(may_jump, 2 * most, 0.0)
        found[..., i] = half * local * (1 + 2 * u) + 8 * channels * floor * (1 + half)
        found[..., i] = np.where(half * _largest_sum(image, image_off, reach) > top, np.inf, found[..., i])
    return {"dx": ErrorInterval.of(dx).with_error(error), "dgrid": ErrorInterval.of(dgrid).with_error(found)}


def _largest_sum(image: Array, image_off: Array, reach: Array) -> Array:
    """At each position the sum over channels of |dy| times four elements at most."""
    return np.asarray(np.sum(reach * 4 * _of_image(np.abs(image) + image_off), axis=1))


def _of_image(values: Array) -> Array:
    """The largest of each image and channel: [N, C, 1, 1]."""
    return np.asarray(values.max(axis=(2, 3), keepdims=True))
