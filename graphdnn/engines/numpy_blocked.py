"""Engine ``numpy_blocked``: convolutions as blocked im2col and BLAS, what follows as in engine ``numpy``."""

from __future__ import annotations

from graphdnn.dtypes import COMPUTE
from graphdnn.engines.engine import Cost, Engine, Kernel, Knobs, Task, needs_rule
from graphdnn.engines.host import convolution as blocked
from graphdnn.engines.host.cost import host_cost
from graphdnn.engines.host.kernel import compile_on_host
from graphdnn.engines.host.semantics import SEMANTICS, Semantics, convolution
from graphdnn.enums import NumericalNote
from graphdnn.operations import ConvBackwardData, ConvBackwardFilter, ConvForward, ConvolutionOperation, Operation

_EFFICIENCY = 0.6  # of the processor's peak, BLAS and copies together
_SEMANTICS: dict[type[Operation], Semantics] = {
    **SEMANTICS,
    ConvForward: convolution(blocked.fprop, "x", "w"),
    ConvBackwardData: convolution(blocked.dgrad, "dy", "w"),
    ConvBackwardFilter: convolution(blocked.wgrad, "x", "dy"),
}
_DIRECTION: dict[type[Operation], str] = {ConvForward: "fprop", ConvBackwardData: "dgrad", ConvBackwardFilter: "wgrad"}


def _cost(task: Task, knobs: Knobs) -> Cost:
    return host_cost(task, efficiency=_EFFICIENCY, passes_per_tap=False)


def _workspace(task: Task, knobs: Knobs) -> int:
    op = task.op.main
    assert isinstance(op, ConvolutionOperation)
    return blocked.scratch_bytes(op.problem, _DIRECTION[type(op)], COMPUTE[op.compute_type])


def _compile(task: Task, knobs: Knobs) -> Kernel:
    return compile_on_host(task.op, _SEMANTICS, f"numpy_blocked__{task.op.name}")


ENGINE = Engine(
    id=2,
    name="numpy_blocked",
    summary="convolutions as blocked im2col and BLAS; integers by exact limbs",
    needs=(needs_rule("numpy_blocked.operation", "conv"),),
    cost=_cost,
    compile=_compile,
    workspace=_workspace,
    numerical_notes=(NumericalNote.STRICT_NAN_PROP,),
)
