"""kernel: show one kernel of a plan, write its text to a file, or run another text in its place"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from graphdnn.analysis.kernels import KernelView, LaunchView
from graphdnn.analysis.kernels.source_override import kernel_at, text_of
from graphdnn.analysis.random_operands import blended, random_operands
from graphdnn.cli.commands.run import Outcome, measure, natural, positive, save
from graphdnn.cli.common_options import add_device_and_mode, refuse_ignored
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.graph_argument import HELP
from graphdnn.cli.plan_argument import chosen, engine_help
from graphdnn.engines.renames import current_name
from graphdnn.errors import MalformedFile, NotSupported
from graphdnn.files import LARGEST_FILE
from graphdnn.plan import ExecutionPlan
from graphdnn.problem.printer import print_problem
from graphdnn.rules import Rule
from graphdnn.text_format import seconds, size, table

TEXT_FILE = Rule(
    id="cli.kernel.text",
    expected="a readable file with kernel text, of at most {limit} bytes",
    reason="it cannot be read: {detail}",
    fix="write the kernel's own text first: graphdnn kernel GRAPH --device cuda --index 0 -o mine.cu",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    add_device_and_mode(parser)
    parser.add_argument("--engine", type=current_name, metavar="NAME", help=engine_help())
    parser.add_argument("--index", type=natural, default=0, metavar="N", help="which kernel of the plan (default: 0)")
    parser.add_argument(
        "--text", metavar="NAME", help="which text of a kernel that launches several (default: its main one)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the text to a file")
    parser.add_argument(
        "--standalone",
        type=Path,
        metavar="FILE.cu",
        help="write a program that nvcc compiles: it launches the kernel, compares it with plain loops, and times it",
    )
    parser.add_argument(
        "--replace", type=Path, metavar="FILE", help="compile this text in place of the kernel's own, and run it"
    )
    parser.add_argument("--verify", action="store_true", help="with --replace: compare the results with the oracle")
    parser.add_argument(
        "--seed", type=natural, metavar="N", help="with --replace: seed of the random data (default: 0)"
    )
    parser.add_argument("--repeat", type=positive, metavar="N", help="with --replace: timed runs (default: 5)")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    is_run = arguments.replace is not None
    refuse_ignored(
        arguments,
        ("verify seed repeat", is_run, "with --replace FILE"),
        ("text", is_run or arguments.output is not None, "with --replace FILE or -o FILE"),
    )
    plan = ExecutionPlan(chosen(arguments).config)
    kernel = kernel_at(plan, arguments.index)
    if arguments.output is not None:
        save(arguments.output, kernel.source if kernel.is_on_host else text_of(kernel, arguments.text).text)
    if arguments.standalone is not None:
        from graphdnn import __version__
        from graphdnn.analysis.kernels.standalone import compile_options, standalone

        problem = print_problem(plan.config.fused.graph) or ""
        save(arguments.standalone, standalone(kernel, __version__, problem))
        options = " ".join(compile_options(kernel))
        print(f"nvcc {options} {arguments.standalone} -o {arguments.standalone.with_suffix('')}")
        return Exit.OK
    if arguments.replace is not None:
        return _replace(plan, kernel, arguments)
    print(json.dumps(_json(kernel), indent=1) if arguments.json else str(kernel))
    return Exit.OK


def _json(kernel: KernelView) -> dict[str, Any]:
    return {"format": "graphdnn.kernel", "version": 1, **kernel.to_json()}


def _replace(plan: ExecutionPlan, kernel: KernelView, arguments: argparse.Namespace) -> Exit:
    """Both plans run on the same data, and are timed one after the other."""
    changed = plan.with_source(arguments.index, _read(arguments.replace), arguments.text)
    pairs = zip(kernel.launches, changed.kernels[arguments.index].launches, strict=True)
    launches = [(old, new) for old, new in pairs if old.name != new.name]
    seed, repeat = arguments.seed or 0, arguments.repeat or 5
    outcomes: list[Outcome] = []
    absent, same = "", False
    try:
        for each, verify in ((plan, False), (changed, arguments.verify)):
            outcomes.append(measure(each, seed, repeat, verify=verify))
        same = _results(plan, seed) == _results(changed, seed)
    except NotSupported as error:
        absent = f"{error.rejections[0].reason}"
    if arguments.json:
        print(json.dumps(_replaced_json(kernel, launches, outcomes, absent, same=same), indent=1))
    else:
        print(_replaced_text(kernel, launches, outcomes, absent, same=same))
    if absent:
        return Exit.NOT_EXECUTED
    return Exit.OK if outcomes[-1].passed else Exit.CHECK_FAILED


def _results(plan: ExecutionPlan, seed: int) -> list[bytes]:
    """The bits of every output."""
    graph = plan.config.fused.graph
    data = random_operands(graph, seed)
    blended(graph, data)
    arrays = plan.to_device(data)
    plan.execute(arrays, plan.new_workspace())
    found = plan.to_host(arrays)
    return [found[t.uid].tobytes() for t in graph.outputs]


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) <= LARGEST_FILE:
            return text
        detail = "it is larger"
    except OSError as error:
        detail = str(error.strerror)
    except UnicodeDecodeError:
        detail = "it is not UTF-8 text"
    rejection = TEXT_FILE.reject("command line", "--replace", str(path), detail=detail, limit=LARGEST_FILE)
    raise MalformedFile(rejection)


Pairs = list[tuple[LaunchView, LaunchView]]


def _replaced_text(kernel: KernelView, launches: Pairs, outcomes: list[Outcome], absent: str, *, same: bool) -> str:
    rows: list[tuple[str, ...]] = []
    for old, new in launches:
        rows += _resources(old, new)
    if outcomes:
        rows.append(("time", *(seconds(o.typical) for o in outcomes)))
    names = [(f"kernel [{kernel.index}]", kernel.name), *(("in place of", old.name) for old, _ in launches[:1])]
    lines = [table(("", ""), names), "", table(("", "its own text", "this one"), rows, right=(1, 2))]
    if absent:
        lines += ["", f"verdict  nothing was executed: {absent}"]
    elif outcomes:
        found = outcomes[-1].comparisons
        lines += ["", f"results  {'the same bits' if same else 'other bits'}", *(f"verify   {c}" for c in found or ())]
        lines.append(
            "verdict  not verified" if found is None else f"verdict  {'ok' if outcomes[-1].passed else 'FAILED'}"
        )
    return "\n".join(lines)


def _resources(*launches: LaunchView) -> list[tuple[str, ...]]:
    found = [r for launch in launches if (r := launch.resources) is not None]
    return [
        ("registers", *(str(r.registers) for r in found)),
        ("shared memory", *(size(launch.shared) for launch in launches)),
        ("spilled", *(size(r.spill_stores + r.spill_loads) for r in found)),
        ("stack", *(size(r.stack) for r in found)),
        ("occupancy", *map(_share, launches)),
        ("cubin", *(launch.cubin_hash[:12] for launch in launches)),
    ]


def _share(launch: LaunchView) -> str:
    return "-" if launch.occupancy is None else f"{launch.occupancy.share:.0%}"


def _replaced_json(
    kernel: KernelView, launches: Pairs, outcomes: list[Outcome], absent: str, *, same: bool
) -> dict[str, Any]:
    times = [{"times_us": [t * 1e6 for t in o.times], "device_times_us": [t * 1e6 for t in o.device_times],
              "median_us": o.typical * 1e6} for o in outcomes]  # fmt: skip
    found = outcomes[-1].comparisons if outcomes else None
    return {
        "format": "graphdnn.kernel.replaced", "version": 1, "kernel": kernel.name, "index": kernel.index,
        "launches": [{"own": old.to_json(), "this": new.to_json()} for old, new in launches],
        "own": times[0] if times else None, "this": times[1] if len(times) > 1 else None,
        "outputs": None if found is None else [c.to_json() for c in found],
        "not_executed": absent or None,
        "has_same_bits": same if outcomes else None,
        "verdict": None if found is None else "ok" if outcomes[-1].passed else "FAILED",
    }  # fmt: skip
