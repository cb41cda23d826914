"""Batch normalisation: inference, training and its gradient, spatial and per activation.

Training and gradients are norms. Where each activation has statistics of its own it is a channel of the norm, as far as
samples lie in memory without gaps; statistics in another order than theirs are turned before and after. Elsewhere it is
reductions and pointwise operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from graphdnn.enums import DataType, NormMode, NormPhase, PointwiseMode, ReductionOperator, ReshapeMode, Status
from graphdnn.errors import Rejection
from graphdnn.operations import NormBackward, NormForward, Reshape, Transpose
from graphdnn.tensors import TensorSpec, ordered_strides, stride_order
from graphdnn.v6.call_graph import Draft, math_of
from graphdnn.v6.descriptor_checks import rank_in, reaches, same_dims, same_type
from graphdnn.v6.descriptor_values import Descriptor, Handle, Tensor
from graphdnn.v6.enums import cudnnBatchNormMode_t, cudnnDataType_t
from graphdnn.v6.errors import CudnnError, refuse_if
from graphdnn.v6.layouts import element_of
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import PAIR, RANGE, SAME_DIMS, SAME_TYPE

P, R = PointwiseMode, ReductionOperator
MIN_EPSILON = 1e-5
PER_ACTIVATION = cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION


def _check(where: str, mode: cudnnBatchNormMode_t, parameters: tuple[str, Tensor], epsilon: float,
           tensors: dict[str, Tensor]) -> None:  # fmt: skip
    """Data tensors of one shape and type, statistics of the mode's shape, an epsilon that is large enough."""
    x = next(iter(tensors.values()))
    name, value = parameters
    rank_in(where, "xDesc", len(x.dims), 4, 5, Status.BAD_PARAM)
    same_dims(where, "every element is normalised in its place", tensors)
    same_type(where, tensors)
    wanted = (1, *x.dims[1:]) if mode is PER_ACTIVATION else (1, x.dims[1], *(1,) * (len(x.dims) - 2))
    double = x.data_type is cudnnDataType_t.CUDNN_DATA_DOUBLE
    data_type = cudnnDataType_t.CUDNN_DATA_DOUBLE if double else cudnnDataType_t.CUDNN_DATA_FLOAT
    found: list[Rejection] = []
    if value.dims != wanted:
        reason = "this is the shape of the mode's statistics"
        found.append(SAME_DIMS.reject(where, f"{name}.dims", value.dims, expected=str(wanted), reason=reason))
    if value.data_type is not data_type:
        found.append(SAME_TYPE.reject(where, f"{name}.dataType", value.data_type.name, expected=data_type.name))
    if not reaches(epsilon, MIN_EPSILON):
        found.append(RANGE.reject(where, "epsilon", epsilon, expected=f"at least {MIN_EPSILON}"))
    refuse_if(found)


def _pair(where: str, names: str, first: Any, second: Any) -> bool:
    """Whether both are given. Raises when only one is."""
    if (first is None) is not (second is None):
        raise CudnnError(PAIR.reject(where, names, "one of them"))
    return first is not None


