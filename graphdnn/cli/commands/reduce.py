"""reduce: search the smallest graph that still fails: fewer operations, smaller extents, plainer attributes"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from graphdnn.analysis.repairs import Draft
from graphdnn.bundles import BUNDLE_FORMAT, bundle_from_json, print_problem, run_command
from graphdnn.cli.commands.run import natural, positive
from graphdnn.cli.common_options import add_device, device_of, refuse_ignored
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.graph_argument import HELP, is_problem, naming, read_argument, read_source
from graphdnn.cli.output_files import write_file
from graphdnn.cli.plan_argument import device_for, engine_help, unknown_engine, with_engine
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import ENGINE_BY_NAME
from graphdnn.engines.renames import current_name, current_names
from graphdnn.errors import BadParam, GraphdnnError
from graphdnn.files import GRAPH_FORMAT, graph_to_dict, graph_to_json, parse_document
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig, Ranking
from graphdnn.reducer import (
    Reduced,
    Step,
    by_command,
    by_rule,
    by_symptom,
    draft_of,
    draft_to_json,
    reduce,
    reduce_refused,
    symptom_of,
)
from graphdnn.reducer.delta_debugging import PASSES
from graphdnn.reducer.failure_predicates import Fails
from graphdnn.rules import RULES, Rule
from graphdnn.text_format import plural, seconds

RULE = Rule(
    id="cli.reduce.rule",
    expected="the id of a rule",
    reason="no rule has this id",
    fix="take it from the message; docs/errors.md lists them",
)
COMMAND = Rule(
    id="cli.reduce.command",
    expected="a command that runs",
    reason="{detail}",
    fix="write the command as in a shell, with {{}} for the graph's file; use sh -c '...' for pipes and redirections",
)
_SECONDS = 300
_TIMEOUT = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=f"{HELP}, or a bundle")
    parser.add_argument(
        "--still",
        metavar="COMMAND",
        help="a graph fails if this command ends with the exit code of the whole graph; {} is the graph's file",
    )
    parser.add_argument(
        "--rule",
        type=current_names,
        metavar="ID",
        help="a graph fails if this rule refuses an edge, an engine or the graph",
    )
    add_device(parser)
    parser.add_argument("--engine", type=current_name, metavar="NAME", help=engine_help())
    parser.add_argument("--seed", type=natural, metavar="N", help="seed of the random data (default: 0)")
    parser.add_argument(
        "--seconds", type=positive, default=_SECONDS, metavar="N", help=f"time for all of it (default: {_SECONDS})"
    )
    parser.add_argument("--timeout", type=positive, metavar="N", help="seconds for one command (default: 60)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the graph as JSON")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    is_by_rule, is_by_command = arguments.rule is not None, arguments.still is not None
    refuse_ignored(
        arguments,
        ("timeout", is_by_command, "with --still"),
        ("rule", not is_by_command, "without --still"),
        ("engine seed", not is_by_command and not is_by_rule, "without --still and --rule"),
    )
    try:
        graph, device, seed = _graph(arguments)
    except GraphdnnError as error:
        draft = None if is_by_command else _draft(arguments, error)
        if draft is None:
            raise
        return _refused(draft, arguments)
    fails, what = _fails(arguments, graph, device, seed)
    print(f"failing: {what}", file=sys.stderr)
    reduced = reduce(graph, fails, arguments.seconds, lambda step: print(_line(step), file=sys.stderr))
    if arguments.output is not None:
        write_file(arguments.output, graph_to_json(reduced.graph) + "\n")
    print(json.dumps(as_json(reduced), indent=1) if arguments.json else as_text(reduced, arguments))
    return Exit.OK


def _draft(arguments: argparse.Namespace, error: GraphdnnError) -> Draft | None:
    """What was refused, as fields; None where that is no graph at all."""
    if arguments.graph == "-" or is_problem(read_source(arguments.graph)):
        return draft_of(error)
    try:
        return Draft.of_data(parse_document(read_source(arguments.graph), GRAPH_FORMAT))
    except GraphdnnError:
        return None


def _refused(draft: Draft, arguments: argparse.Namespace) -> Exit:
    """A graph that is refused, made smaller while the same rule refuses it."""
    refuse_ignored(arguments, ("engine seed device", False, "for graphs that are not refused"))
    print(f"failing: refused, rule {arguments.rule or 'of the first reason'}", file=sys.stderr)
    reduced, rule = reduce_refused(
        draft, arguments.rule, arguments.seconds, lambda step: print(_line(step), file=sys.stderr)
    )
    text = draft_to_json(reduced)
    if arguments.output is not None:
        write_file(arguments.output, text + "\n")
    if arguments.json:
        print(
            json.dumps({"format": "graphdnn.reduced", "version": 1, "rule": rule, "graph": json.loads(text)}, indent=1)
        )
        return Exit.OK
    print(f"{plural(len(reduced.operations), 'operation')} left, refused by {rule}")
    print(text if arguments.output is None else f"written: {arguments.output}")
    return Exit.OK


def _graph(arguments: argparse.Namespace) -> tuple[OperationGraph, DeviceSpec, int]:
    """The graph, its device and the seed of its data; a bundle has graph and seed."""
    text = read_source(arguments.graph)
    if text.lstrip().startswith("{") and f'"{BUNDLE_FORMAT}"' in text[:200]:
        with naming(arguments.graph):
            bundle = bundle_from_json(text)
            return bundle.graph(), device_of(arguments), bundle.seed
    asked = read_argument(arguments.graph, text)
    return asked.graph, device_for(asked, arguments), arguments.seed or 0


def _fails(arguments: argparse.Namespace, graph: OperationGraph, device: DeviceSpec, seed: int) -> tuple[Fails, str]:
    if arguments.still is not None:
        try:
            command = shlex.split(arguments.still)
            if not command:
                raise ValueError("the command is empty")
            return by_command(command, graph, arguments.timeout or _TIMEOUT), f"the code of {arguments.still}"
        except (OSError, ValueError) as error:
            raise BadParam(COMMAND.reject("command line", "--still", arguments.still, detail=str(error))) from None
    if arguments.rule is not None:
        fails = by_rule(arguments.rule, device)
        if not fails(graph) and arguments.rule not in RULES:  # in this order: engines bring their rules when they rank
            raise BadParam(RULE.reject("command line", "--rule", arguments.rule))
        return fails, f"rule {arguments.rule}"

    if arguments.engine is not None and arguments.engine not in ENGINE_BY_NAME:
        raise BadParam(unknown_engine(arguments.engine))

    def chosen(ranking: Ranking) -> EngineConfig:
        return ranking.best if arguments.engine is None else with_engine(ranking, arguments.engine)

    symptom = symptom_of(graph, device, seed, chosen)
    if symptom is None:
        raise BadParam(PASSES.reject("command line", "GRAPH", graph.name or "unnamed"))
    return by_symptom(symptom, device, seed, chosen), str(symptom)


def _line(step: Step) -> str:
    return f"{seconds(step.seconds):>8}  {step}"


def as_text(reduced: Reduced, arguments: argparse.Namespace) -> str:
    graph, text = reduced.graph, print_problem(reduced.graph)
    said = "locally minimal" if reduced.is_minimal else "the time ran out: there may be less"
    lines = [f"{plural(len(graph.operations), 'operation')} left after {plural(reduced.tried, 'graph')}, {said}"]
    if text is not None:
        options = ["--device", arguments.device] if arguments.device else []
        options += ["--engine", arguments.engine] if arguments.engine else []
        lines += [text, f"repeat: {run_command(text, *options)}"]
    elif arguments.output is None:
        lines.append(graph_to_json(graph))
    if arguments.output is not None:
        lines.append(f"written: {arguments.output}")
    return "\n".join(lines)


def as_json(reduced: Reduced) -> dict[str, Any]:
    return {
        "format": "graphdnn.reduced",
        "version": 1,
        "problem": print_problem(reduced.graph) or "",
        "graph": graph_to_dict(reduced.graph),
        "steps": [{"what": s.what, "operations": s.operations, "elements": s.elements} for s in reduced.steps],
        "tried": reduced.tried,
        "is_minimal": reduced.is_minimal,
    }
