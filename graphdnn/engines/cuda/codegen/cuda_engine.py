"""CUDA engines: an ``Engine`` from a function that generates a device kernel."""

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

# (fused operation, device, knob values) -> kernel texts and launches; nothing is compiled
Generate = Callable[[FusedOp, DeviceSpec, Knobs], DeviceKernel]
_MAX_CACHED = 64


def cuda_engine(
    id: int,
    name: str,
    summary: str,
    needs: tuple[Constraint, ...],
    cost: Callable[[Task, Knobs], Cost],
    generate: Generate,
    behavior_notes: tuple[BehaviorNote, ...] = (BehaviorNote.RUNTIME_COMPILATION,),  # by NVRTC, when a plan is loaded
    copies_one_tensor: bool = False,
    **options: Any,
) -> Engine:
    """An engine from its requirements, its cost model and its generator. A cache has the generated kernels.

    Args:
        id: The engine's id, which files contain.
        name: The engine's name.
        summary: What the engine computes, for the documentation.
        needs: The requirements; the requirements of all CUDA engines are added.
        cost: The cost model; the cost of the final reduction is added.
        generate: Generates the launches.
        behavior_notes: Notes of the v8 API.
        copies_one_tensor: Whether the engine serves convolutions that read one tensor as image and as filter.
        options: Further fields of ``Engine``.
    """
    cache = BoundedCache[tuple[object, ...], tuple[Task, DeviceKernel]](_MAX_CACHED)

    def kernel(task: Task, knobs: Knobs) -> DeviceKernel:
        key = (identity(task.op), identity(task.device), *knobs.items())
        entry = cache.get(key)
        if entry is None:
            # The entry has the task, so that the identities of its key stay alive.
            entry = cache.remember(key, (task, generate(task.op, task.device, knobs)))
            grid = _largest(entry[1])
            if not is_launched(grid):  # the requirement covers default knobs only
                raise NotSupported(GRID.reject(f"engine {id} {name}, {task.where}", "launch.grid", grid))
        return entry[1]

    common = CUDA_NEEDS if copies_one_tensor else (*CUDA_NEEDS, ONE_TENSOR)
    all_needs = (*needs, *common)  # most tasks fail the first requirement, the kind of operation
    defaults = {knob.type: knob.default for knob in options.get("knobs", ())}
    launched = grid_need(lambda task: _largest(generate(task.op, task.device, defaults)), all_needs)
    return Engine(
        id=id,
        name=name,
        summary=summary,
        needs=(*all_needs, launched),
        cost=lambda task, knobs: with_exit(cost(task, knobs), task),
        compile=kernel,
        workspace=lambda task, knobs: kernel(task, knobs).workspace_bytes,
        behavior_notes=behavior_notes,
        places=("cuda",),
        **options,
    )


def _largest(kernel: DeviceKernel) -> Grid:
    """The first grid that the driver cannot launch, or the first grid."""
    grids = [step.grid for step in kernel.steps if isinstance(step, Launch)]
    return next((grid for grid in grids if not is_launched(grid)), grids[0] if grids else (1, 1, 1))
