"""certify: show proven bounds of a plan's errors, and the observed errors"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from graphdnn.analysis.certificate import Certificate
from graphdnn.analysis.random_operands import blended, random_operands
from graphdnn.cli.commands.run import natural
from graphdnn.cli.common_options import add_device_and_mode, refuse_ignored
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.graph_argument import HELP
from graphdnn.cli.plan_argument import chosen, engine_help
from graphdnn.dtypes import FLOATS
from graphdnn.engines.renames import current_name
from graphdnn.errors import BadParam
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule

RANGE = Rule(
    id="cli.certify.range",
    expected="NAME=LOW,HIGH with the name or uid of an input: {known}",
    reason="{reason}",
    fix="write it like --range x=-1,1",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    add_device_and_mode(parser)
    parser.add_argument("--engine", type=current_name, metavar="NAME", help=engine_help())
    parser.add_argument("--seed", type=natural, metavar="N", help="seed of the random data (default: 0)")
    parser.add_argument(
        "--range", action="append", default=[], metavar="NAME=LOW,HIGH", help="bounds for all data in these ranges"
    )
    parser.add_argument("--types", action="store_true", help="only bounds that hold for any data; nothing is executed")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    is_data = not arguments.types and not arguments.range
    refuse_ignored(arguments, ("range", not arguments.types, "without --types"),
                   ("seed", is_data, "without --types and --range"))  # fmt: skip
    plan = ExecutionPlan(chosen(arguments).config)
    graph = plan.config.fused.graph
    ranges = _ranges(graph, arguments.range)
    certificate: Certificate = (
        plan.certificate(_data(graph, arguments.seed or 0)) if is_data else plan.certificate(ranges=ranges)
    )
    if arguments.json:
        print(json.dumps({"format": "graphdnn.certificate", "version": 1, **certificate.to_json()}, indent=1))
    else:
        print(certificate)
    return Exit.OK if certificate.holds else Exit.CHECK_FAILED


def _data(graph: OperationGraph, seed: int) -> dict[int, object]:
    data = random_operands(graph, seed)
    blended(graph, data)
    return data


def _ranges(graph: OperationGraph, given: Sequence[str]) -> dict[int, tuple[float, float]]:
    """``x=-1,1`` by uid."""
    names = {**{str(t.uid): t.uid for t in graph.inputs}, **{t.name: t.uid for t in graph.inputs if t.name}}
    found = {}
    for text in given:
        name, _, ends = text.partition("=")
        try:
            low, high = (float(end) for end in ends.split(","))
        except ValueError:
            raise _refuse(names, text, "two numbers are wanted") from None
        if name not in names:
            raise _refuse(names, text, f"no input is called {name!r}")
        found[names[name]] = low, high
    missing = [t.label() for t in graph.inputs if t.data_type in FLOATS and not t.is_constant and t.uid not in found]
    if found and missing:
        raise _refuse(names, ", ".join(given), f"a bound needs all floating inputs; no range for {', '.join(missing)}")
    return found


def _refuse(names: dict[str, int], text: str, reason: str) -> BadParam:
    known = ", ".join(names)
    return BadParam(RANGE.reject("command line", "--range", text, known=known, reason=reason))
