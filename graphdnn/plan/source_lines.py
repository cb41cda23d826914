"""Which operation of a plan a line of kernel text is: ``// operation N`` marks where one begins.

Text counts operations by their place in a list and names no tensors, so that graphs which differ in names share a
kernel. Here each mark gets the operation, and the uids, of one plan.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.engine import CompiledOperation
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation
from graphdnn.tensors import TensorSpec

_MARK = re.compile(r"^\s*// operation (\d+):")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A mark in a kernel's text. Tensors that are in no list of the fused operation are scratch memory."""

    kernel: str  # the text's name
    line: int  # from 1
    number: int | None  # of the operation in the fused operation's list; None for a copy that the engine adds
    reads: tuple[int | None, ...]  # uids; None: scratch memory
    writes: tuple[int | None, ...]
    operation: Operation = field(compare=False)

    def __str__(self) -> str:
        what = self.operation.label() if self.number is not None else f"{self.operation.tag}, added by the engine"
        reads, writes = (", ".join(map(_shown, uids)) for uids in (self.reads, self.writes))
        return f"{what}: {reads} -> {writes}"

    def to_json(self) -> dict[str, object]:
        return {
            "kernel": self.kernel,
            "line": self.line,
            "number": self.number,
            "operation": self.operation.label(),
            "reads": list(self.reads),
            "writes": list(self.writes),
        }


def source_lines(op: FusedOp, kernel: CompiledOperation) -> tuple[SourceLine, ...]:
    """Every mark in the texts of a kernel, in order; a text that is launched for several things has one for each."""
    launches = [step for step in kernel.steps if isinstance(step, Launch)] if isinstance(kernel, DeviceKernel) else []
    return tuple(dict.fromkeys(line for launch in launches for line in _lines(op, launch)))


def _lines(op: FusedOp, launch: Launch) -> Iterator[SourceLine]:
    operations = launch.operations or op.operations
    places = {_written(step): i for i, step in enumerate(op.operations)}
    known = {t.uid for t in (*op.inputs, *op.outputs, *op.internal)}
    for i, text in enumerate(launch.text.text.splitlines(), 1):
        mark = _MARK.match(text)
        if mark is None or int(mark[1]) >= len(operations):  # a text that was edited may number what is not there
            continue
        step = operations[int(mark[1])]
        reads, writes = (_uids(ports, known) for ports in (step.inputs(), step.outputs()))
        yield SourceLine(launch.text.name, i, places.get(_written(step)), reads, writes, step)


def _uids(ports: Mapping[str, TensorSpec], known: Container[int]) -> tuple[int | None, ...]:
    return tuple(t.uid if t.uid in known else None for t in ports.values())


def _written(step: Operation) -> tuple[int, ...]:
    """What names an operation in its graph: no other one writes these tensors."""
    return tuple(sorted(t.uid for t in step.outputs().values()))


def _shown(uid: int | None) -> str:
    return "scratch memory" if uid is None else f"uid {uid}"
