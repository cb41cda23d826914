"""Pointwise operations, conversions and vectorised tensors end to end: formulas in Python, exact integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pointwise_formulas import DEFAULTS, EXACT, OTHERS, SCALAR
from problems import (
    EXAMPLES,
    FLOATS,
    INTEGERS,
    LAYOUTS,
    SEEDS,
    Tally,
    bound,
    drawn,
    execute,
    layouts,
    nearest,
    numbers_of,
    one,
    plan_of,
    pointwise,
    saturated,
    stored,
    tensor,
    values_of,
    wrapped,
)

from graphdnn import OperationGraph, fuse
from graphdnn.dtypes import ELEMENTS, Array, data_type_of
from graphdnn.enums import PointwiseMode
from graphdnn.operations import Matmul, MatmulSpec
from graphdnn.operations.pointwise_modes import COMPARISONS, LOGICALS, POINTWISE

P = PointwiseMode


# Pointwise.


def parameters_of(mode: PointwiseMode, chosen: dict[str, float]) -> dict[str, float]:
    return {name: chosen[name] for name in POINTWISE[mode].parameters}


def by_element(function: Callable[..., Any], *operands: Array, **parameters: float) -> Array:
    columns = [o.tolist() for o in np.broadcast_arrays(*operands)]
    flat = zip(*(np.array(c, object).ravel() for c in columns), strict=True)
    return np.array([function(*row, **parameters) for row in flat], object).reshape(
        np.broadcast_shapes(*(o.shape for o in operands))
    )


SHAPES: list[list[tuple[int, ...]]] = [
    [(7,)] * 3,
    [(2, 3, 4), (1, 3, 1), (2, 1, 4)],
    [(1, 5, 1, 1), (2, 5, 3, 2), (1, 1, 1, 2)],
    [(1, 2, 1, 2, 1, 2, 1, 3), (2, 1, 1, 2, 1, 1, 1, 3), (1, 1, 1, 1, 1, 1, 1, 1)],
]


@pytest.mark.parametrize("chosen", [DEFAULTS, OTHERS], ids=["defaults", "other"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("mode", SCALAR, ids=str)
def test_pointwise_formulas(mode: PointwiseMode, kind: str, chosen: dict[str, float]) -> None:
    """Every mode in FLOAT and DOUBLE over broadcast operands of several ranks and layouts, scaled by alpha."""
    tally = Tally("pointwise in floats")
    rng = np.random.default_rng(int(mode))
    parameters, count = parameters_of(mode, chosen), len(POINTWISE[mode].operands)
    alphas = {"alpha1": 2.0, "alpha2": -0.5} if chosen is OTHERS and mode is not P.POW else {}
    for shapes, layout in product(SHAPES, LAYOUTS):
        specs = [tensor(uid, dims, kind, layout) for uid, dims in enumerate(shapes[:count])]
        data = [rng.integers(1, 11, s.dims) / 8 * (1 if mode is P.POW else rng.choice([-1, 1], s.dims)) for s in specs]
        alphas = {name: alphas[name] for name in list(alphas)[:count]}
        output = tensor(9, np.broadcast_shapes(*(s.dims for s in specs)), kind, layout)
        found = one(pointwise(mode, kind, specs, output, **parameters, **alphas), dict(enumerate(data)))
        scaled = [d * alphas.get(f"alpha{i + 1}", 1.0) for i, d in enumerate(data)]
        expected = by_element(SCALAR[mode], *scaled, **parameters).astype(np.float64)
        near = 1e-11 if kind == "f64" else 3e-5
        np.testing.assert_allclose(found, expected, rtol=near, atol=near)
        tally.add()
    tally.expect(["problems"], at_least=20)


@st.composite
def integer_problems(draw: st.DrawFn, mode: PointwiseMode) -> dict[str, Any]:
    math_type = draw(st.sampled_from(("i32", "i64")))
    held = INTEGERS if math_type == "i64" else INTEGERS[:-1]
    count = len(POINTWISE[mode].operands)
    return {
        "math_type": math_type,
        "operands": [draw(st.sampled_from(held)) for _ in range(count)],
        "output": draw(st.sampled_from(INTEGERS)),
        "alphas": {f"alpha{i + 1}": float(draw(st.sampled_from((1, 1, 3)))) for i in range(count)},
        "layout": draw(layouts),
        "shapes": draw(st.sampled_from(SHAPES))[:count],
    }


@EXAMPLES
@pytest.mark.parametrize("mode", EXACT, ids=str)
def test_pointwise_integers_are_exact(mode: PointwiseMode, examples: int) -> None:
    """Bit for bit with Python integers: wrapping arithmetic, saturating output."""
    tally = Tally("pointwise in integers")

    @drawn(25 * examples)
    @given(integer_problems(mode), SEEDS, st.booleans())
    def check(p: dict[str, Any], seed: int, extreme: bool) -> None:
        rng, bits = np.random.default_rng(seed), 32 if p["math_type"] == "i32" else 64
        specs = [
            tensor(uid, dims, kind, p["layout"])
            for uid, (dims, kind) in enumerate(zip(p["shapes"], p["operands"], strict=True))
        ]
        data = [values_of(spec, rng, extreme=extreme) for spec in specs]
        output = tensor(9, np.broadcast_shapes(*(s.dims for s in specs)), p["output"], p["layout"])
        op = pointwise(mode, p["math_type"], specs, output, **parameters_of(mode, DEFAULTS), **p["alphas"])
        scaled = [wrapped(d.astype(object) * int(a), bits) for d, a in zip(data, p["alphas"].values(), strict=True)]
        expected = saturated(wrapped(by_element(EXACT[mode], *scaled), bits), p["output"])
        np.testing.assert_array_equal(one(op, dict(enumerate(data))), expected)
        tally.add(p["math_type"], p["output"])

    check()
    tally.expect(["i32", "i64"], at_least=3)


@pytest.mark.parametrize("storage", ["f32", "i8", "boolean", "bool"])
@pytest.mark.parametrize("math_type", ["f32", "i32", "i64"])
@pytest.mark.parametrize("mode", [*COMPARISONS, *LOGICALS], ids=str)
def test_truth_is_one_or_zero_in_every_storage(mode: PointwiseMode, math_type: str, storage: str) -> None:
    count = len(POINTWISE[mode].operands)
    specs = [tensor(uid, dims, math_type) for uid, dims in enumerate([(3, 5), (1, 5)][:count])]
    data = [np.random.default_rng(uid).integers(-1, 2, s.dims) for uid, s in enumerate(specs)]
    output = tensor(9, (3, 5), storage, "gaps")
    expected = by_element(SCALAR[mode], *data).astype(bool)
    np.testing.assert_array_equal(one(pointwise(mode, math_type, specs, output), dict(enumerate(data))), expected)


@pytest.mark.parametrize("storage", ["boolean", "bool"])
@pytest.mark.parametrize("mode", [*COMPARISONS, *LOGICALS, P.IDENTITY, P.BINARY_SELECT], ids=str)
def test_boolean_arithmetic(mode: PointwiseMode, storage: str) -> None:
    dims = (2, 2, 2, 3)
    specs = [tensor(uid, dims, storage) for uid in range(len(POINTWISE[mode].operands))]
    data = [np.random.default_rng(5 + uid).random(dims) < 0.5 for uid in range(len(specs))]
    expected = by_element(SCALAR[mode], *data).astype(bool)
    found = one(pointwise(mode, "boolean", specs, tensor(9, dims, storage)), dict(enumerate(data)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dims", [(1,), (8,), (9,), (2, 3, 5), (1, 3, 7, 5)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_booleans_in_memory(layout: str, dims: tuple[int, ...]) -> None:
    """Element i lies in bit i % 8 of byte i // 8 of its address, and bits between the elements stay as they are."""
    x, y = tensor(1, dims, "f32"), tensor(2, dims, "boolean", layout)
    data = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    zeros = tensor(3, (1,) * len(dims), "f32")
    graph = OperationGraph.of([pointwise(P.CMP_GT, "f32", [x, zeros], y)])
    bindings = {1: bound(x, data), 2: bound(y), 3: bound(zeros, 0.0)}
    plan_of(graph).execute(bindings)
    bits = np.unpackbits(bindings[2], bitorder="little")
    expected = np.ones_like(bits)  # the poison
    for place in np.ndindex(*dims):
        expected[sum(i * s for i, s in zip(place, y.strides, strict=True))] = data[place] > 0
    np.testing.assert_array_equal(bits, expected)


