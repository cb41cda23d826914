"""inspect: show every kernel of an ONNX model, its share of the predicted time, and what is not served"""

from __future__ import annotations

import argparse
import json
from typing import Any

from graphdnn.cli.common_options import add_device, device_of
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.onnx_argument import add_inputs, feeds_of
from graphdnn.onnx.inspection import KernelRow, kernels_of, memory_of
from graphdnn.onnx.model import Model
from graphdnn.onnx.program import Program
from graphdnn.text_format import plural, seconds, shortened, size, table

_LONGEST_CELL = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.onnx", help="an ONNX model")
    add_device(parser)
    add_inputs(parser)
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    model = Model(arguments.model, device=device_of(arguments), fallback=arguments.fallback, bind=False)
    feeds = feeds_of(model, arguments)
    program = model.program(feeds)
    rows = list(kernels_of(program))
    if arguments.json:
        print(json.dumps(_as_json(model, program, rows), indent=1))
    else:
        print(_as_text(model, program, rows, {name: array.shape for name, array in feeds.items()}))
    return Exit.OK


def _as_json(model: Model, program: Program, rows: list[KernelRow]) -> dict[str, Any]:
    return {
        "model": model.name,
        "device": model.device.name,
        "inputs": [{"name": i.name, "type": i.type, "shape": i.shape} for i in model.inputs],
        "outputs": [{"name": o.name, "type": o.type, "shape": o.shape} for o in model.outputs],
        "kernels": [
            {
                "part": r.part, "nodes": r.nodes, "operations": r.operations, "engine": r.engine,
                "predicted_us": r.seconds * 1e6, "bytes": r.bytes,
            }
            for r in rows
        ],
        "memory": memory_of(program),
        "merged": program.merged,
        "folded": program.found.folded,
        "expanded": program.found.expanded,
        "not_served": [r.to_json() for reasons in program.refused.values() for r in reasons],
    }  # fmt: skip


def _as_text(model: Model, program: Program, rows: list[KernelRow], shapes: dict[str, tuple[int, ...]]) -> str:
    total = sum(row.seconds for row in rows)
    memory = memory_of(program)
    inputs = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    lines = [
        f"{model.name} on {model.device.name}: {plural(len(program.nodes), 'node')} in {plural(len(rows), 'kernel')}, "
        f"predicted {seconds(total)}",
        f"inputs: {inputs or 'none'}",
        f"memory: constants {size(memory['constants'])}, workspace {size(memory['workspace'])}",
        f"folded into constants: {plural(program.found.folded, 'node')}",
        *(f"merged: {line}" for line in program.merged),
        *(f"replaced by its body: {name}, {plural(n, 'time')}" for name, n in program.found.expanded.items()),
        "",
    ]
    cells = [
        [
            f"{row.seconds / total:.1%}" if total else "", seconds(row.seconds), size(row.bytes), row.engine,
            shortened(" + ".join(row.operations), _LONGEST_CELL), shortened(", ".join(row.nodes), _LONGEST_CELL),
        ]
        for row in sorted(rows, key=lambda row: -row.seconds)
    ]  # fmt: skip
    lines.append(table(("share", "time", "bytes", "engine", "operations", "nodes"), cells, right=(0, 1, 2)))
    if program.refused:
        lines.append("\nby ONNX's reference evaluator:")
        lines += [f"  {r}" for reasons in program.refused.values() for r in reasons]
    return "\n".join(line.rstrip() for text in lines for line in text.splitlines() or [""])
