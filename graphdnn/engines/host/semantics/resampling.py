"""Pooling and interpolation."""

from __future__ import annotations

from graphdnn.engines.host.kernel import Call
from graphdnn.engines.host.resample import Resampling, maximum, resample, resample_backward
from graphdnn.engines.host.semantics.arithmetic import Results, blend, operand, to_compute
from graphdnn.enums import NanPropagation, ResampleMode
from graphdnn.operations import ResampleBackward, ResampleForward, ResampleSpec


def _how(spec: ResampleSpec) -> Resampling:
    return Resampling(
        mode=spec.mode,
        padding=spec.padding_mode,
        strides=spec.strides,
        pre=spec.pre_paddings,
        post=spec.post_paddings,
        window=spec.window_dims,
        propagate_nan=spec.nan_propagation is NanPropagation.PROPAGATE_NAN,
    )


def forward(op: ResampleForward, call: Call) -> Results:
    x, how = to_compute(op, call.operands["x"]), _how(op.spec)
    if how.mode is ResampleMode.MAXPOOL:
        y, index = maximum(x, how)
    else:
        y, index = resample(x, how), None
    results = {"y": blend(op, y, call.old.get("y"))}
    return results if op.index is None or index is None else results | {"index": index}


def backward(op: ResampleBackward, call: Call) -> Results:
    dx = resample_backward(
        to_compute(op, call.operands["dy"]),
        _how(op.spec),
        op.dx.extents,
        index=call.operands.get("index"),
        x=operand(op, call, "x"),
    )
    return {"dx": blend(op, dx, call.old.get("dx"))}