class _Activations:
    """A call's tensors as a norm sees them that takes each activation for a channel: [N, activations, 1, ...] in the
    order of the samples in memory.
    """

    def __init__(self, draft: Draft, samples: Tensor, parameters: Tensor) -> None:
        self._draft = draft
        order = stride_order(samples.dims[1:], samples.strides[1:])
        self._axes = (0, *(1 + axis for axis in order))
        self.turns = parameters.strides[1:] != ordered_strides(parameters.dims[1:], order)
        self._results: list[tuple[TensorSpec, int, Tensor, str, float, float]] = []

    @classmethod
    def of(
        cls, draft: Draft, mode: cudnnBatchNormMode_t, samples: Sequence[Tensor], parameters: Tensor
    ) -> _Activations | None:
        """None where statistics are not those of activations, or samples have several orders or gaps."""
        dims, strides = samples[0].dims[1:], samples[0].strides[1:]
        packed = ordered_strides(dims, stride_order(dims, strides))
        alike = all(t.strides[1:] == packed and t.strides[0] >= prod(dims) for t in samples)
        return cls(draft, samples[0], parameters) if mode is PER_ACTIVATION and alike else None

    def memory(self, index: int, value: Tensor, name: str, *, is_copy: bool = False) -> TensorSpec:
        """Data argument ``index``, which lies as samples do."""
        dims, element = self._dims(value), element_of(value.data_type)[0]
        strides = (value.strides[0], 1, *(dims[1],) * (len(dims) - 2))
        return self._draft.view(index, element, dims, strides, name, is_copy=is_copy, described=value)

    def read(self, index: int, value: Tensor, name: str, *, is_copy: bool = False) -> TensorSpec:
        """A parameter."""
        if not self.turns:
            return self.memory(index, value, name, is_copy=is_copy)
        given = self._draft.memory(index, value, name, is_copy=is_copy)
        turned, flat = self._turned(value), self._flat(value)
        self._draft.add(Transpose(x=given, y=turned, permutation=self._axes))
        self._draft.add(Reshape(x=turned, y=flat, mode=ReshapeMode.VIEW_ONLY))
        return flat

    def written(self, index: int, value: Tensor, name: str, alpha: float = 1.0, beta: float = 0.0) -> TensorSpec:
        """A parameter's memory, or where it is before ``finish`` turns it."""
        if not self.turns:
            return self.memory(index, value, name)
        flat = self._flat(value)
        self._results.append((flat, index, value, name, alpha, beta))
        return flat

    def finish(self, math: DataType) -> None:
        back = tuple(self._axes.index(axis) for axis in range(len(self._axes)))
        for flat, index, value, name, alpha, beta in self._results:
            turned, draft = self._turned(value), self._draft
            draft.add(Reshape(x=flat, y=turned, mode=ReshapeMode.VIEW_ONLY))
            is_whole = alpha == 1.0 and beta == 0.0
            found = draft.memory(index, value, name) if is_whole else draft.virtual(value.dims, turned.data_type)
            draft.add(Transpose(x=turned, y=found, permutation=back))
            draft.settle(found, index, value, name, alpha, beta, math)

    @staticmethod
    def _dims(value: Tensor) -> tuple[int, ...]:
        return (value.dims[0], prod(value.dims[1:]), *(1,) * (len(value.dims) - 2))

    def _flat(self, value: Tensor) -> TensorSpec:
        return self._draft.virtual(self._dims(value), element_of(value.data_type)[0])

    def _turned(self, value: Tensor) -> TensorSpec:
        return self._draft.virtual([value.dims[axis] for axis in self._axes], element_of(value.data_type)[0])


def _inverse(draft: Draft, math: DataType, variance: TensorSpec, epsilon: float, out: TensorSpec | None) -> TensorSpec:
    """1/sqrt(variance + epsilon)."""
    shifted = draft.pointwise(P.ADD, math, variance, draft.constant(epsilon, variance, math))
    inverse = draft.pointwise(P.RSQRT, math, shifted)
    if out is not None:
        draft.pointwise(P.IDENTITY, math, inverse, out=out)
    return inverse


@implements("cudnnBatchNormalizationForwardInference", "pointwise", "PyTorch")
def inference(
    handle: Handle, mode: cudnnBatchNormMode_t, alpha: float, beta: float, x_desc: Descriptor, x: Any,
    y_desc: Descriptor, y: Any, parameter_desc: Descriptor, scale: Any, bias: Any, mean: Any, variance: Any,
    epsilon: float,
) -> None:  # fmt: skip
    """y = alpha * (scale * (x - mean) / sqrt(variance + epsilon) + bias) + beta * y."""
    where, xv, yv, pv = "cudnnBatchNormalizationForwardInference", x_desc.value, y_desc.value, parameter_desc.value

    def draw(draft: Draft) -> None:
        _check(where, mode, ("bnScaleBiasMeanVarDesc", pv), epsilon, {"xDesc": xv, "yDesc": yv})
        math = math_of(xv.data_type)
        source = draft.memory(0, xv, "x")
        s, b, m, v = (draft.memory(i, pv, n) for i, n in ((2, "scale"), (3, "bias"), (4, "mean"), (5, "variance")))
        inverse = _inverse(draft, math, v, epsilon, None)
        normal = draft.pointwise(P.MUL, math, draft.pointwise(P.SUB, math, source, m), inverse)
        out = draft.target(1, yv, "y", alpha, beta, math)
        draft.pointwise(P.ADD, math, draft.pointwise(P.MUL, math, normal, s), b, out=out)
        draft.settle(out, 1, yv, "y", alpha, beta, math)

    settings = (mode, xv, yv, pv, alpha, beta, epsilon)
    prepared(where, handle, settings, draw)((x, y, scale, bias, mean, variance))


