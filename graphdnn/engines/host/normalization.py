"""Normalization forward and backward on NumPy arrays: one formula for all modes.

The modes differ only in the axes that are averaged over, in whether a mean is
subtracted (RMS does not) and in the extents of scale and bias; the operation
knows these, and the functions here take them as they are. With A the
normalized axes, m and var (biased) taken over A, is = 1/sqrt(var + epsilon):

    y = scale * xh + bias,  xh = (x - m) * is       (RMS: m = 0, var = mean(x^2))
    dx = is * (g - mean(g) - xh * mean(g * xh)),  g = scale * dy    (RMS: without mean(g))
    dscale = sum(dy * xh),  dbias = sum(dy)         over the axes where scale has extent 1

The variance is taken around the mean, in a second pass. Statistics have extent
1 on A; x is [N, C, ...] of any rank, everything in one float dtype.
Formulas: backend documentation, NORM_FORWARD and NORM_BACKWARD.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdnn.engines.host.reduction import total

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of x, extent 1 on the normalized axes. ``variance`` is biased, in RMS the mean square."""

    mean: Array | None  # None in RMS
    variance: Array
    inv_variance: Array  # 1/sqrt(variance + epsilon), whatever its cuDNN name says


def statistics(x: Array, axes: tuple[int, ...], epsilon: float, *, centered: bool = True) -> Statistics:
    """Mean, variance and inverse deviation of x over ``axes``; ``centered=False`` is RMS."""
    with np.errstate(all="ignore"):
        count = x.dtype.type(prod(x.shape[a] for a in axes))
        mean = total(x, axes) / count if centered else None
        deviation = x if mean is None else x - mean
        variance = total(deviation * deviation, axes) / count
        return Statistics(mean, variance, 1 / np.sqrt(variance + x.dtype.type(epsilon)))


def normalize(
    x: Array, mean: Array | None, inv_variance: Array, scale: Array | None = None, bias: Array | None = None
) -> Array:
    """y of the extents of x, from computed (training) or given (inference) statistics.

    mean and inv_variance broadcast to x, as do scale and bias; None leaves the step out.
    """
    with np.errstate(all="ignore"):
        y = _normalized(x, mean, inv_variance)
        if scale is not None:
            y = y * scale
        return y if bias is None else np.asarray(y + bias)


def running(
    previous: tuple[Array, Array], current: tuple[Array, Array], count: int, momentum: float
) -> tuple[Array, Array]:
    """(mean, variance) averaged over batches: (1-f)*previous + f*current, f the ``momentum``; of 1 the current ones.

    The variances given are biased over ``count`` elements; the running one takes n/(n-1) of them, and of a
    single element, which has no unbiased variance, the biased one, 0.
    """
    (previous_mean, previous_variance), (mean, variance) = previous, current
    with np.errstate(all="ignore"):
        factor = mean.dtype.type(momentum)
        keep = mean.dtype.type(1.0 - momentum)
        unbiased = mean.dtype.type(count / max(count - 1, 1))
        if momentum == 1.0:  # whatever the previous ones are
            return mean, np.asarray(unbiased * variance)
        return (
            np.asarray(keep * previous_mean + factor * mean),
            np.asarray(keep * previous_variance + factor * (unbiased * variance)),
        )


@dataclass(frozen=True, slots=True)
class Gradients:
    """dx has the extents of x, dscale and dbias those of scale."""

    dx: Array
    dscale: Array
    dbias: Array


def backward(
    dy: Array, x: Array, scale: Array, axes: tuple[int, ...], mean: Array | None, inv_variance: Array
) -> Gradients:
    """Gradients of ``normalize`` through the statistics; mean is None in RMS.

    Without saved statistics, ``statistics(x, axes, epsilon)`` gives them again.
    """
    summed = tuple(a for a in range(x.ndim) if scale.shape[a] == 1)
    with np.errstate(all="ignore"):
        count = x.dtype.type(prod(x.shape[a] for a in axes))
        normalized = _normalized(x, mean, inv_variance)
        gradient = dy * scale
        inner = gradient - normalized * (total(gradient * normalized, axes) / count)
        if mean is not None:
            inner = inner - total(gradient, axes) / count
        return Gradients(inner * inv_variance, total(dy * normalized, summed), total(dy, summed))


def _normalized(x: Array, mean: Array | None, inv_variance: Array) -> Array:
    return np.asarray((x if mean is None else x - mean) * inv_variance)
