"""report: write one page for a browser with the graph, its kernels, the ranking, refusals and repairs"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphdnn.analysis.report import Contents, comparison_page, contents_of, page
from graphdnn.cli.commands.run import natural
from graphdnn.cli.common_options import add_device_and_mode
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.graph_argument import HELP, is_problem
from graphdnn.cli.output_files import write_file
from graphdnn.cli.plan_argument import chosen
from graphdnn.plan import ExecutionPlan
from graphdnn.problem import random_bindings

LONGEST_TITLE = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    parser.add_argument("--compare", metavar="GRAPH", help="a second graph or plan: both on one page")
    add_device_and_mode(parser)
    parser.add_argument(
        "--repeat", type=natural, default=0, metavar="N", help="execute the plan N times, on random data"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help="where the page goes")


def run(arguments: argparse.Namespace) -> Exit:
    from graphdnn import __version__

    first = _contents(arguments.graph, arguments)
    if arguments.compare is None:
        write_file(arguments.output, page(first, __version__))
        shown = [first]
    else:
        second = _contents(arguments.compare, arguments)
        write_file(arguments.output, comparison_page(first, second, __version__))
        shown = [first, second]
    print(arguments.output)
    for contents in shown:
        if contents.not_compiled is not None:
            raise contents.not_compiled  # the page is written; the command says what this machine lacks
    return Exit.OK if all(contents.plan is not None for contents in shown) else Exit.NOT_SUPPORTED


def _contents(argument: str, arguments: argparse.Namespace) -> Contents:
    found = chosen(arguments, argument)
    ranking, graph = found.ranking, found.ranking.fused.graph
    plan = None if found.planned is None else ExecutionPlan(found.planned)
    bindings = random_bindings(graph) if arguments.repeat else None
    title = argument.strip() if is_problem(argument) and not Path(argument).exists() else graph.name or argument
    title = title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 3] + "..."
    return contents_of(ranking, plan, title=title, bindings=bindings, repeats=arguments.repeat)
