"""The requirements of every CUDA engine on a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphdnn.checks import AtLeast, Check, Equals
from graphdnn.engines.cuda.codegen.index_space import INT_MAX
from graphdnn.engines.engine import Task, kind_need, need
from graphdnn.engines.memoization import memoize
from graphdnn.enums import Status
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardData, ConvForward
from graphdnn.rules import Constraint, Rule

Grid = tuple[int, int, int]
LARGEST_GRID: Grid = (INT_MAX, 65_535, 65_535)
GRID = Rule(
    id="cuda.grid",
    expected=f"at most {LARGEST_GRID} blocks",
    reason="the driver takes no more blocks in a launch",
    fix="divide the longest axis among several graphs",
    status=Status.NOT_SUPPORTED,
)


@memoize
def _largest_extent(task: Task) -> int:
    return max(max(t.extents) for t in (*task.op.inputs, *task.op.outputs))


@memoize
def _largest_tensor(task: Task) -> int:
    return max([t.elements for t in (*task.op.inputs, *task.op.outputs)])


# For engines whose smallest tiles need the shared memory that every device has, unless the caller limits it.
SHARED_MEMORY = kind_need(
    "cuda.shared_memory",
    "device.shared_memory",
    lambda task: task.device.shared_memory,
    AtLeast(100 * 1024),
    reason="its tiles need up to 100 KiB, which every device of compute capability 8.0 or later has",
    fix="raise the limit of shared memory; the engines without tensor cores need less",
    when=lambda task: task.device.kind == "cuda",
)

CUDA_NEEDS: tuple[Constraint, ...] = (
    kind_need(
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
        _largest_extent,
        Equals(f"extents up to {INT_MAX}"),
        reason="coordinates are 32-bit numbers in kernels; addresses are 64-bit",
        fix="divide the longest axis among several graphs",
        when=lambda task: _largest_tensor(task) > INT_MAX and _largest_extent(task) > INT_MAX,
    ),
)


def is_of_one_tensor(op: FusedOp) -> bool:
    """Whether the operation is a convolution that reads one tensor as image and as filter."""
    return isinstance(op.anchor, (ConvForward, ConvBackwardData)) and bool(op.uses.doubled)


ONE_TENSOR = need(
    "cuda.one_tensor",
    "w",
    lambda task: "the tensor that is convolved",
    Equals("a tensor of its own"),
    reason="kernels identify the tensors of a convolution by their uids",
    fix="nothing to do: cuda_implicit_gemm copies the filter first; or pass a view of it, by a RESHAPE operation",
    when=lambda task: is_of_one_tensor(task.op),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _GridNeed(Constraint):
    """The rule ``GRID`` as a requirement of one engine. The class registers no rule, as ``GRID`` is registered."""

    def __post_init__(self) -> None: ...


def is_launched(grid: Grid) -> bool:
    """Whether the driver can launch a grid."""
    return all(size <= limit for size, limit in zip(grid, LARGEST_GRID, strict=True))


def grid_need(largest: Callable[[Task], Grid], others: tuple[Constraint, ...]) -> Constraint:
    """The requirement that the driver can launch an engine's grids.

    Args:
        largest: The largest grid of the engine's launches with default knobs.
        others: The other requirements of the engine. The grid is computed only for large tensors that meet them.
    """

    def is_large(task: Task) -> bool:
        return _largest_tensor(task) > INT_MAX and all(other.holds(task) for other in others)

    return _GridNeed(
        id=GRID.id,
        attribute="launch.grid",
        look=largest,
        check=_GridLimit(),
        reason=GRID.reason,
        fix=GRID.fix,
        status=GRID.status,
        when=is_large,
    )


class _GridLimit(Check):
    def __call__(self, value: Grid) -> bool:
        return is_launched(value)

    def __str__(self) -> str:
        return GRID.expected
