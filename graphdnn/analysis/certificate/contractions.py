"""Errors of sums of products, and of a result that is added to what was there."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.known_values import Known
from graphdnn.analysis.certificate.magnitude_sums import Terms
from graphdnn.analysis.certificate.roundoff import REFERENCE, compute_of, gamma, largest, roundoff, smallest
from graphdnn.analysis.certificate.summation import Summation, summation
from graphdnn.dtypes import ELEMENTS, Array
from graphdnn.heuristics import Choice
from graphdnn.operations import Operation


def product(known: Known, op: Any, choice: Choice | None, operands: Mapping[str, ErrorInterval]) -> ErrorInterval:
    """Of a convolution or a matrix product."""
    (a, x), (b, w) = operands.items()
    compute = compute_of(op.compute_type)
    terms = Terms(op, known.has_data)
    if compute.kind in "iu":
        return _whole_product(known, op, terms, {a: x, b: w}, largest(compute))
    how = summation(op, choice)
    worst: Any = how.statistical if known.is_statistical else how.worst
    reach = {a: x.reach, b: w.reach}
    total = _total(known, op, terms, x, w, reach) if not how.products else _largest_products(how, reach)
    whole = all(ELEMENTS[t.data_type].kind != "float" for t in op.inputs().values()) and x.is_exact and w.is_exact
    if whole and not how.products:  # such sums are integers that the arithmetic has
        worst = np.where(total <= 1 / roundoff(compute), 0.0, worst)
    most = max(1.0, *(float(np.max(v, initial=0.0)) for v in reach.values()))
    tiny: Any = 0.0 if whole else how.floor * most
    tiny = np.where(total == 0, 0.0, tiny)  # every term has a factor that is 0
    error = np.where(np.asarray(worst) == 0, 0.0, worst * total) + tiny
    error = error + terms.of({a: x.error, b: w.reach}, (x.error,)) + terms.of({a: x.most, b: w.error}, (w.error,))
    error = np.where(how.headroom * total * (1 + worst) > largest(compute), np.inf, error)
    return blended(known, op, terms.range({a: x, b: w}).with_error(error), total)


def _total(
    known: Known, op: Operation, terms: Terms, x: ErrorInterval, w: ErrorInterval, reach: Mapping[str, Array]
) -> Array:
    if not (x.is_exact and w.is_exact):
        return terms.of(reach)
    if id(op) not in known.totals:
        known.totals[id(op)] = terms.of(reach)
    return known.totals[id(op)]


def _largest_products(how: Summation, reach: Mapping[str, Array]) -> Array:
    return np.asarray(how.products * prod(float(np.max(v, initial=0.0)) for v in reach.values()))


def _whole_product(
    known: Known, op: Any, terms: Terms, operands: Mapping[str, ErrorInterval], top: float
) -> ErrorInterval:
    """Exact while operands are, wrapped sums included; an operand that may be off needs sums that do not wrap."""
    (a, x), (b, w) = operands.items()
    box = terms.range(operands)
    if x.is_exact and w.is_exact:
        return blended(known, op, box, box.most)
    total = terms.of({a: x.reach, b: w.reach})
    error = terms.of({a: x.error, b: w.reach}, (x.error,)) + terms.of({a: x.most, b: w.error}, (w.error,))
    return blended(known, op, box.with_error(np.where(total > top, np.inf, error)), total)


def blended(known: Known, op: Any, box: ErrorInterval, total: Any) -> ErrorInterval:
    """alpha * result + beta * old."""
    alpha, beta = float(getattr(op, "alpha", 1.0)), float(getattr(op, "beta", 0.0))
    if alpha == 1.0 and beta == 0.0:
        return box
    compute = compute_of(op.compute_type)
    u = max(roundoff(compute), REFERENCE) + REFERENCE  # integers are scaled in double where factors are fractions
    tensor = next(iter(op.outputs().values()))
    old = ErrorInterval.between(0.0, 0.0) if beta == 0 else known.old(tensor)
    scaled, added = box.scaled(alpha), old.scaled(beta)
    reach = abs(alpha) * (np.maximum(box.most, total) + box.error) + added.reach
    error = scaled.error + added.error + gamma(3, u) * reach + 2 * smallest(compute)
    return ErrorInterval(scaled.low + added.low, scaled.high + added.high, np.zeros(())).with_error(error)
