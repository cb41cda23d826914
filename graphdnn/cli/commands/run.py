"""run: build a graph, run it on random data, and verify the result against the oracle"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from graphdnn.analysis.oracle import Comparison, compare
from graphdnn.analysis.random_operands import blended
from graphdnn.bundles import RunOutcome
from graphdnn.cli.common_options import add_device_and_mode, refuse_ignored
from graphdnn.cli.exit_codes import Exit, exit_code, print_rejections
from graphdnn.cli.fusion_options import add_limits
from graphdnn.cli.graph_argument import HELP
from graphdnn.cli.onnx_argument import add_inputs, is_model
from graphdnn.cli.output_files import write_file
from graphdnn.cli.plan_argument import chosen, engine_help
from graphdnn.cli.reproduction import again
from graphdnn.cli.tuning_options import add_tuned
from graphdnn.engines.operation_cost import flops
from graphdnn.engines.renames import current_name
from graphdnn.errors import GraphdnnError
from graphdnn.files import graph_to_json, plan_to_json
from graphdnn.plan import DevicePlan, ExecutionPlan
from graphdnn.problem import random_bindings
from graphdnn.text_format import count, plural, seconds, size, table


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run is reported from."""

    plan: ExecutionPlan
    times: list[float]  # seconds of each call
    device_times: list[float]  # of each call's work on the device; empty on the host, where a call is the work
    comparisons: list[Comparison] | None  # None: not verified

    @property
    def work(self) -> int:
        return sum(flops(op) for op in self.plan.config.fused.graph.operations)

    @property
    def typical(self) -> float:
        """Seconds that one execution takes."""
        return median(self.device_times or self.times)

    @property
    def passed(self) -> bool:
        return self.comparisons is None or all(c.ok for c in self.comparisons)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="PROBLEM", help=f"{HELP}, or an ONNX model")
    add_device_and_mode(parser)
    parser.add_argument("--engine", type=current_name, metavar="NAME", help=engine_help())
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the random data (default: 0)")
    parser.add_argument("--no-verify", action="store_true", help="do not compare with the oracle")
    parser.add_argument("--repeat", type=positive, default=5, metavar="N", help="timed runs (default: 5)")
    parser.add_argument("--save-graph", type=Path, metavar="FILE", help="write the graph as JSON")
    parser.add_argument("--save-plan", type=Path, metavar="FILE", help="write the plan as JSON")
    parser.add_argument("--save", type=Path, metavar="DIR", help="keep the run as a bundle for graphdnn replay")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_inputs(parser)
    add_tuned(parser)
    add_limits(parser)


def natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def positive(text: str) -> int:
    if natural(text) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return int(text)


def run(arguments: argparse.Namespace) -> Exit:
    if is_model(arguments.graph):
        from graphdnn.cli.onnx_run import run_model  # which loads the readers of models

        return run_model(arguments)
    refuse_ignored(arguments, ("shape input fallback", False, "for an ONNX model"))
    plan = ExecutionPlan(chosen(arguments).config)
    save(arguments.save_graph, graph_to_json(plan.config.fused.graph))
    save(arguments.save_plan, plan_to_json(plan))
    try:
        outcome = measure(plan, arguments.seed, arguments.repeat, verify=not arguments.no_verify)
    except GraphdnnError as error:
        print_rejections(error.rejections)
        print(f"repeat: {again(plan, arguments, RunOutcome.of_error(error))}", file=sys.stderr)
        return exit_code(error)
    failed = [c for c in outcome.comparisons or () if not c.ok]
    repeat = ""
    if failed or arguments.save is not None:
        repeat = again(plan, arguments, RunOutcome.of_comparisons(failed))
    print(json.dumps(as_json(outcome, repeat), indent=1) if arguments.json else as_text(outcome, repeat))
    return Exit.OK if outcome.passed else Exit.CHECK_FAILED


def save(path: Path | None, text: str) -> None:
    """Where a file was asked for."""
    if path is not None:
        write_file(path, text + "\n")


def measure(plan: ExecutionPlan, seed: int, repeat: int, *, verify: bool) -> Outcome:
    """One run that is verified, then the timed ones. Raises ``NotSupported`` when the plan's device is not here."""
    graph = plan.config.fused.graph
    plan.load()
    host, workspace = random_bindings(graph, seed), plan.new_workspace()
    before = blended(graph, host)
    bindings = plan.to_device(host)
    plan.execute(bindings, workspace)
    comparisons = compare(graph, plan.to_host(bindings), before, plan.config.error_growth) if verify else None
    times: list[float] = []

    def call() -> None:
        start = perf_counter()
        plan.execute(bindings, workspace)
        times.append(perf_counter() - start)

    return Outcome(plan, times, _timings(plan, call, repeat), comparisons)


def _timings(plan: ExecutionPlan, call: Callable[[], None], repeat: int) -> list[float]:
    """Make the calls; the device's own seconds, where there is one."""
    if isinstance(plan, DevicePlan):
        return plan.timings(call, repeat)
    for _ in range(repeat):
        call()
    return []


def as_text(outcome: Outcome, repeat: str = "") -> str:
    """``repeat``: the command that repeats it, where it failed or was kept."""
    plan, typical = outcome.plan, outcome.typical
    graph, fused = plan.config.fused.graph, plan.config.fused
    made = f"{plural(len(graph.operations), 'operation')} in {plural(len(fused), 'kernel')}"
    rows = [("graph", f"{graph.name or 'unnamed'}: {made}"), ("device", plan.config.device.name)]
    for i, choice in enumerate(plan.config.choices):
        rows.append(("plan" if i == 0 else "", f"{choice.name}: {' + '.join(plan.fused_operations[i])}"))
        rows += [] if choice.rewrite is None else [("", line) for line in choice.rewrite.lines()]
    rows += [
        ("workspace", size(plan.workspace_size)),
        ("time", f"{seconds(typical)}, median of {len(outcome.times)} ({count(outcome.work / typical)}op/s); "
                 f"predicted {seconds(plan.config.predicted_seconds)}"),
        *([("call", f"{seconds(median(outcome.times))} until it returns")] if outcome.device_times else []),
        *[("verify", str(c)) for c in outcome.comparisons or ()],
        ("verdict", _verdict(outcome)),
        *([("repeat", repeat)] if repeat else []),
    ]  # fmt: skip
    return table(("", ""), rows)


def _verdict(outcome: Outcome) -> str:
    if outcome.comparisons is None:
        return "not verified"
    return "ok" if outcome.passed else "FAILED"


def as_json(outcome: Outcome, repeat: str = "") -> dict[str, Any]:
    plan = outcome.plan
    return {
        "graph": plan.config.fused.graph.name,
        "device": plan.config.device.name,
        "engines": [choice.name for choice in plan.config.choices],
        "kernels": [list(labels) for labels in plan.fused_operations],
        "rewrites": [None if rewrite is None else rewrite.to_json() for rewrite in plan.rewrites],
        "workspace_size": plan.workspace_size,
        "flops": outcome.work,
        "predicted_us": plan.config.predicted_seconds * 1e6,
        "times_us": [t * 1e6 for t in outcome.times],
        "device_times_us": [t * 1e6 for t in outcome.device_times],
        "median_us": outcome.typical * 1e6,
        "outputs": None if outcome.comparisons is None else [c.to_json() for c in outcome.comparisons],
        "verdict": _verdict(outcome),
        **({"repeat": repeat} if repeat else {}),
    }
