"""Attempt: one case from drawing to verdict, in a form that travels between processes."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, field

from graphdnn.errors import NotSupported
from graphdnn.heuristics import EngineConfig
from random_problems.configurations import configurations
from random_problems.execution_targets import Place
from random_problems.families import Case, draw
from random_problems.run_and_compare import Prepared, check


@dataclass
class Attempt:
    """What became of a case. ``runs`` names the configurations that were executed and compared."""

    case: Case
    runs: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    declined: str = ""  # no engine serves the graph
    broken: bool = False  # the device cannot be used any more in this process
    seconds: float = 0.0


def attempt(case: Case, place: Place, *, knob_settings: int = 2, broad: int = 4) -> Attempt:
    result, start = Attempt(case), time.perf_counter()
    try:
        prepared = Prepared.of(draw(case))
        _on_configurations(result, prepared, place, knob_settings, broad)
    except Exception:
        result.failures.append(traceback.format_exc())
    result.seconds = time.perf_counter() - start
    return result


def _on_configurations(result: Attempt, prepared: Prepared, place: Place, knob_settings: int, broad: int) -> None:
    seed, seen = result.case.seed, set()
    try:
        for config in configurations(
            prepared.fused, place.device, seed, knob_settings=knob_settings, broad=broad, admitted=place.admits
        ):
            if config.name not in seen:
                seen.add(config.name)
                _one(result, config, prepared, place, form=seed % 2)
            if result.broken:
                return
    except NotSupported as error:
        result.declined = str(error)


def _one(result: Attempt, config: EngineConfig, prepared: Prepared, place: Place, form: int) -> None:
    try:
        plan = place.plan(config)
        found = check(prepared, plan, place, form)
    except Exception as error:
        found = [traceback.format_exc()]
        result.broken = "Cuda" in type(error).__name__ or "CUDA" in type(error).__name__
    result.failures += [f"{config.name}: {line}" for line in found]
    result.runs.append(config.name)
