"""explain: show the kernels of a graph, their least times, their engines, and the reason of every refusal"""

from __future__ import annotations

import argparse
import json
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from graphdnn.analysis.diagnostics import Diagnostic, of_fused, of_ranking
from graphdnn.cli.common_options import add_device_and_mode
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.fusion_options import add_limits
from graphdnn.cli.graph_argument import HELP
from graphdnn.cli.kernel_listing import kernels_json, kernels_text, source_text
from graphdnn.cli.plan_argument import chosen
from graphdnn.cli.tuning_options import add_tuned, tuned_text
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.operation_cost import bytes_moved, floor_seconds, flops
from graphdnn.enums import Status
from graphdnn.escaped import escaped
from graphdnn.fusion import FusedGraph, FusedOp
from graphdnn.heuristics import EngineConfig, Ranking
from graphdnn.text_format import count, facts, indented, plural, seconds, size, table

BELOW = """\
  the floor counts every product once, at the rate of the operands' type; the first engine below gets by with
  fewer products (Winograd, FFT), or makes them of narrower ones on tensor cores"""
MOST_FOREIGN = 4  # engines for other kinds of operation that are named
NO_ENGINE_SERVES = "no engine serves it; an engine does if all its requirements hold"
MOST_CONFIGS = 12  # shown; a graph of many kernels has a product of choices


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    add_device_and_mode(parser)
    parser.add_argument("--source", action="store_true", help="print the generated text of each kernel as well")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")
    add_tuned(parser)
    add_limits(parser)


def run(arguments: argparse.Namespace) -> Exit:
    found = chosen(arguments)
    ranking, config = found.ranking, found.planned
    shown = as_json if arguments.json else as_text
    made = shown(ranking, config, source=arguments.source)
    print(json.dumps(made, indent=1) if arguments.json else made)
    if not arguments.json and arguments.graph != "-":
        print(f"\nedits that help: {_repair_command(arguments)}")
    return Exit.OK if config or any(True for _ in islice(ranking, 1)) else Exit.NOT_SUPPORTED


def _repair_command(arguments: argparse.Namespace) -> str:
    device = f" --device {shlex.quote(arguments.device)}" if arguments.device else ""
    return f"graphdnn repair {shlex.quote(arguments.graph)}{device}"


def as_text(ranking: Ranking, planned: EngineConfig | None = None, *, source: bool = False) -> str:
    """Everything, in sections; the kernels are those of a plan file's configuration where there is one."""
    best = planned or next(iter(ranking), None)
    sections = [fused_text(ranking.fused, best), floor_text(ranking.fused, ranking.device, best), ranking_text(ranking)]
    sections += [] if planned is None else [planned_text(ranking, planned)]
    sections += [text] if (text := tuned_text(ranking)) else []
    sections += [kernels_text(best)] if best else []
    declined = [entry for entry in of_ranking(ranking) if entry.status is not Status.SUCCESS]
    if declined:
        sections.append("declined\n" + "\n".join(declined_text(ranking.fused, declined)))
    sections += [source_text(best)] if best and source else []
    return "\n\n".join(sections)


def planned_text(ranking: Ranking, planned: EngineConfig) -> str:
    """The plan file's configuration, and where the ranking has it."""
    shown = enumerate(islice(ranking, MOST_CONFIGS))
    place = next((f"number {i} of this ranking" for i, config in shown if config.name == planned.name), "asked for")
    return f"plan file: {planned.name}, {place}, predicted {seconds(planned.predicted_seconds)}"


def as_json(ranking: Ranking, planned: EngineConfig | None = None, *, source: bool = False) -> dict[str, Any]:
    best = planned or next(iter(ranking), None)
    floors = [_floor_entry(op, ranking.device) for op in ranking.fused]
    return {
        "graph": ranking.fused.graph.name,
        "fused": ranking.fused.to_json(),
        "floors": floors,
        "ranking": ranking.to_json(limit=MOST_CONFIGS, declined=False),
        "planned": None if planned is None else planned.name,
        "refusals": of_ranking(ranking).to_json(),
        "kernels": kernels_json(best, source=source) if best else [],
    }


def fused_text(fused: FusedGraph, best: EngineConfig | None = None) -> str:
    """The kernels, with the rewrites that the best configuration applies, and each edge between them with its rule."""
    graph, name = fused.graph, f" '{escaped(fused.graph.name)}'" if fused.graph.name else ""
    lines = [f"graph{name}: {plural(len(graph.operations), 'operation')} in {plural(len(fused), 'kernel')}"]
    lines += [f"limits: {fused.limits}"] if fused.limits else []
    for i, op in enumerate(fused):
        rewrite = best.choices[i].rewrite if best else None
        lines.append(indented(str(op)))
        lines += [] if rewrite is None else [indented(str(rewrite), " " * 6)]
    refusals = of_fused(fused)
    if refusals:
        lines.append("\nnot fused")
    for entry in refusals:
        kept = "" if entry.kind == "edge" else "   (a chain that would be one kernel, but for this edge)"
        lines += [f"  {entry.subject.text}{kept}", _facts(entry, named=False)]
    return "\n".join(lines)


