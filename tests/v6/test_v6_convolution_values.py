"""Values of the legacy convolutions: against PyTorch on the CPU, anchors worked out by hand, loops."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from v6_tools import NUMPY, activation, convolution, filter_of, tensor
from v6_values import BLENDS, RNG, before, blended, close, drawn

from graphdnn import v6

GEOMETRIES = [
    {"dims": (2, 4, 7, 6), "filter": (6, 4, 3, 2)},
    {"dims": (2, 4, 7, 6), "filter": (6, 4, 3, 2), "padding": (1, 2), "stride": (2, 1)},
    {"dims": (2, 4, 9, 8), "filter": (6, 2, 3, 3), "padding": (1, 0), "dilation": (2, 1), "groups": 2},
    {"dims": (1, 2, 5, 4, 6), "filter": (3, 2, 2, 3, 1), "padding": (1, 1, 0), "stride": (1, 2, 1)},
]


def _torch_conv(g: dict[str, Any], x: Any, w: Any, *, flip: bool) -> Any:
    import torch

    if flip:
        w = torch.flip(w, tuple(range(2, w.ndim)))
    s = len(g["dims"]) - 2
    function = torch.nn.functional.conv2d if s == 2 else torch.nn.functional.conv3d
    return function(x, w, None, g.get("stride", 1), g.get("padding", 0), g.get("dilation", 1), g.get("groups", 1))


@pytest.mark.torch
@pytest.mark.parametrize("g", GEOMETRIES)
@pytest.mark.parametrize("mode", [v6.CUDNN_CROSS_CORRELATION, v6.CUDNN_CONVOLUTION])
@pytest.mark.parametrize(("alpha", "beta"), BLENDS)
def test_convolution(handle: Any, g: dict[str, Any], mode: Any, alpha: float, beta: float) -> None:
    torch = pytest.importorskip("torch")
    flip = mode is v6.CUDNN_CONVOLUTION
    s = len(g["dims"]) - 2
    geometry = {k: g.get(k, v) for k, v in (("padding", (0,) * s), ("stride", (1,) * s), ("dilation", (1,) * s))}
    conv = convolution(**geometry, mode=mode, groups=g.get("groups", 1))
    x, w = drawn(g["dims"]), drawn(g["filter"])
    tx, tw = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, w))
    ty = _torch_conv(g, tx, tw, flip=flip)
    dims = v6.cudnnGetConvolutionNdForwardOutputDim(conv, tensor(x.shape), filter_of(w.shape), s + 2)
    assert dims == tuple(ty.shape)
    dy = drawn(dims)
    ty.backward(torch.tensor(dy, dtype=torch.float64))
    x_desc, w_desc, y_desc = tensor(x.shape), filter_of(w.shape), tensor(dims)

    y, dx, dw = (before(d, beta) for d in (dims, x.shape, w.shape))
    db = before((1, dims[1], *(1,) * s), beta)
    wanted = [
        blended(r, alpha, beta, old)
        for r, old in (
            (ty.detach(), y),
            (tx.grad, dx),
            (tw.grad, dw),
            (dy.astype(np.float64).sum(axis=(0, *range(2, s + 2)), keepdims=True), db),
        )
    ]
    for asked, descriptors in (
        ("Forward", (x_desc, w_desc, conv, y_desc)),
        ("BackwardData", (w_desc, y_desc, conv, x_desc)),
        ("BackwardFilter", (x_desc, y_desc, conv, w_desc)),
    ):
        algorithm = getattr(v6, f"cudnnGetConvolution{asked}Algorithm")(handle, *descriptors, 1, 0)
        assert getattr(v6, f"cudnnGetConvolution{asked}WorkspaceSize")(handle, *descriptors, algorithm) == 0
    v6.cudnnConvolutionForward(handle, alpha, x_desc, x, w_desc, w, conv, 1, None, 0, beta, y_desc, y)
    v6.cudnnConvolutionBackwardData(handle, alpha, w_desc, w, y_desc, dy, conv, 1, None, 0, beta, x_desc, dx)
    v6.cudnnConvolutionBackwardFilter(handle, alpha, x_desc, x, y_desc, dy, conv, 1, None, 0, beta, w_desc, dw)
    v6.cudnnConvolutionBackwardBias(handle, alpha, y_desc, dy, beta, tensor(db.shape), db)
    for found, want in zip((y, dx, dw, db), wanted, strict=True):
        close(found, want, 1e-4)


@pytest.mark.parametrize(("mode", "wanted"), [(1, [37, 47, 67, 77]), (0, [23, 33, 53, 63])])
def test_convolution_anchor(handle: Any, mode: int, wanted: list[int]) -> None:
    x, w = np.arange(1, 10, dtype=np.float32), np.arange(1, 5, dtype=np.float32)
    y = np.empty(4, np.float32)
    v6.cudnnConvolutionForward(handle, 1.0, tensor((1, 1, 3, 3)), x, filter_of((1, 1, 2, 2)), w, convolution(mode=mode),
                               0, None, 0, 0.0, tensor((1, 1, 2, 2)), y)  # fmt: skip
    assert y.tolist() == wanted


def _integer_sums(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Cross-correlation without padding, in Python's loops over taps, modulo 2**32."""
    P, Q = x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1
    total = np.zeros((x.shape[0], w.shape[0], P, Q), np.int64)
    for c, r, s in product(*map(range, w.shape[1:])):
        total += x[:, None, c, r : r + P, s : s + Q].astype(np.int64) * w[None, :, c, r, s, None, None]
    return total


