"""Convolution: forward, with bias and activation, and the gradients of data, filter and bias."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

from graphdnn.enums import ConvolutionMode, DataType, PointwiseMode, ReductionOperator, Status
from graphdnn.operations import ConvBackwardData, ConvBackwardFilter, ConvForward, ConvolutionSpec, Operation
from graphdnn.v6.algorithms import engines_of, refusals
from graphdnn.v6.call_graph import Draft, math_of
from graphdnn.v6.calls.convolution_descriptor import output_dims
from graphdnn.v6.convolution_query import ConvolutionQuery
from graphdnn.v6.descriptor_checks import rank_in, same_dims, same_type
from graphdnn.v6.descriptor_values import Activation, Convolution, Descriptor, Filter, Handle, Tensor
from graphdnn.v6.enums import (
    cudnnActivationMode_t,
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnDataType_t,
)
from graphdnn.v6.errors import CudnnError, refuse_if
from graphdnn.v6.plan_cache import known, prepared
from graphdnn.v6.pointwise_subgraphs import activate, ignores_nan
from graphdnn.v6.prepared_call import PreparedCall
from graphdnn.v6.registry import implements
from graphdnn.v6.releases import active
from graphdnn.v6.rules import MODE, SAME_DIMS
from graphdnn.v6.version_profiles import check_bias, check_convolution

_FUSED_MODES = (cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY)
_INT32 = cudnnDataType_t.CUDNN_DATA_INT32


def specification(conv: Convolution, *types: cudnnDataType_t) -> ConvolutionSpec:
    """Without a compute type (5.1) it follows the data."""
    compute = math_of(*types) if conv.compute_type is None else DataType(int(conv.compute_type))
    return ConvolutionSpec(
        compute_type=compute, mode=ConvolutionMode(int(conv.mode)), spatial_dims=len(conv.padding),
        dilations=conv.dilation, filter_strides=conv.stride, pre_paddings=conv.padding, post_paddings=conv.padding,
    )  # fmt: skip


def _check(where: str, question: ConvolutionQuery) -> None:
    """What the three passes have in common."""
    x, w, y, names = question.x, question.w, question.y, question.names
    expected = output_dims(where, question.conv, x, w)
    rank_in(where, names[0], len(x.dims), 4, 5)
    if y.dims != expected:
        reason = "this is what input, filter and convolution give"
        status = Status.NOT_SUPPORTED if question.is_forward and active() else None  # the guide's, and everybody's
        rejection = SAME_DIMS.reject(where, f"{names[2]}.dims", y.dims, status=status, expected=str(expected),
                                     reason=reason)  # fmt: skip
        raise CudnnError(rejection)
    same_type(where, {names[0]: x, names[1]: w})
    refuse_if(refusals(where, question))
    check_convolution(where, question)


def _blend(draft: Draft, spec: ConvolutionSpec, value: Tensor | Filter, name: str, alpha: float, beta: float,
           operation: Callable[..., Operation]) -> None:  # fmt: skip
    """Data argument 2 becomes alpha * the operation + beta * itself.

    Sums of integers are exact and blended in FLOAT, or in DOUBLE for INT32 outputs, which FLOAT does not hold.
    """
    if spec.compute_type is not DataType.INT32:
        draft.add(operation(draft.memory(2, value, name), alpha=alpha, beta=beta))
        return
    out = draft.target(2, value, name, alpha, beta, DataType.INT32)
    draft.add(operation(out))
    draft.settle(out, 2, value, name, alpha, beta, DataType.DOUBLE if value.data_type is _INT32 else DataType.FLOAT)


def prepare_forward(handle: Handle, x: Tensor, w: Filter, conv: Convolution, y: Tensor, algorithm: IntEnum,
                    alpha: float, beta: float, where: str = "cudnnConvolutionForward") -> PreparedCall:  # fmt: skip
    """The plan of a forward convolution; ``where``: the function that asks for it."""
    settings = (x, w, conv, y, algorithm, alpha, beta)
    found = known("cudnnConvolutionForward", handle, settings)
    if found is not None:
        return found

    def draw(draft: Draft) -> None:
        _check(where, ConvolutionQuery(x, w, conv, y, algorithm))
        spec = specification(conv, x.data_type)
        source, filters = draft.memory(0, x, "x"), draft.memory(1, w, "w")
        add = partial(ConvForward, x=source, w=filters, conv=spec)
        _blend(draft, spec, y, "y", alpha, beta, lambda out, **factors: add(y=out, **factors))

    return prepared("cudnnConvolutionForward", handle, settings, draw, engines=partial(engines_of, algorithm))


@implements("cudnnConvolutionForward", "conv_fprop", "PyTorch, loops for integers")
def forward(handle: Handle, alpha: float, x_desc: Descriptor, x: Any, w_desc: Descriptor, w: Any,
            conv_desc: Descriptor, algorithm: cudnnConvolutionFwdAlgo_t, workspace: Any, workspace_bytes: int,
            beta: float, y_desc: Descriptor, y: Any) -> None:  # fmt: skip
    """y = alpha * conv(x, w) + beta * y."""
    call = prepare_forward(handle, x_desc.value, w_desc.value, conv_desc.value, y_desc.value, algorithm, alpha, beta)
    call((x, w, y), workspace, workspace_bytes)


@implements("cudnnConvolutionBiasActivationForward", "conv_fprop, pointwise: one kernel", "PyTorch, loops for integers")
def bias_activation_forward(
    handle: Handle, alpha1: float, x_desc: Descriptor, x: Any, w_desc: Descriptor, w: Any, conv_desc: Descriptor,
    algorithm: cudnnConvolutionFwdAlgo_t, workspace: Any, workspace_bytes: int, alpha2: float, z_desc: Descriptor,
    z: Any, bias_desc: Descriptor, bias: Any, act_desc: Descriptor, y_desc: Descriptor, y: Any,
) -> None:  # fmt: skip
    """y = act(alpha1 * conv(x, w) + alpha2 * z + bias); integers are summed exactly and finished in FLOAT."""
    where = "cudnnConvolutionBiasActivationForward"
    xv, wv, conv, zv, bv = x_desc.value, w_desc.value, conv_desc.value, z_desc.value, bias_desc.value
    act, yv = act_desc.value, y_desc.value

    def draw(draft: Draft) -> None:
        _check(where, ConvolutionQuery(xv, wv, conv, yv, algorithm))
        _check_fused(where, act, zv, bv, yv)
        spec = specification(conv, xv.data_type)
        math = math_of(yv.data_type)
        source, filters = draft.memory(0, xv, "x"), draft.memory(1, wv, "w")
        total = draft.virtual(yv.dims, DataType.INT32 if spec.compute_type is DataType.INT32 else math)
        draft.add(ConvForward(x=source, w=filters, conv=spec, y=total))
        factor = alpha1
        if alpha2 != 0.0:
            other = draft.memory(2, zv, "z")
            total = draft.pointwise(PointwiseMode.ADD, math, total, other, alpha1=factor, alpha2=alpha2)
            factor = 1.0
        biased = draft.pointwise(PointwiseMode.ADD, math, total, draft.memory(3, bv, "bias"), alpha1=factor)
        activate(draft, act, math, biased, draft.memory(4, yv, "y"))

    settings = (xv, wv, conv, zv, bv, act, yv, algorithm, alpha1, alpha2)
    call = prepared(where, handle, settings, draw, in_place=(2,), engines=partial(engines_of, algorithm))
    call((x, w, z, bias, y), workspace, workspace_bytes)


def _check_fused(where: str, act: Activation, z: Tensor, bias: Tensor, y: Tensor) -> None:
    if act.mode not in _FUSED_MODES:
        reason = "the fused call has these two"
        raise CudnnError(MODE.reject(where, "activationDesc.mode", act.mode.name, status=Status.NOT_SUPPORTED,
                                     expected="RELU or IDENTITY", reason=reason))  # fmt: skip
    if not ignores_nan(act.nan):
        raise CudnnError(MODE.reject(where, "activationDesc.reluNanOpt", act.nan.name, status=Status.NOT_SUPPORTED,
                                     expected="CUDNN_NOT_PROPAGATE_NAN", reason="no other is allowed"))  # fmt: skip
    same_dims(where, "z is added to y", {"yDesc": y, "zDesc": z})
    same_type(where, {"yDesc": y, "zDesc": z})
    wanted = (1, y.dims[1], *(1,) * (len(y.dims) - 2))
    if bias.dims != wanted:
        reason = "there is one bias for each output channel"
        raise CudnnError(SAME_DIMS.reject(where, "biasDesc.dims", bias.dims, expected=str(wanted), reason=reason))
    check_bias(where, bias, y)


def prepare_data(handle: Handle, w: Filter, dy: Tensor, conv: Convolution, dx: Tensor, algorithm: IntEnum,
                 alpha: float, beta: float, where: str = "cudnnConvolutionBackwardData") -> PreparedCall:  # fmt: skip
    """The plan of the gradient of data; ``where``: the function that asks for it."""
    settings = (w, dy, conv, dx, algorithm, alpha, beta)
    found = known("cudnnConvolutionBackwardData", handle, settings)
    if found is not None:
        return found

    def draw(draft: Draft) -> None:
        _check(where, ConvolutionQuery(dx, w, conv, dy, algorithm, ("dxDesc", "wDesc", "dyDesc")))
        same_type(where, {"wDesc": w, "dyDesc": dy})
        spec = specification(conv, dx.data_type)
        add = partial(ConvBackwardData, w=draft.memory(0, w, "w"), dy=draft.memory(1, dy, "dy"), conv=spec)
        _blend(draft, spec, dx, "dx", alpha, beta, lambda out, **factors: add(dx=out, **factors))

    return prepared("cudnnConvolutionBackwardData", handle, settings, draw, engines=partial(engines_of, algorithm))


@implements("cudnnConvolutionBackwardData", "conv_dgrad", "PyTorch")
def backward_data(handle: Handle, alpha: float, w_desc: Descriptor, w: Any, dy_desc: Descriptor, dy: Any,
                  conv_desc: Descriptor, algorithm: cudnnConvolutionBwdDataAlgo_t, workspace: Any,
                  workspace_bytes: int, beta: float, dx_desc: Descriptor, dx: Any) -> None:  # fmt: skip
    """dx = alpha * gradient + beta * dx."""
    call = prepare_data(handle, w_desc.value, dy_desc.value, conv_desc.value, dx_desc.value, algorithm, alpha, beta)
    call((w, dy, dx), workspace, workspace_bytes)


def prepare_filter(handle: Handle, x: Tensor, dy: Tensor, conv: Convolution, dw: Filter, algorithm: IntEnum,
                   alpha: float, beta: float,
                   where: str = "cudnnConvolutionBackwardFilter") -> PreparedCall:  # fmt: skip
    """The plan of the gradient of a filter; ``where``: the function that asks for it."""
    settings = (x, dy, conv, dw, algorithm, alpha, beta)
    found = known("cudnnConvolutionBackwardFilter", handle, settings)
    if found is not None:
        return found

    def draw(draft: Draft) -> None:
        _check(where, ConvolutionQuery(x, dw, conv, dy, algorithm, ("xDesc", "dwDesc", "dyDesc")))
        same_type(where, {"xDesc": x, "dyDesc": dy})
        spec = specification(conv, x.data_type)
        add = partial(ConvBackwardFilter, x=draft.memory(0, x, "x"), dy=draft.memory(1, dy, "dy"), conv=spec)
        _blend(draft, spec, dw, "dw", alpha, beta, lambda out, **factors: add(dw=out, **factors))

    return prepared("cudnnConvolutionBackwardFilter", handle, settings, draw, engines=partial(engines_of, algorithm))


@implements("cudnnConvolutionBackwardFilter", "conv_wgrad", "PyTorch")
def backward_filter(handle: Handle, alpha: float, x_desc: Descriptor, x: Any, dy_desc: Descriptor, dy: Any,
                    conv_desc: Descriptor, algorithm: cudnnConvolutionBwdFilterAlgo_t, workspace: Any,
                    workspace_bytes: int, beta: float, dw_desc: Descriptor, dw: Any) -> None:  # fmt: skip
    """dw = alpha * gradient + beta * dw."""
    call = prepare_filter(handle, x_desc.value, dy_desc.value, conv_desc.value, dw_desc.value, algorithm, alpha, beta)
    call((x, dy, dw), workspace, workspace_bytes)


@implements("cudnnConvolutionBackwardBias", "reduction", "PyTorch")
def backward_bias(handle: Handle, alpha: float, dy_desc: Descriptor, dy: Any, beta: float, db_desc: Descriptor,
                  db: Any) -> None:  # fmt: skip
    """db = alpha * (sums of dy over everything but the channels) + beta * db."""
    where, dyv, dbv = "cudnnConvolutionBackwardBias", dy_desc.value, db_desc.value

    def draw(draft: Draft) -> None:
        wanted = (1, dyv.dims[1], *(1,) * (len(dyv.dims) - 2))
        if dbv.dims != wanted:
            reason = "there is one bias for each channel of y"
            raise CudnnError(SAME_DIMS.reject(where, "dbDesc.dims", dbv.dims, expected=str(wanted), reason=reason))
        same_type(where, {"dyDesc": dyv, "dbDesc": dbv})
        math = math_of(dyv.data_type)
        gradient = draft.memory(0, dyv, "dy")
        out = draft.target(1, dbv, "db", alpha, beta, math)
        draft.reduce(ReductionOperator.ADD, math, gradient, out=out)
        draft.settle(out, 1, dbv, "db", alpha, beta, math)

    prepared(where, handle, (dyv, dbv, alpha, beta), draw)((dy, db))
