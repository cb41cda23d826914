"""Small legacy programs that run on any handle: each takes a handle and what makes memory of an array, and gives results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from recurrent_tools import states, steps, weights
from v6_tools import activation, convolution, filter_of, pooling, tensor

from graphdnn import v6

Form = Callable[[np.ndarray], Any]
X, W, Y, B, P = (2, 3, 8, 8), (6, 3, 3, 3), (2, 6, 6, 6), (1, 6, 1, 1), (2, 6, 3, 3)


def _numbers(*shapes: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(17)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def layer(h: Any, form: Form) -> list[Any]:
    """Convolution that blends, bias and activation in place."""
    x, w, b, y = map(form, _numbers(X, W, B, Y))
    desc = tensor(Y)
    v6.cudnnConvolutionForward(h, 2.0, tensor(X), x, filter_of(W), w, convolution(), 0, None, 0, 0.5, desc, y)
    v6.cudnnAddTensor(h, 1.0, tensor(B), b, 1.0, desc, y)
    v6.cudnnActivationForward(h, activation(v6.CUDNN_ACTIVATION_RELU), 1.0, desc, y, 0.0, desc, y)
    return [y]


def fused_layer(h: Any, form: Form) -> list[Any]:
    x, w, b, z, y = map(form, _numbers(X, W, B, Y, Y))
    v6.cudnnConvolutionBiasActivationForward(
        h, 1.0, tensor(X), x, filter_of(W), w, convolution(), 1, None, 0, 0.5, tensor(Y), z, tensor(B), b,
        activation(v6.CUDNN_ACTIVATION_RELU), tensor(Y), y,
    )  # fmt: skip
    return [y]


def gradients(h: Any, form: Form) -> list[Any]:
    x, w, dy, db, dx, dw = map(form, _numbers(X, W, Y, B, X, W))
    v6.cudnnConvolutionBackwardBias(h, 1.0, tensor(Y), dy, 0.0, tensor(B), db)
    v6.cudnnConvolutionBackwardData(
        h, 1.0, filter_of(W), w, tensor(Y), dy, convolution(), 1, None, 0, 0.0, tensor(X), dx
    )
    v6.cudnnConvolutionBackwardFilter(
        h, 1.0, tensor(X), x, tensor(Y), dy, convolution(), 1, None, 0, 1.0, filter_of(W), dw
    )  # fmt: skip
    return [db, dx, dw]


def integers(h: Any, form: Form) -> list[Any]:
    """INT8 in NHWC, rounded and saturated, and exact sums."""
    rng = np.random.default_rng(3)
    int8, nhwc = v6.CUDNN_DATA_INT8, v6.CUDNN_TENSOR_NHWC
    x, w = (form(rng.integers(-99, 99, d).astype(np.int8)) for d in ((2, 8, 8, 4), (8, 3, 3, 4)))
    results = []
    for kind, dtype in ((int8, np.int8), (v6.CUDNN_DATA_INT32, np.int32), (v6.CUDNN_DATA_FLOAT, np.float32)):
        y = form(np.zeros((2, 6, 6, 8), dtype))
        v6.cudnnConvolutionForward(
            h, 1.0 if kind is not int8 else 0.01, tensor((2, 4, 8, 8), nhwc, int8), x, filter_of((8, 4, 3, 3), nhwc, int8),
            w, convolution(compute=v6.CUDNN_DATA_INT32), 1, None, 0, 0.0, tensor((2, 8, 6, 6), nhwc, kind), y,
        )  # fmt: skip
        results.append(y)
    return results


def windows(h: Any, form: Form) -> list[Any]:
    x, y, dy, dx, z, dz = map(form, _numbers(Y, P, P, Y, Y, Y))
    pool, norm = pooling(v6.CUDNN_POOLING_MAX, (2, 2), (0, 0), (2, 2)), v6.cudnnCreateLRNDescriptor()
    v6.cudnnPoolingForward(h, pool, 1.0, tensor(Y), x, 0.5, tensor(P), y)
    v6.cudnnPoolingBackward(h, pool, 1.0, tensor(P), y, tensor(P), dy, tensor(Y), x, 0.0, tensor(Y), dx)
    v6.cudnnLRNCrossChannelForward(h, norm, v6.CUDNN_LRN_CROSS_CHANNEL_DIM1, 1.0, tensor(Y), x, 0.0, tensor(Y), z)
    v6.cudnnLRNCrossChannelBackward(
        h, norm, v6.CUDNN_LRN_CROSS_CHANNEL_DIM1, 1.0, tensor(Y), z, tensor(Y), dx, tensor(Y), x, 0.0, tensor(Y), dz
    )
    columns = form(np.zeros((54, 32), np.float32))
    v6.cudnnIm2Col(h, tensor(Y), z, filter_of((1, 6, 3, 3)), convolution(), columns)
    return [y, dx, z, dz, columns]


def normalised(h: Any, form: Form) -> list[Any]:
    x, y, scale, bias, mean, inverse, z = map(form, _numbers(Y, Y, B, B, B, B, Y))
    v6.cudnnBatchNormalizationForwardTraining(
        h, v6.CUDNN_BATCHNORM_SPATIAL, 1.0, 0.0, tensor(Y), x, tensor(Y), y, tensor(B), scale, bias, 1.0, None, None, 1e-3,
        mean, inverse,
    )  # fmt: skip
    v6.cudnnSoftmaxForward(
        h, v6.CUDNN_SOFTMAX_ACCURATE, v6.CUDNN_SOFTMAX_MODE_CHANNEL, 1.0, tensor(Y), y, 0.0, tensor(Y), z
    )
    return [y, mean, inverse, z]


def normalised_gradients(h: Any, form: Form) -> list[Any]:
    """Batch normalisation for inference, its gradient from statistics that were not saved, and softmax's gradient."""
    x, y, scale, bias, mean, variance, dy, dx, ds, db = map(form, _numbers(Y, Y, B, B, B, B, Y, Y, B, B))
    v6.cudnnActivationForward_v3(h, v6.CUDNN_ACTIVATION_SIGMOID, 1.0, tensor(B), variance, 0.0, tensor(B), variance)
    v6.cudnnBatchNormalizationForwardInference(
        h,
        v6.CUDNN_BATCHNORM_SPATIAL,
        1.0,
        0.5,
        tensor(Y),
        x,
        tensor(Y),
        y,
        tensor(B),
        scale,
        bias,
        mean,
        variance,
        1e-3,
    )
    v6.cudnnBatchNormalizationBackward(
        h, v6.CUDNN_BATCHNORM_SPATIAL, 1.0, 0.0, 1.0, 0.5, tensor(Y), x, tensor(Y), dy, tensor(Y), dx, tensor(B), scale, ds,
        db, 1e-3, None, None,
    )  # fmt: skip
    z = form(_numbers(Y)[0])
    v6.cudnnSoftmaxBackward(
        h, v6.CUDNN_SOFTMAX_FAST, v6.CUDNN_SOFTMAX_MODE_INSTANCE, 1.0, tensor(Y), y, tensor(Y), dy, 0.0, tensor(Y), z
    )
    return [variance, y, dx, ds, db, z]


