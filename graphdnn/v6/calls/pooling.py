"""Pooling, forward and backward, in two and three dimensions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from graphdnn.enums import DataType, NanPropagation, PaddingMode, ResampleMode
from graphdnn.operations import ResampleBackward, ResampleForward, ResampleSpec
from graphdnn.v6.call_graph import Draft, math_of
from graphdnn.v6.calls.pooling_descriptor import output_dims
from graphdnn.v6.descriptor_checks import rank_in, same_dims, same_strides, same_type
from graphdnn.v6.descriptor_values import Descriptor, Handle, Pooling, Tensor
from graphdnn.v6.enums import cudnnPoolingMode_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import SAME_DIMS
from graphdnn.v6.version_profiles import check_pooling

Mode = cudnnPoolingMode_t
_MODES = {
    Mode.CUDNN_POOLING_MAX: (ResampleMode.MAXPOOL, PaddingMode.NEG_INF_PAD),
    Mode.CUDNN_POOLING_MAX_DETERMINISTIC: (ResampleMode.MAXPOOL, PaddingMode.NEG_INF_PAD),
    Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING: (ResampleMode.AVGPOOL_INCLUDE_PADDING, PaddingMode.ZERO_PAD),
    Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING: (ResampleMode.AVGPOOL_EXCLUDE_PADDING, PaddingMode.ZERO_PAD),
}


def _spec(pooling: Pooling, math: DataType) -> ResampleSpec:
    mode, padding = _MODES[pooling.mode]
    stride, pads, window = (tuple(map(Fraction, sizes)) for sizes in (pooling.stride, pooling.padding, pooling.window))
    return ResampleSpec(
        mode=mode, compute_type=math, spatial_dims=len(pooling.window), padding_mode=padding,
        nan_propagation=NanPropagation(int(pooling.nan)), strides=stride, pre_paddings=pads,
        post_paddings=pads, window_dims=window,
    )  # fmt: skip


def _check_output(where: str, name: str, pooling: Pooling, x: Tensor, y: Tensor) -> None:
    rank_in(where, "xDesc", len(x.dims), 4, 5)
    expected = output_dims(where, pooling, x)
    if y.dims != expected:
        reason = "this is what the window gives"
        raise CudnnError(SAME_DIMS.reject(where, f"{name}.dims", y.dims, expected=str(expected), reason=reason))


@implements("cudnnPoolingForward", "resample_fwd", "PyTorch")
def forward(handle: Handle, desc: Descriptor, alpha: float, x_desc: Descriptor, x: Any, beta: float,
            y_desc: Descriptor, y: Any) -> None:  # fmt: skip
    where, pooling, xv, yv = "cudnnPoolingForward", desc.value, x_desc.value, y_desc.value

    def draw(draft: Draft) -> None:
        same_type(where, {"xDesc": xv, "yDesc": yv})
        _check_output(where, "yDesc", pooling, xv, yv)
        check_pooling(where, xDesc=xv, yDesc=yv)
        source, out = draft.memory(0, xv, "x"), draft.memory(1, yv, "y")
        spec = _spec(pooling, math_of(xv.data_type))
        draft.add(ResampleForward(spec=spec, x=source, y=out, alpha=alpha, beta=beta))

    prepared(where, handle, (pooling, xv, yv, alpha, beta), draw)((x, y))


@implements("cudnnPoolingBackward", "resample_bwd", "PyTorch")
def backward(handle: Handle, desc: Descriptor, alpha: float, y_desc: Descriptor, y: Any, dy_desc: Descriptor, dy: Any,
             x_desc: Descriptor, x: Any, beta: float, dx_desc: Descriptor, dx: Any) -> None:  # fmt: skip
    """The gradient of a maximum goes to the first largest element of its window, found again from x."""
    where, pooling = "cudnnPoolingBackward", desc.value
    yv, dyv, xv, dxv = y_desc.value, dy_desc.value, x_desc.value, dx_desc.value

    def draw(draft: Draft) -> None:
        same_dims(where, "dy is the gradient of y", {"yDesc": yv, "dyDesc": dyv})
        same_strides(where, {"yDesc": yv, "dyDesc": dyv})
        same_dims(where, "dx is the gradient of x", {"xDesc": xv, "dxDesc": dxv})
        same_strides(where, {"xDesc": xv, "dxDesc": dxv})
        same_type(where, {"xDesc": xv, "yDesc": yv, "dyDesc": dyv, "dxDesc": dxv})
        _check_output(where, "yDesc", pooling, xv, yv)
        check_pooling(where, xDesc=xv, yDesc=yv)
        spec = _spec(pooling, math_of(xv.data_type))
        is_maximum = spec.mode is ResampleMode.MAXPOOL
        gradient = draft.memory(1, dyv, "dy")
        source = draft.memory(2, xv, "x") if is_maximum else None
        out = draft.memory(3, dxv, "dx")
        draft.add(ResampleBackward(spec=spec, dy=gradient, x=source, dx=out, alpha=alpha, beta=beta))

    prepared(where, handle, (pooling, yv, dyv, xv, dxv, alpha, beta), draw)((y, dy, x, dx))
