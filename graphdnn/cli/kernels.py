"""The kernels of a configuration: names, launches, and the generated text with the operations that it numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphdnn.cli.text import indented, size, table
from graphdnn.engines.cuda.launch import DeviceKernel, Launch, LibraryCall
from graphdnn.engines.engine import CompiledOperation
from graphdnn.fusion import FusedOp
from graphdnn.heuristics import EngineConfig
from graphdnn.operations import Operation
from graphdnn.tensors import TensorSpec

Made = tuple[FusedOp, CompiledOperation]


def kernels_of(config: EngineConfig) -> list[Made]:
    """Nothing is compiled: the text and the launches are there without a device."""
    return [(c.task.op, c.engine.compile(c.task, c.knobs)) for c in config.choices]


def kernels_text(config: EngineConfig) -> str:
    """One line for each launch."""
    head = ("", "kernel", "blocks", "threads", "shared")
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
    """For each kernel the operations by their numbers, then the text in which ``// operation N`` marks them."""
    return "\n\n".join(part for op, kernel in kernels_of(config) for part in _sources(op, kernel))


def _sources(op: FusedOp, kernel: CompiledOperation) -> Iterator[str]:
    about = f"source of [{op.index}] {op.name}"
    numbered = [f"// operation {i}: {described(step)}" for i, step in enumerate(op.operations)]
    texts = _texts(kernel)
    if not texts:
        why = "NumPy computes it" if not isinstance(kernel, DeviceKernel) else "a library computes it"
        yield "\n".join((f"{about}: no generated text, {why}", *numbered))
    for name, text in texts.items():
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        marked = [line for i, line in enumerate(numbered) if f"// operation {i}:" in text]
        yield "\n".join((f"{about}: {name}", *marked, "", lines))


def described(op: Operation) -> str:
    """``add x (uid 1), b (uid 2) -> y (uid 3)``."""
    reads, writes = (", ".join(map(_shown, ports.values())) for ports in (op.inputs(), op.outputs()))
    return f"{op.label()}: {reads} -> {writes}"


def _shown(tensor: TensorSpec) -> str:
    return f"{tensor.label()} {tensor.data_type.name}"


def _texts(kernel: CompiledOperation) -> dict[str, str]:
    steps = kernel.steps if isinstance(kernel, DeviceKernel) else ()
    return {step.text.name: step.text.text for step in steps if isinstance(step, Launch)}


def kernels_json(config: EngineConfig, *, source: bool) -> list[dict[str, Any]]:
    return [_entry(op, kernel, source=source) for op, kernel in kernels_of(config)]


def _entry(op: FusedOp, kernel: CompiledOperation, *, source: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operation": op.index,
        "operations": [described(step) for step in op.operations],
        "name": kernel.name,
    }
    if isinstance(kernel, DeviceKernel):
        entry["scratch"] = kernel.scratch
        entry["steps"] = [_step(step) for step in kernel.steps]
    return entry | ({"source": _texts(kernel)} if source else {})


def _step(step: Launch | LibraryCall) -> dict[str, Any]:
    if isinstance(step, LibraryCall):
        return {"library": step.name}
    grid = list(step.grid)
    return {"kernel": step.text.name, "entry": step.entry, "grid": grid, "block": step.block, "shared": step.shared}
