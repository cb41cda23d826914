"""Errors of pooling and of its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from graphdnn.analysis.certificate.contractions import blended
from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.known_values import Known, NoBound
from graphdnn.analysis.certificate.magnitude_sums import Terms
from graphdnn.analysis.certificate.roundoff import REFERENCE, compute_of, gamma, largest, roundoff, smallest
from graphdnn.enums import ResampleMode
from graphdnn.operations import ResampleBackward, ResampleForward


def resampled(known: Known, op: ResampleForward, x: ErrorInterval) -> dict[str, ErrorInterval]:
    """The result and, of maxima, the index: which is known where x is exact, and anything elsewhere."""
    terms, u = Terms(op, known.has_data), roundoff(compute_of(op.compute_type)) + REFERENCE
    if op.spec.mode is ResampleMode.MAXPOOL:
        largest_of = terms.widest(x.most, x.most, x.reach).error  # of each window
        box = blended(known, op, terms.widest(x.low, x.high, x.error), largest_of)
        index = ErrorInterval.between(0.0, 0.0 if x.is_exact else 1.0)
        unclear = np.zeros(()) if x.is_exact else np.asarray(np.inf)
        return {"y": box, "index": index.with_error(unclear)}
    n = prod(map(int, op.spec.window_dims)) + 4
    total = terms.of({"x": x.reach})
    error = gamma(3 * n, u) * total + terms.of({"x": x.error}, (x.error,)) + n * smallest(compute_of(op.compute_type))
    error = np.where(n * terms.peak(x.reach) > largest(compute_of(op.compute_type)), np.inf, error)
    box = ErrorInterval(terms.signed({"x": x.low}), terms.signed({"x": x.high}), np.zeros(())).with_error(error)
    return {"y": blended(known, op, box, total)}


def spread(known: Known, op: ResampleBackward, operands: Mapping[str, ErrorInterval]) -> ErrorInterval:
    """dx. Raises ``NoBound`` without data, or where the maxima depend on rounding."""
    dy = operands["dy"]
    if any(not box.is_exact for port, box in operands.items() if port != "dy"):
        raise NoBound("rounding decides which element of a window was the largest")
    if not known.has_data:
        raise NoBound("where the gradient of a window goes depends on the data")
    fixed = {port: box.low for port, box in operands.items() if port != "dy"}
    terms = Terms(op, True)
    u = roundoff(compute_of(op.compute_type)) + REFERENCE
    n = prod(map(int, op.spec.window_dims)) + 4
    total = terms.of({"dy": dy.reach, **fixed})
    error = (
        gamma(3 * n, u) * total
        + terms.of({"dy": dy.error, **fixed}, (dy.error,))
        + n * smallest(compute_of(op.compute_type))
    )
    error = np.where(n * terms.peak(dy.reach) > largest(compute_of(op.compute_type)), np.inf, error)
    return blended(known, op, ErrorInterval(-total, total, np.zeros(())).with_error(error), total)