def pointwise(h: Any, form: Form) -> list[Any]:
    x, y, dy, dx, c = map(form, _numbers(Y, Y, Y, Y, Y))
    for mode in (v6.CUDNN_ACTIVATION_TANH, v6.CUDNN_ACTIVATION_ELU):
        desc = activation(mode, 0.7)
        v6.cudnnActivationForward(h, desc, 1.0, tensor(Y), x, 0.0, tensor(Y), y)
        v6.cudnnActivationBackward(h, desc, 1.0, tensor(Y), y, tensor(Y), dy, tensor(Y), x, 0.5, tensor(Y), dx)
    relu = v6.CUDNN_ACTIVATION_RELU
    v6.cudnnActivationBackward_v3(h, relu, 1.0, tensor(Y), y, tensor(Y), dx, tensor(Y), x, 0.0, tensor(Y), dx)
    desc = v6.cudnnCreateOpTensorDescriptor()
    v6.cudnnSetOpTensorDescriptor(desc, v6.CUDNN_OP_TENSOR_MAX, v6.CUDNN_DATA_FLOAT, v6.CUDNN_NOT_PROPAGATE_NAN)
    v6.cudnnOpTensor(h, desc, 2.0, tensor(Y), x, -1.0, tensor(Y), y, 0.5, tensor(Y), c)
    v6.cudnnSetTensor(h, tensor(Y), y, 1.5)
    return [y, dx, c]


