"""Units of roundoff, and what n of them can come to.

The model of arithmetic is the standard one: ``fl(x op y) = (x op y)(1 + d) + e`` with ``|d| <= u`` and, where the
result of a product or a quotient is subnormal, ``|e| <= eta / 2`` for the smallest subnormal number eta; one of the
two is 0 (N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd edition, SIAM 2002, sections 2.2, 2.8).
"""

from __future__ import annotations

from functools import cache
from math import exp, expm1, inf, sqrt
from typing import Any

import ml_dtypes

from graphdnn.dtypes import COMPUTE, ELEMENTS, FLOATS
from graphdnn.enums import DataType

LAMBDA = 6.0  # how far out the statistical bound is: see ``likely``
REFERENCE = 2.0**-53  # the unit of what computed values are compared with


def gamma(n: float, u: float) -> float:
    """``gamma_n = n u / (1 - n u)``: no product of n factors ``(1 + d)^(+-1)`` with ``|d| <= u`` is farther from 1.

    Higham (2002), lemma 3.1. Infinite where ``n u >= 1``, where the lemma says nothing.
    """
    return n * u / (1 - n * u) if n * u < 1 else inf


def likely(n: float, u: float) -> float:
    """``exp(lambda sqrt(n) u + n u^2 / (1 - u)) - 1``, where errors are random, of mean 0: Higham and Mary's bound.

    N. J. Higham and T. Mary, *A new approach to probabilistic rounding error analysis*, SIAM J. Sci. Comput. 41 (2019),
    theorem 2.4: it fails with a probability of at most ``2 exp(-lambda^2 (1 - u)^2 / 2)`` for one product of factors,
    3e-8 with the lambda here, and that many times as often for as many. Never more than the worst case.
    """
    grown = LAMBDA * sqrt(n) * u + n * u * u / (1 - u)
    return min(expm1(grown) if grown < 100 else inf, gamma(n, u))


def unlikely() -> float:
    """How probable it is that ``likely`` fails, for one sum."""
    return 2 * exp(-LAMBDA * LAMBDA / 2)


@cache
def roundoff(dtype: Any) -> float:
    """u: half the distance from 1 to the next number; 0 for integers and booleans."""
    if dtype.kind in "biu":
        return 0.0
    return float(ml_dtypes.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]


@cache
def smallest(dtype: Any) -> float:
    """eta, the smallest subnormal number; 0 for integers and booleans."""
    if dtype.kind in "biu":
        return 0.0
    return float(ml_dtypes.finfo(dtype).smallest_subnormal)  # type: ignore[no-untyped-call]


@cache
def smallest_normal(dtype: Any) -> float:
    if dtype.kind in "biu":
        return 0.0
    return float(ml_dtypes.finfo(dtype).tiny)  # type: ignore[no-untyped-call]


def largest(dtype: Any) -> float:
    """The largest finite number of a compute type."""
    if dtype.kind == "b":
        return 1.0
    if dtype.kind in "iu":
        return float(2 ** (8 * dtype.itemsize - 1) - 1)
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]


def compute_of(data_type: DataType) -> Any:
    """The NumPy type that arithmetic of this compute type runs in; None where nothing is computed."""
    return COMPUTE.get(data_type)


def storage_roundoff(data_type: DataType) -> tuple[float, float]:
    """(u, eta) of an element type; zeros for integers and booleans."""
    kind = ELEMENTS[data_type].numpy
    return (roundoff(kind), smallest(kind)) if data_type in FLOATS else (0.0, 0.0)
