"""What every CUDA engine needs of a task."""

from __future__ import annotations

from graphdnn.checks import Equals
from graphdnn.engines.engine import Task, need
from graphdnn.rules import Constraint

_INT_MAX = 2**31 - 1


def _longest(task: Task) -> int:
    return max(max(t.extents) for t in (*task.op.inputs, *task.op.outputs))


CUDA_NEEDS: tuple[Constraint, ...] = (
    need(
        "cuda.compute_capability",
        "device.compute_capability",
        lambda task: task.device.compute_capability,
        Equals("8.0 or later"),
        reason="the kernels use instructions of compute capability 8.0",
        fix="use a device of the Ampere generation or later, or build the plan for the host",
        when=lambda task: task.device.kind == "cuda" and task.device.compute_capability < (8, 0),
    ),
    need(
        "cuda.extent",
        "dims",
        _longest,
        Equals(f"extents up to {_INT_MAX}"),
        reason="coordinates are 32-bit numbers in kernels; addresses are 64-bit",
        fix="divide the longest axis among several graphs",
        when=lambda task: _longest(task) > _INT_MAX,
    ),
)
