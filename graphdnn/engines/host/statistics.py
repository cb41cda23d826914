"""Building blocks of batch norm: sums per channel, their finalization, gradients of the weights.

A graph may split a batch norm into these operations so that a convolution can
deliver the sums and a pointwise operation apply the result. x is
[N, C, spatial...]; every per-channel array here is [1, C, 1, ...]. Formulas:
backend documentation, operations GEN_STATS, BN_FINALIZE_STATISTICS and
BN_BWD_WEIGHTS; the running variance takes n/(n-1) of the biased one, as the
legacy API does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdnn.engines.host.normalization import running
from graphdnn.engines.host.reduction import total

Array = NDArray[Any]


def _all_but_channels(x: Array) -> tuple[int, ...]:
    return tuple(a for a in range(x.ndim) if a != 1)


def genstats(x: Array) -> tuple[Array, Array]:
    """(sum, sum of squares) of every channel of x."""
    axes = _all_but_channels(x)
    with np.errstate(all="ignore"):
        return total(x, axes), total(x * x, axes)


@dataclass(frozen=True, slots=True)
class Finalized:
    """Results of BN_FINALIZE_STATISTICS, all [1, C, 1, ...]; the running pair only where it was asked for."""

    saved_mean: Array
    saved_inv_std: Array
    eq_scale: Array
    eq_bias: Array
    running_mean: Array | None = None
    running_var: Array | None = None


def bn_finalize_training(
    y_sum: Array,
    y_sq_sum: Array,
    scale: Array,
    bias: Array,
    count: int,
    epsilon: float,
    momentum: float = 0.0,
    previous: tuple[Array, Array] | None = None,
) -> Finalized:
    """From sums of ``count`` elements per channel to statistics and the y = eq_scale*x + eq_bias they mean.

    ``previous`` holds the running mean and variance; given, ``momentum`` f updates them as
    (1-f)*previous + f*current. sqsum/n - mean^2 cancels, so these few values are computed in float64 from
    sums in their own precision, and a variance below 0, which only rounding can cause, counts as 0.
    """
    with np.errstate(all="ignore"):
        mean = y_sum.astype(np.float64) / count
        variance = np.maximum(y_sq_sum.astype(np.float64) / count - mean * mean, 0.0)
        averages = (None, None) if previous is None else running(previous, (mean, variance), count, momentum)
        return _finalized(mean, variance, scale, bias, epsilon, averages)


def bn_finalize_inference(
    scale: Array, bias: Array, running_mean: Array, running_var: Array, epsilon: float
) -> Finalized:
    """The equivalent scale and bias of the running statistics, which are handed through as the saved ones."""
    with np.errstate(all="ignore"):
        mean, variance = running_mean.astype(np.float64), running_var.astype(np.float64)
        return _finalized(mean, variance, scale, bias, epsilon, (running_mean, running_var))


def _finalized(
    mean: Array,
    variance: Array,
    scale: Array,
    bias: Array,
    epsilon: float,
    averages: tuple[Array, Array] | tuple[None, None],
) -> Finalized:
    inv_std = 1.0 / np.sqrt(variance + epsilon)
    eq_scale = scale * inv_std
    results = (mean, inv_std, eq_scale, bias - mean * eq_scale, *averages)
    return Finalized(*(r if r is None else r.astype(scale.dtype) for r in results))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class WeightGradients:
    """Results of BN_BWD_WEIGHTS, all [1, C, 1, ...]: dx = eq_dy_scale*dy + eq_x_scale*x + eq_bias."""

    dscale: Array
    dbias: Array
    eq_dy_scale: Array
    eq_x_scale: Array
    eq_bias: Array


def bn_backward_weights(x: Array, dy: Array, mean: Array, inv_std: Array, scale: Array) -> WeightGradients:
    """Gradients of scale and bias, and the three coefficients of dx, from the saved statistics of x."""
    axes = _all_but_channels(x)
    count = x.size // x.shape[1]
    with np.errstate(all="ignore"):
        dbias = total(dy, axes)
        dscale = total(dy * ((x - mean) * inv_std), axes)
        eq_dy_scale = scale * inv_std
        eq_x_scale = -eq_dy_scale * inv_std * dscale / count
        eq_bias = -eq_dy_scale * dbias / count - eq_x_scale * mean
    return WeightGradients(dscale, dbias, eq_dy_scale, eq_x_scale, eq_bias)
