"""The configuration a command works with: a plan file's own where there is one, else the best of a ranking.

An option that decides otherwise than the file is never taken in silence: one line on stderr says what became of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphdnn.cli.common_options import device_of, mode_of
from graphdnn.cli.fusion_options import limited
from graphdnn.cli.graph_argument import GraphArgument, read_argument
from graphdnn.cli.tuning_options import records_of
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.errors import BadParam, NotSupported, Rejection
from graphdnn.files import refusals_of
from graphdnn.heuristics import Choice, EngineConfig, Ranking
from graphdnn.pipeline import rank
from graphdnn.rules import Rule
from graphdnn.text_format import meant

ENGINE = Rule(
    id="cli.engine",
    expected="{expected}",
    reason="no engine has this name",
    fix="{meant}choose one of the names, or leave the choice to the heuristics",
)


_NAMED = 8  # engines that a message names


@dataclass(frozen=True, slots=True)
class PlanArgument:
    """What is worked with, beside what could have been."""

    ranking: Ranking
    planned: EngineConfig | None = None  # of a plan file, where the options leave it as it is
    engine: str | None = None

    @property
    def config(self) -> EngineConfig:
        """Raises ``NotSupported`` when no engine serves the graph."""
        if self.planned is not None:
            return self.planned
        return self.ranking.best if self.engine is None else with_engine(self.ranking, self.engine)


def chosen(arguments: argparse.Namespace, argument: str | None = None) -> PlanArgument:
    """For the graph of the command, or for another ``argument``."""
    asked = read_argument(arguments.graph if argument is None else argument)
    limits = limited(asked.limits, arguments)
    planned = planned_of(asked, arguments)
    device = device_for(asked, arguments) if planned is None else planned.device
    tuned = records_of(arguments) if hasattr(arguments, "tuned") else None
    ranking = rank(asked.graph, device, mode_of(arguments), limits=limits, tuned=tuned)
    return PlanArgument(ranking, planned, getattr(arguments, "engine", None))


def device_for(asked: GraphArgument, arguments: argparse.Namespace) -> DeviceSpec:
    """--device, then the plan file's, then the default."""
    if asked.planned is not None and arguments.device is None:
        return asked.planned.device
    return device_of(arguments)


def planned_of(asked: GraphArgument, arguments: argparse.Namespace) -> EngineConfig | None:
    """A plan file's configuration, on its device or on --device; None where engines are to be ranked."""
    config = asked.planned
    if config is None:
        return None
    deciding = sorted(_deciding(arguments))
    if deciding:
        _say(f"the plan file's engines give way to {', '.join(deciding)}: engines are ranked anew")
        return None
    device = device_for(asked, arguments)
    if device.to_json() == config.device.to_json():
        return config
    made = f"the plan file was made for {config.device.name}"
    there = moved(config, device)
    refused = refusals_of(there)
    if refused:
        why = f"{refused[0].where.partition(',')[0]} declines [{refused[0].rule}]"
        _say(f"{made}; on {device.name} {why}, so engines are ranked anew")
        return None
    _say(f"{made}; its engines and knobs are taken to {device.name}")
    return there


def moved(config: EngineConfig, device: DeviceSpec) -> EngineConfig:
    """The same engines and knobs on another device, whether or not they serve it."""
    choices = tuple(Choice(Task(c.task.op, device), c.engine, c.knobs) for c in config.choices)
    return replace(config, device=device, choices=choices)


def _deciding(arguments: argparse.Namespace) -> Iterator[str]:
    """Options that choose engines, as they were given."""
    for name in ("mode", "engine", "tuned", "db", "force", "forbid", "bound"):
        if getattr(arguments, name, None) not in (None, False):
            yield f"--{name}"


def _say(words: str) -> None:
    print(f"note: {words}", file=sys.stderr)


def unknown_engine(name: str) -> Rejection:
    known = tuple(ENGINE_BY_NAME)
    near = [engine for engine in known if name in engine][:_NAMED]
    expected = f"an engine's name, e.g. {', '.join(near or known[:1])}; all are in docs/support.md"
    return ENGINE.reject("command line", "--engine", name, expected=expected, meant=meant(name, known))


def engine_help() -> str:
    return "use this engine for every kernel that it serves, e.g. cuda_hopper_gemm; docs/support.md has their names"


def with_engine(ranking: Ranking, name: str) -> EngineConfig:
    """The best configuration with this engine wherever it serves. Raises when it is unknown, or serves nothing here."""
    if name not in ENGINE_BY_NAME:
        raise BadParam(unknown_engine(name))
    engine = ENGINE_BY_NAME[name]
    best = ranking.best
    refusals = [engine.why_not(choice.task) for choice in best.choices]
    if all(refusals):
        raise NotSupported([rejection for refused in refusals for rejection in refused])
    choices = (
        choice if refused else Choice(choice.task, engine, engine.defaults())
        for choice, refused in zip(best.choices, refusals, strict=True)
    )
    return EngineConfig(best.fused, best.device, tuple(choices))
