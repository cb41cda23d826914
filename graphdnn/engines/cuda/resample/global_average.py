"""Averages over whole planes, as a reduction forward and a pointwise operation backward."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import COMPUTE
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.pointwise.pointwise import generate_pointwise
from graphdnn.engines.cuda.reduction.reduction import generate_reduction
from graphdnn.enums import PointwiseMode, ReductionOperator, ResampleMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import (
    PointwiseOperation,
    PointwiseSpec,
    Reduction,
    ReductionSpec,
    ResampleBackward,
    ResampleForward,
    ResampleSpec,
)
from graphdnn.tensors import TensorSpec

_AVERAGES = (ResampleMode.AVGPOOL_INCLUDE_PADDING, ResampleMode.AVGPOOL_EXCLUDE_PADDING)


def global_average_forward(op: FusedOp, device: DeviceSpec) -> DeviceKernel | None:
    """None if windows are smaller than planes, or if previous contents of the output are added."""
    anchor = op.anchor
    assert isinstance(anchor, ResampleForward)
    if not _is_whole(anchor, anchor.x, anchor.y) or op.exit is not None:
        return None
    spec = ReductionSpec(operator=ReductionOperator.AVG, compute_type=anchor.compute_type)
    return generate_reduction(
        replace(op, rule="reduction", anchor=Reduction(spec=spec, x=anchor.x, y=anchor.y)), device
    )


def global_average_backward(op: FusedOp, device: DeviceSpec) -> DeviceKernel | None:
    """None if windows are smaller than planes, or if previous contents of the output are added."""
    anchor = op.anchor
    assert isinstance(anchor, ResampleBackward)
    if not _is_whole(anchor, anchor.dx, anchor.dy) or op.exit is not None:
        return None
    ones = (1,) * anchor.dx.rank
    uid = min(t.uid for t in (*op.inputs, *op.outputs, *op.internal)) - 1
    count = TensorSpec(
        uid=uid,
        data_type=anchor.compute_type,
        dims=ones,
        strides=ones,
        is_by_value=True,
        constant_value=float(prod(anchor.dx.extents[2:])),
    )
    spec = PointwiseSpec(mode=PointwiseMode.DIV, math_type=anchor.compute_type)
    spatial = anchor.dx.rank - 2
    repeated = {"dims": anchor.dx.dims, "strides": (*anchor.dy.strides[:2], *(0,) * spatial)}
    share = PointwiseOperation(spec=spec, x=anchor.dy.model_copy(update=repeated), b=count, y=anchor.dx)
    steps = (*op.prologue, share, *op.epilogue)
    inputs = (*op.inputs, count)
    return generate_pointwise(
        FusedOp(op.index, "pointwise", None, (), steps, None, inputs, op.outputs, op.internal), device
    )


def _is_whole(anchor: ResampleForward | ResampleBackward, x: TensorSpec, y: TensorSpec) -> bool:
    spec: ResampleSpec = anchor.spec
    return (
        spec.mode in _AVERAGES
        and COMPUTE[anchor.compute_type].kind == "f"
        and anchor.index is None
        and (anchor.alpha, anchor.beta) == (1.0, 0.0)
        and all(extent == 1 for extent in y.extents[2:])
        and not any(spec.pre_paddings)
        and tuple(map(int, spec.window_dims)) == tuple(x.extents[2:])
        and x.vector_count == y.vector_count == 1
    )