@pytest.mark.parametrize("predicate", ["boolean", "bool", "i8", "f32", "e4m3"])
@pytest.mark.parametrize("kind", ["f16", "i32"])
def test_selection_by_predicates_of_any_type(kind: str, predicate: str) -> None:
    dims = (3, 4)
    x, b, t, y = tensor(1, dims, kind), tensor(2, (1, 4), kind), tensor(3, dims, predicate), tensor(4, dims, kind)
    rng = np.random.default_rng(0)
    data = {1: rng.integers(-9, 9, dims), 2: rng.integers(-9, 9, (1, 4)), 3: rng.integers(0, 2, dims)}
    op = pointwise(P.BINARY_SELECT, "i32" if kind == "i32" else "f32", [x, b, t], y, alpha2=2.0)
    np.testing.assert_array_equal(one(op, data).astype(int), np.where(data[3], data[1], 2 * data[2]))


@pytest.mark.parametrize("kind", ["i8", "i32", "i64", "f32"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_indices_saturate_like_any_integer(axis: int, kind: str) -> None:
    dims = (2, 3, 200)
    x, y = tensor(1, dims, "f16", "channels_last"), tensor(2, dims, kind, "gaps")
    found = one(pointwise(P.GEN_INDEX, "f32", [x], y, axis=axis), {1: np.full(dims, np.nan)})
    np.testing.assert_array_equal(found, stored(np.indices(dims)[axis], kind))


# Conversion.


def critical_values(source: str, target: str) -> Array:
    """Values of ``source`` around which rounding to ``target`` decides: numbers, middles, and their neighbours."""
    rng = np.random.default_rng(0)
    wide = rng.standard_normal(500) * 10.0 ** rng.integers(-9, 9, 500)
    points = [wide, np.array([0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 128.5, -128.5, 255.5, 2147483647.5])]
    if target in ("f16", "bf16", "e4m3", "e5m2"):
        numbers = numbers_of(target)
        numbers = np.append(numbers, 2 * numbers[-1] - numbers[-2])
        points += [numbers, (numbers[1:] + numbers[:-1]) / 2]
    values = np.concatenate(points)
    if source in ("i32", "i64"):
        whole = np.unique(np.rint(values[np.abs(values) < 2.0 ** (31 if source == "i32" else 53) - 2]))
        return np.concatenate([whole, whole + 1, whole - 1]).astype(np.int64)
    kind = ELEMENTS[data_type_of(source)].numpy
    values = values[np.abs(values) < ELEMENTS[data_type_of(source)].largest].astype(kind)
    around = [values, np.nextafter(values, kind.type(np.inf)), np.nextafter(values, kind.type(-np.inf))]
    return np.concatenate([*around, np.array([np.inf, -np.inf, np.nan], kind)])


def converted(values: Array, target: str) -> Array:
    """The definition: one rounding, ties to even, saturation in integers and fp8, NaN to 0 in integers."""
    element = ELEMENTS[data_type_of(target)]
    if element.kind == "bool":
        return values != 0
    if element.kind == "int":
        limits = {math.inf: element.largest, -math.inf: element.smallest}
        whole = [
            0 if math.isnan(v) else round(v) if math.isfinite(v) else int(limits[v]) for v in values.ravel().tolist()
        ]
        return saturated(np.array(whole, object).reshape(values.shape), target)
    if target in ("f32", "f64"):
        with np.errstate(over="ignore"):
            return values.astype(element.numpy)
    return nearest(values.astype(np.float64), target)


@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS, "bool", "boolean"])
@pytest.mark.parametrize("source", ["f64", "f32", "i64", "i32"])
def test_conversions_round_once_to_nearest_even_and_saturate(source: str, target: str) -> None:
    tally = Tally("conversions")
    values = np.concatenate([critical_values(source, target), -critical_values(source, target)])
    x, y = tensor(1, values.shape, source), tensor(2, values.shape, target)
    found = one(pointwise(P.IDENTITY, source, [x], y), {1: values})
    expected = converted(values, target)
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    if ELEMENTS[data_type_of(target)].kind == "int":
        np.testing.assert_array_equal(found, expected)  # int64 does not fit into float64
    tally.add()


