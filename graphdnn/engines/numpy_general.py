"""Engine ``numpy``: every operation, on the host, as the definition says it: the oracle, last row of the table."""

from __future__ import annotations

from graphdnn.engines.engine import Cost, Engine, Kernel, Knobs, Task
from graphdnn.engines.host.cost import host_cost
from graphdnn.enums import NumericalNote
from graphdnn.operations import Extension

# Share of the processor's peak that one tensordot per filter tap reaches: each tap passes over x and y again.
_EFFICIENCY = 0.15


def _cost(task: Task, knobs: Knobs) -> Cost:
    return host_cost(task, efficiency=_EFFICIENCY, passes_per_tap=True)


def _workspace(task: Task, knobs: Knobs) -> int:
    return task.op.main.scratch_bytes if isinstance(task.op.main, Extension) else 0


def _compile(task: Task, knobs: Knobs) -> Kernel:
    # The numerics load with the first plan, not with the library.
    from graphdnn.engines.host.kernel import compile_on_host
    from graphdnn.engines.host.semantics import SEMANTICS

    return compile_on_host(task.op, SEMANTICS, f"numpy__{task.op.name}")


ENGINE = Engine(
    id=1,
    name="numpy",
    summary="every operation, type and layout, one NumPy expression per operation",
    needs=(),
    cost=_cost,
    compile=_compile,
    workspace=_workspace,
    numerical_notes=(NumericalNote.STRICT_NAN_PROP,),
    places=("cpu",),
    is_general=True,
)
