"""Matrix products and reductions end to end: exact integers, floats within the bound of their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pointwise_formulas import wrap
from problems import (
    EXAMPLES,
    FLOATS,
    INTEGERS,
    SEEDS,
    Tally,
    drawn,
    layouts,
    one,
    saturated,
    stored,
    tensor,
    three_layouts,
    tiny,
    unit,
    values_of,
    wrapped,
)
from test_host_reductions import SLOW_REDUCTIONS

from graphdnn.dtypes import COMPUTE, Array, data_type_of
from graphdnn.enums import ReductionOperator
from graphdnn.operations import Matmul, MatmulSpec, Reduction, ReductionSpec

R = ReductionOperator


# Matrix products.


@st.composite
def products(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents of a and b: per batch axis equal, or one a divisor of the other."""
    a, b = [], []
    for _ in range(draw(st.integers(0, 3))):
        small, factor = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        pair = draw(st.sampled_from([(small, small * factor), (small * factor, small)]))
        a.append(pair[0])
        b.append(pair[1])
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    return (*a, m, k), (*b, k, n)


def product_by_loops(a: Array, b: Array) -> Array:
    """Consecutive matrices of the larger batch share one of the smaller."""
    batch = tuple(map(max, a.shape[:-2], b.shape[:-2]))
    result = np.zeros((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    for place in np.ndindex(*batch):
        pick_a, pick_b = (tuple(i * o.shape[d] // batch[d] for d, i in enumerate(place)) for o in (a, b))
        result[place] = a[pick_a] @ b[pick_b]
    return result


def matmul(
    extents: tuple[tuple[int, ...], tuple[int, ...]], kinds: tuple[str, str, str], compute: Any, how: list[str]
) -> Matmul:
    a, b = extents
    batch = tuple(map(max, a[:-2], b[:-2]))
    specs = (
        tensor(uid, dims, kind, layout)
        for uid, dims, kind, layout in zip((1, 2, 3), (a, b, (*batch, a[-2], b[-1])), kinds, how, strict=True)
    )
    return Matmul(**dict(zip("abc", specs, strict=True)), spec=MatmulSpec(compute_type=compute))


@EXAMPLES
def test_matrix_products_stay_within_the_bound_of_their_types(examples: int) -> None:
    tally = Tally("matmul in floats")
    floats = st.sampled_from(FLOATS)

    @drawn(120 * examples)
    @given(
        products(),
        st.tuples(floats, floats, floats),
        st.sampled_from(("f32", "f64", "f16", "bf16")),
        three_layouts,
        SEEDS,
    )
    def check(extents: Any, kinds: tuple[str, str, str], compute: str, how: list[str], seed: int) -> None:
        op = matmul(extents, kinds, compute, how)
        rng = np.random.default_rng(seed)
        data = {spec.uid: values_of(spec, rng) for spec in (op.a, op.b)}
        wide = [data[uid].astype(np.float64) for uid in (1, 2)]
        exact, scale = product_by_loops(*wide), product_by_loops(*map(np.abs, wide))
        u = float(np.finfo(COMPUTE[data_type_of(compute)]).eps) / 2
        error = (extents[0][-1] + 8) * u * scale + (unit(kinds[2]) * np.abs(exact) + tiny(kinds[2])) * 1.001
        difference = np.abs(one(op, data).astype(np.float64) - stored(exact, kinds[2]))
        assert (difference <= error).all()
        tally.add(*kinds)

    check()
    tally.expect(FLOATS, at_least=5)


@EXAMPLES
def test_integer_matrix_products_are_exact(examples: int) -> None:
    tally = Tally("matmul in integers")

    @drawn(120 * examples)
    @given(products(), st.sampled_from(("i32", "i64")), st.data(), three_layouts, SEEDS, st.booleans())
    def check(extents: Any, compute: str, draw: Any, how: list[str], seed: int, extreme: bool) -> None:
        held = st.sampled_from(INTEGERS if compute == "i64" else INTEGERS[:-1])
        kinds = draw.draw(st.tuples(held, held, st.sampled_from(INTEGERS)))
        op = matmul(extents, kinds, compute, how)
        rng = np.random.default_rng(seed)
        data = {spec.uid: values_of(spec, rng, extreme=extreme) for spec in (op.a, op.b)}
        exact = product_by_loops(*(data[uid].astype(object) for uid in (1, 2)))
        expected = saturated(wrapped(exact, 32 if compute == "i32" else 64), kinds[2])
        np.testing.assert_array_equal(one(op, data), expected)
        tally.add(*kinds, compute)

    check()
    tally.expect([*INTEGERS, "i32", "i64"], at_least=3)


# Reductions.

EXACT_REDUCTIONS: dict[ReductionOperator, Callable[[list[int], int], int]] = {
    R.ADD: lambda v, bits: sum(v),
    R.MUL: lambda v, bits: math.prod(v),
    R.MIN: lambda v, bits: min(v),
    R.MAX: lambda v, bits: max(v),
    R.AMAX: lambda v, bits: max(wrap(abs(e), bits) for e in v),
    R.NORM1: lambda v, bits: sum(wrap(abs(e), bits) for e in v),
    R.MUL_NO_ZEROS: lambda v, bits: math.prod(e for e in v if e),
}


@st.composite
def reduced_extents(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    y = tuple(draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 5))))
    return tuple(extent * draw(st.sampled_from([1, 1, 2, 3])) for extent in y), y


def windows(x: Array, y_extents: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], list[Any]]]:
    groups = [wide // narrow for wide, narrow in zip(x.shape, y_extents, strict=True)]
    for place in np.ndindex(*y_extents):
        window = tuple(slice(i * g, (i + 1) * g) for i, g in zip(place, groups, strict=True))
        yield place, x[window].ravel().tolist()


@EXAMPLES
@pytest.mark.parametrize("operator", R, ids=str)
def test_floating_reductions(operator: ReductionOperator, examples: int) -> None:
    tally = Tally("reductions in floats")

    @drawn(25 * examples)
    @given(
        reduced_extents(),
        st.sampled_from(FLOATS),
        st.sampled_from(("f32", "f64", "f16", "bf16")),
        layouts,
        layouts,
        SEEDS,
    )
    def check(extents: Any, kind: str, compute: str, x_layout: str, y_layout: str, seed: int) -> None:
        x, y = tensor(1, extents[0], kind, x_layout), tensor(2, extents[1], compute, y_layout)
        data = values_of(x, np.random.default_rng(seed)).astype(np.float64)
        data[np.random.default_rng(seed).random(data.shape) < 0.2] = 0
        expected, scale = np.zeros(y.dims), np.zeros(y.dims)
        for place, window in windows(data, y.dims):
            expected[place] = SLOW_REDUCTIONS[operator](window)
            scale[place] = max(math.fsum(map(abs, window)), abs(expected[place]))
        op = Reduction(x=x, y=y, spec=ReductionSpec(operator=operator, compute_type=compute))
        u = float(np.finfo(COMPUTE[data_type_of(compute)]).eps)
        count = x.elements // y.elements
        error = (count + 4) * u * scale + unit(compute) * np.abs(expected) * 1.001 + tiny(compute)
        assert (np.abs(one(op, {1: data}).astype(np.float64) - expected) <= error).all()
        tally.add(kind, compute)

    check()
    tally.expect(["problems"], at_least=20)


@EXAMPLES
@pytest.mark.parametrize("operator", EXACT_REDUCTIONS, ids=str)
def test_integer_reductions_are_exact(operator: ReductionOperator, examples: int) -> None:
    tally = Tally("reductions in integers")

    @drawn(25 * examples)
    @given(reduced_extents(), st.sampled_from(("i32", "i64")), st.sampled_from(INTEGERS), layouts, SEEDS, st.booleans())
    def check(extents: Any, compute: str, output: str, layout: str, seed: int, extreme: bool) -> None:
        bits = 32 if compute == "i32" else 64
        x, y = tensor(1, extents[0], compute, layout), tensor(2, extents[1], output, layout)
        data = values_of(x, np.random.default_rng(seed), extreme=extreme)
        expected = np.zeros(y.dims, object)
        for place, window in windows(data, y.dims):
            expected[place] = wrap(EXACT_REDUCTIONS[operator](window, bits), bits)
        op = Reduction(x=x, y=y, spec=ReductionSpec(operator=operator, compute_type=compute))
        np.testing.assert_array_equal(one(op, {1: data}), saturated(expected, output))
        tally.add(compute)

    check()
    tally.expect(["i32", "i64"], at_least=3)
