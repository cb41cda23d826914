"""Rewrite ``materialized_prologue``: the pointwise prologue of a convolution is computed first, into memory.

Engines that copy operands straight to shared memory decline a prologue, because operands do not pass through
registers or because taps share loaded elements. One more pass over the operand costs less than a slower engine, so a
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
from graphdnn.engines.cuda.rewrites.rewrite import Pass, Remainder, Rewrite, Rewritten
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
def _chain(op: FusedOp) -> tuple[FusedOp, TensorSpec]:
    """The prologue as a fused operation of its own, and the tensor that it writes."""
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    between = op.uses.made & op.uses.front
    (port,) = (port for port, t in anchor.inputs().items() if t.uid in between)
    entering = anchor.inputs()[port]
    (laid,) = (channels_last_strides(o) for o in operands(Roles.of(anchor)) if o.spec.uid == entering.uid)
    made = dense_tensor(entering, laid)
    steps, read = tuple(storing_operations(op.prologue, made)), tuple(fused_inputs(op.prologue))
    chain = FusedOp(op.index, "pointwise", None, (), steps, None, read, (made,), ())
    return chain, made


def _materialized(op: FusedOp) -> tuple[Rewritten, ...]:
    """The convolution without its prologue, of the tensor that the prologue writes."""
    chain, made = _chain(op)
    anchor, between = op.anchor, op.uses.made & op.uses.front
    assert anchor is not None
    (port,) = (port for port, t in anchor.inputs().items() if t.uid == made.uid)
    bare = replace(op, prologue=(), internal=tuple(t for t in op.internal if t.uid not in between))
    first = Pass(
        f"{made.label()} computed by {chain.name}",
        made,
        float(bytes_moved(chain)),
        lambda steps: steps.include(generate_pointwise(chain, steps.device), chain),
    )
    return (Rewritten(bare.with_anchor(anchor.model_copy(update={port: made})), (first,)),)


def _cost(task: Task, form: Rewritten, delegate: Cost) -> Cost:
    chain, _ = _chain(task.op)
    first = pointwise.ENGINE.cost(Task(chain, task.device), pointwise.ENGINE.defaults())
    start = {"launch": first.parts["launch"] + delegate.parts["launch"]}
    parts = {**delegate.parts, **start, "prologue": first.seconds - first.parts["launch"]}
    return Cost(first.flops + delegate.flops, first.bytes + delegate.bytes, first.seconds + delegate.seconds, parts)


ROW = Rewrite(
    id=77,
    name="materialized_prologue",
    summary="convolutions behind pointwise operations: these first, then an engine that takes operands as they lie",
    why="pointwise operations lead to an operand",
    match=(
        needs_rule("cuda_materialized_prologue.operation", "conv"),
        kind_need(
            "cuda_materialized_prologue.prologue",
            "prologue",
            lambda task: len(task.op.prologue),
            AtLeast(1),
            reason="there is nothing to compute ahead",
            fix="nothing to do: the engines that this one asks serve the operation themselves",
            when=lambda task: isinstance(task.op.anchor, ConvolutionOperation),
        ),
    ),
    rewrite=_materialized,
    engines=(
        hopper_gemm.ENGINE, hopper_limbs.INTEGERS, hopper_halo.ENGINE, direct.ENGINE, grouped.ENGINE, mma_gemm.ENGINE,
    ),
    remainder=Remainder(
        "what an engine for tensor cores, or for narrow groups, serves without its prologue",
        fix="let the chain end in a type that tensor cores multiply, and accumulate in FLOAT or an integer",
    ),
    cost=_cost,
    notes=EXACT_OPTIONS,
)  # fmt: skip
