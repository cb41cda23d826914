"""Softmax: three algorithms, over everything but the batch or over the channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphdnn.enums import PointwiseMode, ReductionOperator
from graphdnn.v6.call_graph import Draft, math_of
from graphdnn.v6.descriptor_checks import same_dims, same_strides, same_type
from graphdnn.v6.descriptor_values import Descriptor, Handle
from graphdnn.v6.enums import cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.registry import implements

P, R = PointwiseMode, ReductionOperator
_FAST = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_FAST
_LOG = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_LOG
_WORK = "every element of the input has one of the output"


def _sums(mode: cudnnSoftmaxMode_t, dims: Sequence[int]) -> tuple[int, ...]:
    """Extents of a sum over what is normalised together."""
    if mode is cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL:
        return (dims[0], 1, *dims[2:])
    return (dims[0], *(1,) * (len(dims) - 1))


@implements("cudnnSoftmaxForward", "reduction, pointwise: one softmax", "PyTorch")
def forward(handle: Handle, algorithm: cudnnSoftmaxAlgorithm_t, mode: cudnnSoftmaxMode_t, alpha: float,
            x_desc: Descriptor, x: Any, beta: float, y_desc: Descriptor, y: Any) -> None:  # fmt: skip
    where, xv, yv = "cudnnSoftmaxForward", x_desc.value, y_desc.value

    def draw(draft: Draft) -> None:
        same_dims(where, _WORK, {"xDesc": xv, "yDesc": yv})
        same_type(where, {"xDesc": xv, "yDesc": yv})
        math, sums = math_of(xv.data_type), _sums(mode, xv.dims)
        shifted = draft.memory(0, xv, "x")
        out = draft.target(1, yv, "y", alpha, beta, math)
        if algorithm is not _FAST:  # which does without the maximum, and overflows for it
            shifted = draft.pointwise(P.SUB, math, shifted, draft.reduce(R.MAX, math, shifted, sums))
        powers = draft.pointwise(P.EXP, math, shifted)
        total = draft.reduce(R.ADD, math, powers, sums)
        if algorithm is _LOG:
            draft.pointwise(P.SUB, math, shifted, draft.pointwise(P.LOG, math, total), out=out)
        else:
            draft.pointwise(P.DIV, math, powers, total, out=out)
        draft.settle(out, 1, yv, "y", alpha, beta, math)

    prepared(where, handle, (algorithm, mode, xv, yv, alpha, beta), draw, in_place=(0,))((x, y))


@implements("cudnnSoftmaxBackward", "reduction, pointwise: one kernel", "PyTorch")
def backward(handle: Handle, algorithm: cudnnSoftmaxAlgorithm_t, mode: cudnnSoftmaxMode_t, alpha: float,
             y_desc: Descriptor, y: Any, dy_desc: Descriptor, dy: Any, beta: float, dx_desc: Descriptor,
             dx: Any) -> None:  # fmt: skip
    where, yv, dyv, dxv = "cudnnSoftmaxBackward", y_desc.value, dy_desc.value, dx_desc.value

    def draw(draft: Draft) -> None:
        everything = {"yDesc": yv, "dyDesc": dyv, "dxDesc": dxv}
        same_dims(where, _WORK, everything)
        same_type(where, everything)
        same_strides(where, {"yDesc": yv, "dyDesc": dyv})
        math, sums = math_of(yv.data_type), _sums(mode, yv.dims)
        result, gradient = draft.memory(0, yv, "y"), draft.memory(1, dyv, "dy")
        out = draft.target(2, dxv, "dx", alpha, beta, math)
        if algorithm is _LOG:
            total = draft.reduce(R.ADD, math, gradient, sums)
            shares = draft.pointwise(P.MUL, math, draft.pointwise(P.EXP, math, result), total)
            draft.pointwise(P.SUB, math, gradient, shares, out=out)
        else:
            total = draft.reduce(R.ADD, math, draft.pointwise(P.MUL, math, result, gradient), sums)
            draft.pointwise(P.MUL, math, result, draft.pointwise(P.SUB, math, gradient, total), out=out)
        draft.settle(out, 2, dxv, "dx", alpha, beta, math)

    prepared(where, handle, (algorithm, mode, yv, dyv, dxv, alpha, beta), draw, in_place=(1,))((y, dy, dx))
