"""Reductions of the NumPy engine: against loops, exact integers, the same bits in every layout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from host_numbers import layouts, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdnn.engines.host.reduction import reduce, total
from graphdnn.enums import ReductionOperator as Op

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
