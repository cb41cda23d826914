"""Values of legacy softmax, pooling, activations and batch normalisation: against PyTorch on the CPU, and anchors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from v6_tools import activation, pooling, strided, tensor
from v6_values import BLENDS, before, blended, close, drawn

from graphdnn import v6


@pytest.mark.torch
@pytest.mark.parametrize("algorithm", v6.cudnnSoftmaxAlgorithm)
@pytest.mark.parametrize("mode", v6.cudnnSoftmaxMode)
@pytest.mark.parametrize(("alpha", "beta"), BLENDS)
def test_softmax(handle: Any, algorithm: Any, mode: Any, alpha: float, beta: float) -> None:
    torch = pytest.importorskip("torch")
    x, dy = drawn((2, 3, 4, 5)), drawn((2, 3, 4, 5))
    tx = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    flat = tx.reshape(2, -1) if mode is v6.CUDNN_SOFTMAX_MODE_INSTANCE else tx
    function = torch.log_softmax if algorithm is v6.CUDNN_SOFTMAX_LOG else torch.softmax
    ty = function(flat, 1).reshape(x.shape)
    ty.backward(torch.tensor(dy, dtype=torch.float64))
    y, dx = before(x.shape, beta), before(x.shape, beta)
    wanted = blended(ty.detach(), alpha, beta, y), blended(tx.grad, alpha, beta, dx)
    d = tensor(x.shape)
    v6.cudnnSoftmaxForward(handle, algorithm, mode, alpha, d, x, beta, d, y)
    result = ty.detach().numpy().astype(np.float32)
    v6.cudnnSoftmaxBackward(handle, algorithm, mode, alpha, d, result, d, dy, beta, d, dx)
    close(y, wanted[0])
    close(dx, wanted[1])


def test_softmax_in_place(handle: Any) -> None:
    d = tensor((1, 3, 1, 1))
    y, dx = np.float32([0.090030573, 0.244728471, 0.665240956]), np.float32([1, 0, 0])
    v6.cudnnSoftmaxBackward(handle, 1, 0, 1.0, d, y, d, dx, 0.0, d, dx)
    close(dx, np.array([0.081925069, -0.022033045, -0.059892025]), 1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("rank", [4, 5])
@pytest.mark.parametrize(("alpha", "beta"), BLENDS)
def test_pooling(handle: Any, mode: int, rank: int, alpha: float, beta: float) -> None:
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    window, padding, stride = (3, 2, 2)[: rank - 2], (1, 1, 0)[: rank - 2], (2, 1, 2)[: rank - 2]
    desc = pooling(mode, window, padding, stride)
    x = drawn((2, 3, 7, 6, 4)[:rank])
    tx = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    if mode in (0, 3):
        ty = (F.max_pool2d if rank == 4 else F.max_pool3d)(tx, window, stride, padding)
    else:
        ty = (F.avg_pool2d if rank == 4 else F.avg_pool3d)(tx, window, stride, padding, count_include_pad=mode == 1)
    dims = v6.cudnnGetPoolingNdForwardOutputDim(desc, tensor(x.shape), rank)
    assert dims == tuple(ty.shape)
    dy = drawn(dims)
    ty.backward(torch.tensor(dy, dtype=torch.float64))
    y, dx = before(dims, beta), before(x.shape, beta)
    wanted = blended(ty.detach(), alpha, beta, y), blended(tx.grad, alpha, beta, dx)
    x_desc, y_desc = tensor(x.shape), tensor(dims)
    v6.cudnnPoolingForward(handle, desc, alpha, x_desc, x, beta, y_desc, y)
    result = ty.detach().numpy().astype(np.float32)
    v6.cudnnPoolingBackward(handle, desc, alpha, y_desc, result, y_desc, dy, x_desc, x, beta, x_desc, dx)
    close(y, wanted[0])
    close(dx, wanted[1])


@pytest.mark.parametrize(
    ("mode", "wanted"), [(0, [1, 3, 7, 9]), (1, [0.25, 1.25, 2.75, 7]), (2, [1, 2.5, 5.5, 7]), (3, [1, 3, 7, 9])]
)
def test_pooling_anchor(handle: Any, mode: int, wanted: list[float]) -> None:
    x, y = np.arange(1, 10, dtype=np.float32), np.empty(4, np.float32)
    v6.cudnnPoolingForward(handle, pooling(mode, (2, 2), (1, 1), (2, 2)), 1.0, tensor((1, 1, 3, 3)), x, 0.0,
                           tensor((1, 1, 2, 2)), y)  # fmt: skip
    assert y.tolist() == wanted


@pytest.mark.parametrize("nan", [0, 1])
def test_pooling_and_nan(handle: Any, nan: int) -> None:
    x, y = np.float32([[[[1, np.nan, 2, 3]]]]), np.empty((1, 1, 1, 2), np.float32)
    desc = pooling(0, (1, 2), (0, 0), (1, 2), nan)
    v6.cudnnPoolingForward(handle, desc, 1.0, tensor(x.shape), x, 0.0, tensor(y.shape), y)
    np.testing.assert_array_equal(y.reshape(2), [np.nan if nan else 1, 3])


ACTIVATIONS = {
    v6.CUDNN_ACTIVATION_SIGMOID: lambda t, x: t.sigmoid(x),
    v6.CUDNN_ACTIVATION_RELU: lambda t, x: t.relu(x),
    v6.CUDNN_ACTIVATION_TANH: lambda t, x: t.tanh(x),
    v6.CUDNN_ACTIVATION_CLIPPED_RELU: lambda t, x: t.clamp(x, 0, 0.7),
    v6.CUDNN_ACTIVATION_ELU: lambda t, x: t.nn.functional.elu(x, 0.7),
}


@pytest.mark.torch
@pytest.mark.parametrize("mode", ACTIVATIONS)
@pytest.mark.parametrize(("alpha", "beta"), BLENDS)
@pytest.mark.parametrize("nan", [0, 1])
def test_activation(handle: Any, mode: Any, alpha: float, beta: float, nan: int) -> None:
    torch = pytest.importorskip("torch")
    x, dy = drawn((2, 3, 4, 5)), drawn((2, 3, 4, 5))
    tx = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    ty = ACTIVATIONS[mode](torch, tx)
    ty.backward(torch.tensor(dy, dtype=torch.float64))
    y, dx = before(x.shape, beta), before(x.shape, beta)
    wanted = blended(ty.detach(), alpha, beta, y), blended(tx.grad, alpha, beta, dx)
    d, desc = tensor(x.shape), activation(mode, 0.7, nan)
    v6.cudnnActivationForward(handle, desc, alpha, d, x, beta, d, y)
    result = ty.detach().numpy().astype(np.float32)
    v6.cudnnActivationBackward(handle, desc, alpha, d, result, d, dy, d, x, beta, d, dx)
    close(y, wanted[0])
    close(dx, wanted[1])
    if mode in (v6.CUDNN_ACTIVATION_SIGMOID, v6.CUDNN_ACTIVATION_RELU, v6.CUDNN_ACTIVATION_TANH):
        old_y, old_dx = np.empty_like(x), np.empty_like(x)
        v6.cudnnActivationForward_v3(handle, mode, 1.0, d, x, 0.0, d, old_y)
        v6.cudnnActivationBackward_v3(handle, mode, 1.0, d, result, d, dy, d, x, 0.0, d, old_dx)
        close(old_y, ty.detach().numpy())
        close(old_dx, tx.grad.numpy())


@pytest.mark.parametrize("nan", [0, 1])
@pytest.mark.parametrize("mode", [v6.CUDNN_ACTIVATION_RELU, v6.CUDNN_ACTIVATION_CLIPPED_RELU, v6.CUDNN_ACTIVATION_ELU])
def test_activation_in_place_and_nan(handle: Any, nan: int, mode: Any) -> None:
    x, d = np.float32([np.nan, 0.5]), tensor((1, 1, 1, 2))
    v6.cudnnActivationForward(handle, activation(mode, 1.0, nan), 1.0, d, x, 0.0, d, x)
    np.testing.assert_array_equal(x, [np.nan if nan else 0, 0.5])


@pytest.mark.torch
@pytest.mark.parametrize("mode", v6.cudnnBatchNormMode)
@pytest.mark.parametrize(("alpha", "beta"), BLENDS)
@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1)], ids=["nchw", "nhwc"])
def test_batch_normalisation(handle: Any, mode: Any, alpha: float, beta: float, saves: bool, order: Any) -> None:
    """Statistics are those of the derived descriptor, channels first."""
    torch = pytest.importorskip("torch")
    epsilon, factor = 1e-3, 0.3

    def laid(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))

    x, dy = laid(drawn((4, 3, 5, 2))), laid(drawn((4, 3, 5, 2)))
    x_desc, p_desc = strided(x), v6.cudnnCreateTensorDescriptor()
    v6.cudnnDeriveBNTensorDescriptor(p_desc, x_desc, mode)
    dims = v6.cudnnGetTensor4dDescriptor(p_desc)[1:5]
    scale, bias, mean, variance = drawn(dims), drawn(dims), drawn(dims), np.abs(drawn(dims))
    axes = (0,) if mode is v6.CUDNN_BATCHNORM_PER_ACTIVATION else (0, 2, 3)
    tx, ts, tb = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, scale, bias))
    # torch.nn.functional.batch_norm sees each normalised group as one channel
    as_rows = (lambda t: t.reshape(4, -1, 1)) if axes == (0,) else (lambda t: t.reshape(4, 3, 10))
    run_mean, run_var = (torch.tensor(a, dtype=torch.float64).reshape(-1) for a in (mean, variance))
    tested = torch.nn.functional.batch_norm(
        as_rows(tx), run_mean.clone(), run_var.clone(), ts.reshape(-1), tb.reshape(-1), False, 0.0, epsilon
    ).reshape(x.shape)
    ty = torch.nn.functional.batch_norm(
        as_rows(tx), run_mean, run_var, ts.reshape(-1), tb.reshape(-1), True, factor, epsilon
    ).reshape(x.shape)
    ty.backward(torch.tensor(dy, dtype=torch.float64))

    y = laid(before(x.shape, beta))
    wanted = blended(tested.detach(), alpha, beta, y)
    v6.cudnnBatchNormalizationForwardInference(
        handle, mode, alpha, beta, x_desc, x, x_desc, y, p_desc, scale, bias, mean, variance, epsilon
    )
    close(y, wanted)

    y, saved = laid(before(x.shape, beta)), [np.full(dims, np.nan, np.float32) if saves else None for _ in range(2)]
    wanted = blended(ty.detach(), alpha, beta, y)
    v6.cudnnBatchNormalizationForwardTraining(
        handle, mode, alpha, beta, x_desc, x, x_desc, y, p_desc, scale, bias, factor, mean, variance, epsilon, *saved
    )
    close(y, wanted)
    close(mean.reshape(-1), run_mean.numpy())
    close(variance.reshape(-1), run_var.numpy())
    if saves:
        double = x.astype(np.float64)
        close(saved[0], double.mean(axes, keepdims=True))
        close(saved[1], 1 / np.sqrt(double.var(axes, keepdims=True) + epsilon))

    dx, ds, db = laid(before(x.shape, beta)), before(dims, beta), before(dims, beta)
    results = [blended(t.grad, alpha, beta, old).reshape(old.shape) for t, old in ((tx, dx), (ts, ds), (tb, db))]
    v6.cudnnBatchNormalizationBackward(
        handle,
        mode,
        alpha,
        beta,
        alpha,
        beta,
        x_desc,
        x,
        x_desc,
        dy,
        x_desc,
        dx,
        p_desc,
        scale,
        ds,
        db,
        epsilon,
        *saved,
    )
    for found, want in zip((dx, ds, db), results, strict=True):
        close(found, want, 1e-4)


@pytest.mark.parametrize("kind", [v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_DOUBLE])
def test_averages_that_begin_with_a_batch_read_nothing(handle: Any, kind: Any) -> None:
    """A factor of 1: neither what was there nor a scale that is no number gets into the running statistics."""
    x, dims = drawn((3, 4, 5, 2), kind), (1, 4, 1, 1)
    scale, bias = np.ones(dims, x.dtype), np.zeros(dims, x.dtype)
    scale[0, 1] = np.inf
    mean, variance = np.full(dims, np.nan, x.dtype), np.full(dims, np.inf, x.dtype)
    desc, p_desc, y = tensor(x.shape, kind=kind), tensor(dims, kind=kind), np.empty_like(x)
    v6.cudnnBatchNormalizationForwardTraining(
        handle, v6.CUDNN_BATCHNORM_SPATIAL, 1.0, 0.0, desc, x, desc, y, p_desc, scale, bias, 1.0, mean, variance, 1e-5,
        None, None,
    )  # fmt: skip
    double = x.astype(np.float64)
    close(mean, double.mean((0, 2, 3), keepdims=True))
    close(variance, double.var((0, 2, 3), keepdims=True, ddof=1))
    close(
        y[:, 0],
        ((double - double.mean((0, 2, 3))[:, None, None]) / np.sqrt(double.var((0, 2, 3)) + 1e-5)[:, None, None])[:, 0],
    )
