"""Errors of the CTC loss, from data.

The logarithm of a sum of exponentials is a mean of its terms' slopes, each at least 0 and all together 1: it is off
by at most the largest error of a term (so also P. Blanchard, D. J. Higham, N. J. Higham, *Accurately computing the
log-sum-exp and softmax functions*, IMA J. Numer. Anal. 41 (2021), section 4). A step joins at most three places by
two of them; each computes ``a + log1p(exp(b - a))``, whose roundings are at most 12 units of 1 and one of the result.
Then it adds the logarithm of a probability. Gradients are probabilities less sums of ``exp(read + left - total)``: an
exponent that is off by e makes its value off by a factor of exp(e).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.normalizations import Arithmetic
from graphdnn.analysis.certificate.pointwise_rounding import FUNCTION
from graphdnn.analysis.certificate.roundoff import gamma
from graphdnn.dtypes import Array
from graphdnn.engines.host.ctc import loss, places_of, shifted
from graphdnn.operations import CtcLoss

_JOIN = 12 + FUNCTION  # units of 1, where the logarithm of two exponentials is at most log 2 above the larger one


def ctc_loss(op: CtcLoss, boxes: Mapping[str, ErrorInterval], arithmetic: Arithmetic) -> dict[str, ErrorInterval]:
    u, probs = arithmetic.u, boxes["probs"]
    steps, batch, classes = op.probs.extents
    labels, label_lengths, input_lengths = (
        np.broadcast_to(boxes[port].low, getattr(op, port).extents).astype(np.int64)
        for port in ("labels", "label_lengths", "input_lengths")
    )
    value, error = (np.broadcast_to(v, op.probs.extents) for v in (probs.low, probs.error))
    label_lengths = np.clip(label_lengths, 0, labels.shape[1])
    input_lengths = np.clip(input_lengths, 0, steps)
    places, exists, _ = places_of(labels, label_lengths, classes)
    scratch = np.empty((2, steps, batch, places.shape[1]))
    costs, gradients = loss(value, labels, label_lengths, input_lengths, scratch, gradients=True)
    assert gradients is not None
    read, left = scratch

    at = np.broadcast_to(places, (steps, *places.shape))
    seen, unsure = (np.take_along_axis(v, at, axis=2) for v in (value, error))
    emitted = np.log(seen)
    off = np.where(unsure > 0, -np.log1p(-np.minimum(unsure / seen, 1.0)), 0.0)
    off = np.where(np.isneginf(emitted) & (unsure == 0), 0.0, off + FUNCTION * u * np.abs(emitted))
    off = np.where(exists, off, 0.0)

    def joined(values: Array, errors: Array, by: int) -> Array:
        """Of up to three places, ``by`` apart."""
        errors = np.where(np.isneginf(values), 0.0, errors)
        most = np.where(np.isneginf(values), 0.0, np.abs(values))
        far, size = (np.maximum.reduce([v, *(_near(v, by * k) for k in (1, 2))]) for v in (errors, most))
        return np.asarray(far + 2 * u * (_JOIN + size + far))

    read_off, left_off = np.zeros_like(read), np.zeros_like(left)
    last = np.maximum(input_lengths - 1, 0)
    for t in range(steps):
        before = joined(read[t - 1], read_off[t - 1], 1) if t else np.zeros(places.shape)
        read_off[t] = _added(before + off[t], read[t], u)
    for t in reversed(range(steps - 1)):
        after = left[t + 1] + emitted[t + 1]
        after_off = _added(left_off[t + 1] + off[t + 1], after, u)
        left_off[t] = np.where(np.equal(last, t)[:, None], 0.0, joined(after, after_off, -1))

    rows = np.arange(batch)
    ends, ends_off = read[last, rows], read_off[last, rows]
    final = 2 * label_lengths
    spelled_off = joined(ends, ends_off, 1)[rows, final]
    costs_off = np.where(input_lengths > 0, spelled_off, 0.0)
    costs_off = np.where(np.isinf(costs) & ~np.isinf(costs_off), 0.0, costs_off)
    found = {"costs": ErrorInterval.of(costs).with_error(costs_off)}
    if op.gradients is None:
        return found

    total = np.where(np.isfinite(costs), costs, 0.0)[:, None]
    exponent = read + left + total
    size = np.abs(np.where(np.isfinite(read), read, 0)) + np.abs(np.where(np.isfinite(left), left, 0)) + np.abs(total)
    moved = read_off + left_off + costs_off[:, None]
    moved = moved + gamma(2, u) * (size + moved)
    spelled = np.where(exists & ~np.isneginf(exponent), np.exp(exponent), 0.0)
    spelled_off = np.where(spelled > 0, spelled * np.expm1(moved), 0.0)
    spelled_off = spelled_off + gamma(FUNCTION, u) * (spelled + spelled_off) + arithmetic.floor
    sums, sums_off = np.zeros(op.probs.extents), np.zeros(op.probs.extents)
    for place in range(places.shape[1]):
        sums[:, rows, places[:, place]] += np.where(exists[:, place], spelled[:, :, place], 0.0)
        sums_off[:, rows, places[:, place]] += np.where(exists[:, place], spelled_off[:, :, place], 0.0)
    many = gamma(places.shape[1] + 2, u)
    gradients_off = error + sums_off + many * (np.abs(value) + error + sums + sums_off) + arithmetic.floor
    inside = (np.arange(steps)[:, None] < input_lengths) & np.isfinite(costs)
    gradients_off = np.where(inside[:, :, None], gradients_off, 0.0)
    return found | {"gradients": ErrorInterval.of(gradients).with_error(gradients_off)}


def _near(values: Array, by: int) -> Array:
    """Of the places ``by`` before; 0 where there are none."""
    found = shifted(values, by)
    return np.where(np.isneginf(found), 0.0, found)


def _added(error: Array, result: Array, u: float) -> Array:
    """After a sum that is rounded; what is impossible stays so."""
    return np.where(np.isneginf(result), 0.0, error + u * (np.abs(result) + error))
