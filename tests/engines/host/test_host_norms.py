"""Normalization of the NumPy engine, in one and in pieces: against torch's operators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from host_numbers import FLOATS, NEAR, normal, without_torch

from graphdnn.engines.host import normalization, statistics


def test_statistics_survive_a_large_mean() -> None:
    """sum(x^2)/n - mean^2 in float32 would leave no digit of this variance."""
    x = (4096 + normal(0, 4, 3, 64, 64)).astype(np.float32)
    axes = (0, 2, 3)
    found = normalization.statistics(x, axes, 1e-5)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(found.variance, exact.var(axes, keepdims=True), rtol=1e-4)
    assert found.mean is not None
    np.testing.assert_allclose(found.mean, exact.mean(axes, keepdims=True), rtol=2e-7)
    assert found.mean.dtype == found.variance.dtype == found.inv_variance.dtype == np.float32


@pytest.mark.parametrize(
    ("axes", "scale"),
    [
        ((0, 2, 3), (1, 5, 1, 1)),  # batch
        ((2, 3), (1, 5, 1, 1)),  # instance
        ((1, 2, 3), (1, 5, 4, 3)),  # layer, RMS
        ((3,), (1, 1, 1, 3)),
        ((3,), (6, 1, 1, 3)),  # adaptive layer
    ],
    ids=str,
)
@pytest.mark.parametrize("centered", [True, False], ids=["centered", "rms"])
@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
@pytest.mark.torch
@without_torch
def test_normalization_equals_autograd(
    axes: tuple[int, ...], scale: tuple[int, ...], centered: bool, dtype: Any
) -> None:
    import torch

    x, dy = (normal(s, 6, 5, 4, 3).astype(dtype) for s in (1, 2))
    gamma, beta = normal(3, *scale).astype(dtype), normal(4, *scale).astype(dtype)
    leaves = [torch.tensor(v.astype(np.float64), requires_grad=True) for v in (x, gamma, beta)]
    deviation = leaves[0] - (leaves[0].mean(axes, keepdim=True) if centered else 0)
    expected = deviation / torch.sqrt((deviation**2).mean(axes, keepdim=True) + 1e-3) * leaves[1] + leaves[2]
    expected.backward(torch.tensor(dy.astype(np.float64)))
    found = normalization.statistics(x, axes, 1e-3, centered=centered)
    assert (found.mean is not None) == centered
    y = normalization.normalize(x, found.mean, found.inv_variance, gamma, beta)
    gradients = normalization.backward(dy, x, gamma, axes, found.mean, found.inv_variance)
    results = (y, gradients.dx, gradients.dscale, gradients.dbias)
    for result, wanted in zip(results, (expected.detach(), *(leaf.grad for leaf in leaves)), strict=True):
        assert result.dtype == dtype
        np.testing.assert_allclose(result, wanted.numpy(), **NEAR[dtype])


@pytest.mark.torch
@without_torch
def test_named_norms_equal_torch() -> None:
    import torch

    functional = torch.nn.functional
    x, gamma, beta = normal(1, 4, 5, 6, 7), normal(2, 5), normal(3, 5)
    t = torch.tensor(x)
    channels = (1, 5, 1, 1)

    def ours(axes: tuple[int, ...], scale: np.ndarray, bias: np.ndarray | None, *, centered: bool = True) -> np.ndarray:
        found = normalization.statistics(x, axes, 1e-5, centered=centered)
        return normalization.normalize(x, found.mean, found.inv_variance, scale, bias)

    weights = torch.tensor(gamma), torch.tensor(beta)
    running = torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    batch = functional.batch_norm(t, *running, *weights, training=True, momentum=0.3, eps=1e-5)
    np.testing.assert_allclose(
        ours((0, 2, 3), gamma.reshape(channels), beta.reshape(channels)),
        batch.numpy(),
        rtol=1e-11,
        atol=1e-12,
    )
    instance = functional.instance_norm(t, weight=weights[0], bias=weights[1], eps=1e-5)
    np.testing.assert_allclose(
        ours((2, 3), gamma.reshape(channels), beta.reshape(channels)),
        instance.numpy(),
        rtol=1e-11,
        atol=1e-12,
    )
    rows, offsets = normal(4, 6, 7), normal(5, 6, 7)
    layer = functional.layer_norm(t, (6, 7), torch.tensor(rows), torch.tensor(offsets), 1e-5)
    np.testing.assert_allclose(
        ours((2, 3), rows[None, None], offsets[None, None]), layer.numpy(), rtol=1e-11, atol=1e-12
    )
    rms = functional.rms_norm(t, (6, 7), torch.tensor(rows), 1e-5)
    np.testing.assert_allclose(
        ours((2, 3), rows[None, None], None, centered=False), rms.numpy(), rtol=1e-11, atol=1e-12
    )

    found = normalization.statistics(x, (0, 2, 3), 1e-5)
    assert found.mean is not None
    previous = np.zeros(channels), np.ones(channels)
    mean, variance = normalization.running(previous, (found.mean, found.variance), 4 * 6 * 7, 0.3)
    np.testing.assert_allclose(mean.ravel(), running[0].numpy(), rtol=1e-12)
    np.testing.assert_allclose(variance.ravel(), running[1].numpy(), rtol=1e-12)
    inference = functional.batch_norm(t, *running, *weights, training=False, eps=1e-5)
    given = normalization.normalize(
        x, mean, 1 / np.sqrt(variance + 1e-5), gamma.reshape(channels), beta.reshape(channels)
    )
    np.testing.assert_allclose(given, inference.numpy(), rtol=1e-11, atol=1e-12)


def test_a_single_element_has_no_unbiased_variance() -> None:
    zero, one = np.zeros((1, 1)), np.ones((1, 1))
    mean, variance = normalization.running((zero, one), (one, zero), 1, 0.25)
    assert (mean.item(), variance.item()) == (0.25, 0.75)


def test_normalization_without_scale_and_bias() -> None:
    x = normal(0, 3, 4).astype(np.float32)
    found = normalization.statistics(x, (1,), 0.0)
    y = normalization.normalize(x, found.mean, found.inv_variance)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose((y**2).mean(1), 1, rtol=1e-5)


def test_constant_input_normalizes_without_warning() -> None:
    x = np.full((2, 3), 5.0, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = normalization.statistics(x, (1,), 0.0)
        assert np.isinf(found.inv_variance).all()
        assert np.isnan(normalization.normalize(x, found.mean, found.inv_variance)).all()


# Building blocks of batch norm


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_batch_norm_in_pieces_equals_batch_norm_in_one(dtype: Any) -> None:
    x, dy = (normal(s, 4, 3, 5, 6).astype(dtype) for s in (1, 2))
    gamma, beta = (normal(s, 1, 3, 1, 1).astype(dtype) for s in (3, 4))
    previous = normal(5, 1, 3, 1, 1).astype(dtype), np.abs(normal(6, 1, 3, 1, 1)).astype(dtype)
    axes, count = (0, 2, 3), 4 * 5 * 6
    whole = normalization.statistics(x, axes, 1e-3)
    assert whole.mean is not None
    near = NEAR[dtype]

    sums = statistics.genstats(x)
    np.testing.assert_allclose(sums[0], x.astype(np.float64).sum(axes, keepdims=True), **near)
    np.testing.assert_allclose(sums[1], (x.astype(np.float64) ** 2).sum(axes, keepdims=True), **near)

    pieces = statistics.bn_finalize_training(*sums, gamma, beta, count, 1e-3, 0.1, previous)
    assert pieces.running_mean is not None
    assert pieces.running_var is not None
    mean, variance = normalization.running(previous, (whole.mean, whole.variance), count, 0.1)
    expected = {
        "saved_mean": whole.mean,
        "saved_inv_std": whole.inv_variance,
        "running_mean": mean,
        "running_var": variance,
    }
    for name, values in expected.items():
        assert getattr(pieces, name).dtype == dtype
        np.testing.assert_allclose(getattr(pieces, name), values, **near)
    y = normalization.normalize(x, whole.mean, whole.inv_variance, gamma, beta)
    np.testing.assert_allclose(pieces.eq_scale * x + pieces.eq_bias, y, **near)

    gradients = normalization.backward(dy, x, gamma, axes, whole.mean, whole.inv_variance)
    weights = statistics.bn_backward_weights(x, dy, whole.mean, whole.inv_variance, gamma)
    dx = weights.eq_dy_scale * dy + weights.eq_x_scale * x + weights.eq_bias
    for result, wanted in (
        (dx, gradients.dx),
        (weights.dscale, gradients.dscale),
        (weights.dbias, gradients.dbias),
    ):
        assert result.dtype == dtype
        np.testing.assert_allclose(result, wanted, **near)


def test_finalization_for_inference_uses_the_running_statistics() -> None:
    gamma, beta, mean = (normal(s, 1, 3, 1) for s in (1, 2, 3))
    variance = np.abs(normal(4, 1, 3, 1))
    x = normal(5, 2, 3, 4)
    result = statistics.bn_finalize_inference(gamma, beta, mean, variance, 0.1)
    expected = (x - mean) / np.sqrt(variance + 0.1) * gamma + beta
    np.testing.assert_allclose(result.eq_scale * x + result.eq_bias, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(result.saved_mean, mean)


def test_finalization_without_running_statistics_and_with_cancellation() -> None:
    one = np.ones((1, 1, 1), np.float32)
    result = statistics.bn_finalize_training(one * 3, one * np.float32(2.9999998), one, one, 3, 0.25)
    assert result.running_mean is None
    assert result.running_var is None
    np.testing.assert_array_equal(result.saved_inv_std, 2.0)  # the variance of -7e-8 counts as 0
