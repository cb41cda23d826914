"""Errors of normalizations and of their parts, from data.

What a formula of sums and products comes to is bounded whatever way it is written in: a result is a sum of products of
operands, each product passes through at most k roundings, so ``gamma_k`` times the sum of the products' magnitudes
bounds what they add (Higham (2002), lemma 3.1). ``Term`` carries a value, the error of its operands and that sum.

A variance is that of the two-pass formula, or of parts that are joined by their means (T. F. Chan, G. H. Golub,
R. J. LeVeque, *Algorithms for computing the sample variance: analysis and recommendations*, The American Statistician
37 (1983)). A join of parts a and b adds ``w (m_a - m_b)^2`` with w at most the smaller part's size, and a mean is off
by at most ``gamma_n`` times the mean magnitude of its part. By Cauchy and Schwarz all joins together see

    sum w (e_a + e_b)^2 <= 4 log2(n) n gamma_n^2 s^2,   sum w (m_a - m_b)^2 <= n v

where s^2 is the mean square of the data as it is added, counted from 0 or from one of its elements, and log2(n)
bounds how often an element is counted, whatever the order of the joins. Means that are joined round four times for each
part, so there gamma is that of 4 n. With ``E = (1 + 2 sqrt(log2 n)) gamma_n s``,

    |error| <= gamma_(2n) (sqrt(v) + E)^2 + 2 sqrt(v) E + E^2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2, prod, sqrt

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.roundoff import (
    LAMBDA,
    REFERENCE,
    compute_of,
    gamma,
    largest,
    likely,
    roundoff,
    smallest_normal,
    storage_roundoff,
)
from graphdnn.dtypes import ELEMENTS, Array
from graphdnn.engines.sum_error import CUT
from graphdnn.enums import BnFinalizeStatsMode, DataType, NormMode, NormPhase
from graphdnn.operations import BnBackwardWeights, BnFinalize, NormBackward, NormForward, Operation

Boxes = Mapping[str, ErrorInterval]


@dataclass(frozen=True, slots=True)
class Term:
    value: Array
    error: Array  # that its operands carry into it
    size: Array  # the same formula of magnitudes, without cancellation
    peak: Array  # the largest that anything on the way can be, in whatever order

    @classmethod
    def of(cls, box: ErrorInterval) -> Term:
        return cls(box.low, box.error, box.reach, np.maximum(box.reach, 1.0))

    def __add__(self, other: Term) -> Term:
        size, peak = self.size + other.size, self.peak + other.peak
        return Term(self.value + other.value, self.error + other.error, size, peak)

    def __sub__(self, other: Term) -> Term:
        return self + other.scaled(-1.0)

    def __mul__(self, other: Term) -> Term:
        error = np.abs(self.value) * other.error + self.error * (np.abs(other.value) + other.error)
        return Term(self.value * other.value, error, self.size * other.size, self.peak * other.peak)

    def scaled(self, factor: float) -> Term:
        most = abs(factor)
        return Term(self.value * factor, self.error * most, self.size * most, self.peak * max(1.0, most))

    def total(self, axes: tuple[int, ...]) -> Term:
        return Term(*(np.sum(v, axis=axes, keepdims=True) for v in (self.value, self.error, self.size, self.peak)))

    def mean(self, axes: tuple[int, ...]) -> Term:
        return self.total(axes).scaled(1 / _count(self.value, axes))


def _count(values: Array, axes: tuple[int, ...]) -> int:
    return prod(values.shape[a] for a in axes)


@dataclass(frozen=True, slots=True)
class Type:
    """What values are rounded to."""

    u: float
    eta: float
    top: float

    @classmethod
    def of(cls, data_type: DataType) -> Type:
        return cls(*storage_roundoff(data_type), ELEMENTS[data_type].largest)

    def rounding(self, magnitudes: Array) -> Array:
        """Of values at most this large; no bound where the type ends."""
        return np.where(magnitudes > self.top, np.inf, self.u * magnitudes + self.eta)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What roundings come to in an operation's arithmetic."""

    u: float
    floor: float  # below the normal numbers
    top: float
    is_statistical: bool
    steps: int = 1  # roundings of each term of a mean: 4 where means are joined
    handed: Type | None = None  # what operands of products are rounded to on the way
    remarks: list[str] = field(default_factory=list, compare=False)  # why a bound says little

    @classmethod
    def of(cls, op: Operation, is_statistical: bool, steps: int, handed: Type | None = None) -> Arithmetic:
        compute = compute_of(op.compute_type)
        u = roundoff(compute) + REFERENCE
        return cls(u, smallest_normal(compute), largest(compute), is_statistical, steps, handed)

    def rounded(self, term: Term, roundings: float) -> ErrorInterval:
        """The result of a formula."""
        grown = likely(roundings, self.u) if self.is_statistical else gamma(roundings, self.u)
        lost = roundings * self.floor * term.peak
        error = term.error + grown * term.size + lost
        return ErrorInterval.of(term.value).with_error(np.where(term.peak > self.top, np.inf, error))

    def of_sums(self, n: int) -> float:
        return likely(n, self.u) if self.is_statistical else gamma(n, self.u)

    def of_products(self, n: int) -> float:
        """Of n products, on tensor cores as well, which cut."""
        units = 1 + LAMBDA * sqrt(n) + CUT.drift * n
        return gamma(min(units, n) if self.is_statistical else n, self.u)

    def as_handed(self, magnitudes: Array) -> Array:
        """What rounding operands of this size takes away."""
        return np.zeros_like(magnitudes) if self.handed is None else self.handed.rounding(magnitudes)


