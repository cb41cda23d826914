"""Which configurations of a problem run: the best, or every engine that serves it, with several knob values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphdnn.device import DeviceSpec
from graphdnn.engines import ENGINES, Engine, Task
from graphdnn.enums import KnobType
from graphdnn.fusion.fused import FusedGraph
from graphdnn.heuristics import Choice, EngineConfig, Ranking

_BROAD = 4  # one case in so many runs on every engine


def best(fused: FusedGraph, device: DeviceSpec) -> EngineConfig:
    """Raises ``NotSupported`` when no engine serves it."""
    return Ranking(fused, device).best


def configurations(
    fused: FusedGraph, device: DeviceSpec, seed: int, *, knob_settings: int = 2, broad: int = _BROAD
) -> Iterator[EngineConfig]:
    """The best one; in a ``broad``-th of the cases then every engine with its defaults and some other knob values."""
    yield best(fused, device)
    if not broad or seed % broad:
        return
    rng = np.random.default_rng(seed)
    tasks = [Task(op, device) for op in fused]
    serving = [[e for e in ENGINES if "cuda" in e.places and not e.why_not(task)] for task in tasks]
    rounds = max(len(engines) for engines in serving)
    for i in range(rounds):
        for setting in range(1 + knob_settings):
            choices = tuple(
                Choice(task, engine, engine.settings(_knobs(engine, rng) if setting else {}))
                for task, engines in zip(tasks, serving, strict=True)
                for engine in (engines[i % len(engines)],)
            )
            if setting == 0 or any(c.knobs != c.engine.defaults() for c in choices):
                yield EngineConfig(fused, device, choices)


def _knobs(engine: Engine, rng: np.random.Generator) -> dict[KnobType, int]:
    return {knob.type: int(rng.choice(knob.values)) for knob in engine.knobs}