OUTPUTS = [v6.CUDNN_DATA_INT8, v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_INT32]


@pytest.mark.parametrize("y_kind", OUTPUTS)
@pytest.mark.parametrize("channels", [(3, 1), (4, 4), (5, 7)])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.25, 0.0), (0.5, 2.0)])
def test_integer_convolution(handle: Any, y_kind: Any, channels: Any, alpha: float, beta: float) -> None:
    C, K = channels
    INT8, NHWC = v6.CUDNN_DATA_INT8, v6.CUDNN_TENSOR_NHWC
    x = RNG.integers(-128, 128, (2, 6, 5, C)).astype(np.int8)
    w = RNG.integers(-20, 20, (K, 3, 2, C)).astype(np.int8)
    y = before((2, 4, 4, K), beta, y_kind)
    exact = _integer_sums(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    wanted = blended(exact, alpha, beta, y)
    if y_kind is not v6.CUDNN_DATA_FLOAT:
        limits = np.iinfo(NUMPY[y_kind])
        wanted = np.clip(np.rint(wanted), limits.min, limits.max)
    v6.cudnnConvolutionForward(
        handle, alpha, tensor((2, C, 6, 5), NHWC, INT8), x, filter_of((K, C, 3, 2), NHWC, INT8), w,
        convolution(compute=v6.CUDNN_DATA_INT32), v6.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, None, 0, beta,
        tensor((2, K, 4, 4), NHWC, y_kind), y,
    )  # fmt: skip
    close(y, wanted, 1e-6)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.25, 0.0), (0.5, 2.0)])
def test_gradients_of_integers(handle: Any, alpha: float, beta: float) -> None:
    """An extension: exact sums, blended as forward. Against the same calls in DOUBLE."""
    x, w, dy = (drawn(d, v6.CUDNN_DATA_INT8) for d in ((2, 3, 6, 5), (4, 3, 3, 2), (2, 4, 4, 4)))
    found = {}
    for kind, compute in ((v6.CUDNN_DATA_INT8, v6.CUDNN_DATA_INT32), (v6.CUDNN_DATA_DOUBLE, v6.CUDNN_DATA_DOUBLE)):
        xs, ws, ds = (a.astype(NUMPY[kind]) for a in (x, w, dy))
        dx, dw = xs.copy(), ws.copy()
        x_desc, y_desc, w_desc = tensor(x.shape, kind=kind), tensor(dy.shape, kind=kind), filter_of(w.shape, kind=kind)
        conv = convolution(compute=compute)
        v6.cudnnConvolutionBackwardData(handle, alpha, w_desc, ws, y_desc, ds, conv, 1, None, 0, beta, x_desc, dx)
        v6.cudnnConvolutionBackwardFilter(handle, alpha, x_desc, xs, y_desc, ds, conv, 1, None, 0, beta, w_desc, dw)
        found[kind] = dx, dw
    for integer, exact in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(integer, np.clip(np.rint(exact), -128, 127))


