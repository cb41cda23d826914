"""Box: where a tensor's exact values are, and how far the computed ones may be from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.dtypes import Array


@dataclass(frozen=True, slots=True)
class ErrorInterval:
    """``low <= exact <= high`` and ``|computed - exact| <= error``, element by element, or for all elements in one."""

    low: Array
    high: Array
    error: Array

    @classmethod
    def of(cls, values: Any, error: Any = 0.0) -> ErrorInterval:
        """Around known values."""
        at = np.asarray(values, np.float64)
        return cls(at, at, np.broadcast_to(np.asarray(error, np.float64), at.shape))

    @classmethod
    def between(cls, low: float, high: float, error: float = 0.0) -> ErrorInterval:
        """The interval of a tensor whose range alone is known."""
        return cls(*(np.asarray(v, np.float64) for v in (low, high, error)))

    @property
    def most(self) -> Array:
        """The largest magnitude of an exact value."""
        return np.abs(self.low) if self.low is self.high else np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def reach(self) -> Array:
        """The largest magnitude of an exact or computed value."""
        return self.most + self.error

    @property
    def wide(self) -> tuple[Array, Array]:
        """Between these are the exact and the computed values."""
        return self.low - self.error, self.high + self.error

    @property
    def is_exact(self) -> bool:
        return not self.error.any()

    def scaled(self, factor: float) -> ErrorInterval:
        low, high = sorted_pair(self.low * factor, self.high * factor)
        return ErrorInterval(low, high, self.error * abs(factor))

    def with_error(self, error: Any) -> ErrorInterval:
        """NaN, where infinities met, is no bound."""
        found = np.broadcast_to(np.asarray(error, np.float64), np.broadcast_shapes(np.shape(error), self.low.shape))
        undefined = np.isnan(found)
        return ErrorInterval(self.low, self.high, np.where(undefined, np.inf, found) if undefined.any() else found)


def sorted_pair(a: Array, b: Array) -> tuple[Array, Array]:
    return np.minimum(a, b), np.maximum(a, b)


def times(slope: Any, error: Any) -> Array:
    """``slope * error``; what is exact stays so at any slope."""
    return np.where(error == 0, 0.0, np.asarray(slope) * error)


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Without NumPy's warnings: infinite and undefined bounds are what is being worked out."""

    def run(*arguments: Any, **options: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments, **options)

    return run
