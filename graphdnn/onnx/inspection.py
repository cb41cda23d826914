"""Inspection: every kernel of a model with its engine, its predicted time and its share, at the model's node names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.onnx.program import Program
from graphdnn.onnx.reference import ReferenceNodes


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel of a model.

    Attributes:
        part: The number of the part.
        nodes: The names of the model's nodes.
        operations: What the kernel computes.
        engine: The name of the engine.
        seconds: The predicted time.
        bytes: Bytes that cross memory at least once.
    """

    part: int
    nodes: tuple[str, ...]
    operations: tuple[str, ...]
    engine: str
    seconds: float
    bytes: int


def kernels_of(program: Program) -> Iterator[KernelRow]:
    """Every kernel of a model's graphs, in the order of execution.

    Args:
        program: The model for given shapes.

    Returns:
        The rows.
    """
    for number, part in enumerate(program.parts):
        if isinstance(part, ReferenceNodes) or part.config is None:
            continue
        for choice in part.config.choices:
            operations = choice.task.op.operations
            nodes = tuple(dict.fromkeys(op.name for op in operations if op.name))
            tags = tuple(op.label().split(" '")[0] for op in operations)
            yield KernelRow(number, nodes, tags, choice.name, choice.cost.seconds, bytes_moved(choice.task.op))


def memory_of(program: Program) -> dict[str, int]:
    """Bytes of the constants and of the workspaces of all graphs.

    Args:
        program: The model for given shapes.

    Returns:
        ``{"constants": bytes, "workspace": bytes}``.
    """
    graphs = [part for part in program.graphs if part.config is not None]
    return {
        "constants": sum(part.constant_bytes for part in graphs),
        "workspace": sum(part.config.workspace_size for part in graphs if part.config is not None),
    }
