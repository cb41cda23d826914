"""Numerical primitives of the NumPy engine: against torch's operators, plain loops, adjointness and exact integers."""

from __future__ import annotations

import importlib.util
import itertools
import math
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graphdnn.engines.host import normalization, random, statistics
from graphdnn.engines.host.integers import exact_matmul
from graphdnn.engines.host.matmul import matmul
from graphdnn.engines.host.reduction import reduce, total
from graphdnn.engines.host.resample import Resampling, maximum, resample, resample_backward
from graphdnn.enums import PaddingMode, ReductionOperator, ResampleMode, RngDistribution

pytestmark = pytest.mark.filterwarnings("error")
without_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

Op, Mode, Pad = ReductionOperator, ResampleMode, PaddingMode
FLOATS = [np.float32, np.float64]
NEAR = {np.float32: {"rtol": 2e-5, "atol": 2e-5}, np.float64: {"rtol": 1e-11, "atol": 1e-12}}


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def layouts(x: np.ndarray) -> Iterator[np.ndarray]:
    """x with other strides: as it is, axes reversed in memory, every second element of a larger buffer, mirrored."""
    yield x
    yield np.asarray(x.T.copy()).T
    spaced = np.zeros([2 * extent for extent in x.shape], x.dtype)[tuple(slice(None, None, 2) for _ in x.shape)]
    spaced[...] = x
    yield spaced
    mirrored = tuple(slice(None, None, -1) for _ in x.shape)
    yield np.ascontiguousarray(x[mirrored])[mirrored]


# Reduction

SLOW_REDUCTIONS = {
    Op.ADD: math.fsum,
    Op.MUL: math.prod,
    Op.MIN: min,
    Op.MAX: max,
    Op.AMAX: lambda v: max(map(abs, v)),
    Op.AVG: lambda v: math.fsum(v) / len(v),
    Op.NORM1: lambda v: math.fsum(map(abs, v)),
    Op.NORM2: lambda v: math.sqrt(math.fsum(e * e for e in v)),
    Op.MUL_NO_ZEROS: lambda v: math.prod(e for e in v if e != 0),
}


