"""The command that repeats something: what failures and verbose lines end with."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from graphdnn.bundles.bundle import BUNDLE_FORMAT, NOT_RUN, Bundle
from graphdnn.bundles.verified_run import plan_bundle
from graphdnn.cuda.private import beginning
from graphdnn.errors import GraphdnnError
from graphdnn.files import digest_of
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig, Ranking
from graphdnn.problem.printer import print_problem
from graphdnn.storage import write_atomically

_HEAD = 200  # bytes in which a bundle says what it is
FOLDER = "GRAPHDNN_BUNDLES"  # where failures, and plans that verbose lines are about, are kept as bundles


def folder() -> Path | None:
    """The folder for bundles that the environment names now, or None."""
    return Path(os.environ[FOLDER]) if os.environ.get(FOLDER) else None


def save(bundle: Bundle, where: Path) -> Path:
    """Write a bundle to a file. Its name contains graph, plan and seed, so the same run has the same file.

    Args:
        bundle: The bundle.
        where: The folder.

    Returns:
        The path of the file.

    Raises:
        OSError: The file cannot be written.
    """
    plan = digest_of(
        {"choices": bundle.plan["choices"], "device": bundle.plan["device"], "ending": bundle.ending.verdict}
    )
    path = where / f"{bundle.graph().key[:12]}-{plan[:8]}-{bundle.seed}.json"
    if os.path.lexists(path) and BUNDLE_FORMAT.encode() not in (beginning(path, _HEAD) or b""):
        raise FileExistsError(17, f"{path.name} in it is no bundle of yours, and is left as it is")
    if bundle.ending.verdict != NOT_RUN or not path.exists():
        write_atomically(path, bundle.to_json().encode())
    return path


def replay_command(path: Path) -> str:
    return f"graphdnn replay {shlex.quote(str(path))}"


def run_command(problem: str, *options: str) -> str:
    return " ".join(("graphdnn run", *map(shlex.quote, (problem, *options))))


def of_graph(graph: OperationGraph, command: str = "explain", device: str = "") -> str:
    """For a graph: its text in a command, or its key."""
    text = print_problem(graph)
    if text is None:
        return f"key {graph.key[:12]}; set {FOLDER} for a file"
    return " ".join(("graphdnn", command, shlex.quote(text), *(("--device", device) if device else ())))


def of_error(error: GraphdnnError) -> str:
    """For what an error is about: a plan that failed, a ranking or a graph that was refused; empty where it is else."""
    subject: Any = error.subject
    if isinstance(subject, tuple) and subject:
        (subject, *_) = subject
    if isinstance(subject, EngineConfig):
        return of_plan(subject)
    if isinstance(subject, Ranking):
        return of_graph(subject.fused.graph, "explain", subject.device.name)
    return of_graph(subject) if isinstance(subject, OperationGraph) else ""


def of_plan(config: EngineConfig) -> str:
    """For a plan: a bundle, where a folder for them is set; else as for its graph."""
    from graphdnn import __version__

    where = folder()
    if where is not None:
        try:
            return replay_command(save(plan_bundle(config, __version__), where))
        except OSError as error:
            return f"key {config.fused.graph.key[:12]}; {where} cannot be written: {error.strerror}"
    device = "" if config.device.kind == "cpu" else "cuda"
    return of_graph(config.fused.graph, "run", device)
