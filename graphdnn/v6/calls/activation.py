"""Activations, forward and backward."""

from __future__ import annotations

from graphdnn.enums import Status
from graphdnn.v6.call_graph import Draft, math_of
from graphdnn.v6.descriptor_checks import same_dims, same_strides, same_type
from graphdnn.v6.descriptor_values import Activation, Descriptor, Handle
from graphdnn.v6.enums import cudnnActivationMode_t, cudnnNanPropagation_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.pointwise_subgraphs import activate, differentiate
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import MODE

_WORK = "one tensor follows from the other, element by element"
_IDENTITY = cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY


def _check_mode(where: str, act: Activation) -> None:
    if act.mode is _IDENTITY:
        reason = "IDENTITY belongs to cudnnConvolutionBiasActivationForward"
        expected = "SIGMOID, RELU, TANH, CLIPPED_RELU or ELU"
        raise CudnnError(MODE.reject(where, "mode", act.mode.name, expected=expected, reason=reason))


def _of_version_3(mode: cudnnActivationMode_t) -> Activation:
    return Activation(mode, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, 0.0)


@implements("cudnnActivationForward", "pointwise", "PyTorch")
def forward(handle: Handle, desc: Descriptor, *rest: object) -> None:
    _forward("cudnnActivationForward", handle, desc.value, *rest)  # type: ignore[arg-type]


@implements("cudnnActivationForward_v3", "pointwise", "PyTorch")
def forward_v3(handle: Handle, mode: cudnnActivationMode_t, *rest: object) -> None:
    _forward("cudnnActivationForward_v3", handle, _of_version_3(mode), *rest)  # type: ignore[arg-type]


def _forward(where: str, handle: Handle, act: Activation, alpha: float, x_desc: Descriptor, x: object, beta: float,
             y_desc: Descriptor, y: object) -> None:  # fmt: skip
    xv, yv = x_desc.value, y_desc.value
    _check_mode(where, act)
    if x is y:
        same_strides(where, {"xDesc": xv, "yDesc": yv})

    def draw(draft: Draft) -> None:
        same_dims(where, _WORK, {"xDesc": xv, "yDesc": yv})
        same_type(where, {"xDesc": xv, "yDesc": yv})
        math = math_of(xv.data_type)
        source = draft.memory(0, xv, "x")
        out = draft.target(1, yv, "y", alpha, beta, math)
        activate(draft, act, math, source, out)
        draft.settle(out, 1, yv, "y", alpha, beta, math)

    prepared(where, handle, (act, xv, yv, alpha, beta), draw, in_place=(0,))((x, y))


@implements("cudnnActivationBackward", "pointwise", "PyTorch")
def backward(handle: Handle, desc: Descriptor, *rest: object) -> None:
    _backward("cudnnActivationBackward", handle, desc.value, *rest)  # type: ignore[arg-type]


@implements("cudnnActivationBackward_v3", "pointwise", "PyTorch")
def backward_v3(handle: Handle, mode: cudnnActivationMode_t, *rest: object) -> None:
    _backward("cudnnActivationBackward_v3", handle, _of_version_3(mode), *rest)  # type: ignore[arg-type]


def _backward(where: str, handle: Handle, act: Activation, alpha: float, y_desc: Descriptor, y: object,
              dy_desc: Descriptor, dy: object, x_desc: Descriptor, x: object, beta: float, dx_desc: Descriptor,
              dx: object) -> None:  # fmt: skip
    yv, dyv, xv, dxv = y_desc.value, dy_desc.value, x_desc.value, dx_desc.value
    _check_mode(where, act)
    if dy is dx:
        same_strides(where, {"dyDesc": dyv, "dxDesc": dxv})

    def draw(draft: Draft) -> None:
        everything = {"yDesc": yv, "dyDesc": dyv, "xDesc": xv, "dxDesc": dxv}
        same_dims(where, _WORK, everything, status=Status.NOT_SUPPORTED)
        same_type(where, everything, status=Status.NOT_SUPPORTED)
        same_strides(where, {"yDesc": yv, "dyDesc": dyv}, status=Status.NOT_SUPPORTED)
        same_strides(where, {"xDesc": xv, "dxDesc": dxv}, status=Status.NOT_SUPPORTED)
        math = math_of(xv.data_type)
        reads_y = act.mode in _READS_Y
        known = draft.memory(0, yv, "y") if reads_y else draft.memory(2, xv, "x")
        gradient = draft.memory(1, dyv, "dy")
        out = draft.target(3, dxv, "dx", alpha, beta, math)
        differentiate(draft, act, math, known, gradient, known, out)
        draft.settle(out, 3, dxv, "dx", alpha, beta, math)

    prepared(where, handle, (act, yv, dyv, xv, dxv, alpha, beta), draw, in_place=(1,))((y, dy, x, dx))


_READS_Y = (
    cudnnActivationMode_t.CUDNN_ACTIVATION_SIGMOID,
    cudnnActivationMode_t.CUDNN_ACTIVATION_TANH,
    cudnnActivationMode_t.CUDNN_ACTIVATION_ELU,
)
