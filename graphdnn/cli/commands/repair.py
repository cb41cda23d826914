"""repair: suggest the smallest edits that make a graph legal, fuse further or run faster, and apply one"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from graphdnn.analysis.repairs import Repair, Repairs, of_data, of_error, of_graph
from graphdnn.cli.common_options import add_device_and_mode, device_of, mode_of, refuse_ignored
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.graph_argument import HELP, is_plan, is_problem, naming, read_argument, read_source
from graphdnn.cli.output_files import write_file
from graphdnn.cli.plan_argument import device_for
from graphdnn.errors import BadParam, GraphdnnError
from graphdnn.files import GRAPH_FORMAT, graph_to_json, guarded, parse_document
from graphdnn.problem import parse
from graphdnn.rules import Rule
from graphdnn.text_format import indented, plural

CHOICE = Rule(
    id="cli.repair.choice",
    expected="{expected}",
    reason="suggestions are counted from 1, in the order in which they are printed",
    fix="run graphdnn repair without --apply to see them",
)
PARTIAL = Rule(
    id="cli.repair.partial",
    expected="a graph file, or a text with operations that can all be read",
    reason="the text ends at the operation that was refused, so there is no whole graph to write",
    fix="change the text as suggested",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    add_device_and_mode(parser)
    parser.add_argument(
        "--apply",
        metavar="N",
        type=int,
        nargs="?",
        const=1,
        help="apply suggestion N and write the graph (default: 1)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="the file for the changed graph (default: stdout)"
    )
    parser.add_argument("--json", action="store_true", help="print the suggestions as JSON, with the changed graphs")


def run(arguments: argparse.Namespace) -> Exit:
    found = repairs_for(arguments)
    is_applied = arguments.apply is not None or arguments.output is not None
    refuse_ignored(arguments, ("json", not is_applied, "without --apply, which writes a graph"))
    if is_applied:
        _apply(_chosen(found, 1 if arguments.apply is None else arguments.apply), arguments.output)
        return Exit.OK
    print(json.dumps(found.to_json(), indent=1) if arguments.json else as_text(found))
    return Exit.OK if found or not found.problems else Exit.CHECK_FAILED


def repairs_for(arguments: argparse.Namespace) -> Repairs:
    """Raises ``MalformedFile`` or ``BadParam`` for what is so wrong that there is nothing to edit."""
    text = read_source(arguments.graph)
    if is_plan(text):
        asked = read_argument(arguments.graph, text)
        return of_graph(asked.graph, device_for(asked, arguments), mode_of(arguments))
    device, mode = device_of(arguments), mode_of(arguments)
    if is_problem(text):
        try:
            return of_graph(parse(text).build_operation_graph(), device, mode)
        except GraphdnnError as error:
            found = of_error(error, device)
            if not found:
                raise
            return found
    with naming(arguments.graph):
        return guarded(lambda: of_data(parse_document(text, GRAPH_FORMAT), device, mode))


def as_text(found: Repairs) -> str:
    """What is wrong, and what would be accepted."""
    lines = []
    for problem in found.problems:
        r = problem.rejection
        lines += [f"refused: {r.where}: {r.attribute} = {r.shown_value}", f"  expected {r.expected}   [{r.rule}]"]
    if not found:
        ending = (
            "no edit was found that would be accepted" if found.problems else "legal, and no edit was found that helps"
        )
        return "\n".join([*lines, ending])
    lines += ["", plural(len(found), "suggestion") + f" for {found.device.name}"]
    for i, repair in enumerate(found, start=1):
        first, *rest = str(repair).splitlines()
        lines += [f"  {i}  {first}", indented("\n".join(rest), "     ")]
    return "\n".join(lines).lstrip("\n")


def _chosen(found: Repairs, number: int) -> Repair:
    if not 1 <= number <= len(found):
        expected = f"1 to {len(found)}" if found else "a graph for which there is a suggestion"
        raise BadParam(CHOICE.reject("command line", "--apply", number, expected=expected))
    if not found.is_whole:
        raise BadParam(PARTIAL.reject("command line", "GRAPH", found.problems[0].rejection.where))
    repair: Repair = found[number - 1]
    return repair


def _apply(repair: Repair, output: Path | None) -> None:
    assert repair.graph is not None, "the draft is a whole graph"
    text = graph_to_json(repair.graph)
    if output is None:
        print(text)
    else:
        write_file(output, text + "\n")
        print(f"{output}: {repair.words}; {repair.gain}")