def reduced_by_loops(x: np.ndarray, y_extents: tuple[int, ...], operator: Op) -> np.ndarray:
    y = np.empty(y_extents, object)
    for place in np.ndindex(y_extents):
        groups = [wide // narrow for wide, narrow in zip(x.shape, y_extents, strict=True)]
        window = tuple(slice(i * g, (i + 1) * g) for i, g in zip(place, groups, strict=True))
        y[place] = SLOW_REDUCTIONS[operator](x[window].ravel().tolist())
    return y


@st.composite
def reductions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rank = draw(st.integers(1, 4))
    y = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    return tuple(extent * draw(st.sampled_from([1, 1, 2, 5])) for extent in y), y


@pytest.mark.parametrize("operator", Op, ids=str)
def test_reduction_equals_loops_in_any_layout(operator: Op) -> None:
    @settings(max_examples=25, deadline=None)
    @given(reductions(), st.integers(0, 99))
    def check(extents: tuple[tuple[int, ...], tuple[int, ...]], seed: int) -> None:
        x_extents, y_extents = extents
        x = normal(seed, *x_extents)
        x[np.random.default_rng(seed).random(x.shape) < 0.2] = 0
        expected = reduced_by_loops(x, y_extents, operator).astype(np.float64)
        for view in layouts(x):
            y = reduce(view, y_extents, operator)
            assert y.dtype == x.dtype
            np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
            single = reduce(view.astype(np.float32), y_extents, operator)
            assert single.dtype == np.float32
            np.testing.assert_allclose(single, expected, rtol=2e-4, atol=1e-5)

    check()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("operator", [o for o in Op if o not in (Op.AVG, Op.NORM2)], ids=str)
def test_integer_reduction_is_exact_and_wraps(operator: Op, dtype: Any) -> None:
    x = np.random.default_rng(1).integers(np.iinfo(dtype).min // 2, np.iinfo(dtype).max // 2, (4, 3, 50)).astype(dtype)
    x[0, 0, 0] = 0
    y = reduce(x, (4, 1, 2), operator)
    assert y.dtype == dtype
    bits = np.iinfo(dtype).bits
    if operator in (Op.ADD, Op.NORM1):  # fsum would round
        values = np.abs(x) if operator is Op.NORM1 else x
        expected = values.astype(object).reshape(4, 3, 2, 25).sum(axis=(1, 3))
    else:
        expected = reduced_by_loops(x, (4, 1, 2), operator)
    wrapped = [(int(v) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for v in expected.ravel()]
    assert y.ravel().tolist() == wrapped


def test_extrema_hand_nan_on() -> None:
    x = np.array([[1.0, math.nan, 3.0], [1.0, 2.0, 3.0]], np.float32)
    for operator in (Op.MIN, Op.MAX, Op.AMAX):
        y = reduce(x, (2, 1), operator)
        assert np.isnan(y[0, 0])
        assert not np.isnan(y[1, 0])


def test_product_without_zeros_of_zeros_alone_is_one() -> None:
    assert reduce(np.zeros((1, 5), np.float32), (1, 1), Op.MUL_NO_ZEROS) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_are_pairwise_and_the_same_bits_in_every_layout(axis: int) -> None:
    """A running float32 sum of this many elements is off by several units in the fourth digit."""
    shape = (1_000_000, 2) if axis == 0 else (2, 1_000_000)
    x = np.random.default_rng(0).random(shape, np.float32) + np.float32(0.1)
    kept = (1, 2) if axis == 0 else (2, 1)
    exact = x.astype(np.float64).sum(axis=axis, keepdims=True)
    results = [reduce(view, kept, Op.ADD) for view in layouts(x)]
    np.testing.assert_allclose(results[0], exact, rtol=3e-7)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    np.testing.assert_array_equal(total(x, (axis,)), results[0])


def test_reduction_refuses_extents_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match="do not reduce"):
        reduce(np.ones((4, 6)), (4, 4), Op.ADD)


# Integer and stacked matrix products


def exact_product(a: np.ndarray, b: np.ndarray, bits: int) -> list[int]:
    product = np.matmul(a.astype(object), b.astype(object))
    return [(int(v) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for v in np.ravel(product)]


VALUES = {
    "int8": (np.int8, -128, 127),
    "uint8": (np.uint8, 0, 255),
    "int16": (np.int16, -(2**15), 2**15 - 1),
    "int32": (np.int32, -(2**31), 2**31 - 1),
    "int64": (np.int64, -(2**63), 2**63 - 1),
    "24bit": (np.int64, -(2**24), 2**24),
    "zero": (np.int64, 0, 0),
}


@pytest.mark.parametrize("k", [1, 7, 1301])
@pytest.mark.parametrize("out", [np.int32, np.int64])
@pytest.mark.parametrize(("first", "second"), list(itertools.product(VALUES, VALUES)))
def test_integer_products_are_exact(first: str, second: str, out: Any, k: int) -> None:
    rng = np.random.default_rng(k)
    (dtype_a, *range_a), (dtype_b, *range_b) = VALUES[first], VALUES[second]
    a = rng.integers(*range_a, (3, k), dtype=dtype_a, endpoint=True)
    b = rng.integers(*range_b, (k, 2), dtype=dtype_b, endpoint=True)
    a[0], a[1] = range_a  # rows of the extremes alone make the largest sums
    b[:, 0], b[:, 1] = range_b
    result = exact_matmul(a, b, out)
    assert result.dtype == out
    assert result.ravel().tolist() == exact_product(a, b, np.iinfo(out).bits)


def test_integer_products_of_stacks() -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(-(2**40), 2**40, (2, 1, 3, 5))
    b = rng.integers(-(2**40), 2**40, (4, 5, 2))
    result = exact_matmul(a, b, np.int64)
    assert result.shape == (2, 4, 3, 2)
    assert result.ravel().tolist() == exact_product(a, b, 64)


@st.composite
def stacks(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    a, b = [], []
    for _ in range(draw(st.integers(0, 2))):
        small, factor = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        first, second = (small, small * factor) if draw(st.booleans()) else (small * factor, small)
        a.append(first)
        b.append(second)
    m, k, n = (draw(st.integers(1, 5)) for _ in range(3))
    return (*a, m, k), (*b, k, n)


@settings(max_examples=80, deadline=None)
@given(stacks(), st.sampled_from([np.float32, np.float64, np.int32, np.int64]), st.integers(0, 99))
def test_stacked_products_share_consecutive_batches(
    extents: tuple[tuple[int, ...], tuple[int, ...]], dtype: Any, seed: int
) -> None:
    a, b = (np.round(100 * normal(seed + i, *e)).astype(dtype) for i, e in enumerate(extents))
    batch = tuple(map(max, a.shape[:-2], b.shape[:-2]))
    expected = np.zeros((*batch, a.shape[-2], b.shape[-1]))
    for place in np.ndindex(batch):
        pick_a, pick_b = (tuple(i * o.shape[d] // batch[d] for d, i in enumerate(place)) for o in (a, b))
        expected[place] = a[pick_a].astype(np.float64) @ b[pick_b].astype(np.float64)
    for view_a, view_b in zip(layouts(a), layouts(b), strict=True):
        result = matmul(view_a, view_b, dtype)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)  # small integers: exact in float32 as well


def test_stacked_products_refuse_batches_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match="do not divide"):
        matmul(np.ones((2, 1, 1)), np.ones((3, 1, 1)), np.float32)


# Resampling


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


# Normalization


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


# Random numbers

KNOWN_ANSWERS = [  # Random123, philox4x32-10: counter, key, result
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    words = tuple(np.array([c, 0], np.uint64) for c in counter)
    result = random.philox(words, key)  # type: ignore[arg-type]
    assert result.dtype == np.uint32
    assert tuple(result[0].tolist()) == expected
    assert result[1].tolist() != result[0].tolist() or counter == (0, 0, 0, 0)


def philox_by_loops(counter: list[int], key: list[int]) -> list[int]:
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            second >> 32 ^ counter[1] ^ key[0], second & 0xFFFFFFFF,
            first >> 32 ^ counter[3] ^ key[1], first & 0xFFFFFFFF,
        ]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


@settings(max_examples=60, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(1, 5))
def test_the_stream_counts_in_the_low_words(seed: int, offset: int, blocks: int) -> None:
    words = random.uniform_words(seed, offset, blocks)
    key = [seed % 2**64 & 0xFFFFFFFF, seed % 2**64 >> 32]
    for block in range(blocks):
        place = (offset + block) % 2**64
        assert words[block].tolist() == philox_by_loops([place & 0xFFFFFFFF, place >> 32, 0, 0], key)


def test_elements_take_the_lanes_in_row_major_order() -> None:
    y = random.generate((3, 5), RngDistribution.UNIFORM, 7, 11, {"minimum": 0.0, "maximum": 1.0})
    words = random.uniform_words(7, 11, 4).ravel()[:15]
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.ravel(), (words >> 8).astype(np.float32) * np.float32(2.0**-24))


@pytest.mark.parametrize("distribution", RngDistribution, ids=str)
def test_offsets_continue_a_stream(distribution: RngDistribution) -> None:
    parameters = {
        RngDistribution.BERNOULLI: {"probability": 0.5},
        RngDistribution.UNIFORM: {"minimum": -1.0, "maximum": 3.0},
        RngDistribution.NORMAL: {"mean": 1.0, "standard_deviation": 2.0},
    }[distribution]
    whole = random.generate((64,), distribution, 3, 0, parameters)
    np.testing.assert_array_equal(random.generate((4, 8), distribution, 3, 8, parameters).ravel(), whole[32:])
    assert not np.array_equal(random.generate((64,), distribution, 4, 0, parameters), whole)


def test_distributions_are_what_they_say() -> None:
    from scipy import stats

    n = 200_000
    uniform = random.generate((n,), RngDistribution.UNIFORM, 1, 2, {"minimum": -1.0, "maximum": 3.0})
    assert uniform.min() >= -1
    assert uniform.max() <= 3
    assert stats.kstest(uniform, stats.uniform(-1, 4).cdf).pvalue > 1e-3
    gauss = random.generate((n,), RngDistribution.NORMAL, 1, 2, {"mean": 1.0, "standard_deviation": 2.0})
    assert stats.kstest(gauss, stats.norm(1, 2).cdf).pvalue > 1e-3
    for lane in range(3):  # neighbours are independent, pairs of one Box-Muller draw too
        assert abs(np.corrcoef(gauss[lane::4], gauss[lane + 1 :: 4])[0, 1]) < 0.02
    coins = random.generate((n,), RngDistribution.BERNOULLI, 1, 2, {"probability": 0.3})
    assert set(np.unique(coins)) == {0.0, 1.0}
    assert abs(coins.mean() - 0.3) < 0.005


def test_bernoulli_is_below_the_probability() -> None:
    uniform = (random.uniform_words(5, 0, 1)[0] >> 8) * 2.0**-24
    drawn = random.generate((4,), RngDistribution.BERNOULLI, 5, 0, {"probability": float(uniform[1])})
    np.testing.assert_array_equal(drawn, uniform < uniform[1])


def test_bernoulli_at_the_ends() -> None:
    for probability in (0.0, 1.0):
        drawn = random.generate((1000,), RngDistribution.BERNOULLI, 5, 0, {"probability": probability})
        assert (drawn == probability).all()


def test_normal_numbers_are_finite_at_both_ends_of_the_uniform_range() -> None:
    lanes = np.array([[0.0, 0.0, 1 - 2.0**-24, 0.5]])
    drawn = random._normal(lanes, 0.0, 1.0).ravel()
    np.testing.assert_allclose(drawn, [math.sqrt(48 * math.log(2)), 0, 0, 0], atol=1e-12)
