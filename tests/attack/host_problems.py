"""Random problems on the host: up to three configurations of each, from poisoned memory, against float64."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
from random_problems.families import cases, draw
from random_problems.memory_images import Image
from random_problems.run_and_compare import Prepared, check

from graphdnn.device_selection import device_spec
from graphdnn.errors import NotSupported
from graphdnn.heuristics import EngineConfig, Ranking
from graphdnn.plan import ExecutionPlan

_CONFIGURATIONS = 3
_MARGIN = 256  # bytes behind a workspace


class Host:
    """The processor: a place where configurations run."""

    device = device_spec("cpu")

    def plan(self, config: EngineConfig) -> Any:
        return ExecutionPlan(config)

    def admits(self, config: EngineConfig) -> bool:
        return True

    def run(self, plan: Any, images: Mapping[int, Image], scalars: Mapping[int, Any], poison: int, form: int) -> str:
        size = plan.workspace_size
        raw = np.full(size + _MARGIN, poison, np.uint8)
        plan.execute({**{uid: image.array for uid, image in images.items()}, **scalars}, raw[:size] if size else None)
        return "wrote behind the workspace" if (raw[size:] != poison).any() else ""


def attack(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Endings by kind, and a line for each wrong result or foreign exception."""
    place, endings, found = Host(), Counter[str](), []
    drawn = cases(count, large=False, start=seed * count)
    random.Random(seed).shuffle(drawn)
    while len(drawn) < count:  # families have at least one case each, and shares are rounded
        drawn += cases(count, large=False, start=(seed + 1) * count)
    for case in drawn[:count]:
        try:
            prepared = Prepared.of(draw(case))
            for config in islice(Ranking(prepared.fused, place.device), _CONFIGURATIONS):
                wrong = check(prepared, place.plan(config), place)
                found += [f"{case} by {config.name}: {line}" for line in wrong]
                endings["executions"] += 1
            endings["served"] += 1
        except NotSupported:
            endings["not supported"] += 1
        except Exception:
            endings["foreign"] += 1
            found.append(f"{case}: {traceback.format_exc().splitlines()[-1]}")
    return endings, found