def _variance(
    x: ErrorInterval, axes: tuple[int, ...], arithmetic: Arithmetic, *, centered: bool
) -> tuple[ErrorInterval | None, ErrorInterval]:
    """(mean, variance) of data that may be off."""
    n = _count(x.low, axes)
    term = Term.of(x)
    if not centered:
        return None, arithmetic.rounded((term * term).mean(axes), n + 3)
    mean = arithmetic.rounded(term.mean(axes), arithmetic.steps * n + 4)
    deviation = x.low - mean.low
    exact = np.mean(deviation * deviation, axis=axes, keepdims=True)
    carried = x.error + np.mean(x.error, axis=axes, keepdims=True)
    far = np.max(np.abs(x.low) + x.error, axis=axes, keepdims=True)
    widest = np.max(np.abs(deviation) + carried, axis=axes, keepdims=True)
    moved = carried + 4 * arithmetic.u * far  # where everything counts from one of the elements
    operands = np.mean(2 * np.abs(deviation) * moved + moved * moved, axis=axes, keepdims=True)
    spread = np.sqrt(exact + operands)
    size = np.sqrt(exact + operands + np.maximum(mean.reach, widest) ** 2)  # s
    off = (1 + 2 * sqrt(log2(max(n, 2)))) * arithmetic.of_sums(arithmetic.steps * n + 4) * size
    own = arithmetic.of_sums(2 * n + 20) * (spread + off) ** 2 + 2 * spread * off + off * off
    error = np.where(n * (2 * far) ** 2 > arithmetic.top, np.inf, operands + own + n * arithmetic.floor)
    return mean, ErrorInterval.of(exact).with_error(error)


def _inverse_root(variance: ErrorInterval, epsilon: ErrorInterval, arithmetic: Arithmetic) -> ErrorInterval:
    """1 / sqrt(v + epsilon), falling: its slope is steepest at the low end."""
    value = variance.low + epsilon.low
    error = variance.error + epsilon.error + arithmetic.u * np.abs(value)
    low = value - error
    slope = 0.5 / (low * np.sqrt(np.maximum(low, 0.0)))
    found = 1 / np.sqrt(value)
    carried = np.where(low > 0, slope * error, np.where(error == 0, 0.0, np.inf))
    return ErrorInterval.of(found).with_error(carried + gamma(6, arithmetic.u) * (found + carried))


def _epsilon(boxes: Boxes) -> ErrorInterval:
    return boxes.get("epsilon", ErrorInterval.between(0.0, 0.0))


def norm_forward(op: NormForward, boxes: Boxes, arithmetic: Arithmetic) -> dict[str, ErrorInterval]:
    x, centered = boxes["x"], op.mode is not NormMode.RMS_NORM
    mean, inverse = boxes.get("mean"), boxes.get("inv_variance")
    found: dict[str, ErrorInterval] = {}
    if op.phase is NormPhase.TRAINING or inverse is None or (centered and mean is None):
        mean, variance = _variance(x, op.axes, arithmetic, centered=centered)
        inverse = _inverse_root(variance, _epsilon(boxes), arithmetic)
        if op.momentum is not None and mean is not None:
            found |= _running(boxes, mean, variance, _count(x.low, op.axes), arithmetic)
    normalized = Term.of(x) if mean is None else Term.of(x) - Term.of(mean)
    y = normalized * Term.of(inverse)
    y = y * Term.of(boxes["scale"]) if "scale" in boxes else y
    y = y + Term.of(boxes["bias"]) if "bias" in boxes else y
    found |= {"y": arithmetic.rounded(y, 12), "inv_variance": inverse}
    return found if mean is None else found | {"mean": mean}


