"""A training step of LeNet by legacy calls, recorded as one graph: forward, loss, and the gradients of every layer."""

from __future__ import annotations

import numpy as np

from graphdnn import v6
from graphdnn.dtypes import Array
from graphdnn.graph.operation_graph import OperationGraph

FLOAT, NCHW, N = v6.CUDNN_DATA_FLOAT, v6.CUDNN_TENSOR_NCHW, 2
# Filters of each layer: convolutions with a pooling behind them, then full connections, all but the last with a ReLU.
LAYERS = ((6, 5, 2, True), (16, 5, 0, True), (120, 5, 0, False), (84, 1, 0, False), (10, 1, 0, False))


def lenet_step() -> OperationGraph:
    """The activation is told not to propagate NaN, as most programs do."""
    step = _Step()
    with v6.record() as recording:
        step.run()
    (graph,) = recording.graphs
    return graph


class _Step:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.handle = v6.cudnnCreate()
        self.relu = v6.cudnnCreateActivationDescriptor()
        v6.cudnnSetActivationDescriptor(self.relu, v6.CUDNN_ACTIVATION_RELU, v6.CUDNN_NOT_PROPAGATE_NAN, 0.0)
        self.pool = v6.cudnnCreatePoolingDescriptor()
        v6.cudnnSetPooling2dDescriptor(
            self.pool, v6.CUDNN_POOLING_MAX, v6.CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2
        )  # fmt: skip
        self.x = self.tensor(N, 1, 28, 28)
        self.layers, dims = [], (N, 1, 28, 28)
        for filters, size, padding, has_pool in LAYERS:
            conv = v6.cudnnCreateConvolutionDescriptor()
            v6.cudnnSetConvolution2dDescriptor(conv, padding, padding, 1, 1, 1, 1, v6.CUDNN_CROSS_CORRELATION, FLOAT)
            w_desc = v6.cudnnCreateFilterDescriptor()
            w_dims = (filters, dims[1], size, size)
            v6.cudnnSetFilter4dDescriptor(w_desc, FLOAT, NCHW, *w_dims)
            side = dims[2] + 2 * padding - size + 1
            y = (N, filters, side, side)
            p = (N, filters, side // 2, side // 2) if has_pool else y
            self.layers.append((conv, w_desc, self.drawn(w_dims), self.tensor(1, filters, 1, 1), y, p))
            dims = p

    def drawn(self, dims: tuple[int, ...]) -> Array:
        return (self.rng.standard_normal(dims) / np.sqrt(np.prod(dims[1:]))).astype(np.float32)

    def tensor(self, *dims: int) -> tuple[object, Array]:
        desc = v6.cudnnCreateTensorDescriptor()
        v6.cudnnSetTensor4dDescriptor(desc, NCHW, FLOAT, *dims)
        return desc, self.rng.standard_normal(dims).astype(np.float32)

    def run(self) -> None:
        h, kept, x = self.handle, [], self.x
        for i, (conv, w_desc, w, b, y_dims, p_dims) in enumerate(self.layers):
            y = self.tensor(*y_dims)
            v6.cudnnConvolutionForward(
                h, 1.0, *x, w_desc, w, conv, v6.CUDNN_CONVOLUTION_FWD_ALGO_GEMM, None, 0, 0.0, *y
            )
            v6.cudnnAddTensor(h, 1.0, *b, 1.0, *y)
            a, p = y, y
            if i < len(self.layers) - 1:
                a = p = self.tensor(*y_dims)
                v6.cudnnActivationForward(h, self.relu, 1.0, *y, 0.0, *a)
            if p_dims != y_dims:
                p = self.tensor(*p_dims)
                v6.cudnnPoolingForward(h, self.pool, 1.0, *a, 0.0, *p)
            kept.append((x, y, a, p))
            x = p
        self.backward(kept)

    def backward(self, kept: list[tuple[object, ...]]) -> None:
        h, z = self.handle, kept[-1][-1]
        how = v6.CUDNN_SOFTMAX_ACCURATE, v6.CUDNN_SOFTMAX_MODE_CHANNEL
        probability, wanted, dy = (self.tensor(N, 10, 1, 1) for _ in range(3))
        v6.cudnnSoftmaxForward(h, *how, 1.0, *z, 0.0, *probability)
        v6.cudnnSoftmaxBackward(h, *how, 1.0, *probability, *wanted, 0.0, *dy)
        for i in reversed(range(len(self.layers))):
            conv, w_desc, w, _, y_dims, p_dims = self.layers[i]
            x, y, a, p = kept[i]
            if p_dims != y_dims:
                before, dy = dy, self.tensor(*y_dims)
                v6.cudnnPoolingBackward(h, self.pool, 1.0, *p, *before, *a, 0.0, *dy)
            if i < len(self.layers) - 1:
                before, dy = dy, self.tensor(*y_dims)
                v6.cudnnActivationBackward(h, self.relu, 1.0, *a, *before, *y, 0.0, *dy)
            db, dw = self.tensor(1, y_dims[1], 1, 1), np.empty_like(w)
            v6.cudnnConvolutionBackwardBias(h, 1.0, *dy, 0.0, *db)
            v6.cudnnConvolutionBackwardFilter(
                h, 1.0, *x, *dy, conv, v6.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, None, 0, 0.0, w_desc, dw
            )
            if i:
                dims = x[1].shape
                dx = self.tensor(*dims)
                v6.cudnnConvolutionBackwardData(
                    h, 1.0, w_desc, w, *dy, conv, v6.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, None, 0, 0.0, *dx
                )
                dy = dx
