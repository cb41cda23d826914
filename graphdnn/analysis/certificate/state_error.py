"""Deviation: how far the states of sequences may be off, unit by unit and as a vector.

What one step hands on to the next is a matrix times a deviation. Unit by unit that grows like the sums of magnitudes of
the matrix's rows, as a vector only like the matrix's largest singular value (N. J. Higham, *Accuracy and Stability of
Numerical Algorithms*, 2nd edition, SIAM 2002, section 6.2): both are carried along, and each bounds the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.dtypes import Array

_SLACK = 1 + 1e-9  # of a singular value that is computed in double


@dataclass(frozen=True, slots=True)
class Matrix:
    """``values`` [results, units]."""

    values: Array
    error: Array | None  # None: exact
    magnitudes: Array  # error included, as in what follows
    rows: Array  # the norm of each
    norm: float

    @classmethod
    def of(cls, values: Array, error: Array) -> Matrix:
        magnitudes, off = np.abs(values) + error, error if error.any() else None
        if not np.isfinite(magnitudes).all():
            return cls(values, off, magnitudes, np.full(len(values), np.inf), np.inf)
        largest = float(np.linalg.norm(values, 2)) + float(np.linalg.norm(error))
        return cls(values, off, magnitudes, _norm(magnitudes), largest * _SLACK)


@dataclass(frozen=True, slots=True)
class Deviation:
    each: Array  # [sequences, units]
    norm: Array  # [sequences]: of all units together

    @classmethod
    def of(cls, each: Any) -> Deviation:
        found = _bound(each)
        return cls(found, _norm(found))

    def __add__(self, other: Deviation) -> Deviation:
        return Deviation(self.each + other.each, self.norm + other.norm)._tight()

    def plus(self, each: Any) -> Deviation:
        """With errors that arise here."""
        return self + Deviation.of(np.broadcast_to(np.asarray(each, np.float64), self.each.shape))

    def scaled(self, by: Array) -> Deviation:
        """Each unit by a factor of its own, or by less."""
        factors = np.broadcast_to(np.abs(by), self.each.shape)
        most = factors.max(axis=-1, initial=0.0)
        return Deviation(_times(factors, self.each), _times(most, self.norm))._tight()

    def through(self, matrix: Matrix) -> Deviation:
        """Of ``matrix`` times the states."""
        each = np.minimum(_bound(self.each @ matrix.magnitudes.T), _times(self.norm[:, None], matrix.rows))
        return Deviation(each, _times(self.norm, np.asarray(matrix.norm)))._tight()

    def at_most(self, most: Any) -> Deviation:
        """Of functions that are bounded; what may be no number stays without a bound."""
        return Deviation(np.where(np.isinf(self.each), np.inf, np.minimum(self.each, most)), self.norm)._tight()

    def at(self, rows: slice) -> Deviation:
        return Deviation(self.each[rows], self.norm[rows])

    def then(self, others: Deviation) -> Deviation:
        """Of these sequences and more of them."""
        return Deviation(np.concatenate((self.each, others.each)), np.concatenate((self.norm, others.norm)))

    def _tight(self) -> Deviation:
        each = np.minimum(self.each, self.norm[:, None])
        return Deviation(each, np.minimum(self.norm, _norm(each)))


@dataclass(frozen=True, slots=True)
class Linear:
    """A deviation as a linear map of those at an earlier step: ``|deviation - by @ start| <= rest``.

    A Taylor model of first order (M. Berz, K. Makino, *Verified integration of ODEs and flows using differential
    algebraic methods on high-order Taylor models*, Reliable Computing 4 (1998)): products of matrices die away where
    products of their norms grow.
    """

    by: Array  # [sequences, units, units of the start]
    rest: Deviation


@dataclass(frozen=True, slots=True)
class StateError:
    """A value of every sequence and unit, and how far it may be off. ``linear``: None does not depend on the start."""

    value: Array
    off: Deviation
    linear: Linear | None = None

    @property
    def reach(self) -> Array:
        return np.abs(self.value) + self.off.each

    @property
    def rest(self) -> Deviation:
        return self.off if self.linear is None else self.linear.rest

    def __add__(self, other: StateError) -> StateError:
        parts = [x.linear.by for x in (self, other) if x.linear is not None]
        return StateError(
            self.value + other.value, self.off + other.off, _linear(parts, lambda: self.rest + other.rest)
        )

    def __mul__(self, other: StateError) -> StateError:
        off = self.off.scaled(other.reach) + other.off.scaled(np.abs(self.value))
        pairs = (self, other), (other, self)
        parts = [x.linear.by * y.value[..., None] for x, y in pairs if x.linear is not None]

        def rest() -> Deviation:
            first = self.rest.scaled(other.value) + other.rest.scaled(self.value)
            return first + self.off.scaled(other.off.each)

        return StateError(self.value * other.value, off, _linear(parts, rest))

    def plus(self, error: Array) -> StateError:
        parts = [] if self.linear is None else [self.linear.by]
        return StateError(self.value, self.off.plus(error), _linear(parts, lambda: self.rest.plus(error)))

    def times(self, factor: Array, error: Any = 0.0) -> StateError:
        """By known factors. The factors that the plan computes with may be off."""
        parts = [] if self.linear is None else [self.linear.by * factor[..., None]]
        off = self.off.scaled(np.abs(factor) + error)
        more = self.off.scaled(np.broadcast_to(error, factor.shape))
        return StateError(self.value * factor, off, _linear(parts, lambda: self.rest.scaled(factor) + more))

    def through_function(self, value: Array, slope: Array, steepest: Array, bend: Array) -> StateError:
        """``slope`` at the exact value, ``steepest`` in between; ``bend``: how far the function leaves its tangent."""
        parts = [] if self.linear is None else [self.linear.by * slope[..., None]]
        rest = lambda: self.rest.scaled(slope).plus(bend)  # noqa: E731
        return StateError(value, self.off.scaled(steepest), _linear(parts, rest))

    def at_most(self, most: Array | float) -> StateError:
        """Neither the exact nor the computed value is larger."""
        return StateError(self.value, self.off.at_most(np.abs(self.value) + most), self.linear)

    def seen_from(self, start: Deviation | None) -> StateError:
        """Bounded by what was off at the start as well, where that is less."""
        if self.linear is None or start is None:
            return self
        by = np.abs(self.linear.by)
        each = np.minimum((by @ start.each[..., None])[..., 0], _norm(by) * start.norm[:, None])
        norm = np.sqrt(np.sum(by * by, axis=(1, 2))) * start.norm
        found = Deviation(_bound(each), _bound(norm))._tight() + self.linear.rest
        off = Deviation(np.minimum(self.off.each, found.each), np.minimum(self.off.norm, found.norm))._tight()
        return StateError(self.value, off, self.linear)

    def at(self, rows: slice) -> StateError:
        linear = self.linear
        if linear is not None:
            linear = Linear(linear.by[rows], linear.rest.at(rows))
        return StateError(self.value[rows], self.off.at(rows), linear)

    def first(self, count: int) -> StateError:
        return self.at(slice(0, count))

    def with_first(self, new: StateError) -> StateError:
        """The first sequences are new, the others stay."""
        others = self.at(slice(len(new.value), None))
        linear = None
        if self.linear is not None and others.linear is not None:
            by = np.zeros_like(self.linear.by[: len(new.value)]) if new.linear is None else new.linear.by
            linear = Linear(np.concatenate((by, others.linear.by)), new.rest.then(others.rest))
        return StateError(np.concatenate((new.value, others.value)), new.off.then(others.off), linear)


def start_at(*states: StateError) -> tuple[Deviation, list[StateError]]:
    """Here linear maps begin, of all units of these states: what is off here, and the states as such maps."""
    start = Deviation.of(np.concatenate([x.off.each for x in states], axis=1))
    rows, found, place = len(start.each), [], 0
    for x in states:
        by = np.eye(x.value.shape[1], start.each.shape[1], place)
        nothing = Deviation.of(np.zeros_like(x.value))
        found.append(StateError(x.value, x.off, Linear(np.broadcast_to(by, (rows, *by.shape)), nothing)))
        place += x.value.shape[1]
    return start, found


def go_on(start: Deviation, *states: StateError) -> tuple[Deviation, list[StateError]]:
    """The remaining error of a step is a new start for the steps behind it."""
    rests = np.concatenate([x.rest.each for x in states], axis=1)
    found, place = [], 0
    for x in states:
        assert x.linear is not None
        more = np.eye(x.value.shape[1], rests.shape[1], place)
        by = np.concatenate((x.linear.by, np.broadcast_to(more, (len(rests), *more.shape))), axis=2)
        found.append(StateError(x.value, x.off, Linear(by, Deviation.of(np.zeros_like(x.value)))))
        place += x.value.shape[1]
    return Deviation.of(np.concatenate((start.each, rests), axis=1)), found


def _linear(parts: list[Array], rest: Callable[[], Deviation]) -> Linear | None:
    return Linear(sum(parts[1:], parts[0]), rest()) if parts else None


def exact(value: Array) -> StateError:
    return StateError(value, Deviation.of(np.zeros_like(value)))


def boxed(value: Array, error: Array) -> StateError:
    return StateError(value, Deviation.of(error))


def _norm(values: Array) -> Array:
    """Without losing what is small: its square may vanish."""
    largest = values.max(axis=-1, initial=0.0, keepdims=True)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    shares = values / scale
    return np.asarray(scale[..., 0] * np.sqrt(np.sum(shares * shares, axis=-1)))


def _bound(values: Any) -> Array:
    """NaN, where infinities met, is no bound."""
    found = np.asarray(values, np.float64)
    return np.where(np.isnan(found), np.inf, found)


def _times(factors: Array, errors: Array) -> Array:
    return np.where(errors == 0, 0.0, _bound(factors * errors))
