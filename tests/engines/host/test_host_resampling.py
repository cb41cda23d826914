"""Pooling and interpolation of the NumPy engine: against loops, torch's operators, adjointness."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from host_numbers import layouts, normal, without_torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graphdnn.engines.host.resample import Resampling, maximum, resample, resample_backward
from graphdnn.enums import PaddingMode as Pad
from graphdnn.enums import ResampleMode as Mode


def pooling(mode: Mode, padding: Pad, window: Any, stride: Any, pre: Any, post: Any, **rest: Any) -> Resampling:
    fractions = (tuple(Fraction(v) for v in values) for values in (stride, pre, post, window))
    return Resampling(mode, padding, *fractions, **rest)


def upsampling(mode: Mode, spatial: int, stride: Fraction, pre: Fraction, post: Fraction, window: int) -> Resampling:
    each = [(Fraction(v),) * spatial for v in (stride, pre, post, window)]
    return Resampling(mode, Pad.EDGE_VAL_PAD, *each)


def pooled_by_loops(x: np.ndarray, how: Resampling) -> tuple[np.ndarray, np.ndarray]:
    """Values and maximum indices of pooling (NaN not propagated), one element after the other."""
    outputs = how.outputs(x.shape[2:])
    y, index = np.zeros((*x.shape[:2], *outputs)), np.zeros((*x.shape[:2], *outputs), np.int64)
    kernel = tuple(map(int, how.window))
    for place in np.ndindex(*y.shape):
        seen = []
        for p, offsets in enumerate(np.ndindex(*kernel)):
            raw = [int(o * s - pre + k) for o, s, pre, k in zip(place[2:], how.strides, how.pre, offsets, strict=True)]
            inside = all(0 <= r < e for r, e in zip(raw, x.shape[2:], strict=True))
            clipped = tuple(min(max(r, 0), e - 1) for r, e in zip(raw, x.shape[2:], strict=True))
            excluded = how.mode is Mode.AVGPOOL_EXCLUDE_PADDING or how.padding is Pad.NEG_INF_PAD
            if inside or not excluded:
                value = x[(*place[:2], *clipped)] if inside or how.padding is Pad.EDGE_VAL_PAD else 0.0
                seen.append((p, float(value)))
        if how.mode is Mode.MAXPOOL:
            numbers = [(p, v) for p, v in seen if not math.isnan(v)] or seen[:1]
            if numbers:
                y[place] = max(v for _, v in numbers)
                index[place] = next(p for p, v in numbers if v == y[place] or math.isnan(v))
            else:
                y[place], index[place] = -math.inf, -1
        else:
            count = math.prod(kernel) if how.mode is Mode.AVGPOOL_INCLUDE_PADDING else len(seen)
            y[place] = math.fsum(v for _, v in seen) / max(count, 1)
    return y, index


POOLING = [
    (Mode.MAXPOOL, Pad.ZERO_PAD),
    (Mode.MAXPOOL, Pad.NEG_INF_PAD),
    (Mode.MAXPOOL, Pad.EDGE_VAL_PAD),
    (Mode.AVGPOOL_INCLUDE_PADDING, Pad.ZERO_PAD),
    (Mode.AVGPOOL_INCLUDE_PADDING, Pad.EDGE_VAL_PAD),
    (Mode.AVGPOOL_EXCLUDE_PADDING, Pad.ZERO_PAD),
    (Mode.AVGPOOL_EXCLUDE_PADDING, Pad.EDGE_VAL_PAD),
]
LINEAR_POOLING = POOLING[3:]


@st.composite
def poolings(draw: st.DrawFn, modes: list[tuple[Mode, Pad]]) -> tuple[Resampling, tuple[int, ...]]:
    mode, padding = draw(st.sampled_from(modes))
    rank = draw(st.integers(1, 3))
    spatial = tuple(draw(st.integers(1, 6)) for _ in range(rank))
    window, stride, pre, post = (
        tuple(draw(st.integers(low, high)) for _ in range(rank)) for low, high in ((1, 4), (1, 3), (0, 3), (0, 3))
    )
    how = pooling(mode, padding, window, stride, pre, post)
    assume(all(extent >= 1 for extent in how.outputs(spatial)))
    return how, (draw(st.integers(1, 2)), draw(st.integers(1, 2)), *spatial)


@settings(max_examples=150, deadline=None)
@given(poolings(POOLING), st.integers(0, 999))
def test_pooling_equals_loops(problem: tuple[Resampling, tuple[int, ...]], seed: int) -> None:
    how, shape = problem
    # Few distinct values, so that windows have several maxima and the index has to be the first.
    x = np.random.default_rng(seed).integers(-3, 3, shape).astype(np.float64)
    expected, expected_index = pooled_by_loops(x, how)
    for view in layouts(x):
        np.testing.assert_allclose(resample(view, how), expected, rtol=1e-13, atol=1e-13)
    single = resample(x.astype(np.float32), how)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-6, atol=1e-6)
    if how.mode is Mode.MAXPOOL:
        y, index = maximum(x, how)
        np.testing.assert_array_equal(y, expected)
        found = expected_index >= 0
        np.testing.assert_array_equal(index[found], expected_index[found])
        whole, _ = maximum(x.astype(np.int32), how)
        assert whole.dtype == np.int32
        lowest = np.where(np.isinf(expected), np.iinfo(np.int32).min, expected)
        np.testing.assert_array_equal(whole, lowest)


@settings(max_examples=60, deadline=None)
@given(poolings(POOLING[:3]), st.integers(0, 999))
def test_the_gradient_of_a_maximum_goes_to_the_first_maximum(
    problem: tuple[Resampling, tuple[int, ...]], seed: int
) -> None:
    how, shape = problem
    x = np.random.default_rng(seed).integers(-3, 3, shape).astype(np.float64)
    _, index = pooled_by_loops(x, how)
    dy = normal(seed, *index.shape)
    expected = np.zeros(shape)
    for place in np.ndindex(*dy.shape):
        if index[place] < 0:
            continue
        offsets = np.unravel_index(index[place], tuple(map(int, how.window)))
        raw = [int(o * s - p + k) for o, s, p, k in zip(place[2:], how.strides, how.pre, offsets, strict=True)]
        clipped = tuple(min(max(r, 0), e - 1) for r, e in zip(raw, shape[2:], strict=True))
        if how.padding is Pad.EDGE_VAL_PAD or tuple(raw) == clipped:
            expected[(*place[:2], *clipped)] += dy[place]
    np.testing.assert_allclose(resample_backward(dy, how, shape, x=x), expected, rtol=1e-13, atol=1e-13)
    kept = maximum(x, how)[1].astype(np.int8)
    np.testing.assert_allclose(resample_backward(dy, how, shape, index=kept), expected, rtol=1e-13, atol=1e-13)


def test_indices_outside_the_window_add_nothing() -> None:
    how = pooling(Mode.MAXPOOL, Pad.NEG_INF_PAD, [2], [2], [0], [0])
    index = np.array([[[-1, 2, 1]]])
    np.testing.assert_array_equal(
        resample_backward(np.ones((1, 1, 3)), how, (1, 1, 6), index=index), [[[0, 0, 0, 0, 0, 1]]]
    )


def test_the_gradient_of_a_maximum_needs_to_know_where_it_was() -> None:
    how = pooling(Mode.MAXPOOL, Pad.NEG_INF_PAD, [2], [2], [0], [0])
    with pytest.raises(ValueError, match="index or the forward input"):
        resample_backward(np.ones((1, 1, 3)), how, (1, 1, 6))


def test_averages_refuse_minus_infinity() -> None:
    how = pooling(Mode.AVGPOOL_INCLUDE_PADDING, Pad.NEG_INF_PAD, [2], [2], [0], [0])
    with pytest.raises(ValueError, match="NEG_INF_PAD"):
        resample(np.ones((1, 1, 4)), how)


@pytest.mark.parametrize("padding", [Pad.NEG_INF_PAD, Pad.ZERO_PAD], ids=str)
def test_nan_in_maxima(padding: Pad) -> None:
    nan, inf = math.nan, math.inf
    x = np.array([[[nan, 1.0, -inf, nan, nan, nan, 2.0, 5.0]]], np.float32)
    common = ([2], [2], [0], [0])
    y, index = maximum(x, pooling(Mode.MAXPOOL, padding, *common, propagate_nan=True))
    np.testing.assert_array_equal(y, [[[nan, nan, nan, 5]]])
    np.testing.assert_array_equal(index, [[[0, 1, 0, 1]]])
    y, index = maximum(x, pooling(Mode.MAXPOOL, padding, *common))
    np.testing.assert_array_equal(y, [[[1, -inf, nan, 5]]])
    np.testing.assert_array_equal(index, [[[1, 0, 0, 1]]])


@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_an_element_beats_padding_that_takes_no_part(value: float) -> None:
    x = np.array([[[value, 1.0, value]]])
    how = pooling(Mode.MAXPOOL, Pad.NEG_INF_PAD, [2], [3], [1], [2])
    y, index = maximum(x, how)
    np.testing.assert_array_equal(y, [[[value, value]]])
    np.testing.assert_array_equal(index, [[[1, 0]]])
    np.testing.assert_array_equal(resample_backward(np.array([[[2.0, 3.0]]]), how, x.shape, x=x), [[[2, 0, 3]]])


def test_infinities_stay_in_their_windows() -> None:
    """Weights of zero and padding must not turn an infinity into NaN elsewhere."""
    x = np.array([[[1.0, math.inf, 3.0, 4.0]]])
    same = upsampling(Mode.BILINEAR, 1, Fraction(1), Fraction(1, 2), Fraction(1, 2), 2)
    np.testing.assert_array_equal(resample(x, same), x)
    how = pooling(Mode.AVGPOOL_INCLUDE_PADDING, Pad.ZERO_PAD, [2], [1], [1], [1])
    np.testing.assert_array_equal(resample(x, how), [[[0.5, math.inf, math.inf, 3.5, 2.0]]])
    dx = resample_backward(np.array([[[math.inf, 1.0, 1.0, 1.0, 1.0]]]), how, x.shape)
    np.testing.assert_array_equal(dx, [[[math.inf, 1.0, 1.0, 1.0]]])


LINEAR_UPSAMPLING = [
    upsampling(Mode.NEAREST, 2, Fraction(1, 3), Fraction(0), Fraction(2, 3), 1),
    upsampling(Mode.NEAREST, 2, Fraction(1, 2), Fraction(1, 2), Fraction(1), 2),
    upsampling(Mode.NEAREST, 1, Fraction(3, 2), Fraction(0), Fraction(0), 1),
    upsampling(Mode.BILINEAR, 2, Fraction(1, 2), Fraction(1, 2), Fraction(1), 2),
    upsampling(Mode.BILINEAR, 3, Fraction(1, 3), Fraction(1, 2), Fraction(7, 6), 2),
    upsampling(Mode.BILINEAR, 1, Fraction(5, 4), Fraction(1, 2), Fraction(1), 2),
    Resampling(Mode.BILINEAR, Pad.ZERO_PAD, (Fraction(1, 2),), (Fraction(1, 2),), (Fraction(1),), (Fraction(2),)),
]


def assert_adjoint(how: Resampling, shape: tuple[int, ...], seed: int) -> None:
    x = normal(seed, *shape)
    y = resample(x, how)
    dy = normal(seed + 1, *y.shape)
    dx = resample_backward(dy, how, shape)
    assert dx.shape == shape
    np.testing.assert_allclose(np.vdot(y, dy), np.vdot(x, dx), rtol=1e-10, atol=1e-11)
    assert resample_backward(dy.astype(np.float32), how, shape).dtype == np.float32


@settings(max_examples=100, deadline=None)
@given(poolings(LINEAR_POOLING), st.integers(0, 999))
def test_the_gradient_of_an_average_is_the_adjoint(problem: tuple[Resampling, tuple[int, ...]], seed: int) -> None:
    assert_adjoint(*problem, seed)


@pytest.mark.parametrize("how", LINEAR_UPSAMPLING, ids=str)
def test_the_gradient_of_interpolation_is_the_adjoint(how: Resampling) -> None:
    assert_adjoint(how, (2, 3, *(5, 4, 6)[: len(how.strides)]), 5)


def test_interpolation_returns_its_own_memory() -> None:
    x = np.ones((1, 1, 3))
    y = resample(x, pooling(Mode.NEAREST, Pad.ZERO_PAD, [1], [1], [0], [0]))
    assert not np.shares_memory(x, y)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.torch
@without_torch
def test_doubling_equals_torch(spatial: int) -> None:
    import torch

    x = normal(0, 2, 3, *(5, 4, 6)[:spatial])
    how = upsampling(Mode.BILINEAR, spatial, Fraction(1, 2), Fraction(1, 2), Fraction(1), 2)
    name = ("linear", "bilinear", "trilinear")[spatial - 1]
    leaf = torch.tensor(x, requires_grad=True)
    expected = torch.nn.functional.interpolate(leaf, scale_factor=2, mode=name, align_corners=False)
    y = resample(x, how)
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-13, atol=1e-14)
    dy = normal(1, *y.shape)
    expected.backward(torch.tensor(dy))
    assert leaf.grad is not None
    np.testing.assert_allclose(resample_backward(dy, how, x.shape), leaf.grad.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "stride", [Fraction(1, 3), Fraction(1, 4), Fraction(2), Fraction(3, 4), Fraction(5, 2)], ids=str
)
@pytest.mark.torch
@without_torch
def test_half_pixel_sampling_equals_torch_for_any_stride(stride: Fraction) -> None:
    """The scale factor of torch is the stride, where the input is a whole number of strides."""
    import torch

    extent = 15
    outputs = int(extent / stride)
    how = upsampling(Mode.BILINEAR, 1, stride, Fraction(1, 2), (outputs - 1) * stride + Fraction(3, 2) - extent, 2)
    x = normal(0, 2, 3, extent)
    assert how.outputs((extent,)) == (outputs,)
    expected = torch.nn.functional.interpolate(
        torch.tensor(x),
        scale_factor=float(1 / stride),
        mode="linear",
        align_corners=False,
        recompute_scale_factor=False,
    )
    np.testing.assert_allclose(resample(x, how), expected.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("factor", [1, 2, 3, 5])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_nearest_repeats(spatial: int, factor: int) -> None:
    x = normal(0, 2, 3, *(5, 4, 6)[:spatial])
    expected = x
    for axis in range(2, x.ndim):
        expected = np.repeat(expected, factor, axis=axis)
    how = upsampling(Mode.NEAREST, spatial, Fraction(1, factor), Fraction(0), 1 - Fraction(1, factor), 1)
    np.testing.assert_array_equal(resample(x, how), expected)
    if factor == 2:
        as_bilinear = upsampling(Mode.NEAREST, spatial, Fraction(1, 2), Fraction(1, 2), Fraction(1), 2)
        np.testing.assert_array_equal(resample(x, as_bilinear), expected)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("mode", [Mode.MAXPOOL, Mode.AVGPOOL_INCLUDE_PADDING, Mode.AVGPOOL_EXCLUDE_PADDING], ids=str)
@pytest.mark.torch
@without_torch
def test_pooling_equals_torch(mode: Mode, spatial: int) -> None:
    import torch

    functional = torch.nn.functional
    x = normal(2, 2, 3, *(9, 8, 7)[:spatial])
    padding = Pad.NEG_INF_PAD if mode is Mode.MAXPOOL else Pad.ZERO_PAD
    how = pooling(mode, padding, [3] * spatial, [2] * spatial, [1] * spatial, [1] * spatial)
    leaf = torch.tensor(x, requires_grad=True)
    kind = "max" if mode is Mode.MAXPOOL else "avg"
    operator = getattr(functional, f"{kind}_pool{spatial}d")
    rest = {} if mode is Mode.MAXPOOL else {"count_include_pad": mode is Mode.AVGPOOL_INCLUDE_PADDING}
    expected = operator(leaf, 3, stride=2, padding=1, **rest)
    y = resample(x, how)
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-13, atol=1e-14)
    dy = normal(3, *y.shape)
    expected.backward(torch.tensor(dy))
    assert leaf.grad is not None
    dx = resample_backward(dy, how, x.shape, x=x if mode is Mode.MAXPOOL else None)
    np.testing.assert_allclose(dx, leaf.grad.numpy(), rtol=1e-12, atol=1e-13)
