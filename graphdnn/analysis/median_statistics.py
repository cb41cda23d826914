"""Medians with an interval, and rank correlations: what can be said of times without knowing their distribution.

Of n independent samples in order, x(1) <= ... <= x(n), the number below the true median has the binomial distribution
B(n, 1/2) whatever the samples' own distribution is. So x(k) <= median <= x(n+1-k) with probability
1 - 2 P(B(n, 1/2) < k): the interval of W. R. Thompson, "On confidence ranges for the median and other expectation
distributions for populations of unknown distribution form", Annals of Mathematical Statistics 7 (1936), 122-128; also
David and Nagaraja, "Order Statistics", section 7.1. Fewer than 6 samples have none of 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import comb, inf, sqrt

CONFIDENCE = 0.95
_ONE_IN = 20  # 1 / (1 - CONFIDENCE), for whole numbers
FEWEST = 6  # samples: 1 - 2 / 2**6 is the first that exceeds 95 %


@dataclass(frozen=True, slots=True)
class Interval:
    """The median of some samples, and where the true one lies with a probability of at least 95 %."""

    median: float
    low: float
    high: float  # infinity, with a low of 0, for too few samples

    def overlaps(self, other: Interval) -> bool:
        return self.low <= other.high and other.low <= self.high

    @property
    def spread(self) -> float:
        """The interval's width over the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


@cache
def rank_below(n: int) -> int:
    """The largest k for which x(k) and x(n+1-k) enclose the median with the confidence; 0 when there is none."""
    below = 0
    for k in range(1, n // 2 + 1):
        below += comb(n, k - 1)  # 2**n times the probability of fewer than k samples below the median
        if 2 * below * _ONE_IN > 2**n:
            return k - 1
    return n // 2


def median_interval(samples: Sequence[float]) -> Interval:
    """Raises ``ValueError`` without samples."""
    ordered = sorted(samples)
    n = len(ordered)
    if not n:
        raise ValueError("no samples")
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    k = rank_below(n)
    return Interval(middle, ordered[k - 1], ordered[n - k]) if k else Interval(middle, 0.0, inf)


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b: pairs in the same order less pairs in the other one, ties allowed for. None when all tie."""
    both = ties_first = ties_second = pairs = 0
    for (a, b), (c, d) in combinations(zip(first, second, strict=True), 2):
        pairs += 1
        ties_first += a == c
        ties_second += b == d
        both += ((a > c) - (a < c)) * ((b > d) - (b < d))
    scale = sqrt((pairs - ties_first) * (pairs - ties_second))
    return both / scale if scale else None


def spearman_rho(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho: the correlation of the ranks, equal values sharing theirs. None when all tie."""
    a, b = _ranks(first), _ranks(second)
    n, middle = len(a), (len(a) + 1) / 2
    covariance = sum((a[i] - middle) * (b[i] - middle) for i in range(n))
    scale = sqrt(sum((r - middle) ** 2 for r in a) * sum((r - middle) ** 2 for r in b))
    return covariance / scale if scale else None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for i in order[start:end]:
            ranks[i] = (start + 1 + end) / 2
        start = end
    return ranks
