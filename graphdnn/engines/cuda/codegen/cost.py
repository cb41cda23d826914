"""Predicted time of a fused operation on a CUDA device.

Arithmetic and memory traffic overlap on a GPU, so the longer of the two counts, plus the start of each kernel. A kernel
starts while the previous one ends, and it starts earlier if the previous one leaves SMs idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.engine import Cost, Task
from graphdnn.engines.memoization import memoize
from graphdnn.engines.operation_cost import bytes_moved, flops
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardData
from graphdnn.operations.conv_problem import pairs_inside

_EXIT, _EXIT_LAUNCHES = "exit", 2  # the final reduction: partial reductions, and the reduction of their results
_BANDWIDTH_EFFICIENCY = 0.88  # the fraction of the data sheet's bandwidth that a copy reaches
_OVERLAP = 0.6  # the fraction of a launch's time that overlaps with another launch
_MIN_START = 0.1  # the least fraction of a launch's time that a convolution takes, if all SMs but one are idle


def device_cost(task: Task, seconds_of_arithmetic: float, extra_bytes: float = 0.0, launches: int = 1) -> Cost:
    """The cost of one kernel. ``extra_bytes``: traffic in addition to each operand once."""
    traffic = bytes_moved(task.op) + extra_bytes
    memory = traffic / (task.device.bandwidth * _BANDWIDTH_EFFICIENCY)
    start = launches * task.device.launch
    parts = {"arithmetic": seconds_of_arithmetic, "memory": memory, "launch": start}
    return Cost(_flops_of(task.op)[0], traffic, max(seconds_of_arithmetic, memory) + start, MappingProxyType(parts))


def other_seconds(task: Task) -> float:
    """Seconds of the operations around the anchor, on CUDA cores."""
    return _flops_of(task.op)[1] / task.device.rate(DataType.FLOAT)


@memoize
def _flops_of(op: FusedOp) -> tuple[int, int]:
    """Floating-point operations of all operations, and of the operations around the anchor."""
    around = sum([flops(step) for step in op.operations if step is not op.anchor])
    return around + (0 if op.anchor is None else flops(op.anchor)), around


def memory_cost(task: Task, extra_bytes: float = 0.0, launches: int = 1) -> Cost:
    """The cost of kernels whose arithmetic runs on CUDA cores."""
    work = sum(flops(op) / task.device.compute_rate(op.compute_type) for op in task.op.operations)
    return device_cost(task, 2 * work, extra_bytes, launches)


def phased_cost(task: Task, phases: Mapping[str, tuple[float, float]], launches: int) -> Cost:
    """The cost of launches that do not overlap; ``phases`` are seconds of arithmetic and bytes moved, by name."""
    bandwidth = task.device.bandwidth * _BANDWIDTH_EFFICIENCY
    parts = {name: max(seconds, size / bandwidth) for name, (seconds, size) in phases.items()}
    parts["launch"] = launches * task.device.launch
    traffic = sum(size for _, size in phases.values())
    return Cost(_flops_of(task.op)[0], traffic, sum(parts.values()), MappingProxyType(parts))


def with_launches(cost: Cost, device: DeviceSpec, name: str, traffic: float, launches: int) -> Cost:
    """The cost with additional launches, which move ``traffic`` bytes. ``name``: the part of the cost."""
    seconds, start = traffic / (device.bandwidth * _BANDWIDTH_EFFICIENCY), launches * device.launch
    parts = {**cost.parts, name: seconds, "launch": cost.parts.get("launch", 0.0) + start}
    more = Cost(cost.flops, cost.bytes + traffic, cost.seconds + seconds + start, MappingProxyType(parts))
    return overlapping(more, device, launches)


def overlapping(cost: Cost, device: DeviceSpec, launches: int) -> Cost:
    """The cost less the time in which ``launches`` launches overlap with the launches before them."""
    if not launches:
        return cost
    less = launches * _OVERLAP * device.launch
    parts = {**cost.parts, "overlap": cost.parts.get("overlap", 0.0) - less}
    return Cost(cost.flops, cost.bytes, cost.seconds - less, MappingProxyType(parts))


def with_idle_sms(cost: Cost, device: DeviceSpec, ctas: int, saving: float) -> Cost:
    """The cost of a grid with fewer CTAs than the device has SMs.

    The next launch starts on idle SMs before this launch ends, and the CTAs have the whole memory bandwidth.

    Args:
        cost: The cost of the launch without this effect.
        device: The device.
        ctas: CTAs of the grid.
        saving: The fraction of a launch's time that a grid saves if all SMs are idle.
    """
    idle = 1.0 - ctas / device.sm_count
    return cost.plus({"idle": -saving * idle * device.launch}) if idle > 0 else cost


def with_exit(cost: Cost, task: Task) -> Cost:
    """The cost with the final reduction, which reads the finished values from memory, and with the stores of values
    that only the final reduction reads.

    The cost is unchanged if it has these parts already, as the cost of a delegate does.
    """
    op = task.op
    if op.exit is None or _EXIT in cost.parts:
        return cost
    internal = {t.uid for t in op.internal}
    read = {t.uid: t for t in op.exit.inputs().values() if t.uid in op.uses.made}.values()
    written = float(sum(t.bytes for t in read if t.uid in internal))
    return with_launches(
        _with_stores(cost, task, written), task.device, _EXIT, float(sum(t.bytes for t in read)), _EXIT_LAUNCHES
    )


def _with_stores(cost: Cost, task: Task, traffic: float) -> Cost:
    """The cost with additional bytes to write, which overlap with the arithmetic if its time is known."""
    more, parts = traffic / (task.device.bandwidth * _BANDWIDTH_EFFICIENCY), dict(cost.parts)
    arithmetic, memory = parts.get("arithmetic", 0.0), parts.get("memory", 0.0)
    later = max(arithmetic, memory + more) - max(arithmetic, memory)
    parts["memory"] = memory + more
    return Cost(cost.flops, cost.bytes + traffic, cost.seconds + later, MappingProxyType(parts))


def copy_seconds(device: DeviceSpec, traffic: float) -> float:
    """Seconds to copy a number of bytes."""
    return traffic / (device.bandwidth * _BANDWIDTH_EFFICIENCY)


def least_seconds(task: Task, launches: int, rate: float = inf, traffic: float = 0.0) -> float:
    """A lower bound of every prediction of an engine for a convolution or a matrix product: the launches, and the
    longer of two times, the arithmetic at ``rate`` and the memory traffic of each operand once.

    ``rate``: the highest operations per second that a prediction allows. ``traffic``: additional bytes, which are moved
    before or after the arithmetic.
    """
    overlap = _OVERLAP * (launches - 1) * task.device.launch if launches > 1 else 0.0
    return least_seconds_in_sequence(task, launches, rate, traffic) - overlap


def least_seconds_in_sequence(task: Task, launches: int, rate: float = inf, traffic: float = 0.0) -> float:
    """The same bound for launches that do not overlap, as ``phased_cost`` counts them."""
    work, memory, device = _at_least(task)
    seconds = max(work / rate, memory)
    return launches * device.launch + traffic / (device.bandwidth * _BANDWIDTH_EFFICIENCY) + seconds


def least_seconds_of_delegate(task: Task, launches: int, traffic: float = 0.0) -> float:
    """The same bound for an engine that delegates a convolution to another engine and adds ``launches`` of its own."""
    start = (_MIN_START + launches * (1.0 - _OVERLAP)) * task.device.launch
    return start + traffic / (task.device.bandwidth * _BANDWIDTH_EFFICIENCY) + memory_seconds(task)


@memoize
def _at_least(task: Task) -> tuple[float, float, DeviceSpec]:
    """The operands of the bounds of all engines: floating-point operations, seconds of memory traffic, the device."""
    return _least_flops(task), memory_seconds(task), task.device


@memoize
def memory_seconds(task: Task) -> float:
    """Seconds to move each operand once between memory and the SMs."""
    return bytes_moved(task.op) / (task.device.bandwidth * _BANDWIDTH_EFFICIENCY)


def _least_flops(task: Task) -> float:
    """The floating-point operations of a task; a data gradient counts only the taps inside the image, as it may skip
    the taps in the padding.
    """
    op = task.op.main
    if not isinstance(op, ConvBackwardData):
        return flops(op)
    p = op.problem
    inside = 1.0
    for size, taps, count, pre, stride, step in zip(
        p.input, p.filter, p.output, p.pre_padding, p.stride, p.dilation, strict=True
    ):
        inside *= pairs_inside(size, taps, count, pre, stride, step) / (count * taps)
    return flops(op) * inside
