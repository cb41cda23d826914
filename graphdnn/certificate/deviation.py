"""Deviation: how far the states of sequences may be off, unit by unit and as a vector.

What one step hands on to the next is a matrix times a deviation. Unit by unit that grows like the sums of magnitudes of
the matrix's rows, as a vector only like the matrix's largest singular value (N. J. Higham, *Accuracy and Stability of
Numerical Algorithms*, 2nd edition, SIAM 2002, section 6.2): both are carried along, and each bounds the other.
"""

from __future__ import annotations

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

    def _tight(self) -> Deviation:
        each = np.minimum(self.each, self.norm[:, None])
        return Deviation(each, np.minimum(self.norm, _norm(each)))


@dataclass(frozen=True, slots=True)
class Off:
    """A value of every sequence and unit, and how far it may be off."""

    value: Array
    off: Deviation

    @property
    def reach(self) -> Array:
        return np.abs(self.value) + self.off.each

    def __add__(self, other: Off) -> Off:
        return Off(self.value + other.value, self.off + other.off)

    def __mul__(self, other: Off) -> Off:
        off = self.off.scaled(other.reach) + other.off.scaled(np.abs(self.value))
        return Off(self.value * other.value, off)

    def plus(self, error: Array) -> Off:
        return Off(self.value, self.off.plus(error))

    def at_most(self, most: Array | float) -> Off:
        """Neither the exact nor the computed value is larger."""
        return Off(self.value, self.off.at_most(np.abs(self.value) + most))

    def at(self, rows: slice) -> Off:
        return Off(self.value[rows], Deviation(self.off.each[rows], self.off.norm[rows]))

    def first(self, count: int) -> Off:
        return self.at(slice(0, count))

    def with_first(self, new: Off) -> Off:
        """The first sequences are new, the others stay."""
        rest = self.at(slice(len(new.value), None))
        pairs = (new.value, rest.value), (new.off.each, rest.off.each), (new.off.norm, rest.off.norm)
        value, each, norm = (np.concatenate(pair) for pair in pairs)
        return Off(value, Deviation(each, norm))


def exact(value: Array) -> Off:
    return Off(value, Deviation.of(np.zeros_like(value)))


def boxed(value: Array, error: Array) -> Off:
    return Off(value, Deviation.of(error))


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
