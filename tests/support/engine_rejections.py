"""What an engine says when it is asked for what it does not serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from legal_problems import operation

from graphdnn import device_spec, fuse
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import ENGINE_BY_NAME, Engine, Task
from graphdnn.errors import error_for
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation

Case = Callable[[], Any]
H200 = device_spec("h200")


def declined(engine: str, op: Operation | Sequence[Operation], device: DeviceSpec) -> Case:
    def ask() -> None:
        (fused,) = fuse(OperationGraph.of([op] if isinstance(op, Operation) else op))
        raise error_for(ENGINE_BY_NAME[engine].why_not(Task(fused, device)))

    return ask


def another_kind(engine: Engine) -> Case:
    """An operation that the engine is not written for."""
    return declined(engine.name, operation("reduction" if engine.name == "cuda_rng" else "rng"), H200)
