"""What a failing run ends with: the command that repeats it, and a bundle where one was asked for."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import replace

from graphdnn.bundles import RunOutcome, attempt, bundle_of, folder, print_problem, replay_command, run_command, save
from graphdnn.cli.graph_argument import is_path, is_plan, read_file
from graphdnn.device_selection import VARIABLE
from graphdnn.errors import BadParam
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule

FOLDER = Rule(
    id="cli.bundle",
    expected="a folder that can be written",
    reason="{detail}",
    fix="check --save, or the variable GRAPHDNN_BUNDLES",
)
_OPTIONS = ("device", "engine", "seed", "bound")
_LISTS = ("force", "forbid")


def again(plan: ExecutionPlan, arguments: argparse.Namespace, ending: RunOutcome) -> str:
    """``graphdnn replay FILE`` where runs are kept, else ``graphdnn run`` as it was called.

    The file has the ending of this run; its hashes are those of one more, on the same data.
    """
    from graphdnn import __version__

    where = arguments.save or folder()
    if where is None:
        return command_of(plan, arguments)
    bundle = replace(bundle_of(attempt(plan.config, arguments.seed), __version__), ending=ending)
    try:
        return replay_command(save(bundle, where))
    except OSError as error:
        raise BadParam(FOLDER.reject("command line", "folder", str(where), detail=error.strerror)) from None


def command_of(plan: ExecutionPlan, arguments: argparse.Namespace) -> str:
    """The graph by its text or its file, and every option that decides what runs."""
    graph = arguments.graph
    if graph == "-" or graph.lstrip().startswith("{"):
        graph = print_problem(plan.config.fused.graph) or graph
    is_planned = is_path(graph) and is_plan(read_file(graph))  # which brings its device
    options = vars(arguments) | {"device": arguments.device or (None if is_planned else os.environ.get(VARIABLE))}
    given = [(f"--{name}", options[name]) for name in _OPTIONS]
    words = [word for name, value in given if value not in (None, 0) for word in (name, str(value))]
    words += ["--mode", arguments.mode] if arguments.mode else []
    for name in _LISTS:
        words += [word for uids in getattr(arguments, name) or () for word in (f"--{name}", ",".join(map(str, uids)))]
    if graph.lstrip().startswith("{"):
        return f"graphdnn run GRAPH {shlex.join(words)}".rstrip()
    return run_command(graph, *words)