def floor_text(fused: FusedGraph, device: DeviceSpec, best: EngineConfig | None = None) -> str:
    """Per kernel: work, traffic, and the time for either; a line where the best engine gets by with less work."""
    rows = []
    for op in fused:
        entry = _floor_entry(op, device)
        rows.append((f"[{op.index}] {op.name}", f"{count(entry['flops'])}op", size(entry["bytes"]),
                     seconds(entry["floor_us"] * 1e-6), entry["bound_by"]))  # fmt: skip
    floor = sum(floor_seconds(op, device) for op in fused)
    if len(rows) > 1:
        rows.append(("all", "", "", seconds(floor), ""))
    head = ("kernel", "work", "memory", "floor", "bound by")
    shown = f"least time on {device.name}\n" + indented(table(head, rows, right=(1, 2, 3)))
    return f"{shown}\n{BELOW}" if best and best.predicted_seconds < floor else shown


def _floor_entry(op: FusedOp, device: DeviceSpec) -> dict[str, Any]:
    floor, moved = floor_seconds(op, device), bytes_moved(op)
    return {
        "operation": op.index,
        "flops": sum(map(flops, op.operations)),
        "bytes": moved,
        "floor_us": floor * 1e6,
        "bound_by": "memory" if floor <= moved / device.bandwidth else "arithmetic",
    }


def ranking_text(ranking: Ranking) -> str:
    """Configurations, best first."""
    configs = list(islice(ranking, MOST_CONFIGS + 1))
    rows = [
        (str(i), config.name, seconds(config.predicted_seconds), size(config.workspace_size),
         ", ".join(config.remarks) or "-")
        for i, config in enumerate(configs[:MOST_CONFIGS])
    ]  # fmt: skip
    lines = [f"ranking on {ranking.device.name}, mode {ranking.mode.name}"]
    head = ("", "engine", "predicted", "workspace", "notes")
    lines.append(indented(table(head, rows, right=(2, 3))) if rows else "  no engine serves it")
    if len(configs) > MOST_CONFIGS:
        lines.append("  and more: each kernel's engine can be chosen on its own")
    return "\n".join(lines)


def declined_text(fused: FusedGraph, refusals: Iterable[Diagnostic]) -> Iterator[str]:
    """Engines that declined, with all reasons. A reason with an edit comes first and in full; a reason without an edit
    takes a line; engines for other kinds of operation share a line.
    """
    of_kernel: dict[int | None, list[Diagnostic]] = {}
    for entry in refusals:
        of_kernel.setdefault(entry.subject.fused, []).append(entry)
    for op in fused:
        mine = of_kernel.get(op.index, [])
        foreign = {e.subject.engine: e.rule for e in mine if e.kind == "pattern"}
        mine = [e for e in mine if e.subject.engine not in foreign]
        final = {e.subject.engine for e in mine if e.is_final or e.is_unserved}
        said = ""
        for entry in mine:
            if entry.subject.engine not in final:
                if entry.subject.text != said:  # an engine's reasons stand together
                    said = entry.subject.text
                    yield f"  {said}"
                yield _facts(entry)
        if final:
            is_unserved = any(e.is_unserved for e in mine)
            what = NO_ENGINE_SERVES if is_unserved else "nothing to do about these, others serve it"
            yield indented(f"[{op.index}] {op.name}: {what}")
        for entry in mine:
            if entry.subject.engine in final:
                found = f"{entry.attribute} = {entry.actual}, required {entry.required}   {entry.rule}"
                yield _wrapped(f"{entry.subject.engine}: {found}", " " * 8)
        if foreign:
            yield indented(f"[{op.index}] {op.name}: {_foreign(foreign)}")


def _foreign(rules: Mapping[str, str]) -> str:
    """The engines that are for other kinds of operation; their rules where they are few."""
    listed = ", ".join(rules.values()) if len(rules) <= MOST_FOREIGN else "ENGINE.operation"
    return f"{plural(len(rules), 'engine')} for other kinds of operation ({listed})"


def _wrapped(text: str, hanging: str) -> str:
    return "\n".join(textwrap.wrap(text, 110, initial_indent=" " * 4, subsequent_indent=hanging))


def _facts(entry: Diagnostic, *, named: bool = True) -> str:
    found = f"{entry.attribute} = {entry.actual}" if named else entry.actual
    rows = [("found", found), ("required", entry.required), ("why", entry.reason), ("fix", entry.fix),
            ("rule", entry.rule)]  # fmt: skip
    return facts(rows, "    ")
