"""Integer and stacked matrix products of the NumPy engine: against Python's integers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from host_numbers import layouts, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdnn.engines.host.integers import exact_matmul
from graphdnn.engines.host.matmul import matmul


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
