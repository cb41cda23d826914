"""Errors of reductions and of a tensor's statistics."""

from __future__ import annotations

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval, times
from graphdnn.analysis.certificate.known_values import Known, NoBound
from graphdnn.analysis.certificate.magnitude_sums import Terms
from graphdnn.analysis.certificate.roundoff import REFERENCE, compute_of, gamma, largest, roundoff, smallest
from graphdnn.engines.operation_cost import reduction_length
from graphdnn.enums import ReductionOperator
from graphdnn.operations import GenStats, Reduction

_R = ReductionOperator


def reduction(known: Known, op: Reduction, x: ErrorInterval) -> ErrorInterval:
    """Along the reduced axes. Raises ``NoBound`` where rounding decides which elements count."""
    operator, compute = op.spec.operator, compute_of(op.compute_type)
    terms, n = Terms(op, known.has_data), max(1, op.x.elements // op.y.elements)
    if operator in (_R.MAX, _R.MIN, _R.AMAX):
        low, high = (x.low, x.high) if operator is not _R.AMAX else (np.zeros_like(x.low), x.most)
        return terms.widest(low, high, x.error)
    u = roundoff(compute) + (0.0 if compute.kind in "iu" else REFERENCE)
    if operator in (_R.MUL, _R.MUL_NO_ZEROS):
        return _multiplied(op, terms, x, n, u)
    grown = known.grown(n, u)
    if operator is _R.NORM2:
        squares, errors = terms.of({"x": x.reach**2}), terms.of({"x": x.error**2}, (x.error,))
        norm = np.sqrt(squares)
        error = np.sqrt(errors) + gamma(n + 2, u) * norm + np.sqrt(n * smallest(compute))
        return ErrorInterval(np.zeros_like(norm), norm, np.zeros(())).with_error(
            np.where(squares > largest(compute), np.inf, error)
        )
    total = terms.of({"x": x.reach})
    error = times(grown, total) + terms.of({"x": x.error}, (x.error,))
    if compute.kind in "iu":
        error = np.where((terms.of({"x": x.error}, (x.error,)) > 0) & (total > largest(compute)), np.inf, error)
    else:
        error = np.where(total * (1 + grown) > largest(compute), np.inf, error)
    low, high = (
        terms.signed({"x": v}) for v in ((np.zeros_like(x.low), x.most) if operator is _R.NORM1 else (x.low, x.high))
    )
    if operator is _R.AVG:
        return ErrorInterval(low / n, high / n, np.zeros(())).with_error(
            error / n + 2 * u * total / n + smallest(compute)
        )
    return ErrorInterval(low, high, np.zeros(())).with_error(error)


def _multiplied(op: Reduction, terms: Terms, x: ErrorInterval, n: int, u: float) -> ErrorInterval:
    """prod |x + e| - prod |x|, and a rounding for each factor."""
    most, reach = x.most, x.reach
    if op.spec.operator is _R.MUL_NO_ZEROS:
        low, high = x.wide
        if bool(np.any((x.error > 0) & (low <= 0) & (high >= 0))):
            raise NoBound("mul_no_zeros leaves out zeros, and rounding decides what is one")
        most, reach = np.where(most == 0, 1.0, most), np.where(reach == 0, 1.0, reach)
    compute = compute_of(op.compute_type)
    exact, far = terms.multiplied(most), terms.multiplied(reach)
    error = np.maximum(far - exact, 0.0) + (gamma(n + 2, u + REFERENCE)) * far if compute.kind == "f" else far - exact
    if compute.kind == "f":  # partial products may leave the range on the way
        peak = terms.multiplied(np.maximum(reach, 1.0))
        error = error + smallest(compute) * n * np.maximum(peak, 1.0)
        error = np.where(peak > largest(compute), np.inf, error)
    elif not x.is_exact:
        error = np.where(far > largest(compute), np.inf, error)
    else:
        error = np.zeros_like(far)
    return ErrorInterval(-exact, exact, np.zeros(())).with_error(error)


def statistics(known: Known, op: GenStats, x: ErrorInterval) -> dict[str, ErrorInterval]:
    """Sums of values and of their squares."""
    terms, n = Terms(op, known.has_data), reduction_length(op)
    u = roundoff(compute_of(op.compute_type)) + REFERENCE
    grown, top = known.grown(n + 1, u), largest(compute_of(op.compute_type))
    found = {}
    carried = 2 * x.most * x.error + x.error**2
    for port, reach, error, low, high in (
        ("sum", x.reach, x.error, x.low, x.high),
        ("sqsum", x.reach**2, carried, np.zeros_like(x.low), x.most**2),
    ):
        total = terms.of({"x": reach})
        bound = times(grown, total) + terms.of({"x": error}, (error,)) + n * smallest(compute_of(op.compute_type))
        box = ErrorInterval(terms.signed({"x": low}), terms.signed({"x": high}), np.zeros(()))
        found[port] = box.with_error(np.where(total * (1 + grown) > top, np.inf, bound))
    return found