def divided(h: Any, form: Form) -> list[Any]:
    """Divisive normalisation and its gradients."""
    x, m, y, dy, dx, dm, s, t = map(form, _numbers(*(Y,) * 8))
    norm, mode = v6.cudnnCreateLRNDescriptor(), v6.CUDNN_DIVNORM_PRECOMPUTED_MEANS
    v6.cudnnDivisiveNormalizationForward(h, norm, mode, 1.0, tensor(Y), x, m, s, t, 0.0, tensor(Y), y)
    v6.cudnnDivisiveNormalizationBackward(h, norm, mode, 1.0, tensor(Y), x, m, dy, s, t, 0.0, tensor(Y), dx, dm)
    return [y, dx, dm]


def utilities(h: Any, form: Form) -> list[Any]:
    a, c, moved = map(form, _numbers(Y, (1, 6, 1, 1), Y))
    desc = v6.cudnnCreateReduceTensorDescriptor()
    v6.cudnnSetReduceTensorDescriptor(desc, v6.CUDNN_REDUCE_TENSOR_MAX, v6.CUDNN_DATA_FLOAT, 0, 1, 0)
    indices = form(np.zeros(24, np.uint8))
    v6.cudnnReduceTensor(h, desc, indices, 24, None, 0, 1.0, tensor(Y), a, 0.0, tensor(B), c)
    v6.cudnnTransformTensor(h, 1.0, tensor(Y), a, 0.0, tensor(Y, v6.CUDNN_TENSOR_NHWC), moved)
    v6.cudnnScaleTensor(h, tensor(Y), a, -2.0)
    return [c, indices, moved, a]


def transformed(h: Any, form: Form) -> list[Any]:
    """A spatial transformer and its gradients."""
    dims = (2, 3, 4, 5)
    desc = v6.cudnnCreateSpatialTransformerDescriptor()
    v6.cudnnSetSpatialTransformerNdDescriptor(desc, v6.CUDNN_SAMPLER_BILINEAR, v6.CUDNN_DATA_FLOAT, 4, dims)
    theta, grid, x, y, dx, dgrid, dtheta = map(
        form, _numbers((2, 2, 3), (2, 4, 5, 2), X, dims, X, (2, 4, 5, 2), (2, 2, 3))
    )
    v6.cudnnSpatialTfGridGeneratorForward(h, desc, theta, grid)
    v6.cudnnSpatialTfSamplerForward(h, desc, 1.0, tensor(X), x, grid, 0.0, tensor(dims), y)
    v6.cudnnSpatialTfSamplerBackward(
        h, desc, 1.0, tensor(X), x, 0.0, tensor(X), dx, 1.0, tensor(dims), y, grid, 0.0, dgrid
    )
    v6.cudnnSpatialTfGridGeneratorBackward(h, desc, dgrid, dtheta)
    return [grid, y, dx, dgrid, dtheta]


def dropped(h: Any, form: Form) -> list[Any]:
    """Dropout and its gradient, twice with one state."""
    x, y, z, dx = map(form, _numbers(*(Y,) * 4))
    states, reserve = (
        form(np.zeros(16, np.uint8)),
        form(np.zeros(v6.cudnnDropoutGetReserveSpaceSize(tensor(Y)), np.uint8)),
    )
    desc = v6.cudnnCreateDropoutDescriptor()
    v6.cudnnSetDropoutDescriptor(desc, h, 0.4, states, 16, 2**63 + 5)
    for out in (y, z):
        v6.cudnnDropoutForward(h, desc, tensor(Y), x, tensor(Y), out, reserve, reserve.nbytes)
    v6.cudnnDropoutBackward(h, desc, tensor(Y), x, tensor(Y), dx, reserve, reserve.nbytes)
    again = v6.cudnnCreateDropoutDescriptor()
    v6.cudnnRestoreDropoutDescriptor(again, h, 0.4, states, 16, 1)
    v6.cudnnDropoutForward(h, again, tensor(Y), x, tensor(Y), y, reserve, reserve.nbytes)
    return [y, z, dx, states]