def test_vectorised_integer_convolution(handle: Any) -> None:
    """INT8x4, with INT8x4 and with FLOAT outputs."""
    VECT, X4 = v6.CUDNN_TENSOR_NCHW_VECT_C, v6.CUDNN_DATA_INT8x4
    x = RNG.integers(-9, 9, (2, 8, 6, 5)).astype(np.int8)
    w = RNG.integers(-2, 3, (4, 8, 3, 2)).astype(np.int8)
    vectors = lambda a: a.reshape(a.shape[0], -1, 4, *a.shape[2:]).transpose(0, 1, 3, 4, 2).copy()
    exact = _integer_sums(x, w)
    arguments = (handle, 1.0, tensor(x.shape, VECT, X4), vectors(x), filter_of(w.shape, VECT, X4), vectors(w),
                 convolution(compute=v6.CUDNN_DATA_INT32), 1, None, 0, 0.0)  # fmt: skip
    y = np.empty((2, 1, 4, 4, 4), np.int8)
    v6.cudnnConvolutionForward(*arguments, tensor((2, 4, 4, 4), VECT, X4), y)
    np.testing.assert_array_equal(y, vectors(np.clip(exact, -128, 127).astype(np.int8)))
    z = np.empty((2, 4, 4, 4), np.float32)
    v6.cudnnConvolutionForward(*arguments, tensor(z.shape), z)
    np.testing.assert_array_equal(z, exact)


def test_integer_anchors(handle: Any) -> None:
    NHWC, INT8 = v6.CUDNN_TENSOR_NHWC, v6.CUDNN_DATA_INT8
    for value, kind, wanted in ((-100, INT8, -128), (1, v6.CUDNN_DATA_FLOAT, 352.0)):
        y = np.empty(36, NUMPY[kind])
        v6.cudnnConvolutionForward(
            handle, 1.0, tensor((1, 4, 4, 4), NHWC, INT8), np.full(64, value, np.int8),
            filter_of((4, 4, 2, 2), NHWC, INT8), np.full(64, 22, np.int8), convolution(compute=v6.CUDNN_DATA_INT32), 1,
            None, 0, 0.0, tensor((1, 4, 3, 3), NHWC, kind), y,
        )  # fmt: skip
        assert (y == wanted).all()


@pytest.mark.torch
@pytest.mark.parametrize("alpha2", [0.0, 0.5])
@pytest.mark.parametrize("mode", [v6.CUDNN_ACTIVATION_RELU, v6.CUDNN_ACTIVATION_IDENTITY])
@pytest.mark.parametrize("in_place", [False, True])
def test_bias_activation(handle: Any, alpha2: float, mode: Any, in_place: bool) -> None:
    torch = pytest.importorskip("torch")
    x, w, b = drawn((2, 4, 7, 6)), drawn((6, 4, 3, 3)), drawn((1, 6, 1, 1))
    z = drawn((2, 6, 5, 4))
    y = z if in_place else before(z.shape, 0.0)
    wanted = 0.5 * torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w)).numpy() + alpha2 * z + b
    if mode is v6.CUDNN_ACTIVATION_RELU:
        wanted = np.maximum(wanted, 0)
    y_desc = tensor(z.shape)
    v6.cudnnConvolutionBiasActivationForward(
        handle, 0.5, tensor(x.shape), x, filter_of(w.shape), w, convolution(), 1, None, 0, alpha2, y_desc, z,
        tensor(b.shape), b, activation(mode), y_desc, y,
    )  # fmt: skip
    close(y, wanted)
    assert len(v6.last_graph().operations) >= 3
    assert "conv_fprop" in v6.explain()


def test_integer_bias_activation(handle: Any) -> None:
    NHWC, INT8 = v6.CUDNN_TENSOR_NHWC, v6.CUDNN_DATA_INT8
    x = RNG.integers(-9, 9, (2, 6, 5, 4)).astype(np.int8)
    w = RNG.integers(-9, 9, (4, 3, 2, 4)).astype(np.int8)
    b = drawn((1, 4, 1, 1))
    z, y = RNG.integers(-9, 9, (2, 4, 4, 4)).astype(np.int8), np.empty((2, 4, 4, 4), np.int8)
    exact = _integer_sums(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    v6.cudnnConvolutionBiasActivationForward(
        handle, 0.25, tensor((2, 4, 6, 5), NHWC, INT8), x, filter_of((4, 4, 3, 2), NHWC, INT8), w,
        convolution(compute=v6.CUDNN_DATA_INT32), 1, None, 0, 1.0, tensor((2, 4, 4, 4), NHWC, INT8), z, tensor(b.shape),
        b, activation(v6.CUDNN_ACTIVATION_RELU), tensor((2, 4, 4, 4), NHWC, INT8), y,
    )  # fmt: skip
    wanted = np.maximum(np.float32(0.25) * exact + z + b.reshape(4), 0)
    np.testing.assert_array_equal(y, np.clip(np.rint(wanted), -128, 127))
