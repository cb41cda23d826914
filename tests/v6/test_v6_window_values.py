"""Values of the legacy calls that read windows: response and divisive normalisation, Im2Col, positions of extremes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from v6_tools import convolution, filter_of, strided, tensor
from v6_values import BLENDS, before, blended, close, drawn

from graphdnn import v6

LRN_MODE = v6.CUDNN_LRN_CROSS_CHANNEL_DIM1
DIVISIVE = v6.CUDNN_DIVNORM_PRECOMPUTED_MEANS


def lrn(n: int, alpha: float, beta: float, k: float) -> Any:
    desc = v6.cudnnCreateLRNDescriptor()
    v6.cudnnSetLRNDescriptor(desc, n, alpha, beta, k)
    return desc


def test_response_normalisation_anchor(handle: Any) -> None:
    x, d = np.arange(1, 7, dtype=np.float32).reshape(1, 6, 1, 1), tensor((1, 6, 1, 1))
    y, dx, desc = np.empty_like(x), np.empty_like(x), lrn(4, 1.0, 0.5, 1.0)
    v6.cudnnLRNCrossChannelForward(handle, desc, LRN_MODE, 1.0, d, x, 0.0, d, y)
    close(y.reshape(-1), [0.471404521, 0.685994341, 0.787838597, 0.843274043, 1.111111111, 1.488416815], 1e-6)
    v6.cudnnLRNCrossChannelBackward(handle, desc, LRN_MODE, 1.0, d, y, d, np.ones_like(x), d, x, 0.0, d, dx)
    close(dx.reshape(-1), [0.425039077, 0.223099434, 0.054657126, -0.016568933, -0.075624163, -0.027845648], 1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("n", [1, 2, 5, 16])
@pytest.mark.parametrize("dims", [(2, 7, 3, 4), (2, 7, 2, 3, 2), (2, 7, 5)])
@pytest.mark.parametrize(("alpha", "beta"), BLENDS)
def test_response_normalisation(handle: Any, n: int, dims: Any, alpha: float, beta: float) -> None:
    torch = pytest.importorskip("torch")
    x, dy, desc, d = drawn(dims), drawn(dims), lrn(n, 0.7, 0.75, 1.5), tensor(dims)
    tx = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    behind = (n - 1) // 2
    squares = torch.nn.functional.pad((tx * tx).transpose(1, -1), (behind, n - 1 - behind)).unfold(-1, n, 1).sum(-1)
    ty = tx * (1.5 + 0.7 / n * squares.transpose(1, -1)) ** -0.75
    if n % 2:  # PyTorch's own reaches further back for even windows
        close(torch.nn.functional.local_response_norm(tx, n, 0.7, 0.75, 1.5).detach().numpy(), ty.detach().numpy())
    ty.backward(torch.tensor(dy, dtype=torch.float64))
    y, dx = before(dims, beta), before(dims, beta)
    wanted = blended(ty.detach(), alpha, beta, y), blended(tx.grad, alpha, beta, dx)
    v6.cudnnLRNCrossChannelForward(handle, desc, LRN_MODE, alpha, d, x, beta, d, y)
    close(y, wanted[0])
    result = ty.detach().numpy().astype(np.float32)
    v6.cudnnLRNCrossChannelBackward(handle, desc, LRN_MODE, alpha, d, result, d, dy, d, x, beta, d, dx)
    close(dx, wanted[1], 1e-4)


def test_response_normalisation_of_any_strides_and_types(handle: Any) -> None:
    x = drawn((2, 4, 5, 7)).transpose(0, 3, 1, 2)  # NHWC
    wide = np.full((2, 7, 4, 9), 9, np.float32)
    y, plain, desc = wide[..., :5], np.empty((2, 7, 4, 5), np.float32), lrn(5, 1e-1, 0.75, 2.0)
    v6.cudnnLRNCrossChannelForward(handle, desc, LRN_MODE, 1.0, strided(x), x, 0.0, strided(y), y)
    v6.cudnnLRNCrossChannelForward(
        handle, desc, LRN_MODE, 1.0, tensor(x.shape), np.ascontiguousarray(x), 0.0, tensor(x.shape), plain
    )
    np.testing.assert_array_equal(y, plain)
    assert (wide[..., 5:] == 9).all()
    for kind, bound in ((v6.CUDNN_DATA_DOUBLE, 1e-6), (v6.CUDNN_DATA_HALF, 2e-3)):
        values = np.ascontiguousarray(x).astype(np.float64 if kind is v6.CUDNN_DATA_DOUBLE else np.float16)
        result, d = np.empty_like(values), tensor(x.shape, kind=kind)
        v6.cudnnLRNCrossChannelForward(handle, desc, LRN_MODE, 1.0, d, values, 0.0, d, result)
        close(result, plain.astype(np.float64), bound)


# Divisive normalisation, by the formula in loops.


def windows(shape: Any, n: int, place: Any) -> Any:
    """The window around a place, clipped to the image."""
    behind = (n - 1) // 2
    spans = [range(max(0, p - behind), min(e, p - behind + n)) for p, e in zip(place, shape, strict=True)]
    return list(product(*spans))


def divisive(x: np.ndarray, m: np.ndarray, n: int, alpha: float, beta: float, k: float) -> np.ndarray:
    y = np.empty_like(x)
    volume = n ** (x.ndim - 2)
    for image in np.ndindex(*x.shape[:2]):
        for place in np.ndindex(*x.shape[2:]):
            total = sum((x[image + j] - m[image + place]) ** 2 for j in windows(x.shape[2:], n, place))
            y[image + place] = x[image + place] * (k + alpha / volume * total) ** -beta
    return y


def test_divisive_normalisation_anchor(handle: Any) -> None:
    x, d = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3), tensor((1, 1, 3, 3))
    y, temp = np.empty_like(x), np.empty_like(x)
    v6.cudnnDivisiveNormalizationForward(
        handle, lrn(3, 9.0, 0.5, 1.0), DIVISIVE, 1.0, d, x, np.full_like(x, 5), temp, temp.copy(), 0.0, d, y
    )
    wanted = [
        [0.192450090, 0.353553391, 0.774596669],
        [0.632455532, 0.640184400, 0.948683298],
        [1.807392228, 1.414213562, 1.732050808],
    ]
    close(y[0, 0], wanted, 1e-6)


@pytest.mark.parametrize("n", [1, 3, 4])
@pytest.mark.parametrize("dims", [(2, 2, 4, 3), (1, 2, 2, 3, 3)])
@pytest.mark.parametrize("means", [False, True])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (2.0, -0.5)])
def test_divisive_normalisation(handle: Any, n: int, dims: Any, means: bool, alpha: float, beta: float) -> None:
    x, m, desc, d = drawn(dims) + 3, drawn(dims), lrn(n, 0.8, 0.75, 1.2), tensor(dims)
    y, temp = before(dims, beta), np.empty(dims, np.float32)
    given = m if means else None
    double = (x.astype(np.float64), (m if means else np.zeros_like(m)).astype(np.float64))
    wanted = blended(divisive(*double, n, 0.8, 0.75, 1.2), alpha, beta, y)
    v6.cudnnDivisiveNormalizationForward(
        handle, desc, DIVISIVE, alpha, d, x, given, temp, temp.copy(), beta, d, y
    )  # fmt: skip
    close(y, wanted)


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("means", [False, True])
def test_divisive_gradients_by_differences(handle: Any, n: int, means: bool) -> None:
    dims, kind = (1, 2, 3, 4), v6.CUDNN_DATA_DOUBLE
    x, m, dy = (drawn(dims, kind) for _ in range(3))
    d, temp = tensor(dims, kind=kind), np.empty(dims)
    dx, dm = before(dims, 0.0, kind), before(dims, 0.0, kind)
    arguments = (0.8, 0.75, 1.2)
    v6.cudnnDivisiveNormalizationBackward(
        handle, lrn(n, *arguments), DIVISIVE, 1.0, d, x, m if means else None, dy, temp, temp.copy(), 0.0, d, dx,
        dm if means else None,
    )  # fmt: skip
    used = m if means else np.zeros(dims)

    def loss() -> float:
        return float((divisive(x, used, n, *arguments) * dy).sum())

    pairs = [(x, dx), (used, dm)] if means else [(x, dx)]
    for values, gradient in pairs:
        for place in np.ndindex(*dims):
            kept, step = values[place], 1e-6
            values[place] = kept + step
            above = loss()
            values[place] = kept - step
            below = loss()
            values[place] = kept
            assert (above - below) / (2 * step) == pytest.approx(gradient[place], abs=1e-6)
    if not means:
        assert np.isnan(dm).all()


def test_divisive_normalisation_in_place(handle: Any) -> None:
    x, desc, d = drawn((1, 2, 3, 3)), lrn(3, 1.0, 0.5, 1.0), tensor((1, 2, 3, 3))
    y, temp = np.empty_like(x), np.empty_like(x)
    v6.cudnnDivisiveNormalizationForward(handle, desc, DIVISIVE, 1.0, d, x, None, temp, temp, 0.0, d, y)
    v6.cudnnDivisiveNormalizationForward(handle, desc, DIVISIVE, 1.0, d, x, None, temp, temp, 0.0, d, x)
    np.testing.assert_array_equal(x, y)


# Im2Col.


@pytest.mark.torch
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("kind", [v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_HALF])
def test_im2col(handle: Any, flip: bool, kind: Any) -> None:
    torch = pytest.importorskip("torch")
    x = drawn((2, 3, 6, 5), kind)
    x[0, 0, 0, 0] = np.inf
    mode = v6.CUDNN_CONVOLUTION if flip else v6.CUDNN_CROSS_CORRELATION
    conv = convolution((1, 2), (2, 1), (1, 2), mode=mode)
    w = filter_of((4, 3, 3, 2), kind=kind)
    found = torch.nn.functional.unfold(torch.tensor(x, dtype=torch.float64), (3, 2), (1, 2), (1, 2), (2, 1)).numpy()
    rows = found.reshape(2, 3, 6, -1)
    wanted = (rows[:, :, ::-1] if flip else rows).reshape(2, 18, -1).transpose(1, 0, 2).reshape(18, -1)
    columns = np.full(wanted.shape, np.nan, x.dtype)
    v6.cudnnIm2Col(handle, tensor(x.shape, kind=kind), x, w, conv, columns)
    np.testing.assert_array_equal(columns.astype(np.float64), wanted)


# Positions of extremes.


@pytest.mark.parametrize("op", [v6.CUDNN_REDUCE_TENSOR_MIN, v6.CUDNN_REDUCE_TENSOR_MAX])
@pytest.mark.parametrize("dims", [(2, 1, 4, 1), (1, 1, 1, 1), (1, 3, 4, 1)])
@pytest.mark.parametrize("nan", [0, 1])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (2.0, 0.5)])
def test_positions_of_extremes(handle: Any, op: Any, dims: Any, nan: int, alpha: float, beta: float) -> None:
    desc = v6.cudnnCreateReduceTensorDescriptor()
    v6.cudnnSetReduceTensorDescriptor(
        desc, op, v6.CUDNN_DATA_FLOAT, nan, v6.CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, v6.CUDNN_32BIT_INDICES
    )
    a = np.round(drawn((2, 3, 4, 5)))  # ties: the first one counts
    a[1, 1, 2, 3] = np.nan
    a_desc, c_desc = tensor(a.shape), tensor(dims)
    axes = tuple(i for i in range(4) if dims[i] == 1)
    rows = a.transpose(*(i for i in range(4) if i not in axes), *axes).reshape(int(np.prod(dims)), -1)
    largest = op is v6.CUDNN_REDUCE_TENSOR_MAX
    where = rows if nan else np.where(np.isnan(rows), -np.inf if largest else np.inf, rows)
    positions = (where.argmax if largest else where.argmin)(axis=1)
    c = before(dims, beta)
    wanted = blended(where[np.arange(len(rows)), positions].reshape(dims), alpha, beta, c)
    size = v6.cudnnGetReductionIndicesSize(handle, desc, a_desc, c_desc)
    indices = np.full(size // 4, 0xFFFFFFFF, np.uint32)
    v6.cudnnReduceTensor(handle, desc, indices.view(np.uint8), size, None, 0, alpha, a_desc, a, beta, c_desc, c)
    close(c, wanted)
    np.testing.assert_array_equal(indices, positions)


def test_query_runtime_error(handle: Any) -> None:
    assert v6.cudnnQueryRuntimeError(handle, v6.CUDNN_ERRQUERY_BLOCKING) == (v6.CUDNN_STATUS_SUCCESS, None)