def recurrent(h: Any, form: Form) -> list[Any]:
    """A network with dropout between its layers: inference, training and both gradients."""
    batches, values, hidden, layers = (3, 2, 2), 4, 5, 2
    rows, s, float32 = sum(batches), states(layers, 3, hidden), v6.CUDNN_DATA_FLOAT
    memory = form(np.zeros(16, np.uint8))
    drops = v6.cudnnCreateDropoutDescriptor()
    v6.cudnnSetDropoutDescriptor(drops, h, 0.3, memory, 16, 9)
    desc = v6.cudnnCreateRNNDescriptor()
    v6.cudnnSetRNNDescriptor_v6(h, desc, hidden, layers, drops, 0, 0, v6.CUDNN_LSTM, 0, float32)
    xd, yd = steps(batches, values), steps(batches, hidden)
    count = v6.cudnnGetRNNParamsSize(h, desc, xd[0], float32) // 4
    state = (layers, 3, hidden)
    x, dx, y, dy, w, dw, hx, cx, hy, cy, dhx, dcx, dhy, dcy = map(
        form, _numbers(*((rows, values),) * 2, *((rows, hidden),) * 2, *((count,),) * 2, *(state,) * 8)
    )
    room = form(np.zeros(v6.cudnnGetRNNWorkspaceSize(h, desc, 3, xd), np.uint8))
    reserve = form(np.zeros(v6.cudnnGetRNNTrainingReserveSize(h, desc, 3, xd), np.uint8))
    wd, used, kept = weights(count), (room, room.nbytes), (reserve, reserve.nbytes)
    args = (h, desc, 3, xd, x, s, hx, s, cx, wd, w, yd, y, s, hy, s, cy, *used)
    v6.cudnnRNNForwardInference(*args)
    v6.cudnnRNNForwardTraining(*args, *kept)
    v6.cudnnRNNBackwardData(
        h, desc, 3, yd, y, yd, dy, s, dhy, s, dcy, wd, w, s, hx, s, cx, xd, dx, s, dhx, s, dcx, *used, *kept
    )
    v6.cudnnRNNBackwardWeights(h, desc, 3, xd, x, s, hx, yd, y, *used, wd, dw, *kept)
    return [y, hy, cy, dx, dhx, dcx, dw]


def spelled(h: Any, form: Form) -> list[Any]:
    """The CTC loss of two batches, one after the other."""
    probs, found = np.abs(_numbers((5, 2, 4))[0]) + 0.1, []
    probs = form(probs / probs.sum(axis=2, keepdims=True))
    desc, d = v6.cudnnCreateCTCLossDescriptor(), states(5, 2, 4)
    v6.cudnnSetCTCLossDescriptor(desc, v6.CUDNN_DATA_FLOAT)
    for labels in ([1, 2, 3], [2, 2, 1]):
        costs, gradients = form(np.zeros(2, np.float32)), form(np.zeros((5, 2, 4), np.float32))
        size = v6.cudnnGetCTCLossWorkspaceSize(h, d, d, labels, [2, 1], [5, 4], 0, desc)
        room = form(np.zeros(size, np.uint8))
        v6.cudnnCTCLoss(h, d, probs, labels, [2, 1], [5, 4], costs, d, gradients, 0, desc, room, size)
        found += [costs, gradients]
    return found


def learned(h: Any, form: Form) -> list[Any]:
    """Two training steps of a recurrent network, each from the last states of the one before; dropout draws anew."""
    batches, values, hidden, layers = (3, 2, 2), 4, 5, 2
    rows, s, length = sum(batches), states(layers, 3, hidden), len(batches)
    drops, desc = v6.cudnnCreateDropoutDescriptor(), v6.cudnnCreateRNNDescriptor()
    memory = form(np.zeros(16, np.uint8))
    v6.cudnnSetDropoutDescriptor(drops, h, 0.3, memory, 16, 5)
    v6.cudnnSetRNNDescriptor_v6(h, desc, hidden, layers, drops, 0, 0, v6.CUDNN_LSTM, 0, v6.CUDNN_DATA_FLOAT)
    xd, yd = steps(batches, values), steps(batches, hidden)
    count = v6.cudnnGetRNNParamsSize(h, desc, xd[0], v6.CUDNN_DATA_FLOAT) // 4
    state = (layers, 3, hidden)
    x, dx, y, dy, wanted, w, dw, hx, cx, hy, cy, dhx, dcx = map(
        form, _numbers(*((rows, values),) * 2, *((rows, hidden),) * 3, *((count,),) * 2, *(state,) * 6)
    )
    room = form(np.zeros(v6.cudnnGetRNNWorkspaceSize(h, desc, length, xd), np.uint8))
    reserve = form(np.zeros(v6.cudnnGetRNNTrainingReserveSize(h, desc, length, xd), np.uint8))
    wd, used, kept = weights(count), (room, room.nbytes), (reserve, reserve.nbytes)
    results, flat, last = tensor((1, 1, rows, hidden)), tensor((1, 1, 1, count)), tensor((1, *state))
    for _ in range(2):
        v6.cudnnSetTensor(h, flat, dw, 0.0)
        v6.cudnnRNNForwardTraining(h, desc, length, xd, x, s, hx, s, cx, wd, w, yd, y, s, hy, s, cy, *used, *kept)
        v6.cudnnTransformTensor(h, 0.1, results, y, 0.0, results, dy)
        v6.cudnnAddTensor(h, -0.1, results, wanted, 1.0, results, dy)
        v6.cudnnRNNBackwardData(h, desc, length, yd, y, yd, dy, s, None, s, None, wd, w, s, hx, s, cx, xd, dx, s, dhx, s,
                                dcx, *used, *kept)  # fmt: skip
        v6.cudnnRNNBackwardWeights(h, desc, length, xd, x, s, hx, yd, y, *used, wd, dw, *kept)
        v6.cudnnAddTensor(h, -0.1, flat, dw, 1.0, flat, w)
        v6.cudnnTransformTensor(h, 1.0, last, hy, 0.0, last, hx)
        v6.cudnnTransformTensor(h, 1.0, last, cy, 0.0, last, cx)
    return [w, dw, hx, cx, hy, cy, y, dx, dhx, dcx, memory]


