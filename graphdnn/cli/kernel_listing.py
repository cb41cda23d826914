"""The kernels of a configuration: names, launches, and the generated text with the operations that it numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch, LibraryCall
from graphdnn.engines.engine import CompiledOperation
from graphdnn.engines.rewrite_step import RewriteStep
from graphdnn.fusion import FusedOp
from graphdnn.heuristics import EngineConfig
from graphdnn.plan.source_lines import SourceLine, source_lines
from graphdnn.tensors import TensorSpec
from graphdnn.text_format import indented, size, table

Made = tuple[FusedOp, CompiledOperation]


def kernels_of(config: EngineConfig) -> list[Made]:
    """Nothing is compiled: the text and the launches are there without a device."""
    return [(c.task.op, c.engine.compile(c.task, c.knobs)) for c in config.choices]


def kernels_text(config: EngineConfig) -> str:
    """One line for each launch. Shared memory that the text declares itself is known when it is compiled."""
    head = ("", "kernel", "blocks", "threads", "dynamic shared")
    rows = [row for op, kernel in kernels_of(config) for row in _rows(op, kernel)]
    return f"kernels of {config.name}\n" + indented(table(head, rows, right=(2, 3, 4)))


def _rows(op: FusedOp, kernel: CompiledOperation) -> Iterator[tuple[str, ...]]:
    place = f"[{op.index}]"
    if not isinstance(kernel, DeviceKernel):
        yield place, f"{kernel.name} (NumPy)", "", "", ""
        return
    for i, step in enumerate(kernel.steps):
        shown = place if i == 0 else ""
        if isinstance(step, LibraryCall):
            yield shown, f"{step.name} (library)", "", "", ""
        else:
            blocks = " x ".join(map(str, step.grid))
            yield shown, step.text.name, blocks, str(step.block), size(step.shared)


def source_text(config: EngineConfig) -> str:
    """For each text the operations that it marks, then the text, where each ``// operation N`` says what it is here."""
    return "\n\n".join(part for op, kernel in kernels_of(config) for part in _sources(op, kernel))


def _sources(op: FusedOp, kernel: CompiledOperation) -> Iterator[str]:
    about = f"source of [{op.index}] {op.name}"
    texts = _texts(kernel)
    if not texts:
        why = "NumPy computes it" if not isinstance(kernel, DeviceKernel) else "a library computes it"
        numbered = [f"// operation {i}: {step.line()}" for i, step in enumerate(op.operations)]
        yield "\n".join((f"{about}: no generated text, {why}", *numbered))
    marks = source_lines(op, kernel)
    for name, text in texts.items():
        lines = [line.rstrip() for line in text.splitlines()]
        meant: dict[int, list[str]] = {}
        for mark in marks:
            if mark.kernel == name:
                meant.setdefault(mark.line, []).append(_meaning(mark))
        for line, found in meant.items():
            lines[line - 1] += f"   = {'; or '.join(found)}"
        here = {mark.number for mark in marks if mark.kernel == name}
        head = [f"// operation {i}: {step.line()}" for i, step in enumerate(op.operations) if i in here]
        yield "\n".join((f"{about}: {name}", *head, "", *lines))


def _meaning(mark: SourceLine) -> str:
    """What a mark stands for: the operation of the list above the text, or a copy."""
    if mark.number is not None:
        return f"[{mark.number}] {mark.operation.line()}"
    ports = zip((mark.operation.inputs(), mark.operation.outputs()), (mark.reads, mark.writes), strict=True)
    reads, writes = (
        ", ".join("scratch memory" if uid is None else _shown(t) for t, uid in zip(tensors.values(), uids, strict=True))
        for tensors, uids in ports
    )
    return f"{mark.operation.tag} that the engine adds: {reads} -> {writes}"


def _shown(tensor: TensorSpec) -> str:
    return f"{tensor.label()} {tensor.data_type.name}"


def _texts(kernel: CompiledOperation) -> dict[str, str]:
    steps = kernel.steps if isinstance(kernel, DeviceKernel) else ()
    return {step.text.name: step.text.text for step in steps if isinstance(step, Launch)}


def kernels_json(config: EngineConfig, *, source: bool) -> list[dict[str, Any]]:
    pairs = zip(config.choices, kernels_of(config), strict=True)
    return [_entry(op, kernel, choice.rewrite, source=source) for choice, (op, kernel) in pairs]


def _entry(op: FusedOp, kernel: CompiledOperation, rewrite: RewriteStep | None, *, source: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operation": op.index,
        "operations": [step.line() for step in op.operations],
        "name": kernel.name,
        "rewrite": None if rewrite is None else rewrite.to_json(),
    }
    if isinstance(kernel, DeviceKernel):
        entry["scratch"] = kernel.workspace_bytes
        entry["steps"] = [_step(step) for step in kernel.steps]
    if not source:
        return entry
    return entry | {"source": _texts(kernel), "source_lines": [line.to_json() for line in source_lines(op, kernel)]}


def _step(step: Launch | LibraryCall) -> dict[str, Any]:
    if isinstance(step, LibraryCall):
        return {"library": step.name}
    grid = list(step.grid)
    return {
        "kernel": step.text.name,
        "entry": step.entry,
        "grid": grid,
        "block": step.block,
        "dynamic_shared": step.shared,
    }
