"""lock: pin fused sets, engines, knobs, kernel texts and numeric classes of a set of graphs in a file"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphdnn.cli.options import add_device, device_of
from graphdnn.cli.outcome import Exit
from graphdnn.cli.source import HELP, graph_and_limits_from_text, is_problem, read_file, read_source
from graphdnn.cli.writing import write_file
from graphdnn.errors import MalformedFile
from graphdnn.fusion import Limits
from graphdnn.graph import OperationGraph
from graphdnn.locks import Lock, lock_of
from graphdnn.rules import Rule
from graphdnn.text import plural, seconds, table

EMPTY = Rule(
    id="cli.lock.empty",
    expected="at least one graph",
    reason="a lock of nothing holds for everything",
    fix="name graph files or problem texts, or a file with one text a line after --from",
)
DEFAULT = Path("graphdnn.lock")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graphs", metavar="GRAPH", nargs="*", help=HELP)
    parser.add_argument(
        "--from", dest="lists", metavar="FILE", action="append", default=[], help="a file with one problem text a line"
    )
    add_device(parser)
    parser.add_argument(
        "-o", "--output", type=Path, default=DEFAULT, metavar="FILE", help=f"what is written (default: {DEFAULT})"
    )


def run(arguments: argparse.Namespace) -> Exit:
    from graphdnn import __version__

    graphs, problems, limits = graphs_of([*arguments.graphs, *texts_of(arguments.lists)])
    if not graphs:
        raise MalformedFile(EMPTY.reject("command line", "GRAPH", "none"))
    lock = lock_of(graphs, device_of(arguments), problems, __version__, limits)
    write_file(arguments.output, lock.to_json())
    print(as_text(lock))
    print(f"\nlocked in {arguments.output}; to compare: graphdnn check {arguments.output}")
    return Exit.OK


def texts_of(paths: list[str]) -> list[str]:
    """The problem texts of files that have one a line; what follows a # is not read."""
    lines = (line.partition("#")[0].strip() for path in paths for line in read_file(path).splitlines())
    return [line for line in lines if line]


def graphs_of(arguments: list[str]) -> tuple[dict[str, OperationGraph], dict[str, str], dict[str, Limits]]:
    """Graphs by name, the problem texts of those that have one (a text is its own name), the limits of plan files."""
    graphs: dict[str, OperationGraph] = {}
    problems: dict[str, str] = {}
    limits: dict[str, Limits] = {}
    for argument in arguments:
        text = read_source(argument)
        graph, limit = graph_and_limits_from_text(text)
        problem = " ".join(text.split()) if is_problem(text) else ""
        name = problem or graph.name or Path(argument).stem
        while name in graphs and graphs[name].key != graph.key:
            name += "'"
        graphs[name] = graph
        problems |= {name: problem} if problem else {}
        limits |= {name: limit} if limit else {}
    return graphs, problems, limits


def as_text(lock: Lock) -> str:
    rows = [
        (graph.name if i == 0 else "", kernel.name, kernel.engine, seconds(kernel.predicted_us * 1e-6))
        for graph in lock.graphs
        for i, kernel in enumerate(graph.kernels)
    ]
    device = ", ".join(lock.devices)
    return f"{plural(len(lock.graphs), 'graph')} on {device}\n" + table(
        ("graph", "kernel", "engine", "predicted"), rows
    )