def residual(h: Any, form: Form) -> list[Any]:
    """Two training steps of a residual block: x + the layers' result, batch normalisation with averages from the first on."""
    dims, parameters, filters = (2, 6, 5, 5), (1, 6, 1, 1), (6, 6, 3, 3)
    t, p, f, d = tensor(dims), tensor(parameters), tensor(filters), filter_of(filters)
    conv, relu = convolution((1, 1)), activation(v6.CUDNN_ACTIVATION_RELU)
    x, wanted, c, y, dy, dc, dx = map(form, _numbers(*(dims,) * 7))
    w, dw, scale, bias, dscale, dbias, mean, inverse, average, variance = map(
        form, _numbers(*(filters,) * 2, *(parameters,) * 8)
    )
    for step in range(2):
        v6.cudnnConvolutionForward(h, 1.0, t, x, d, w, conv, 1, None, 0, 0.0, t, c)
        v6.cudnnBatchNormalizationForwardTraining(h, v6.CUDNN_BATCHNORM_SPATIAL, 1.0, 0.0, t, c, t, y, p, scale, bias,
                                                  1.0 / (1 + step), average, variance, 1e-3, mean, inverse)  # fmt: skip
        v6.cudnnAddTensor(h, 1.0, t, x, 1.0, t, y)
        v6.cudnnActivationForward(h, relu, 1.0, t, y, 0.0, t, y)
        v6.cudnnTransformTensor(h, 0.1, t, y, 0.0, t, dy)
        v6.cudnnAddTensor(h, -0.1, t, wanted, 1.0, t, dy)
        v6.cudnnActivationBackward(h, relu, 1.0, t, y, t, dy, t, y, 0.0, t, dy)
        v6.cudnnTransformTensor(h, 1.0, t, dy, 0.0, t, dx)
        v6.cudnnBatchNormalizationBackward(h, v6.CUDNN_BATCHNORM_SPATIAL, 1.0, 0.0, 1.0, 0.0, t, c, t, dy, t, dc, p, scale,
                                           dscale, dbias, 1e-3, mean, inverse)  # fmt: skip
        v6.cudnnConvolutionBackwardData(h, 1.0, d, w, t, dc, conv, 1, None, 0, 1.0, t, dx)
        v6.cudnnConvolutionBackwardFilter(h, 1.0, t, x, t, dc, conv, 1, None, 0, 0.0, d, dw)
        for desc, values, gradients in ((f, w, dw), (p, scale, dscale), (p, bias, dbias)):
            v6.cudnnAddTensor(h, -0.1, desc, gradients, 1.0, desc, values)
    return [w, scale, bias, average, variance, y, dx]


PROGRAMS = {
    p.__name__: p
    for p in (layer, fused_layer, gradients, integers, windows, normalised, normalised_gradients, pointwise, divided,
              utilities, transformed, dropped, recurrent, spelled, learned, residual)
}  # fmt: skip
