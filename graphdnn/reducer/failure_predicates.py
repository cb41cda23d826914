"""What counts as failing still: the same rules, the same mismatch, one rule anywhere, or what a command says."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphdnn.bundles import attempt
from graphdnn.bundles.bundle import OK
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.renames import current_names
from graphdnn.errors import GraphdnnError, NotSupported
from graphdnn.files import graph_to_json
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig, Ranking
from graphdnn.pipeline import rank

Fails = Callable[[OperationGraph], bool]
Choose = Callable[[Ranking], EngineConfig]
TIMED_OUT = 124  # as the shell's timeout says it


@dataclass(frozen=True, slots=True)
class Failure:
    """How a graph fails: the rules that refuse it or that an error names, or results that are wrong."""

    verdict: str  # "refused", "error", "mismatch"
    rules: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.verdict + (f": {', '.join(sorted(self.rules))}" if self.rules else "")


def symptom_of(
    graph: OperationGraph, device: DeviceSpec, seed: int = 0, choose: Choose | None = None
) -> Failure | None:
    """How a graph fails on a device. The graph is ranked, built, executed on random data and verified.

    Args:
        graph: The graph.
        device: The profile of the device.
        seed: The seed of the data.
        choose: Picks a configuration from the ranking. None picks the best.

    Returns:
        The failure, or None.

    Raises:
        NotSupported: The device is not present.
    """
    try:
        ranking = rank(graph, device)
        config = ranking.best if choose is None else choose(ranking)
    except GraphdnnError as error:
        return Failure("refused", frozenset(r.rule for r in error.rejections))
    made = attempt(config, seed)
    if isinstance(made.error, NotSupported):
        raise made.error  # the device is not here: that says nothing of the graph
    ending = made.ending
    return None if ending.verdict == OK else Failure(ending.verdict, frozenset(ending.rules))


def by_symptom(symptom: Failure, device: DeviceSpec, seed: int = 0, choose: Choose | None = None) -> Fails:
    """A predicate: a graph fails with the same verdict and at least the same rules.

    Args:
        symptom: The failure.
        device: The profile of the device.
        seed: The seed of the data.
        choose: Picks a configuration from the ranking. None picks the best.

    Returns:
        The predicate, for ``reduce``.
    """

    def fails(graph: OperationGraph) -> bool:
        found = symptom_of(graph, device, seed, choose)
        return found is not None and found.verdict == symptom.verdict and symptom.rules <= found.rules

    return fails


def by_rule(rule: str, device: DeviceSpec) -> Fails:
    """A predicate: a rule keeps an edge unfused, excludes an engine, or refuses the graph.

    Args:
        rule: The id of the rule.
        device: The profile of the device.

    Returns:
        The predicate, for ``reduce``.
    """
    current = current_names(rule)

    def fails(graph: OperationGraph) -> bool:
        return current in _rules_of(graph, device)

    return fails


def _rules_of(graph: OperationGraph, device: DeviceSpec) -> set[str]:
    try:
        ranking = rank(graph, device)
    except GraphdnnError as error:
        return {r.rule for r in error.rejections}
    found = {stop.rule for stop in ranking.fused.stopped_by}
    return found | {r.rule for declined in ranking.declined for r in declined.rejections}


def by_command(command: Sequence[str], graph: OperationGraph, seconds: float = 60.0) -> Fails:
    """A predicate: a command on the graph's file ends with the same exit code as for ``graph``.

    A command that takes longer than ``seconds`` is ended and counts as exit code 124.

    Args:
        command: The words of the command. ``{}`` stands for the file; without it the file comes last.
        graph: The graph that fails.
        seconds: The time that one run of the command may take.

    Returns:
        The predicate, for ``reduce``.

    Raises:
        BadParam: The command succeeds on the graph.
    """
    wanted = _code(command, graph, seconds)
    return lambda candidate: wanted != 0 and _code(command, candidate, seconds) == wanted


def _code(command: Sequence[str], graph: OperationGraph, seconds: float) -> int:
    with tempfile.TemporaryDirectory(prefix="graphdnn-") as folder:
        path = Path(folder) / "graph.json"
        path.write_text(graph_to_json(graph), encoding="utf-8")
        words = [word.replace("{}", str(path)) for word in command]
        words += [] if any("{}" in word for word in command) else [str(path)]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        return done.returncode
