"""Spending: when a tuning's candidates ran and were compiled, and how long neither was the case.

Kernels of the next candidates are compiled beside the search, so this is no sum: time belongs to kernels where one
ran, else to building where the kernel of a candidate that was tried was compiled or loaded, else to the tuner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from graphdnn.tuning.result import Spent

Span = tuple[float, float]  # from and to, as perf_counter tells the time in every process of a machine


@dataclass(slots=True)
class TimeAccount:
    started: float
    _ran: list[Span] = field(default_factory=list)
    _built: list[Span] = field(default_factory=list)

    @property
    def passed(self) -> float:
        return perf_counter() - self.started

    def ran(self, seconds: float) -> None:
        """Executions that have just ended took so long."""
        self._ran.append(_until_now(seconds))

    def built(self, seconds: float) -> None:
        """Loading that has just ended."""
        self._built.append(_until_now(seconds))

    def compiled(self, spans: Sequence[Span]) -> None:
        """A tried candidate's kernels, beside the search."""
        self._built += spans

    def total(self) -> Spent:
        now = perf_counter()
        kernels = _covered(self._ran, self.started, now)
        return Spent(now - self.started, kernels, _covered([*self._ran, *self._built], self.started, now) - kernels)


def _until_now(seconds: float) -> Span:
    now = perf_counter()
    return now - seconds, now


def _covered(spans: Sequence[Span], start: float, end: float) -> float:
    """Seconds between ``start`` and ``end`` that lie in any of them."""
    found = 0.0
    for begin, until in sorted(spans):
        last = min(until, end)
        if last > max(begin, start):
            found += last - max(begin, start)
            start = last
    return found
