"""Which configurations of a problem run: the best, or every engine that serves it, with several knob values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import ENGINES, Engine, Task
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.enums import KnobType
from graphdnn.fusion.fused_graph import FusedGraph
from graphdnn.heuristics import Choice, EngineConfig, Ranking

_BROAD = 4  # one case in so many runs on every engine
_LOOKED_AT = 30  # configurations, for one that is admitted


def generated(config: EngineConfig) -> bool:
    """True without calls of libraries, which only a device can make."""
    kernels = (choice.engine.compile(choice.task, choice.knobs) for choice in config.choices)
    return all(isinstance(s, Launch) for k in kernels if isinstance(k, DeviceKernel) for s in k.steps)


def _anything(_: EngineConfig) -> bool:
    return True


def best(
    fused: FusedGraph, device: DeviceSpec, admitted: Callable[[EngineConfig], bool] = _anything
) -> EngineConfig | None:
    """The first admitted one of the ranking. Raises ``NotSupported`` when no engine serves the graph."""
    ranking = Ranking(fused, device)
    assert ranking.best
    return next(filter(admitted, islice(ranking, _LOOKED_AT)), None)


def configurations(
    fused: FusedGraph,
    device: DeviceSpec,
    seed: int,
    *,
    knob_settings: int = 2,
    broad: int = _BROAD,
    admitted: Callable[[EngineConfig], bool] = _anything,
) -> Iterator[EngineConfig]:
    """The best one; in a ``broad``-th of the cases then every engine with its defaults and some other knob values."""
    first = best(fused, device, admitted)
    if first is not None:
        yield first
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
            if setting and all(c.knobs == c.engine.defaults() for c in choices):
                continue
            config = EngineConfig(fused, device, choices)
            if admitted(config):
                yield config


def _knobs(engine: Engine, rng: np.random.Generator) -> dict[KnobType, int]:
    return {knob.type: int(rng.choice(knob.values)) for knob in engine.knobs}
