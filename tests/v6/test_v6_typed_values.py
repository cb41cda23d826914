"""Values of the legacy calls in every type and layout: against the same call in DOUBLE and NCHW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_v6_window_values import DIVISIVE, LRN_MODE, lrn
from v6_tools import NUMPY, activation, convolution, filter_of, pooling, tensor

from graphdnn import v6

NCHW, NHWC = v6.CUDNN_TENSOR_NCHW, v6.CUDNN_TENSOR_NHWC
FLOAT, DOUBLE, HALF = v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_DOUBLE, v6.CUDNN_DATA_HALF
BOUNDS = {FLOAT: 2e-5, DOUBLE: 1e-12, HALF: 1.5e-2}
X, W, Y, P, B = (2, 6, 7, 5), (4, 6, 3, 3), (2, 4, 5, 3), (2, 6, 3, 2), (1, 6, 1, 1)


class Memory:
    """Tensors of one type and layout, with the same values in any."""

    def __init__(self, kind: Any, fmt: Any) -> None:
        self.kind, self.fmt, self.rng = kind, fmt, np.random.default_rng(8)
        self.wide = DOUBLE if kind is DOUBLE else FLOAT  # of parameters

    def desc(self, dims: Any) -> Any:
        return tensor(dims, self.fmt, self.kind)

    def __call__(self, dims: Any, kind: Any = None) -> np.ndarray:
        values = self.rng.standard_normal(dims).astype(np.float16).astype(NUMPY[self.kind if kind is None else kind])
        if self.fmt is NCHW:
            return values
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


Program = Callable[[Any, Memory], list[np.ndarray]]


def elements(h: Any, m: Memory) -> list[np.ndarray]:
    x, y, b, c, d = m(X), m(X), m(B), m(X), m.desc(X)
    op, reduce = v6.cudnnCreateOpTensorDescriptor(), v6.cudnnCreateReduceTensorDescriptor()
    v6.cudnnSetOpTensorDescriptor(op, v6.CUDNN_OP_TENSOR_MUL, m.wide, 0)
    v6.cudnnSetReduceTensorDescriptor(reduce, v6.CUDNN_REDUCE_TENSOR_NORM2, m.wide, 0, 0, 0)
    v6.cudnnTransformTensor(h, 2.0, d, x, -0.5, d, y)
    v6.cudnnAddTensor(h, 0.5, m.desc(B), b, 1.0, d, y)
    v6.cudnnOpTensor(h, op, 1.0, d, x, 2.0, m.desc(B), b, 0.5, d, c)
    v6.cudnnScaleTensor(h, d, x, -3.0)
    v6.cudnnReduceTensor(h, reduce, None, 0, None, 0, 0.5, d, c, 1.0, m.desc(B), b)
    return [y, c, x, b]


def convolutions(h: Any, m: Memory) -> list[np.ndarray]:
    x, w, y, dx, dw = m(X), m(W), m(Y), m(X), m(W)
    db, conv = m((1, 4, 1, 1)), convolution(compute=m.wide)
    xd, wd, yd = m.desc(X), filter_of(W, m.fmt, m.kind), m.desc(Y)
    v6.cudnnConvolutionForward(h, 0.25, xd, x, wd, w, conv, 1, None, 0, 0.5, yd, y)
    v6.cudnnConvolutionBackwardData(h, 0.25, wd, w, yd, y, conv, 1, None, 0, 0.0, xd, dx)
    v6.cudnnConvolutionBackwardFilter(h, 0.25, xd, x, yd, y, conv, 1, None, 0, 0.5, wd, dw)
    v6.cudnnConvolutionBackwardBias(h, 0.5, yd, y, 0.0, m.desc((1, 4, 1, 1)), db)
    z, b = m(Y), m((1, 4, 1, 1))
    relu = activation(v6.CUDNN_ACTIVATION_RELU)
    v6.cudnnConvolutionBiasActivationForward(
        h, 0.25, xd, x, wd, w, conv, 1, None, 0, 0.5, yd, z, m.desc((1, 4, 1, 1)), b, relu, yd, z
    )
    return [y, dx, dw, db, z]


def pools(h: Any, m: Memory) -> list[np.ndarray]:
    found = []
    for mode in v6.cudnnPoolingMode:
        x, y, dy, dx, desc = m(X), m(P), m(P), m(X), pooling(mode, (3, 2), (0, 0), (2, 2), 1)
        v6.cudnnPoolingForward(h, desc, 1.0, m.desc(X), x, 0.0, m.desc(P), y)
        v6.cudnnPoolingBackward(h, desc, 1.0, m.desc(P), y, m.desc(P), dy, m.desc(X), x, 0.5, m.desc(X), dx)
        found += [y, dx]
    return found


def pointwise(h: Any, m: Memory) -> list[np.ndarray]:
    found, d = [], m.desc(X)
    for mode in (v6.CUDNN_ACTIVATION_SIGMOID, v6.CUDNN_ACTIVATION_TANH, v6.CUDNN_ACTIVATION_ELU):
        x, y, dy, dx, desc = m(X), m(X), m(X), m(X), activation(mode, 0.5)
        v6.cudnnActivationForward(h, desc, 1.0, d, x, 0.0, d, y)
        v6.cudnnActivationBackward(h, desc, 1.0, d, y, d, dy, d, x, 0.5, d, dx)
        found += [y, dx]
    for mode in v6.cudnnSoftmaxMode:
        x, y, dy, dx = m(X), m(X), m(X), m(X)
        v6.cudnnSoftmaxForward(h, v6.CUDNN_SOFTMAX_ACCURATE, mode, 1.0, d, x, 0.0, d, y)
        v6.cudnnSoftmaxBackward(h, v6.CUDNN_SOFTMAX_ACCURATE, mode, 1.0, d, y, d, dy, 0.5, d, dx)
        found += [y, dx]
    return found


def norms(h: Any, m: Memory) -> list[np.ndarray]:
    x, y, dy, dx, z, dz, q, dq, dm, d = *(m(X) for _ in range(9)), m.desc(X)
    s, b, mean, var, ds, db, saved, inverse = (np.abs(m(B, m.wide)) + 0.5 for _ in range(8))
    pd, spatial = tensor(B, kind=m.wide), v6.CUDNN_BATCHNORM_SPATIAL
    v6.cudnnBatchNormalizationForwardInference(h, spatial, 1.0, 0.5, d, x, d, y, pd, s, b, mean, var, 1e-3)
    v6.cudnnBatchNormalizationForwardTraining(
        h, spatial, 0.5, 1.0, d, x, d, y, pd, s, b, 0.25, mean, var, 1e-3, saved, inverse
    )
    v6.cudnnBatchNormalizationBackward(
        h, spatial, 1.0, 0.5, 0.5, 1.0, d, x, d, dy, d, dx, pd, s, ds, db, 1e-3, saved, inverse
    )
    desc, t = lrn(5, 0.7, 0.75, 1.5), m(X)
    v6.cudnnLRNCrossChannelForward(h, desc, LRN_MODE, 1.0, d, x, 0.0, d, z)
    v6.cudnnLRNCrossChannelBackward(h, desc, LRN_MODE, 1.0, d, z, d, dy, d, x, 0.5, d, dz)
    v6.cudnnDivisiveNormalizationForward(h, desc, DIVISIVE, 1.0, d, x, dy, t, t.copy(), 0.0, d, q)
    v6.cudnnDivisiveNormalizationBackward(h, desc, DIVISIVE, 1.0, d, x, dy, z, t, t.copy(), 0.0, d, dq, dm)
    return [y, dx, mean, var, ds, db, saved, inverse, z, dz, q, dq, dm]


@pytest.mark.parametrize("program", [elements, convolutions, pools, pointwise, norms])
@pytest.mark.parametrize(
    ("kind", "fmt"), [(FLOAT, NCHW), (FLOAT, NHWC), (HALF, NCHW), (HALF, NHWC), (DOUBLE, NHWC)], ids=str
)
def test_types_and_layouts(program: Program, kind: Any, fmt: Any) -> None:
    h = v6.cudnnCreate()
    wanted = program(h, Memory(DOUBLE, NCHW))
    for i, (found, want) in enumerate(zip(program(h, Memory(kind, fmt)), wanted, strict=True)):
        np.testing.assert_allclose(
            found.astype(np.float64), want, rtol=BOUNDS[kind], atol=BOUNDS[kind], err_msg=f"result {i}"
        )
