"""Rewrite ``materialized_prologue``: a launch computes the pointwise prologue of a convolution into memory.

Engines that copy operands to shared memory by TMA or cp.async decline a prologue, because operands do not pass through
registers or because taps share loaded elements. One more pass over the operand costs less than a slower engine. A
launch writes the result of the prologue to memory, and the fastest of these engines computes the convolution.
"""

from __future__ import annotations

from dataclasses import replace

from graphdnn.checks import AtLeast
from graphdnn.engines.cuda.codegen.dense_operands import dense_tensor, storing_operations
from graphdnn.engines.cuda.codegen.launch_sequence import fused_inputs
from graphdnn.engines.cuda.codegen.tensor_cores import EXACT_OPTIONS
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct import direct
from graphdnn.engines.cuda.direct.grouped import grouped
from graphdnn.engines.cuda.pointwise import pointwise
from graphdnn.engines.cuda.pointwise.pointwise import generate_pointwise
from graphdnn.engines.cuda.rewrites.rewrite import DelegateRefusal, Pass, Rewrite, Rewritten
from graphdnn.engines.cuda.sm80 import mma_gemm
from graphdnn.engines.cuda.sm90.gemm import hopper_gemm
from graphdnn.engines.cuda.sm90.halo import hopper_halo
from graphdnn.engines.cuda.sm90.split_precision import hopper_limbs
from graphdnn.engines.cuda.sm90.tma_operands import channels_last_strides, operands
from graphdnn.engines.engine import Cost, Task, kind_need, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.tensors import TensorSpec


@memoize
def _prologue(op: FusedOp) -> tuple[FusedOp, TensorSpec]:
    """The prologue as a pointwise operation, and the tensor that it writes."""
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    virtual = op.uses.made & op.uses.front
    (port,) = (port for port, t in anchor.inputs().items() if t.uid in virtual)
    operand = anchor.inputs()[port]
    (strides,) = (channels_last_strides(o) for o in operands(Roles.of(anchor)) if o.spec.uid == operand.uid)
    written = dense_tensor(operand, strides)
    steps, read = tuple(storing_operations(op.prologue, written)), tuple(fused_inputs(op.prologue))
    return FusedOp(op.index, "pointwise", None, (), steps, None, read, (written,), ()), written


def _materialized(op: FusedOp) -> tuple[Rewritten, ...]:
    """The convolution without its prologue, on the tensor that the prologue writes."""
    prologue, written = _prologue(op)
    anchor, virtual = op.anchor, op.uses.made & op.uses.front
    assert anchor is not None
    (port,) = (port for port, t in anchor.inputs().items() if t.uid == written.uid)
    bare = replace(op, prologue=(), internal=tuple(t for t in op.internal if t.uid not in virtual))
    first = Pass(
        f"{written.label()} computed by {prologue.name}",
        written,
        float(bytes_moved(prologue)),
        lambda steps: steps.include(generate_pointwise(prologue, steps.device), prologue),
    )
    return (Rewritten(bare.with_anchor(anchor.model_copy(update={port: written})), (first,)),)


def _cost(task: Task, form: Rewritten, delegate_cost: Cost) -> Cost:
    prologue, _ = _prologue(task.op)
    first = pointwise.ENGINE.cost(Task(prologue, task.device), pointwise.ENGINE.defaults())
    start = {"launch": first.parts["launch"] + delegate_cost.parts["launch"]}
    parts = {**delegate_cost.parts, **start, "prologue": first.seconds - first.parts["launch"]}
    return Cost(
        first.flops + delegate_cost.flops,
        first.bytes + delegate_cost.bytes,
        first.seconds + delegate_cost.seconds,
        parts,
    )


ROW = Rewrite(
    id=77,
    name="materialized_prologue",
    summary="convolutions with a prologue: a pointwise kernel first, then an engine that reads operands from memory",
    why="pointwise operations lead to an operand",
    match=(
        needs_rule("cuda_materialized_prologue.operation", "conv"),
        kind_need(
            "cuda_materialized_prologue.prologue",
            "prologue",
            lambda task: len(task.op.prologue),
            AtLeast(1),
            reason="the operation has no prologue to compute first",
            fix="nothing to do: the engines of this rewrite serve the operation without it",
            when=lambda task: isinstance(task.op.anchor, ConvolutionOperation),
        ),
    ),
    rewrite=_materialized,
    engines=(
        hopper_gemm.ENGINE, hopper_limbs.INTEGERS, hopper_halo.ENGINE, direct.ENGINE, grouped.ENGINE, mma_gemm.ENGINE,
    ),
    refusal=DelegateRefusal(
        "a convolution that an engine for tensor cores, or for narrow groups, serves without its prologue",
        fix="let the prologue end in a type that tensor cores multiply, and accumulate in FLOAT or an integer",
    ),
    cost=_cost,
    notes=EXACT_OPTIONS,
)  # fmt: skip
