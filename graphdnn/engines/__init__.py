"""The engines, in order of preference: the first that serves a task is what INSTANT returns."""

from __future__ import annotations

from graphdnn.engines.cuda.table import CUDA_ENGINES
from graphdnn.engines.engine import Cost, Engine, Kernel, Knob, Knobs, Task
from graphdnn.engines.numpy_blocked import ENGINE as NUMPY_BLOCKED
from graphdnn.engines.numpy_general import ENGINE as NUMPY

ENGINES: tuple[Engine, ...] = (*CUDA_ENGINES, NUMPY_BLOCKED, NUMPY)
ENGINE_BY_ID: dict[int, Engine] = {engine.id: engine for engine in ENGINES}
ENGINE_BY_NAME: dict[str, Engine] = {engine.name: engine for engine in ENGINES}

assert len(ENGINE_BY_ID) == len(ENGINES) == len(ENGINE_BY_NAME)

__all__ = ["ENGINES", "ENGINE_BY_ID", "ENGINE_BY_NAME", "Cost", "Engine", "Kernel", "Knob", "Knobs", "Task"]