def _running(
    boxes: Boxes, mean: ErrorInterval, variance: ErrorInterval, n: int, arithmetic: Arithmetic
) -> dict[str, ErrorInterval]:
    factor = boxes["momentum"]
    keep = Term.of(ErrorInterval.of(1.0 - factor.low))
    unbiased = Term.of(variance).scaled(n / max(n - 1, 1))
    found = {}
    for port, previous, current in (
        ("output_running_mean", "input_running_mean", Term.of(mean)),
        ("output_running_var", "input_running_var", unbiased),
    ):
        found[port] = arithmetic.rounded(keep * Term.of(boxes[previous]) + Term.of(factor) * current, 8)
    return found


def norm_backward(op: NormBackward, boxes: Boxes, arithmetic: Arithmetic) -> dict[str, ErrorInterval]:
    x, centered = boxes["x"], op.mode is not NormMode.RMS_NORM
    mean, inverse = boxes.get("mean"), boxes.get("inv_variance")
    if inverse is None or (centered and mean is None):
        mean, variance = _variance(x, op.axes, arithmetic, centered=centered)
        inverse = _inverse_root(variance, _epsilon(boxes), arithmetic)
    scale, dy = boxes["scale"], Term.of(boxes["dy"])
    summed = tuple(a for a in range(x.low.ndim) if scale.low.shape[a] == 1)
    deviation = Term.of(x) if mean is None or not centered else Term.of(x) - Term.of(mean)
    normalized, gradient = deviation * Term.of(inverse), dy * Term.of(scale)
    inner = gradient - normalized * (gradient * normalized).mean(op.axes)
    inner = inner - gradient.mean(op.axes) if centered else inner
    n, many = _count(x.low, op.axes), _count(x.low, summed)
    return {
        "dx": arithmetic.rounded(inner * Term.of(inverse), n + 24),
        "dscale": arithmetic.rounded((dy * normalized).total(summed), many + 10),
        "dbias": arithmetic.rounded(dy.total(summed), many),
    }


def bn_finalize(op: BnFinalize, boxes: Boxes, arithmetic: Arithmetic) -> dict[str, ErrorInterval]:
    """Statistics from sums; their difference cancels, so it is taken in double everywhere."""
    double = Arithmetic(2 * REFERENCE, arithmetic.floor, float(np.finfo(np.float64).max), False)
    found: dict[str, ErrorInterval] = {}
    if op.mode is BnFinalizeStatsMode.INFERENCE:
        mean, variance = boxes["previous_running_mean"], boxes["previous_running_var"]
        found |= {"updated_running_mean": mean, "updated_running_var": variance}
    else:
        count = float(np.asarray(boxes["accumulation_count"].low).reshape(-1)[0])
        average = Term.of(boxes["y_sum"]).scaled(1 / count)
        mean = double.rounded(average, 4)
        square = Term.of(boxes["y_sq_sum"]).scaled(1 / count) - average * average
        spread = double.rounded(square, 8)
        variance = ErrorInterval.of(np.maximum(spread.low, 0.0)).with_error(spread.error)
        if op.previous_running_mean is not None:
            known = {"momentum": boxes["momentum"], "input_running_mean": boxes["previous_running_mean"],
                     "input_running_var": boxes["previous_running_var"]}  # fmt: skip
            averages = _running(known, mean, variance, int(count), arithmetic)
            found |= {port.replace("output", "updated"): box for port, box in averages.items()}
    inverse = _inverse_root(variance, _epsilon(boxes), arithmetic)
    scale, bias = Term.of(boxes["scale"]), Term.of(boxes["bias"])
    factor = scale * Term.of(inverse)
    return found | {
        "saved_mean": arithmetic.rounded(Term.of(mean), 2),
        "saved_inv_std": inverse,
        "eq_scale": arithmetic.rounded(factor, 4),
        "eq_bias": arithmetic.rounded(bias - Term.of(mean) * factor, 8),
    }


def bn_backward_weights(op: BnBackwardWeights, boxes: Boxes, arithmetic: Arithmetic) -> dict[str, ErrorInterval]:
    x, dy, mean, inverse, scale = (Term.of(boxes[port]) for port in ("x", "dy", "mean", "inv_std", "scale"))
    axes = tuple(a for a in range(x.value.ndim) if a != 1)
    n = _count(x.value, axes)
    shift = dy.total(axes)
    slope = (dy * ((x - mean) * inverse)).total(axes)
    factor = scale * inverse
    along = (factor * inverse * slope).scaled(-1 / n)
    return {
        "dscale": arithmetic.rounded(slope, n + 10),
        "dbias": arithmetic.rounded(shift, n),
        "eq_dy_scale": arithmetic.rounded(factor, 3),
        "eq_x_scale": arithmetic.rounded(along, n + 20),
        "eq_bias": arithmetic.rounded((factor * shift).scaled(-1 / n) - along * mean, n + 30),
    }
