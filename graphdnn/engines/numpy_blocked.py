"""Engine ``numpy_blocked``: convolutions as blocked im2col and BLAS, what follows as in engine ``numpy``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from graphdnn.dtypes import COMPUTE
from graphdnn.engines.engine import Cost, Engine, Kernel, Knobs, Task, needs_rule
from graphdnn.engines.host.cost import host_cost
from graphdnn.enums import NumericalNote
from graphdnn.operations import ConvBackwardData, ConvBackwardFilter, ConvForward, ConvolutionOperation, Operation

if TYPE_CHECKING:
    from graphdnn.engines.host.kernel import Semantics

_EFFICIENCY = 0.6  # of the processor's peak, BLAS and copies together
_DIRECTION: dict[type[Operation], str] = {ConvForward: "fprop", ConvBackwardData: "dgrad", ConvBackwardFilter: "wgrad"}


@cache
def _semantics() -> dict[type[Operation], Semantics]:
    """The general engine's, with the blocked convolutions. The numerics load with the first plan."""
    from graphdnn.engines.host import convolution as blocked
    from graphdnn.engines.host.semantics import SEMANTICS, convolution

    return {
        **SEMANTICS,
        ConvForward: convolution(blocked.fprop, "x", "w"),
        ConvBackwardData: convolution(blocked.dgrad, "dy", "w"),
        ConvBackwardFilter: convolution(blocked.wgrad, "x", "dy"),
    }


def _cost(task: Task, knobs: Knobs) -> Cost:
    return host_cost(task, efficiency=_EFFICIENCY, passes_per_tap=False)


def _workspace(task: Task, knobs: Knobs) -> int:
    from graphdnn.engines.host import convolution as blocked

    op = task.op.main
    assert isinstance(op, ConvolutionOperation)
    return blocked.scratch_bytes(op.problem, _DIRECTION[type(op)], COMPUTE[op.compute_type])


def _compile(task: Task, knobs: Knobs) -> Kernel:
    from graphdnn.engines.host.kernel import compile_on_host

    return compile_on_host(task.op, _semantics(), f"numpy_blocked__{task.op.name}")


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
