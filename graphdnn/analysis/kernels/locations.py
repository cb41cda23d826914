"""From an operation or a tensor to the kernels and lines where it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphdnn.analysis.kernels.kernel_view import KernelView, of_plan
from graphdnn.errors import BadParam
from graphdnn.operations import Operation
from graphdnn.plan import ExecutionPlan
from graphdnn.plan.source_lines import SourceLine
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec

SUBJECT = Rule(
    id="kernels.subject",
    expected="a uid or name of a tensor, or a label, name or kind of an operation: {known}",
    reason="no tensor and no operation of the plan has this name",
    fix="plan.kernels lists the kernels",
)


@dataclass(frozen=True, slots=True)
class Place:
    """An operation of a plan, the kernel that it became part of, and the lines of text where it begins."""

    kernel: KernelView
    operation: Operation
    role: str  # "computes", or of a tensor "writes" or "reads"
    tensor: TensorSpec | None = None  # that was asked for
    lines: tuple[SourceLine, ...] = ()  # none on the host, and where a library computes it

    @property
    def is_vanished(self) -> bool:
        """Whether the kernel keeps the tensor in registers."""
        return self.tensor is not None and self.tensor.uid in self.kernel.vanished

    def __str__(self) -> str:
        what = self.operation.label()
        if self.tensor is not None:
            form = f"in registers, as {self.tensor.data_type.name}" if self.is_vanished else "in memory"
            what = f"{self.operation.label()} {self.role} {self.tensor.label()} {form}"
        at = ", ".join(f"{line.kernel}:{line.line}" for line in self.lines)
        return f"kernel [{self.kernel.index}] {self.kernel.name}: {what}" + (f" at {at}" if at else "")

    def __repr__(self) -> str:
        return f"<Place {self}>"

    def to_json(self) -> dict[str, Any]:
        """Plain data with the fields of the place."""
        return {
            "kernel": self.kernel.index, "operation": self.operation.label(), "role": self.role,
            "tensor": None if self.tensor is None else self.tensor.uid, "is_vanished": self.is_vanished,
            "lines": [{"kernel": line.kernel, "line": line.line} for line in self.lines],
        }  # fmt: skip


def where(plan: ExecutionPlan, subject: int | str) -> tuple[Place, ...]:
    """Where a tensor (uid or name) is written and read, or an operation (label, name or kind) is computed.

    Raises ``BadParam`` when the graph has neither.
    """
    found = tuple(_places(plan, subject))
    if not found:
        graph = plan.config.fused.graph
        known = ", ".join([*map(str, sorted(graph.tensors)), *dict.fromkeys(op.label() for op in graph.operations)])
        raise BadParam(SUBJECT.reject("PLAN", "subject", subject, known=known))
    return found


def _places(plan: ExecutionPlan, subject: int | str) -> Iterator[Place]:
    tensors = {uid for uid, t in plan.config.fused.graph.tensors.items() if subject in (uid, t.name)} if subject else {
        uid for uid in plan.config.fused.graph.tensors if uid == subject
    }  # fmt: skip
    for kernel in of_plan(plan):
        marks = kernel.source_lines
        for number, op in enumerate(kernel.operations):
            lines = tuple(mark for mark in marks if mark.number == number)
            if _is_called(op, subject):
                yield Place(kernel, op, "computes", None, lines)
            for role, ports in (("reads", op.inputs()), ("writes", op.outputs())):
                for tensor in {t.uid: t for t in ports.values()}.values():
                    if tensor.uid in tensors:
                        yield Place(kernel, op, role, tensor, lines)


def _is_called(op: Operation, subject: int | str) -> bool:
    return isinstance(subject, str) and subject != "" and subject in (op.label(), op.name, op.label().split(" ")[0])