@pytest.mark.parametrize("materialized", [False, True])
@pytest.mark.parametrize("kind", ["f16", "bf16", "e4m3", "e5m2", "i8", "u8"])
def test_a_value_between_operations_is_rounded_to_its_type(kind: str, materialized: bool) -> None:
    """In registers as in memory: a virtual tensor of type HALF rounds to HALF."""
    dims = (2, 40, 5)
    x, b, c, y = tensor(1, dims), tensor(2, (1, 40, 1)), tensor(3, (1, 1, 1)), tensor(4, dims)
    between = tensor(5, dims, kind, is_virtual=not materialized)
    operations = [pointwise(P.ADD, "f32", [x, b], between), pointwise(P.MUL, "f32", [between, c], y)]
    rng = np.random.default_rng(3)
    data = {
        1: 9 * rng.standard_normal(dims).astype(np.float32),
        2: rng.standard_normal((1, 40, 1)).astype(np.float32),
        3: [3.0],
    }
    assert len(fuse(OperationGraph.of(operations))) == 1
    total = data[1] + data[2]
    expected = np.float32(3.0) * converted(total, kind).astype(np.float32)
    found = execute(operations, data)
    np.testing.assert_array_equal(found[4], expected)
    assert (expected != np.float32(3.0) * total).mean() > 0.5  # rounding was to be seen
    if materialized:
        np.testing.assert_array_equal(found[5].astype(np.float32), converted(total, kind).astype(np.float32))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_a_tensor_between_kernels_is_rounded_to_its_type(kind: str) -> None:
    """Through the workspace: two products cannot be one kernel."""
    a, b, c, d = tensor(1, (1, 4, 6)), tensor(2, (1, 6, 5)), tensor(3, (1, 5, 2)), tensor(4, (1, 4, 2))
    between = tensor(5, (1, 4, 5), kind, "channels_last", is_virtual=True)
    spec = MatmulSpec(compute_type="f32")
    operations = [Matmul(a=a, b=b, c=between, spec=spec), Matmul(a=between, b=c, c=d, spec=spec)]
    assert len(fuse(OperationGraph.of(operations))) == 2
    rng = np.random.default_rng(0)
    data = {t.uid: rng.integers(-40, 40, t.dims) * 1.125 for t in (a, b, c)}  # exact in float32
    first = data[1] @ data[2]
    rounded = first if kind == "f32" else nearest(first, kind)
    np.testing.assert_allclose(execute(operations, data)[4], rounded @ data[3], rtol=1e-6)
    assert kind == "f32" or (rounded != first).any()


# Vectorised int8.


@pytest.mark.parametrize("spatial", [(), (5,), (2, 3), (2, 2, 2)])
@pytest.mark.parametrize("vector", [4, 32])
@pytest.mark.parametrize("kind", ["i8", "u8"])
def test_vectorised_tensors_equal_plain_ones(kind: str, vector: int, spatial: tuple[int, ...]) -> None:
    dims, packed = (2, 2 * vector, *spatial), (2, 2, *spatial)
    fields: dict[str, Any] = {"vector_count": vector, "vectorized_dimension": 1}
    x, y = tensor(1, packed, kind, "gaps", **fields), tensor(3, packed, kind, "channels_last", **fields)
    bias = tensor(2, (1, 2, *(1,) * len(spatial)), kind, **fields)
    rng = np.random.default_rng(vector)
    data = {spec.uid: values_of(spec, rng, extreme=True) for spec in (x, bias)}
    assert data[1].shape == dims
    expected = saturated(data[1].astype(object) + data[2].astype(object), kind)
    np.testing.assert_array_equal(one(pointwise(P.ADD, "i32", [x, bias], y), data), expected)
