"""Options of a run, as far as measuring reads them."""

from __future__ import annotations

import time
from dataclasses import dataclass

REPEATS, QUICK_REPEATS = 15, 10


@dataclass(frozen=True, slots=True)
class Options:
    repeats: int = REPEATS
    tune: int | None = None  # configurations of mode B to try; None leaves it to the group
    every_kernel: bool = False  # each engine and each of its kernels beside the first choice, in every group
    alone: bool = False  # no peers and no device copies
    deadline: float = float("inf")  # of time.monotonic()
    seed: int = 0

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.deadline
