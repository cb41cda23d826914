"""Engine ``cuda_view``: data movement that moves nothing, because the result lies in the memory of its operand."""

from __future__ import annotations

from graphdnn.checks import Equals
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.engine import Cost, Task, need, needs_rule
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.fusion.views import view_of


def _generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    """A kernel without launches: a plan finds the address of a view in the memory of its operand."""
    return DeviceKernel(f"view__{op.name}", ())


def _moves(task: Task) -> bool:
    return task.op.rule == "movement" and view_of(task.op) is None


ENGINE = cuda_engine(
    id=42,
    name="cuda_view",
    summary="reshape, slice and transpose into virtual tensors that lie where their operand does: no kernel",
    needs=(
        needs_rule("cuda_view.operation", "movement"),
        need(
            "cuda_view.layout",
            "y.strides",
            lambda task: tuple(t.strides for t in task.op.outputs),
            Equals("in a virtual tensor those of the part of x that it shows, which begins as aligned as y promises"),
            reason="the result does not lie in its operand's memory, so elements have to move",
            fix="leave a virtual result's strides to the builder, or give it those of x; a bound result is copied",
            when=_moves,
        ),
    ),
    cost=lambda task, knobs: Cost(0.0, 0.0, 0.0),
    generate=lambda op, device, knobs: _generate(op, device),
    behavior_notes=(),
)
