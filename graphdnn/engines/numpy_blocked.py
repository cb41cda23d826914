"""Engine ``numpy_blocked``: convolutions as blocked im2col and BLAS, what follows as in engine ``numpy``."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from graphdnn.device.profiles import MIB
from graphdnn.dtypes import COMPUTE
from graphdnn.engines.engine import Cost, Engine, Kernel, Knob, Knobs, Task, needs_rule
from graphdnn.engines.host.cost import host_cost, host_of
from graphdnn.enums import KnobType, NumericalNote
from graphdnn.operations import ConvBackwardData, ConvBackwardFilter, ConvForward, ConvolutionOperation, Operation

if TYPE_CHECKING:
    from graphdnn.engines.host.kernel import Semantics

_EFFICIENCY = 0.75  # of the processor's peak that BLAS reaches
_CALLS_PER_BLOCK = 3  # NumPy calls, each with the overhead of a launch
_DIRECTION: dict[type[Operation], str] = {ConvForward: "fprop", ConvBackwardData: "dgrad", ConvBackwardFilter: "wgrad"}


_BLOCK = Knob(
    KnobType.TILE_SIZE, 1, 8, 1, 4, "MiB of patches made at a time: large enough for BLAS, small enough for the cache"
)


@cache
def _semantics(block_mib: int) -> dict[type[Operation], Semantics]:
    """The general engine's, with the blocked convolutions. The numerics load with the first plan."""
    from graphdnn.engines.host import convolution as blocked
    from graphdnn.engines.host.semantics import SEMANTICS, convolution

    return {
        **SEMANTICS,
        ConvForward: convolution(partial(blocked.fprop, block_bytes=block_mib * MIB), "x", "w"),
        ConvBackwardData: convolution(partial(blocked.dgrad, block_bytes=block_mib * MIB), "dy", "w"),
        ConvBackwardFilter: convolution(partial(blocked.wgrad, block_bytes=block_mib * MIB), "x", "dy"),
    }


def _cost(task: Task, knobs: Knobs) -> Cost:
    cost = host_cost(task, efficiency=_EFFICIENCY, passes_per_tap=False)
    op = task.op.main
    assert isinstance(op, ConvolutionOperation)
    problem, block = op.problem, knobs[_BLOCK.type] * MIB
    patches = 0 if problem.is_pointwise_filter else problem.macs // problem.k * COMPUTE[op.compute_type].itemsize
    host = host_of(task.device)
    cached = block <= host.cache_bytes // 4
    # Patches are written and read once, from memory when a block does not stay in the cache; each block is a round
    # of NumPy calls.
    parts = {
        "patches": patches / (host.bandwidth * (4 if cached else 1)),
        "blocks": -(-patches // block) * _CALLS_PER_BLOCK * host.launch,
    }
    return cost.plus(parts)


def _workspace(task: Task, knobs: Knobs) -> int:
    from graphdnn.engines.host import convolution as blocked

    op = task.op.main
    assert isinstance(op, ConvolutionOperation)
    return blocked.scratch_bytes(op.problem, _DIRECTION[type(op)], COMPUTE[op.compute_type], knobs[_BLOCK.type] * MIB)


def _compile(task: Task, knobs: Knobs) -> Kernel:
    from graphdnn.engines.host.kernel import compile_on_host

    return compile_on_host(task.op, _semantics(knobs[_BLOCK.type]), f"numpy_blocked__{task.op.name}")


ENGINE = Engine(
    id=2,
    name="numpy_blocked",
    summary="convolutions as blocked im2col and BLAS; integers by exact limbs",
    needs=(needs_rule("numpy_blocked.operation", "conv"),),
    cost=_cost,
    compile=_compile,
    workspace=_workspace,
    knobs=(_BLOCK,),
    numerical_notes=(NumericalNote.STRICT_NAN_PROP,),
)
