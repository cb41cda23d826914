"""lock: write the fused operations, engines, knobs, kernel texts and numeric classes of graphs to a file"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphdnn.cli.common_options import add_device
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.graph_argument import HELP, is_problem, read_argument, read_file
from graphdnn.cli.output_files import write_file
from graphdnn.cli.plan_argument import device_for, planned_of
from graphdnn.device.profiles import DeviceSpec
from graphdnn.errors import MalformedFile
from graphdnn.locks import Lock, LockedGraph, entry_of
from graphdnn.pipeline import rank
from graphdnn.rules import Rule
from graphdnn.text_format import plural, seconds, table

EMPTY = Rule(
    id="cli.lock.empty",
    expected="at least one graph",
    reason="a lock without graphs checks nothing",
    fix="name graph files or problem texts, or a file with one text a line after --from",
)
DEFAULT = Path("graphdnn.lock")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graphs", metavar="GRAPH", nargs="*", help=HELP)
    parser.add_argument(
        "--from", dest="lists", metavar="FILE", action="append", default=[], help="a file with one problem in each line"
    )
    add_device(parser)
    parser.add_argument(
        "-o", "--output", type=Path, default=DEFAULT, metavar="FILE", help=f"what is written (default: {DEFAULT})"
    )


def run(arguments: argparse.Namespace) -> Exit:
    from graphdnn import __version__

    pinned = entries_of(arguments)
    devices = {device.name: device for _, device in pinned}
    lock = Lock(__version__, {}, ()).with_graphs((entry for entry, _ in pinned), devices, __version__)
    if not lock.graphs:
        raise MalformedFile(EMPTY.reject("command line", "GRAPH", "none"))
    write_file(arguments.output, lock.to_json())
    print(as_text(lock))
    print(f"\nlocked in {arguments.output}; to compare: graphdnn check {arguments.output}")
    return Exit.OK


def texts_of(paths: list[str]) -> list[str]:
    """The problem texts of files that have one a line; what follows a # is not read."""
    lines = (line.partition("#")[0].strip() for path in paths for line in read_file(path).splitlines())
    return [line for line in lines if line]


def entries_of(arguments: argparse.Namespace) -> list[tuple[LockedGraph, DeviceSpec]]:
    """Named by their problem texts, else by the graph's own name or the file's. Plan files bring what is pinned."""
    keys: dict[str, tuple[str, ...]] = {}  # name -> what is pinned by it
    found = []
    for argument in (*arguments.graphs, *texts_of(arguments.lists)):
        asked = read_argument(argument)
        problem = " ".join(asked.text.split()) if is_problem(asked.text) else ""
        name = problem or asked.graph.name or Path(argument).stem
        planned = planned_of(asked, arguments)
        config = planned or rank(asked.graph, device_for(asked, arguments), limits=asked.limits).best
        key = asked.graph.key, config.device.name, config.name
        while keys.setdefault(name, key) != key:
            name += "'"
        found.append((entry_of(config, name, problem, is_planned=planned is not None), config.device))
    return found


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
