"""trace: show every value inside a plan's kernels, and where it first differs from the oracle"""

from __future__ import annotations

import argparse
import json

from graphdnn.analysis.random_operands import blended, random_operands
from graphdnn.analysis.trace import Trace, Traced
from graphdnn.cli.commands.run import natural
from graphdnn.cli.common_options import add_device_and_mode
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.graph_argument import HELP
from graphdnn.cli.plan_argument import chosen, engine_help
from graphdnn.engines.renames import current_name
from graphdnn.plan import ExecutionPlan
from graphdnn.text_format import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    add_device_and_mode(parser)
    parser.add_argument("--engine", type=current_name, metavar="NAME", help=engine_help())
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the random data (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    plan = ExecutionPlan(chosen(arguments).config)
    graph = plan.config.fused.graph
    data = random_operands(graph, arguments.seed)
    blended(graph, data)
    trace = plan.trace(data)
    if arguments.json:
        print(json.dumps({"format": "graphdnn.trace", "version": 1, "plan": plan.name, **trace.to_json()}, indent=1))
    else:
        print(as_text(plan, trace))
    return Exit.OK if trace.ok else Exit.CHECK_FAILED


def as_text(plan: ExecutionPlan, trace: Trace) -> str:
    head = ("", "written by", "tensor", "type", "difference", "bound", "compared", "")
    rows = [_row(traced) for traced in trace.tensors]
    lines = [f"values of {plan.name} on {plan.config.device.name}", table(head, rows, right=(4, 5, 6))]
    first = trace.first_difference
    bits = "the same bits as" if trace.has_same_bits else "OTHER BITS than"
    lines += ["", f"outputs   {bits} the plan's, with every value in memory"]
    lines += [f"note      {note}" for note in trace.notes]
    wrong = trace.wrong_output
    if first is not None:
        lines.append(f"verdict   DIFFERS, first at {first}")
    else:
        lines.append("verdict   ok" if wrong is None else f"verdict   DIFFERS, in a result of the plan itself: {wrong}")
    return "\n".join(lines)


def _row(traced: Traced) -> tuple[str, ...]:
    tensor = traced.tensor
    place = f"[{traced.kernel}]"
    kind = f"{tensor.data_type.name}{', virtual' if tensor.is_virtual else ''}"
    bound = "exact" if traced.bound == 0 else f"{traced.bound:.3g}"
    verdict = "ok" if traced.ok else "DIFFERS"
    share = "all" if traced.comparison.share == 1 else f"{traced.comparison.share:.1%}"
    return place, traced.operation, tensor.label(), kind, f"{traced.difference:.3g}", bound, share, verdict
