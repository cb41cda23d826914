"""Engines ``cuda_genstats``, ``cuda_bn_finalize`` and ``cuda_bn_weights``: the building blocks of batch norm.

Formulas: engines/host/statistics.py.
"""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import include
from graphdnn.engines.cuda.pointwise.pointwise import Written, element_launch
from graphdnn.engines.cuda.reduction.reduction_kernels import Fold, FoldKind, generate_fold
from graphdnn.engines.engine import needs_rule
from graphdnn.enums import BnFinalizeStatsMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import BnBackwardWeights, BnFinalize, GenStats
from graphdnn.tensors import TensorSpec

_CHANNELS = 128  # of a CTA


def generate_genstats(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, GenStats)

    def finish(steps: LaunchSequence, program: Program) -> None:
        program.comment(anchor)
        program.define(anchor.sum, "acc[0][e]")
        program.define(anchor.sqsum, "acc[1][e]")
        program.store_outputs((anchor,))

    fold = Fold(
        name="genstats",
        kind=FoldKind.SUMS_OF_SQUARES,
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

    def finish(steps: LaunchSequence, program: Program) -> None:
        def operand(spec: TensorSpec) -> str:
            return f"widen<{kind}>({program.value(spec)}[e])"

        program.comment(anchor)
        mean, inv_std, scale = operand(anchor.mean), operand(anchor.inv_std), operand(anchor.scale)
        count = f"({kind})p.elements"
        eq_dy_scale = f"({scale} * {inv_std})"
        eq_x_scale = f"(-{eq_dy_scale} * {inv_std} * acc[1][e] / {count})"
        program.define(anchor.dbias, "acc[0][e]")
        program.define(anchor.dscale, "acc[1][e]")
        program.define(anchor.eq_dy_scale, eq_dy_scale)
        program.define(anchor.eq_x_scale, eq_x_scale)
        program.define(anchor.eq_bias, f"-{eq_dy_scale} * acc[0][e] / {count} - {eq_x_scale} * {mean}")
        program.store_outputs((anchor,))

    fold = Fold(
        name="bn_weights",
        kind=FoldKind.BATCH_NORM_GRADIENTS,
        streamed=(anchor.x, anchor.dy),
        beside=(anchor.mean, anchor.inv_std),
        extents=anchor.dscale.extents,
        finish=finish,
        parts=2,
        after=(anchor.mean, anchor.inv_std, anchor.scale),
    )
    return generate_fold(op, device, fold)


def generate_bn_finalize(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    """One thread for each channel, in double: there are few values, and the variance cancels digits."""
    anchor = op.anchor
    assert isinstance(anchor, BnFinalize)
    kind = COMPUTE_TYPE[anchor.math_type]
    extents = anchor.y_sum.extents
    space = IndexSpace(extents, (Axis(extents[1], 1),))
    parameters = Parameters()
    program = Program(op, parameters, space, "t")

    def operand(spec: TensorSpec | None) -> str:
        assert spec is not None
        return f"(double)widen<{kind}>({program.value(spec)}[e])"

    def scalar(spec: TensorSpec) -> str:
        ones = (1,) * len(extents)  # a scalar may have another rank
        return f"widen<double>({program.value(spec.model_copy(update={'dims': ones, 'strides': ones}))}[e])"

    def result(spec: TensorSpec | None, expression: str) -> None:
        if spec is not None:
            program.define(spec, f"({kind})({expression})")

    program.comment(anchor)
    if anchor.mode is BnFinalizeStatsMode.INFERENCE:
        mean = running_mean = operand(anchor.previous_running_mean)
        variance = running_var = operand(anchor.previous_running_var)
    else:
        total, count = operand(anchor.y_sum), f"(double)truncated<long long>({scalar(anchor.accumulation_count)})"
        mean = f"({total} / {count})"
        variance = f"variance_of({total}, {operand(anchor.y_sq_sum)}, {count})"
        running_mean = running_var = ""
        if anchor.previous_running_mean is not None:
            factor = scalar(anchor.momentum)
            running_mean = f"averaged({operand(anchor.previous_running_mean)}, {mean}, {factor})"
            biased = f"unbiased({variance}, {count})"
            running_var = f"averaged({operand(anchor.previous_running_var)}, {biased}, {factor})"
    inv_std = f"inverse_deviation({variance}, {scalar(anchor.epsilon)})"
    eq_scale = f"({operand(anchor.scale)} * {inv_std})"
    result(anchor.saved_mean, mean)
    result(anchor.saved_inv_std, inv_std)
    result(anchor.eq_scale, eq_scale)
    result(anchor.eq_bias, f"{operand(anchor.bias)} - {mean} * {eq_scale}")
    result(anchor.updated_running_mean, running_mean)
    result(anchor.updated_running_var, running_var)
    program.store_outputs((anchor,))
    headers = [include("bn_finalize.cuh")]
    name = f"bn_finalize__{anchor.mode.name.lower()}"
    written = Written.of(program, parameters)
    return DeviceKernel(name, (element_launch(name, written, space.sizes, 1, headers=headers, threads=_CHANNELS),))


GENSTATS = cuda_engine(
    id=35,
    name="cuda_genstats",
    summary="sum and sum of squares of every channel in one pass over memory, in a fixed order",
    needs=(needs_rule("cuda_genstats.operation", "genstats"),),
    cost=lambda task, knobs: memory_cost(task, launches=2),
    generate=lambda op, device, knobs: generate_genstats(op, device),
    is_general=True,
)

BN_FINALIZE = cuda_engine(
    id=36,
    name="cuda_bn_finalize",
    summary="statistics, equivalent scale and bias of every channel from its sums, in double precision",
    needs=(needs_rule("cuda_bn_finalize.operation", "bn_finalize"),),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate_bn_finalize(op, device),
    is_general=True,
)

BN_WEIGHTS = cuda_engine(
    id=37,
    name="cuda_bn_weights",
    summary="gradients of a batch norm's scale and bias in one pass over memory, in a fixed order",
    needs=(needs_rule("cuda_bn_weights.operation", "bn_weights"),),
    cost=lambda task, knobs: memory_cost(task, launches=2),
    generate=lambda op, device, knobs: generate_bn_weights(op, device),
    is_general=True,
)
