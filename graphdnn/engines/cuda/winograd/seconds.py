"""Predicted seconds of kernels that run one after another."""

from __future__ import annotations

from types import MappingProxyType

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.winograd.layout import Panels, Winograd
from graphdnn.engines.engine import Cost, Task
from graphdnn.engines.work import bytes_moved, flops
from graphdnn.enums import DataType

SHARE = 0.72  # of the peak that the products reach
COPY_SHARE = 0.8  # of the data sheet's bandwidth that the transforms reach


def in_turn(task: Task, parts: dict[str, float]) -> Cost:
    """Kernels run one after another; ``parts`` are their seconds."""
    op = task.op
    work = sum(flops(step) for step in op.operations)
    return Cost(work, bytes_moved(op), sum(parts.values()), MappingProxyType(parts))


def waves(blocks: int, resident: int, work: float, device: DeviceSpec) -> float:
    """Seconds of blocks with ``work`` each."""
    pace = device.rate(DataType.FLOAT) * SHARE / device.sm_count
    return -(-blocks // (resident * device.sm_count)) * resident * work / pace


def filter_bytes(w: Winograd, u: Panels) -> int:
    spec = w.roles.op.roles[1]
    return int(spec.elements * ELEMENTS[spec.data_type].bytes) + u.bytes
