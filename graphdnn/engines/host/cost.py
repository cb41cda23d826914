"""Predicted time of a fused operation on a host: work over rate, traffic over bandwidth, overhead per operation.

On a NumPy engine nothing overlaps and nothing stays in registers, so the parts
add up and every value inside the kernel is written and read once.
"""

from __future__ import annotations

from types import MappingProxyType

from graphdnn.device.profiles import DeviceSpec, this_cpu
from graphdnn.dtypes import ELEMENTS, INTEGERS
from graphdnn.engines.engine import Cost, Task
from graphdnn.engines.operation_cost import bytes_moved, flops
from graphdnn.enums import DataType
from graphdnn.operations import ConvolutionOperation, Matmul, Operation, RecurrentOperation


def host_of(device: DeviceSpec) -> DeviceSpec:
    """The processor that runs a host engine: the device itself, or this one when the device is a GPU."""
    return device if device.kind == "cpu" else this_cpu()


def host_cost(task: Task, *, efficiency: float, passes_per_tap: bool) -> Cost:
    """``efficiency``: share of peak that products reach; ``passes_per_tap``: each filter tap reads x and y again."""
    host = host_of(task.device)
    work = sum(flops(op) for op in task.op.operations)
    arithmetic = sum(flops(op) / (_rate(op, host) * efficiency) for op in task.op.operations)
    traffic = bytes_moved(task.op) + 2 * sum(t.elements * ELEMENTS[t.data_type].bytes for t in task.op.internal)
    if passes_per_tap and isinstance(task.op.main, ConvolutionOperation):
        problem = task.op.main.problem
        x, _, y = task.op.main.roles
        traffic += (problem.taps - 1) * (x.bytes + 2 * y.bytes)
    parts = {
        "arithmetic": arithmetic,
        "memory": traffic / host.bandwidth,
        "overhead": host.launch * len(task.op.operations),
    }
    return Cost(work, traffic, sum(parts.values()), MappingProxyType(parts))


def _rate(op: Operation, host: DeviceSpec) -> float:
    compute = op.compute_type
    products = isinstance(op, (ConvolutionOperation, Matmul, RecurrentOperation))
    if products and compute in INTEGERS:
        # Exact integer products run on the float64 units wherever the range proves them exact.
        return host.rate(DataType.DOUBLE) / 2
    return host.rate(compute) if products else host.rate(compute) / 16