@implements("cudnnBatchNormalizationForwardTraining", "norm_fwd; reduction, pointwise", "PyTorch")
def training(
    handle: Handle, mode: cudnnBatchNormMode_t, alpha: float, beta: float, x_desc: Descriptor, x: Any,
    y_desc: Descriptor, y: Any, parameter_desc: Descriptor, scale: Any, bias: Any, factor: float, running_mean: Any,
    running_variance: Any, epsilon: float, saved_mean: Any, saved_inverse: Any,
) -> None:  # fmt: skip
    """Normalises with the batch's mean and biased variance; running averages take the unbiased one."""
    where, xv, yv, pv = "cudnnBatchNormalizationForwardTraining", x_desc.value, y_desc.value, parameter_desc.value
    runs = _pair(where, "resultRunningMean, resultRunningVariance", running_mean, running_variance)
    saves = _pair(where, "resultSaveMean, resultSaveInvVariance", saved_mean, saved_inverse)

    def draw(draft: Draft) -> None:
        _check(where, mode, ("bnScaleBiasMeanVarDesc", pv), epsilon, {"xDesc": xv, "yDesc": yv})
        math = math_of(xv.data_type)
        seen = _Activations.of(draft, mode, [xv, yv], pv)
        memory, read, written = (draft.memory,) * 3 if seen is None else (seen.memory, seen.read, seen.written)
        source = memory(0, xv, "x")
        s, b = read(2, pv, "scale"), read(3, pv, "bias")
        if seen or mode is not PER_ACTIVATION:
            found: dict[str, Any] = {}
            if saves:
                found |= {
                    "mean": written(6, pv, "saved mean"),
                    "inv_variance": written(7, pv, "saved inverse"),
                }
            if runs:
                found["momentum"] = draft.constant(factor, s, math)
                for index, name in ((4, "mean"), (5, "var")):
                    # A factor of 1 begins averages: what was there is not read, and of what is read nothing stays.
                    old = s if factor == 1.0 else read(index, pv, f"old running {name}", is_copy=True)
                    found[f"input_running_{name}"] = old
                    found[f"output_running_{name}"] = written(index, pv, f"running {name}")
            out = draft.target(1, yv, "y", alpha, beta, math, memory)
            least = draft.constant(epsilon, s, math)
            draft.add(
                NormForward(
                    mode=NormMode.BATCH_NORM, phase=NormPhase.TRAINING, x=source, scale=s, bias=b, epsilon=least, y=out,
                    math_type=math, **found,
                )
            )  # fmt: skip
            draft.settle(out, 1, yv, "y", alpha, beta, math, memory)
            if seen:
                seen.finish(math)
            return
        mean = draft.reduce(R.AVG, math, source, pv.dims)
        centred = draft.pointwise(P.SUB, math, source, mean)
        variance = draft.reduce(R.AVG, math, draft.pointwise(P.MUL, math, centred, centred), pv.dims)
        inverse = _inverse(draft, math, variance, epsilon, draft.memory(7, pv, "saved inverse") if saves else None)
        normal = draft.pointwise(P.MUL, math, centred, inverse)
        out = draft.target(1, yv, "y", alpha, beta, math)
        draft.pointwise(P.ADD, math, draft.pointwise(P.MUL, math, normal, s), b, out=out)
        draft.settle(out, 1, yv, "y", alpha, beta, math)
        if saves:
            draft.pointwise(P.IDENTITY, math, mean, out=draft.memory(6, pv, "saved mean"))
        if runs:
            count = prod(xv.dims) // prod(pv.dims)
            unbiased = count / (count - 1) if count > 1 else 1.0
            draft.settle(mean, 4, pv, "running mean", factor, 1.0 - factor, math)
            draft.settle(variance, 5, pv, "running variance", factor * unbiased, 1.0 - factor, math)

    settings = (mode, xv, yv, pv, alpha, beta, epsilon, runs, saves, factor)
    data = (x, y, scale, bias, running_mean, running_variance, saved_mean, saved_inverse)
    prepared(where, handle, settings, draw)(data)


