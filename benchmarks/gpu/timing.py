"""Timing: contestants take turns on the device, and a figure is the median over the turns.

Buffers rotate so that no input is left in the cache from the launch before ("cold"). Where a launch
is long and the data small, that many buffers would take too long; the figure is then "warm".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpu.device import Call, Device, Launches

SERIES_US = 2_000.0  # device time of one timed series of launches
LARGEST_SERIES_US = 60_000.0  # what a rotation over many buffers may take at most
LARGEST_COUNT = 400  # launches of a series
LARGEST_BYTES = 24 * 2**30  # of all buffer sets
SLOW_US = 100_000.0  # a single launch that gets fewer repeats
SLOW_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Timed:
    """Microseconds of one launch over the repeats."""

    us: float  # median
    low: float
    high: float
    repeats: int
    launches: int  # in each repeat
    captured: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Rotation:
    sets: int
    cold: bool


@dataclass(frozen=True, slots=True)
class Contestant:
    """``prepare(i)`` gives the call on buffer set ``i``, on the timed stream.

    ``foreign`` ones return results that they allocate.
    """

    prepare: Callable[[int], Call]
    foreign: bool


def estimate(contestant: Contestant, device: Device) -> float:
    """Microseconds of one call, roughly, after a warm-up: modules are loaded and algorithms chosen by then."""
    with device.active():
        call = contestant.prepare(0)
        call()
        call()
    device.synchronize()
    series = device.launches([call], foreign=contestant.foreign, capture=False)
    return min(series.microseconds() for _ in range(2))


def rotation(bytes_of_a_set: int, slowest_us: float, cache_bytes: int) -> Rotation:
    """So many sets that twice the cache lies between two uses of one, as far as time and memory allow."""
    wanted = max(2, math.ceil(2 * cache_bytes / bytes_of_a_set) + 1)
    time = int(LARGEST_SERIES_US / slowest_us)
    sets = max(2, min(wanted, LARGEST_COUNT, time, int(LARGEST_BYTES / bytes_of_a_set)))
    return Rotation(sets, cold=(sets - 1) * bytes_of_a_set >= 2 * cache_bytes)


def series(contestant: Contestant, us: float, sets: int, device: Device) -> Launches:
    """Launches over all sets in turn, a whole number of rounds, long enough to be timed."""
    rounds = max(1, math.ceil(min(SERIES_US / us, LARGEST_COUNT) / sets))
    with device.active():
        calls = [contestant.prepare(i) for i in range(sets)]
        if contestant.foreign:
            calls = [_keeping(call) for call in calls]
        for call in calls:
            call()
    device.synchronize()
    return device.launches(calls * rounds, foreign=contestant.foreign)


def _keeping(call: Call) -> Call:
    """Hold on to a result until the same call is made again: results rotate over memory as the inputs do."""
    kept: list[Any] = [None]

    def keep() -> None:
        kept[0] = None
        kept[0] = call()

    return keep


def alternate(contestants: Mapping[str, Launches], repeats: int) -> dict[str, list[float]]:
    """Microseconds by contestant, one for each repeat: A B C A B C, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, launches in contestants.items():
            us = launches.microseconds()
            if repeat:
                times[name].append(us)
    return times


def repeats_for(wanted: int, estimates: Sequence[float]) -> int:
    return min(wanted, SLOW_REPEATS) if max(estimates) > SLOW_US else wanted


def timed(values: Sequence[float], launches: Launches) -> Timed:
    return Timed(
        us=statistics.median(values),
        low=min(values),
        high=max(values),
        repeats=len(values),
        launches=launches.count,
        captured=launches.captured,
    )
