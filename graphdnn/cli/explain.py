"""explain: show what becomes of a graph: kernels, least times, engines, and every reason"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator
from itertools import islice
from typing import Any

from graphdnn.build import rank
from graphdnn.cli.kernels import kernels_json, kernels_text, source_text
from graphdnn.cli.options import add_device_and_mode, device_of, mode_of
from graphdnn.cli.outcome import Exit
from graphdnn.cli.source import HELP, graph_of
from graphdnn.cli.text import count, indented, plural, seconds, size, table
from graphdnn.device import DeviceSpec
from graphdnn.engines.work import bytes_moved, floor_seconds, flops
from graphdnn.fusion import FusedGraph, FusedOp
from graphdnn.heuristics import Declined, Ranking

MOST_CONFIGS = 12  # shown; a graph of many kernels has a product of choices


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    add_device_and_mode(parser)
    parser.add_argument("--source", action="store_true", help="print the generated text of each kernel as well")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    ranking = rank(graph_of(arguments.graph), device_of(arguments), mode_of(arguments))
    source = arguments.source
    print(json.dumps(as_json(ranking, source=source), indent=1) if arguments.json else as_text(ranking, source=source))
    return Exit.OK if any(True for _ in islice(ranking, 1)) else Exit.NOT_SUPPORTED


def as_text(ranking: Ranking, *, source: bool = False) -> str:
    """Everything, in sections."""
    best = next(iter(ranking), None)
    sections = [fused_text(ranking.fused), floor_text(ranking.fused, ranking.device), ranking_text(ranking)]
    sections += [kernels_text(best)] if best else []
    if ranking.declined:
        sections.append("declined\n" + "\n".join(_all_declined(ranking)))
    sections += [source_text(best)] if best and source else []
    return "\n\n".join(sections)


def as_json(ranking: Ranking, *, source: bool = False) -> dict[str, Any]:
    best = next(iter(ranking), None)
    floors = [_floor_entry(op, ranking.device) for op in ranking.fused]
    return {
        "graph": ranking.fused.graph.name,
        "fused": ranking.fused.to_json(),
        "floors": floors,
        "ranking": ranking.to_json(limit=MOST_CONFIGS),
        "kernels": kernels_json(best, source=source) if best else [],
    }


def fused_text(fused: FusedGraph) -> str:
    """The kernels, and each edge between them with its rule."""
    graph, name = fused.graph, f" '{fused.graph.name}'" if fused.graph.name else ""
    lines = [f"graph{name}: {plural(len(graph.operations), 'operation')} in {plural(len(fused), 'kernel')}"]
    lines += [indented(str(op)) for op in fused]
    if fused.stopped_by:
        lines.append("\nnot fused")
    for stop in fused.stopped_by:
        facts = [("found", stop.actual), ("required", stop.required), ("why", stop.reason), ("fix", stop.fix),
                 ("rule", stop.rule)]  # fmt: skip
        lines += [f"  {stop.subject}", indented(table(("", ""), facts), "    ")]
    return "\n".join(lines)


def floor_text(fused: FusedGraph, device: DeviceSpec) -> str:
    """Per kernel: work, traffic, and the time that neither could beat."""
    rows = []
    for op in fused:
        entry = _floor_entry(op, device)
        rows.append((f"[{op.index}] {op.name}", f"{count(entry['flops'])}op", size(entry["bytes"]),
                     seconds(entry["floor_us"] * 1e-6), entry["bound_by"]))  # fmt: skip
    if len(rows) > 1:
        rows.append(("all", "", "", seconds(sum(floor_seconds(op, device) for op in fused)), ""))
    head = ("kernel", "work", "memory", "floor", "bound by")
    return f"least time on {device.name}\n" + indented(table(head, rows, right=(1, 2, 3)))


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
         ", ".join(note.name for note in config.numerical_notes) or "-")
        for i, config in enumerate(configs[:MOST_CONFIGS])
    ]  # fmt: skip
    lines = [f"ranking on {ranking.device.name}, mode {ranking.mode.name}"]
    head = ("", "engine", "predicted", "workspace", "notes")
    lines.append(indented(table(head, rows, right=(2, 3))) if rows else "  no engine serves it")
    if len(configs) > MOST_CONFIGS:
        lines.append("  and more: each kernel's engine can be chosen on its own")
    return "\n".join(lines)


def _all_declined(ranking: Ranking) -> Iterator[str]:
    """With all reasons; engines that are only for other kinds of operation share a line."""
    for op in ranking.fused:
        mine = [declined for declined in ranking.declined if declined.operation is op]
        rules = {d.engine.name: {r.rule for r in d.rejections} for d in mine}
        foreign = [f"{name}.operation" for name, found in rules.items() if f"{name}.operation" in found]
        yield from (declined_text(d) for d in mine if f"{d.engine.name}.operation" not in foreign)
        if foreign:
            yield indented(f"[{op.index}] {op.name} is another kind of operation than these engines are for")
            yield "\n".join(textwrap.wrap(", ".join(foreign), 110, initial_indent=" " * 4, subsequent_indent=" " * 4))


def declined_text(declined: Declined) -> str:
    return f"  {declined.engine.name} for [{declined.operation.index}] {declined.operation.name}\n" + "\n".join(
        _facts(declined)
    )


def _facts(declined: Declined) -> Iterator[str]:
    for r in declined.rejections:
        facts = [("found", f"{r.attribute} = {r.shown_value}"), ("expected", r.expected), ("why", r.reason),
                 ("fix", r.fix), ("rule", r.rule)]  # fmt: skip
        yield indented(table(("", ""), facts), "    ")
