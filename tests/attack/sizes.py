"""Huge extents, strides, windows, groups: an operation is planned, or refused, within seconds and without Python's errors."""

from __future__ import annotations

import random
import time
import warnings
from collections import Counter

from huge_sizes import FAMILIES

from graphdnn import OperationGraph, Ranking, device_spec, fuse
from graphdnn.cli.kernel_listing import kernels_of
from graphdnn.errors import GraphdnnError

SECONDS = 8.0  # that planning takes at most
DEVICES = ("cpu", "h200")


def attack(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Endings by kind, and a line for each plan that took too long or ended in a foreign exception."""
    rng, endings, found = random.Random(seed), Counter[str](), []
    for _ in range(count):
        family, device = rng.choice(FAMILIES), device_spec(rng.choice(DEVICES))
        names = rng.sample(tuple(family.sizes), min(len(family.sizes), rng.randint(1, 3)))
        changes = {name: 2 ** rng.randint(8, 60) + rng.choice((-1, 0, 0, 1)) for name in names}
        start = time.monotonic()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                kernels_of(Ranking(fuse(OperationGraph.of([family.of(**changes)])), device).best)
            endings["planned"] += 1
        except GraphdnnError as error:
            str(error)
            endings["refused"] += 1
        except Exception as error:
            endings["foreign"] += 1
            found.append(f"{family.name} {changes} on {device.name}: {type(error).__name__}: {str(error)[:120]}")
        if time.monotonic() - start > SECONDS:
            found.append(f"{family.name} {changes} on {device.name}: {time.monotonic() - start:.1f} s")
    return endings, found
