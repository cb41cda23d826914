"""Predicted times of the launches of a Winograd convolution."""

from __future__ import annotations

from math import prod
from types import MappingProxyType

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import problem_of, roles_of
from graphdnn.engines.cuda.winograd.winograd_layout import Algorithm, Panels, Winograd
from graphdnn.engines.engine import Cost, Task
from graphdnn.engines.operation_cost import bytes_moved, flops
from graphdnn.enums import DataType

SHARE = 0.72  # the part of the peak fp32 rate that the GEMMs reach
COPY_SHARE = 0.8  # the part of the data sheet's bandwidth that the transforms reach


def sequence_cost(task: Task, parts: dict[str, float]) -> Cost:
    """The cost of kernels that run one after another; ``parts`` are their seconds."""
    op = task.op
    work = sum(flops(step) for step in op.operations)
    return Cost(work, bytes_moved(op), sum(parts.values()), MappingProxyType(parts))


def waves(blocks: int, resident: int, work: float, device: DeviceSpec) -> float:
    """Seconds of ``blocks`` CTAs with ``work`` operations each, ``resident`` of them on an SM at a time."""
    rate = device.rate(DataType.FLOAT) * SHARE / device.sm_count
    return -(-blocks // (resident * device.sm_count)) * resident * work / rate


def least_sizes(task: Task, algorithm: Algorithm) -> tuple[int, int, int]:
    """The numbers of tiles, of the result's channels, and of padded summed channels, as ``Winograd`` computes them."""
    p = problem_of(task)
    is_dgrad = roles_of(task).direction == "dgrad"
    tiles = p.n * prod([-(-size // algorithm.m) for size in (p.input if is_dgrad else p.output)])
    inner, outer = (p.k, p.c) if is_dgrad else (p.c, p.k)
    return tiles, outer, -(-inner // algorithm.step) * algorithm.step


def filter_bytes(w: Winograd, u: Panels) -> int:
    spec = w.roles.op.roles[1]
    return int(spec.elements * ELEMENTS[spec.data_type].bytes) + u.bytes