@implements("cudnnBatchNormalizationBackward", "norm_bwd; reduction, pointwise", "PyTorch")
def backward(
    handle: Handle, mode: cudnnBatchNormMode_t, alpha: float, beta: float, alpha_parameters: float,
    beta_parameters: float, x_desc: Descriptor, x: Any, dy_desc: Descriptor, dy: Any, dx_desc: Descriptor, dx: Any,
    parameter_desc: Descriptor, scale: Any, dscale: Any, dbias: Any, epsilon: float, saved_mean: Any,
    saved_inverse: Any,
) -> None:  # fmt: skip
    """Gradients of x, scale and bias. Statistics that were not saved are computed again."""
    where, pv = "cudnnBatchNormalizationBackward", parameter_desc.value
    xv, dyv, dxv = x_desc.value, dy_desc.value, dx_desc.value
    saved = _pair(where, "savedMean, savedInvVariance", saved_mean, saved_inverse)

    def draw(draft: Draft) -> None:
        tensors = {"xDesc": xv, "dyDesc": dyv, "dxDesc": dxv}
        _check(where, mode, ("dBnScaleBiasDesc", pv), epsilon, tensors)
        math = math_of(xv.data_type)
        seen = _Activations.of(draft, mode, [xv, dyv, dxv], pv)
        memory, read = (draft.memory, draft.memory) if seen is None else (seen.memory, seen.read)
        source, gradient, s = memory(0, xv, "x"), memory(1, dyv, "dy"), read(3, pv, "scale")
        if seen or mode is not PER_ACTIVATION:
            found: dict[str, Any]
            if saved:
                found = {
                    "mean": read(6, pv, "saved mean"),
                    "inv_variance": read(7, pv, "saved inverse"),
                }
            else:
                found = {"epsilon": draft.constant(epsilon, s, math)}
            blended = (
                ("dx", 2, dxv, alpha, beta),
                ("dscale", 4, pv, alpha_parameters, beta_parameters),
                ("dbias", 5, pv, alpha_parameters, beta_parameters),
            )
            turned = seen if seen and seen.turns else None
            outputs: dict[str, Any] = {}
            for n, index, value, a, b in blended:
                if turned and value is pv:
                    outputs[n] = turned.written(index, value, n, a, b)
                else:
                    outputs[n] = draft.target(index, value, n, a, b, math, memory)
            draft.add(
                NormBackward(
                    mode=NormMode.BATCH_NORM, x=source, dy=gradient, scale=s, math_type=math, **found, **outputs
                )
            )  # fmt: skip
            for n, index, value, a, b in blended:
                if not (turned and value is pv):
                    draft.settle(outputs[n], index, value, n, a, b, math, memory)
            if seen:
                seen.finish(math)
            return
        mean = draft.memory(6, pv, "saved mean") if saved else draft.reduce(R.AVG, math, source, pv.dims)
        centred = draft.pointwise(P.SUB, math, source, mean)
        if saved:
            inverse = draft.memory(7, pv, "saved inverse")
        else:
            variance = draft.reduce(R.AVG, math, draft.pointwise(P.MUL, math, centred, centred), pv.dims)
            inverse = _inverse(draft, math, variance, epsilon, None)
        normal = draft.pointwise(P.MUL, math, centred, inverse)
        bias_sum = draft.reduce(R.ADD, math, gradient, pv.dims)
        scale_sum = draft.reduce(R.ADD, math, draft.pointwise(P.MUL, math, gradient, normal), pv.dims)
        # dx = scale * inverse * (dy - mean(dy) - normal * mean(dy * normal))
        share = prod(pv.dims) / prod(xv.dims)
        rest = draft.pointwise(P.SUB, math, gradient, bias_sum, alpha2=share)
        rest = draft.pointwise(P.SUB, math, rest, draft.pointwise(P.MUL, math, normal, scale_sum, alpha2=share))
        out = draft.target(2, dxv, "dx", alpha, beta, math)
        draft.pointwise(P.MUL, math, rest, draft.pointwise(P.MUL, math, s, inverse), out=out)
        draft.settle(out, 2, dxv, "dx", alpha, beta, math)
        draft.settle(scale_sum, 4, pv, "dscale", alpha_parameters, beta_parameters, math)
        draft.settle(bias_sum, 5, pv, "dbias", alpha_parameters, beta_parameters, math)

    settings = (mode, xv, dyv, dxv, pv, alpha, beta, alpha_parameters, beta_parameters, epsilon, saved)
    data = (x, dy, dx, scale, dscale, dbias, saved_mean, saved_inverse)
    prepared(where, handle, settings, draw, in_place=(1,))(data)
