"""Engines ``cuda_genstats``, ``cuda_bn_finalize`` and ``cuda_bn_weights``: the building blocks of batch norm.

Formulas: engines/host/statistics.py.
"""

from __future__ import annotations

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.cost import memory_cost
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.fold import Fold, generate_fold
from graphdnn.engines.cuda.launch import DeviceKernel
from graphdnn.engines.cuda.parameters import COMPUTE_TYPE
from graphdnn.engines.cuda.program import Program
from graphdnn.engines.cuda.steps import Steps
from graphdnn.engines.engine import needs_rule
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import BnBackwardWeights, GenStats
from graphdnn.tensors import TensorSpec


def generate_genstats(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, GenStats)

    def finish(steps: Steps, program: Program) -> None:
        program.note(anchor)
        program.set(anchor.sum, "acc[0][e]")
        program.set(anchor.sqsum, "acc[1][e]")
        program.store_outputs((anchor,))

    fold = Fold(
        name="genstats",
        files=("sums.cuh", "genstats.cuh"),
        streamed=(anchor.x,),
        extents=anchor.sum.extents,
        finish=finish,
        parts=2,
    )
    return generate_fold(op, device, fold)


def generate_bn_weights(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, BnBackwardWeights)
    kind = COMPUTE_TYPE[anchor.math_type]

    def finish(steps: Steps, program: Program) -> None:
        def operand(spec: TensorSpec) -> str:
            return f"widen<{kind}>({program.value(spec)}[e])"

        program.note(anchor)
        mean, inv_std, scale = operand(anchor.mean), operand(anchor.inv_std), operand(anchor.scale)
        count = f"({kind})p.elements"
        eq_dy_scale = f"({scale} * {inv_std})"
        eq_x_scale = f"(-{eq_dy_scale} * {inv_std} * acc[1][e] / {count})"
        program.set(anchor.dbias, "acc[0][e]")
        program.set(anchor.dscale, "acc[1][e]")
        program.set(anchor.eq_dy_scale, eq_dy_scale)
        program.set(anchor.eq_x_scale, eq_x_scale)
        program.set(anchor.eq_bias, f"-{eq_dy_scale} * acc[0][e] / {count} - {eq_x_scale} * {mean}")
        program.store_outputs((anchor,))

    fold = Fold(
        name="bn_weights",
        files=("sums.cuh", "bn_weights.cuh"),
        streamed=(anchor.x, anchor.dy),
        beside=(anchor.mean, anchor.inv_std),
        extents=anchor.dscale.extents,
        finish=finish,
        parts=2,
        after=(anchor.mean, anchor.inv_std, anchor.scale),
    )
    return generate_fold(op, device, fold)


GENSTATS = cuda_engine(
    id=35,
    name="cuda_genstats",
    summary="sum and sum of squares of every channel in one pass over memory, in a fixed order",
    needs=(needs_rule("cuda_genstats.operation", "genstats"),),
    cost=lambda task, knobs: memory_cost(task, launches=2),
    generate=lambda op, device, knobs: generate_genstats(op, device),
)

BN_WEIGHTS = cuda_engine(
    id=37,
    name="cuda_bn_weights",
    summary="gradients of a batch norm's scale and bias in one pass over memory, in a fixed order",
    needs=(needs_rule("cuda_bn_weights.operation", "bn_weights"),),
    cost=lambda task, knobs: memory_cost(task, launches=2),
    generate=lambda op, device, knobs: generate_bn_weights(op, device),
)
