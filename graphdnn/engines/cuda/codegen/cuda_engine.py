"""Make an ``Engine`` of a function that generates a device kernel."""

from __future__ import annotations

from builtins import id as identity
from collections.abc import Callable
from typing import Any

from graphdnn.bounded_cache import BoundedCache
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import with_exit
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.requirements import CUDA_NEEDS, GRID, ONE_TENSOR, Grid, grid_need, is_launched
from graphdnn.engines.engine import Cost, Engine, Knobs, Task
from graphdnn.enums import BehaviorNote
from graphdnn.errors import NotSupported
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.rules import Constraint

# (fused operation, device, knob values) -> kernel; the text and the launches, nothing is compiled here
Generate = Callable[[FusedOp, DeviceSpec, Knobs], DeviceKernel]
_KEPT = 64


def cuda_engine(
    id: int,
    name: str,
    summary: str,
    needs: tuple[Constraint, ...],
    cost: Callable[[Task, Knobs], Cost],
    generate: Generate,
    behavior_notes: tuple[BehaviorNote, ...] = (BehaviorNote.RUNTIME_COMPILATION,),  # by NVRTC, when a plan is loaded
    copies_one_tensor: bool = False,
    **rest: Any,
) -> Engine:
    """An engine whose workspace is what its generated kernel says; generating once serves both questions.

    ``copies_one_tensor``: it serves convolutions whose filter is the tensor that is convolved.
    """
    kept = BoundedCache[tuple[object, ...], tuple[Task, DeviceKernel]](_KEPT)

    def kernel(task: Task, knobs: Knobs) -> DeviceKernel:
        key = (identity(task.op), identity(task.device), *knobs.items())
        found = kept.get(key)
        if found is None:
            found = kept.remember(key, (task, generate(task.op, task.device, knobs)))  # the task keeps identities alive
            grid = _largest(found[1])
            if not is_launched(grid):  # with knobs that were asked for
                raise NotSupported(GRID.reject(f"engine {id} {name}, {task.where}", "launch.grid", grid))
        return found[1]

    common = CUDA_NEEDS if copies_one_tensor else (*CUDA_NEEDS, ONE_TENSOR)
    asked = (*needs, *common)  # most engines decline another kind of operation: that comes first
    defaults = {knob.type: knob.default for knob in rest.get("knobs", ())}
    launched = grid_need(lambda task: _largest(generate(task.op, task.device, defaults)), asked)
    return Engine(
        id=id,
        name=name,
        summary=summary,
        needs=(*asked, launched),
        cost=lambda task, knobs: with_exit(cost(task, knobs), task),
        compile=kernel,
        workspace=lambda task, knobs: kernel(task, knobs).scratch,
        behavior_notes=behavior_notes,
        places=("cuda",),
        **rest,
    )


def _largest(kernel: DeviceKernel) -> Grid:
    """Of the first launch that is beyond what is launched, or of the first one."""
    grids = [step.grid for step in kernel.steps if isinstance(step, Launch)]
    return next((grid for grid in grids if not is_launched(grid)), grids[0] if grids else (1, 1, 1))
