"""Engine ``cuda_materialized_prologue``: the pointwise prologue of a convolution is computed first, into memory.

Engines that copy operands straight to shared memory decline a prologue, because operands do not pass through
registers or because taps share loaded elements. One more pass over the operand costs less than a slower engine, so a
launch writes the result of the prologue to memory, and the fastest of these engines computes the convolution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphdnn.checks import AtLeast, Equals
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.dense_operands import in_memory, writing
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence, fused_inputs
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct import direct
from graphdnn.engines.cuda.direct.grouped import grouped
from graphdnn.engines.cuda.pointwise import pointwise
from graphdnn.engines.cuda.pointwise.pointwise import generate_pointwise
from graphdnn.engines.cuda.rewrites.delegate import Delegate
from graphdnn.engines.cuda.sm80 import mma_gemm
from graphdnn.engines.cuda.sm90.gemm import hopper_gemm
from graphdnn.engines.cuda.sm90.halo import hopper_halo
from graphdnn.engines.cuda.sm90.split_precision import hopper_limbs
from graphdnn.engines.cuda.sm90.tma_operands import channels_last_strides, operands
from graphdnn.engines.engine import Cost, Engine, Knobs, Task, kind_need, need, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.engines.sum_error import CUT
from graphdnn.enums import LayoutType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.tensors import TensorSpec

_ENGINES: tuple[Engine, ...] = (
    hopper_gemm.ENGINE, hopper_limbs.INTEGERS, hopper_halo.ENGINE, direct.ENGINE, grouped.ENGINE, mma_gemm.ENGINE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _MaterializedPrologue:
    """The chain as a fused operation of its own, what it writes, and the rest, which reads that."""

    chain: FusedOp
    made: TensorSpec
    delegate: Delegate


@memoize
def _materialized(op: FusedOp) -> _MaterializedPrologue:
    anchor = op.anchor
    assert isinstance(anchor, ConvolutionOperation)
    between = op.uses.made & op.uses.front
    (port,) = (port for port, t in anchor.inputs().items() if t.uid in between)
    entering = anchor.inputs()[port]
    (laid,) = (channels_last_strides(o) for o in operands(Roles.of(anchor)) if o.spec.uid == entering.uid)
    made = in_memory(entering, laid)
    steps, read = tuple(writing(op.prologue, made)), tuple(fused_inputs(op.prologue))
    chain = FusedOp(op.index, "pointwise", None, (), steps, None, read, (made,), ())
    bare = replace(op, prologue=(), internal=tuple(t for t in op.internal if t.uid not in between))
    return _MaterializedPrologue(
        chain, made, Delegate(bare.with_anchor(anchor.model_copy(update={port: made})), _ENGINES)
    )


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    steps, materialized = LaunchSequence(replace(op, exit=None, prologue=()), device), _materialized(op)
    steps.workspace_offsets[materialized.made.uid] = steps.allocate(materialized.made.bytes)
    steps.include(generate_pointwise(materialized.chain, device), materialized.chain)
    kernel = materialized.delegate.kernel(device)
    steps.include(kernel, materialized.delegate.op)
    return steps.kernel(kernel.name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    materialized = _materialized(task.op)
    _, delegate = materialized.delegate.fastest(task.device)
    first = pointwise.ENGINE.cost(Task(materialized.chain, task.device), pointwise.ENGINE.defaults())
    start = {"launch": first.parts["launch"] + delegate.parts["launch"]}
    parts = {**delegate.parts, **start, "prologue": first.seconds - first.parts["launch"]}
    return Cost(first.flops + delegate.flops, first.bytes + delegate.bytes, first.seconds + delegate.seconds, parts)


def _is_behind_a_chain(task: Task) -> bool:
    return isinstance(task.op.anchor, ConvolutionOperation) and bool(task.op.prologue)


ENGINE = cuda_engine(
    id=77,
    name="cuda_materialized_prologue",
    summary="convolutions behind pointwise operations: these first, then an engine that takes operands as they lie",
    needs=(
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
        need(
            "cuda_materialized_prologue.rest",
            "operation",
            lambda task: task.op.name,
            Equals("what an engine for tensor cores, or for narrow groups, serves without its prologue"),
            reason="the rest is done by those engines, and each of them declines it",
            fix="let the chain end in a type that tensor cores multiply, and accumulate in FLOAT or an integer",
            when=lambda task: _is_behind_a_chain(task) and not _materialized(task.op).delegate.serving(task.device),
        ),
    ),
    cost=_cost,
    generate=generate,
    layout=LayoutType.PREFERRED_NHWC,
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    sum_error=CUT,
)
