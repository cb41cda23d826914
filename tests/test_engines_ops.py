"""Every operation but convolution end to end: formulas in Python, exact integers, NumPy, PyTorch and its autograd."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import (
    EXAMPLES,
    FLOATS,
    INTEGERS,
    LAYOUTS,
    Tally,
    bound,
    drawn,
    execute,
    nearest,
    numbers_of,
    one,
    plan_of,
    saturated,
    scalar,
    stored,
    tensor,
    tiny,
    unit,
    values_of,
    wrapped,
)
from test_host_numerics import SLOW_REDUCTIONS
from test_pointwise import DEFAULTS, EXACT, OTHERS, SCALAR, wrap

from graphdnn import OperationGraph, TensorSpec, fuse
from graphdnn.dtypes import COMPUTE, ELEMENTS, Array, data_type_of
from graphdnn.engines.host.memory import from_pointer, load
from graphdnn.enums import (
    BnFinalizeStatsMode,
    DataType,
    NormMode,
    NormPhase,
    PaddingMode,
    PointwiseMode,
    ReductionOperator,
    ResampleMode,
    ReshapeMode,
    RngDistribution,
)
from graphdnn.operations import (
    BnBackwardWeights,
    BnFinalize,
    Concat,
    GenStats,
    Matmul,
    MatmulSpec,
    NormBackward,
    NormForward,
    Operation,
    PointwiseOperation,
    PointwiseSpec,
    Reduction,
    ReductionSpec,
    ResampleBackward,
    ResampleForward,
    ResampleSpec,
    Reshape,
    Rng,
    RngSpec,
    Slice,
    Transpose,
)
from graphdnn.pointwise import COMPARISONS, LOGICALS, POINTWISE
from graphdnn.tensors import packed_strides

P = PointwiseMode
SEEDS = st.integers(0, 2**32 - 1)
layouts = st.sampled_from(list(LAYOUTS))
torch_only = pytest.mark.torch


# Pointwise.


def pointwise(
    mode: PointwiseMode, math_type: str, operands: list[TensorSpec], output: TensorSpec, **fields: Any
) -> PointwiseOperation:
    """The operands in the order of the mode's row; what is left in ``fields`` are parameters."""
    row = POINTWISE[mode]
    alphas = {name: fields.pop(name) for name in ("alpha1", "alpha2") if name in fields}
    spec = PointwiseSpec(mode=mode, math_type=math_type, **fields)
    ports = dict(zip(row.operands, operands, strict=True))
    return PointwiseOperation(spec=spec, **ports, **{"dx" if row.kind == "backward" else "y": output}, **alphas)


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


three_layouts = st.lists(layouts, min_size=3, max_size=3)


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

R = ReductionOperator
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


# Resampling.

M = ResampleMode
TORCH_PADDING = {PaddingMode.NEG_INF_PAD: -math.inf, PaddingMode.ZERO_PAD: 0.0}


@st.composite
def poolings(draw: st.DrawFn) -> ResampleSpec:
    """Asymmetric padding, narrower than the window so that each window holds an element."""
    s = draw(st.integers(1, 3))
    mode = draw(st.sampled_from((M.MAXPOOL, M.AVGPOOL_INCLUDE_PADDING, M.AVGPOOL_EXCLUDE_PADDING)))
    paddings = [PaddingMode.ZERO_PAD]
    if mode is not M.AVGPOOL_EXCLUDE_PADDING:
        paddings.append(PaddingMode.EDGE_VAL_PAD)
    if mode is M.MAXPOOL:
        paddings.append(PaddingMode.NEG_INF_PAD)
    window = [draw(st.integers(1, 3)) for _ in range(s)]
    return ResampleSpec(
        mode=mode, padding_mode=draw(st.sampled_from(paddings)), compute_type="f64", spatial_dims=s, window_dims=window,
        strides=[draw(st.integers(1, 3)) for _ in range(s)],
        pre_paddings=[draw(st.integers(0, w - 1)) for w in window],
        post_paddings=[draw(st.integers(0, w - 1)) for w in window],
    )  # fmt: skip


def torch_pooling(spec: ResampleSpec, x: Any) -> Any:
    """Padding by ``pad``, then pooling without."""
    import torch

    functional, s = torch.nn.functional, spec.spatial_dims
    pads = zip(reversed(spec.pre_paddings), reversed(spec.post_paddings), strict=True)
    padding = [int(amount) for pair in pads for amount in pair]
    window, strides = (tuple(map(int, v)) for v in (spec.window_dims, spec.strides))

    def pad(values: Any) -> Any:
        if spec.padding_mode is PaddingMode.EDGE_VAL_PAD:
            return functional.pad(values, padding, mode="replicate")
        return functional.pad(values, padding, value=TORCH_PADDING[spec.padding_mode])

    if spec.mode is M.MAXPOOL:
        return getattr(functional, f"max_pool{s}d")(pad(x), window, strides)
    average = getattr(functional, f"avg_pool{s}d")
    y = average(pad(x), window, strides)
    return y if spec.mode is M.AVGPOOL_INCLUDE_PADDING else y / average(pad(torch.ones_like(x)), window, strides)


def check_resampling(
    spec: ResampleSpec, x: Array, dy: Array, y: Any, dx: Any, how: list[str], index: str | None
) -> None:
    """Forward and backward through plans; a maximum goes back by its index and from x."""
    x_spec, y_spec = tensor(1, x.shape, "f64", how[0]), tensor(2, dy.shape, "f64", how[1])
    index_spec = None if index is None else tensor(3, dy.shape, index, how[2])
    found = execute(ResampleForward(spec=spec, x=x_spec, y=y_spec, index=index_spec), {1: x})
    np.testing.assert_allclose(found[2], y, rtol=1e-12, atol=1e-12)
    dx_spec, dy_spec = tensor(4, x.shape, "f64", how[2]), tensor(5, dy.shape, "f64", how[0])
    sources: list[dict[str, Any]] = [{}] if index is None else [{"index": index_spec}, {"x": x_spec}]
    for source in sources:
        op = ResampleBackward(spec=spec, dx=dx_spec, dy=dy_spec, **source)
        found_dx = one(op, {1: x, 5: dy, 3: found.get(3)} if source else {5: dy})
        np.testing.assert_allclose(found_dx, dx, rtol=1e-12, atol=1e-12)


@torch_only
@EXAMPLES
def test_pooling_equals_pytorch_forward_and_backward(examples: int) -> None:
    torch = pytest.importorskip("torch")
    tally = Tally("pooling against PyTorch")

    @drawn(150 * examples)
    @given(poolings(), st.integers(4, 6), three_layouts, st.sampled_from(("i8", "u8", "i16", "i32", "i64")), SEEDS)
    def check(spec: ResampleSpec, size: int, how: list[str], index: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((2, 3, *(size - i % 2 for i in range(spec.spatial_dims))))
        leaf = torch.from_numpy(x).requires_grad_()
        y = torch_pooling(spec, leaf)
        dy = rng.standard_normal(tuple(y.shape))
        y.backward(torch.from_numpy(dy))
        is_maximum = spec.mode is M.MAXPOOL
        check_resampling(spec, x, dy, y.detach().numpy(), leaf.grad.numpy(), how, index if is_maximum else None)
        tally.add(spec.mode.name, spec.padding_mode.name, f"{spec.spatial_dims}-D")

    check()
    tally.expect([M.MAXPOOL, M.AVGPOOL, M.AVGPOOL_EXCLUDE_PADDING, *PaddingMode, "1-D", "2-D", "3-D"], at_least=5)


@torch_only
@pytest.mark.parametrize("factor", [1, 2, 3])
@pytest.mark.parametrize("spatial", [(6,), (4, 5), (3, 2, 4)])
@pytest.mark.parametrize("mode", [M.NEAREST, M.BILINEAR], ids=str)
def test_interpolation_equals_pytorch(mode: ResampleMode, spatial: tuple[int, ...], factor: int) -> None:
    """Pixel centres, as ``interpolate`` places them with align_corners=False; 2x is the documented case."""
    torch = pytest.importorskip("torch")
    s = len(spatial)
    linear = mode is M.BILINEAR
    pre, window = (Fraction(1, 2), 2) if linear else (Fraction(0), 1)
    # As much padding at the end as gives factor * size outputs.
    post = Fraction(window) - pre - Fraction(1, factor)
    spec = ResampleSpec(
        mode=mode, padding_mode=PaddingMode.EDGE_VAL_PAD, compute_type="f64", spatial_dims=s, window_dims=[window] * s,
        strides=[Fraction(1, factor)] * s, pre_paddings=[pre] * s, post_paddings=[max(post, Fraction(0))] * s,
    )  # fmt: skip
    rng = np.random.default_rng(s)
    leaf = torch.from_numpy(rng.standard_normal((2, 3, *spatial))).requires_grad_()
    name = {1: "linear", 2: "bilinear", 3: "trilinear"}[s] if linear else "nearest"
    y = torch.nn.functional.interpolate(
        leaf, scale_factor=factor, mode=name, **({"align_corners": False} if linear else {})
    )
    dy = rng.standard_normal(tuple(y.shape))
    y.backward(torch.from_numpy(dy))
    x = leaf.detach().numpy()
    check_resampling(spec, x, dy, y.detach().numpy(), leaf.grad.numpy(), ["packed", "channels_last", "gaps"], None)


def max_pooling(compute: str, **fields: Any) -> ResampleSpec:
    plain = {
        "mode": M.MAXPOOL, "padding_mode": PaddingMode.NEG_INF_PAD, "compute_type": compute, "spatial_dims": 2,
        "window_dims": (2, 2), "strides": (2, 2), "pre_paddings": (0, 0), "post_paddings": (0, 0),
    }  # fmt: skip
    return ResampleSpec(**{**plain, **fields})


@pytest.mark.parametrize(("kind", "vector"), [*((kind, 1) for kind in INTEGERS), ("i8", 4), ("u8", 4), ("i8", 32)])
def test_integer_maxima_are_exact(kind: str, vector: int) -> None:
    fields = {"vector_count": vector, "vectorized_dimension": 1} if vector != 1 else {}
    x, y = tensor(1, (2, 2, 6, 6), kind, "gaps", **fields), tensor(2, (2, 2, 3, 3), kind, "channels_last", **fields)
    data = values_of(x, np.random.default_rng(0), extreme=True)
    expected = data.reshape(2, 2 * vector, 3, 2, 3, 2).max(axis=(3, 5))
    compute = "i64" if kind == "i64" else "i32"
    np.testing.assert_array_equal(one(ResampleForward(spec=max_pooling(compute), x=x, y=y), {1: data}), expected)


@pytest.mark.parametrize("beta", [0.0, -0.5])
def test_resampling_blends_with_alpha_and_beta(beta: float) -> None:
    dims, pooled = (1, 2, 4, 4), (1, 2, 2, 2)
    x, y = tensor(1, dims, "f64"), tensor(2, pooled, "f64", "gaps")
    rng = np.random.default_rng(0)
    data, old = rng.standard_normal(dims), rng.standard_normal(pooled)
    forward = ResampleForward(spec=max_pooling("f64"), x=x, y=y, alpha=3.0, beta=beta)
    largest = data.reshape(1, 2, 2, 2, 2, 2).max(axis=(3, 5))
    inputs = {1: data} if beta == 0 else {1: data, 2: old}
    np.testing.assert_allclose(one(forward, inputs), 3 * largest + beta * old, rtol=1e-14)
    spread = max_pooling("f64", mode=M.AVGPOOL, padding_mode=PaddingMode.ZERO_PAD)
    backward = ResampleBackward(spec=spread, dx=x, dy=y, alpha=3.0, beta=beta)
    inputs = {2: old} if beta == 0 else {1: data, 2: old}
    expected = 0.75 * old.repeat(2, axis=2).repeat(2, axis=3) + beta * data
    np.testing.assert_allclose(one(backward, inputs), expected, rtol=1e-14)


# Normalization and statistics.


def layer_axes(x: tuple[int, ...], scale: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a for a in range(len(x)) if scale[a] != 1)


def normalized(mode: NormMode, x: Any, scale: Any, bias: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    """PyTorch's function of each mode."""
    import torch

    functional = torch.nn.functional
    if mode is NormMode.BATCH_NORM:
        return functional.batch_norm(x, None, None, scale.flatten(), bias.flatten(), training=True, eps=epsilon)
    if mode is NormMode.INSTANCE_NORM:
        return functional.instance_norm(x, weight=scale.flatten(), bias=bias.flatten(), eps=epsilon)
    trailing = [x.shape[a] for a in axes]
    if mode is NormMode.RMS_NORM:
        y = functional.rms_norm(x, trailing, eps=epsilon) * scale
        return y if bias is None else y + bias
    return functional.layer_norm(x, trailing, eps=epsilon) * scale + bias


# mode, extents of x, of scale and bias, whether there is a bias
NORMS = [
    (NormMode.BATCH_NORM, (4, 3, 5), (1, 3, 1), True),
    (NormMode.BATCH_NORM, (4, 3), (1, 3), True),
    (NormMode.BATCH_NORM, (2, 3, 4, 5), (1, 3, 1, 1), True),
    (NormMode.BATCH_NORM, (2, 3, 2, 3, 4), (1, 3, 1, 1, 1), True),
    (NormMode.INSTANCE_NORM, (2, 3, 7), (1, 3, 1), True),
    (NormMode.INSTANCE_NORM, (2, 3, 4, 5), (1, 3, 1, 1), True),
    (NormMode.INSTANCE_NORM, (2, 3, 2, 3, 4), (1, 3, 1, 1, 1), True),
    (NormMode.LAYER_NORM, (6, 8), (1, 8), True),
    (NormMode.LAYER_NORM, (2, 3, 4, 5), (1, 3, 4, 5), True),
    (NormMode.LAYER_NORM, (2, 6, 8), (1, 1, 8), True),
    (NormMode.RMS_NORM, (2, 6, 8), (1, 1, 8), False),
    (NormMode.RMS_NORM, (6, 3, 4), (1, 3, 4), True),
    (NormMode.ADA_LAYER_NORM, (2, 6, 8), (2, 1, 8), True),
    (NormMode.ADA_LAYER_NORM, (6, 2, 8), (1, 2, 8), True),
]
NORM_IDS = [f"{mode.name.lower()}-{'x'.join(map(str, x))}" for mode, x, _, _ in NORMS]
TOLERANCE = {"f64": 1e-10, "f32": 2e-4, "f16": 2e-2, "bf16": 2e-1}
EPSILON = 1e-3


class NormProblem:
    """Tensors, values and PyTorch's results of one normalization."""

    def __init__(self, case: tuple[Any, ...], kind: str, layout: str) -> None:
        import torch

        self.mode, x, scale, has_bias = case
        self.kind, self.layout = kind, layout
        self.math = "f64" if kind == "f64" else "f32"
        self.axes = {
            NormMode.BATCH_NORM: tuple(a for a in range(len(x)) if a != 1),
            NormMode.INSTANCE_NORM: tuple(range(2, len(x))),
            NormMode.ADA_LAYER_NORM: (len(x) - 1,),
        }.get(self.mode, layer_axes(x, scale))
        self.statistic = tuple(1 if a in self.axes else extent for a, extent in enumerate(x))
        rng = np.random.default_rng(len(x))
        dtype = ELEMENTS[data_type_of(kind)].numpy
        self.x, self.dy = (rng.standard_normal(x).astype(dtype) for _ in range(2))
        self.scale = rng.standard_normal(scale).astype(ELEMENTS[data_type_of(self.math)].numpy)
        self.bias = rng.standard_normal(scale).astype(self.scale.dtype) if has_bias else None
        arrays = (self.x, self.scale, self.bias)
        leaves = [None if a is None else torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
        y = normalized(self.mode, *leaves, self.axes, EPSILON)
        y.backward(torch.tensor(self.dy.astype(np.float64)))
        self.y = y.detach().numpy()
        self.dx, self.dscale, self.dbias = (None if leaf is None else leaf.grad.numpy() for leaf in leaves)
        wide = self.x.astype(np.float64)
        self.mean = None if self.mode is NormMode.RMS_NORM else wide.mean(self.axes, keepdims=True)
        deviation = wide if self.mean is None else wide - self.mean
        self.inv = 1 / np.sqrt((deviation**2).mean(self.axes, keepdims=True) + EPSILON)

    def close(self, found: Array, expected: Array) -> None:
        near = TOLERANCE[self.kind]
        np.testing.assert_allclose(
            found.astype(np.float64), expected, rtol=near, atol=near * max(1, np.abs(expected).max())
        )

    def data_tensor(self, uid: int) -> TensorSpec:
        return tensor(uid, self.x.shape, self.kind, self.layout)

    def parameter(self, uid: int) -> TensorSpec:
        return tensor(uid, self.scale.shape, self.math)

    def statistics(self) -> dict[str, TensorSpec]:
        """mean 5 and inv_variance 6; RMS has no mean."""
        both = {"mean": 5, "inv_variance": 6}
        return {
            port: tensor(uid, self.statistic, self.math, "gaps")
            for port, uid in both.items()
            if port != "mean" or self.mean is not None
        }

    def forward(self, phase: NormPhase, **fields: Any) -> NormForward:
        return NormForward(
            mode=self.mode, phase=phase, math_type=self.math, x=self.data_tensor(1), y=self.data_tensor(2),
            scale=self.parameter(3), bias=None if self.bias is None else self.parameter(4), **fields,
        )  # fmt: skip

    @property
    def inputs(self) -> dict[int, Any]:
        given = {1: self.x, 3: self.scale, 4: self.bias, 7: EPSILON}
        return {uid: value for uid, value in given.items() if value is not None}


@pytest.fixture(
    params=[(c, k) for c in NORMS for k in TOLERANCE], ids=[f"{i}-{k}" for i in NORM_IDS for k in TOLERANCE]
)
def norm(request: pytest.FixtureRequest) -> NormProblem:
    pytest.importorskip("torch")
    case, kind = request.param
    return NormProblem(case, kind, "channels_last" if kind == "f32" else "gaps")


@torch_only
def test_norm_training_equals_pytorch(norm: NormProblem) -> None:
    epsilon = scalar(7, norm.x.ndim, norm.math)
    found = execute(norm.forward(NormPhase.TRAINING, epsilon=epsilon, **norm.statistics()), norm.inputs)
    norm.close(found[2], norm.y)
    norm.close(found[6], norm.inv)
    if norm.mean is not None:
        norm.close(found[5], norm.mean)
    Tally("norm against PyTorch").add()


@torch_only
def test_norm_inference_equals_pytorch(norm: NormProblem) -> None:
    """With given statistics, and but for batch norm also with statistics of x itself."""
    statistics = {5: norm.mean, 6: norm.inv} if norm.mean is not None else {6: norm.inv}
    inputs = {uid: value for uid, value in norm.inputs.items() if uid != 7} | statistics
    norm.close(one(norm.forward(NormPhase.INFERENCE, **norm.statistics()), inputs), norm.y)
    if norm.mode is not NormMode.BATCH_NORM:
        norm.close(
            one(norm.forward(NormPhase.INFERENCE, epsilon=scalar(7, norm.x.ndim, norm.math)), norm.inputs), norm.y
        )
    Tally("norm against PyTorch").add()


@torch_only
@pytest.mark.parametrize("saved", [True, False])
def test_norm_backward_equals_autograd(norm: NormProblem, saved: bool) -> None:
    """From saved statistics, and with statistics computed again."""
    epsilon = None if saved else scalar(7, norm.x.ndim, norm.math)
    op = NormBackward(
        mode=norm.mode, math_type=norm.math, x=norm.data_tensor(1), dy=norm.data_tensor(8), dx=norm.data_tensor(9),
        scale=norm.parameter(3), dscale=norm.parameter(10), dbias=None if norm.bias is None else norm.parameter(11),
        epsilon=epsilon, **(norm.statistics() if saved else {}),
    )  # fmt: skip
    given = {1: norm.x, 8: norm.dy, 3: norm.scale, 5: norm.mean, 6: norm.inv, 7: EPSILON}
    found = execute(op, {t.uid: given[t.uid] for t in op.inputs().values()})
    norm.close(found[9], norm.dx)
    norm.close(found[10], norm.dscale)
    if norm.bias is not None:
        norm.close(found[11], norm.dbias)
    Tally("norm against PyTorch").add()


def channel(uid: int, kind: str = "f64", **fields: Any) -> TensorSpec:
    return tensor(uid, (1, 3, 1, 1), kind, **fields)


X_DIMS = (4, 3, 5, 2)


def batch_norm_values() -> dict[str, Array]:
    rng = np.random.default_rng(7)
    values = {name: rng.standard_normal((1, 3, 1, 1)) for name in ("scale", "bias", "old_mean")}
    values |= {name: rng.standard_normal(X_DIMS) for name in ("x", "dy")}
    return values | {"old_var": rng.random((1, 3, 1, 1)) + 0.5}


def torch_batch_norm(values: dict[str, Array], momentum: float) -> dict[str, Array]:
    import torch

    leaves = {name: torch.tensor(values[name], requires_grad=True) for name in ("x", "scale", "bias")}
    mean, var = (torch.tensor(values[name].ravel()) for name in ("old_mean", "old_var"))
    y = torch.nn.functional.batch_norm(
        leaves["x"], mean, var, leaves["scale"].flatten(), leaves["bias"].flatten(), True, momentum, EPSILON
    )
    y.backward(torch.tensor(values["dy"]))
    gradients = {f"d{name}": leaf.grad.numpy() for name, leaf in leaves.items()}
    return {"y": y.detach().numpy(), "mean": mean.numpy(), "var": var.numpy(), **gradients}


@torch_only
def test_running_statistics_equal_pytorch() -> None:
    """By a norm operation; PyTorch's running variance is the unbiased one, too."""
    pytest.importorskip("torch")
    values, momentum = batch_norm_values(), 0.3
    expected = torch_batch_norm(values, momentum)
    op = NormForward(
        mode=NormMode.BATCH_NORM, phase=NormPhase.TRAINING, math_type="f64", x=tensor(1, X_DIMS, "f64"),
        y=tensor(2, X_DIMS, "f64"), scale=channel(3), bias=channel(4), epsilon=scalar(5, 4, "f64"),
        momentum=scalar(6, 4, "f64"), input_running_mean=channel(7), input_running_var=channel(8),
        output_running_mean=channel(9), output_running_var=channel(10),
    )  # fmt: skip
    inputs = {1: values["x"], 3: values["scale"], 4: values["bias"], 5: EPSILON, 6: momentum}
    found = execute(op, inputs | {7: values["old_mean"], 8: values["old_var"]})
    for uid, name in ((2, "y"), (9, "mean"), (10, "var")):
        np.testing.assert_allclose(found[uid].ravel(), expected[name].ravel(), rtol=1e-11, atol=1e-12)


@torch_only
def test_batch_norm_from_its_building_blocks_equals_pytorch() -> None:
    """genstats -> finalize -> x * eq_scale + eq_bias, in one graph of several kernels."""
    pytest.importorskip("torch")
    values, momentum = batch_norm_values(), 0.3
    expected = torch_batch_norm(values, momentum)
    x, y = tensor(1, X_DIMS, "f64", "channels_last"), tensor(2, X_DIMS, "f64", "gaps")
    inner = {uid: channel(uid, is_virtual=True) for uid in (20, 21, 22, 23)}
    scaled = tensor(24, X_DIMS, "f64", is_virtual=True)
    operations: list[Operation] = [
        GenStats(x=x, sum=inner[20], sqsum=inner[21], math_type="f64"),
        BnFinalize(
            mode=BnFinalizeStatsMode.TRAINING, math_type="f64", y_sum=inner[20], y_sq_sum=inner[21], scale=channel(3),
            bias=channel(4), previous_running_mean=channel(7), previous_running_var=channel(8),
            updated_running_mean=channel(9), updated_running_var=channel(10), saved_mean=channel(11),
            saved_inv_std=channel(12), eq_scale=inner[22], eq_bias=inner[23], epsilon=scalar(5, 4, "f64"),
            momentum=scalar(6, 4, "f64"), accumulation_count=scalar(13, 4, "i64"),
        ),
        pointwise(P.MUL, "f64", [x, inner[22]], scaled),
        pointwise(P.ADD, "f64", [scaled, inner[23]], y),
    ]  # fmt: skip
    inputs = {1: values["x"], 3: values["scale"], 4: values["bias"], 5: EPSILON, 6: momentum, 13: 40}
    found = execute(operations, inputs | {7: values["old_mean"], 8: values["old_var"]})
    mean = values["x"].mean((0, 2, 3))
    inv_std = 1 / np.sqrt(values["x"].var((0, 2, 3)) + EPSILON)
    for uid, wanted in ((2, expected["y"]), (9, expected["mean"]), (10, expected["var"]), (11, mean), (12, inv_std)):
        np.testing.assert_allclose(found[uid].ravel(), wanted.ravel(), rtol=1e-10, atol=1e-11)


@torch_only
def test_batch_norm_gradients_from_building_blocks_equal_autograd() -> None:
    """dscale, dbias, and dx = A * dy + B * x + C."""
    pytest.importorskip("torch")
    values = batch_norm_values()
    expected = torch_batch_norm(values, 0.1)
    op = BnBackwardWeights(
        math_type="f64", x=tensor(1, X_DIMS, "f64", "gaps"), dy=tensor(2, X_DIMS, "f64", "channels_last"),
        mean=channel(3), inv_std=channel(4), scale=channel(5), dscale=channel(6), dbias=channel(7),
        eq_dy_scale=channel(8), eq_x_scale=channel(9), eq_bias=channel(10),
    )  # fmt: skip
    mean = values["x"].mean((0, 2, 3), keepdims=True)
    inv_std = 1 / np.sqrt(values["x"].var((0, 2, 3), keepdims=True) + EPSILON)
    found = execute(op, {1: values["x"], 2: values["dy"], 3: mean, 4: inv_std, 5: values["scale"]})
    dx = found[8] * values["dy"] + found[9] * values["x"] + found[10]
    for result, name in ((found[6], "dscale"), (found[7], "dbias"), (dx, "dx")):
        np.testing.assert_allclose(result, expected[name], rtol=1e-10, atol=1e-11)


def test_finalization_in_inference_reads_only_the_running_statistics() -> None:
    values = batch_norm_values()
    names = ("y_sum", "y_sq_sum", "scale", "bias", "previous_running_mean", "previous_running_var")
    outputs = ("saved_mean", "saved_inv_std", "eq_scale", "eq_bias")
    ports = {name: channel(uid) for uid, name in enumerate((*names, *outputs), start=1)}
    op = BnFinalize(
        mode=BnFinalizeStatsMode.INFERENCE, math_type="f64", **ports, epsilon=scalar(20, 4, "f64"),
        momentum=scalar(21, 4, "f64"), accumulation_count=scalar(22, 4, "i64"),
    )  # fmt: skip
    unused = {1: np.full((1, 3, 1, 1), np.nan), 2: np.full((1, 3, 1, 1), np.nan), 21: np.nan, 22: 0}
    found = execute(
        op, unused | {3: values["scale"], 4: values["bias"], 5: values["old_mean"], 6: values["old_var"], 20: EPSILON}
    )
    expected = (values["x"] - values["old_mean"]) / np.sqrt(values["old_var"] + EPSILON) * values["scale"] + values[
        "bias"
    ]
    np.testing.assert_allclose(found[9] * values["x"] + found[10], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dims", [(5, 3), (4, 3, 6), (2, 3, 4, 5), (2, 3, 2, 3, 2)])
@pytest.mark.parametrize("kind", ["f64", "f32", "f16", "bf16"])
def test_sums_per_channel(kind: str, dims: tuple[int, ...]) -> None:
    per_channel = (1, 3, *(1,) * (len(dims) - 2))
    math_type = "f64" if kind == "f64" else "f32"
    x = tensor(1, dims, kind, "channels_last")
    op = GenStats(
        x=x, sum=tensor(2, per_channel, math_type), sqsum=tensor(3, per_channel, math_type), math_type=math_type
    )
    data = values_of(x, np.random.default_rng(0)).astype(np.float64)
    axes = tuple(a for a in range(len(dims)) if a != 1)
    found = execute(op, {1: data})
    near = 1e-12 if kind == "f64" else 1e-5
    np.testing.assert_allclose(found[2], data.sum(axes, keepdims=True), rtol=near, atol=near)
    np.testing.assert_allclose(found[3], (data**2).sum(axes, keepdims=True), rtol=near, atol=near)


# Movement.

EVERY_TYPE = [*FLOATS, *INTEGERS, "bool", "boolean"]


def same_bits(found: Array, expected: Array) -> None:
    """NaN included."""
    assert found.shape == expected.shape
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


@EXAMPLES
@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_movement_equals_numpy_bit_for_bit(kind: str, examples: int) -> None:
    """concat, transpose, slice and LOGICAL reshape between any two layouts."""
    tally = Tally("movement")

    @drawn(15 * examples)
    @given(st.lists(st.integers(1, 4), min_size=1, max_size=5), three_layouts, st.data(), SEEDS)
    def check(dims: list[int], how: list[str], draw: Any, seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = tensor(1, dims, kind, how[0])
        data = values_of(x, rng, extreme=True)

        permutation = draw.draw(st.permutations(range(len(dims))))
        y = tensor(2, [dims[a] for a in permutation], kind, how[1])
        same_bits(one(Transpose(x=x, y=y, permutation=permutation), {1: data}), data.transpose(permutation))

        cut = [
            (lambda a, b: (a, b))(
                *sorted(draw.draw(st.tuples(st.integers(0, d), st.integers(0, d)).filter(lambda p: p[0] != p[1])))
            )
            for d in dims
        ]
        steps = [draw.draw(st.integers(1, 3)) for _ in dims]
        expected = data[tuple(slice(a, b, s) for (a, b), s in zip(cut, steps, strict=True))]
        op = Slice(
            x=x, y=tensor(2, expected.shape, kind, how[1]), starts=[a for a, _ in cut], limits=[b for _, b in cut],
            slice_strides=steps,
        )  # fmt: skip
        same_bits(one(op, {1: data}), expected)

        axis = draw.draw(st.integers(0, len(dims) - 1))
        other = tensor(2, [d + 1 if a == axis else d for a, d in enumerate(dims)], kind, how[1])
        more = values_of(other, rng, extreme=True)
        joined = np.concatenate([data, more, data], axis=axis)
        y = tensor(3, joined.shape, kind, how[2])
        same_bits(one(Concat(inputs_list=(x, other, x), y=y, axis=axis), {1: data, 2: more}), joined)

        y = tensor(2, (data.size,) if len(dims) > 1 else (1, data.size, 1), kind, how[1])
        same_bits(one(Reshape(x=x, y=y, mode=ReshapeMode.LOGICAL), {1: data}), data.reshape(y.dims))
        tally.add()

    check()
    tally.expect(["problems"], at_least=10)


@pytest.mark.parametrize("vectors", [(1, 1), (4, 1), (1, 4), (4, 4)])
@pytest.mark.parametrize(("x_layout", "y_layout"), list(product(("packed", "channels_last", "reversed"), repeat=2)))
def test_a_view_is_the_same_memory(x_layout: str, y_layout: str, vectors: tuple[int, int]) -> None:
    def described(uid: int, dims: tuple[int, ...], layout: str, vector: int) -> TensorSpec:
        fields = {"vector_count": vector, "vectorized_dimension": 1} if vector != 1 else {}
        return tensor(uid, (dims[0], dims[1] // vector, *dims[2:]), "i8", layout, **fields)

    x, y = described(1, (2, 8, 3), x_layout, vectors[0]), described(2, (3, 4, 2, 2), y_layout, vectors[1])
    data = values_of(x, np.random.default_rng(0), extreme=True)
    memory = bound(x, data)
    expected = load(from_pointer(memory.__array_interface__["data"][0], y), y)
    same_bits(one(Reshape(x=x, y=y), {1: data}), expected)


# Random numbers.


def philox(key: int, counter: int) -> list[int]:
    """Philox4x32-10 of one counter, in Python integers."""
    c, k, mask = (
        [counter >> 32 * i & 0xFFFFFFFF for i in range(4)],
        [key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF],
        0xFFFFFFFF,
    )
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & mask, first >> 32 ^ c[3] ^ k[1], first & mask]
        k = [k[0] + 0x9E3779B9 & mask, k[1] + 0xBB67AE85 & mask]
    return c


def uniforms(seed: int, offset: int, count: int) -> Array:
    words = [word for block in range(-(-count // 4)) for word in philox(seed % 2**64, (offset + block) % 2**64)]
    return np.array([(word >> 8) * 2.0**-24 for word in words[:count]])


UNIFORM = RngSpec(distribution=RngDistribution.UNIFORM, minimum=-1.0, maximum=3.0)


def rng_operation(
    dims: tuple[int, ...], seed: Any, spec: RngSpec = UNIFORM, kind: str = "f32", layout: str = "packed"
) -> Rng:
    return Rng(y=tensor(1, dims, kind, layout), spec=spec, seed=seed, offset=scalar(2, 1, "i64"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(13,), (3, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (-1, 7), (2**62 + 12345, 2**63 - 3), (1234567, -2)])
def test_random_numbers_follow_philox_in_every_layout(
    seed: int, offset: int, dims: tuple[int, ...], layout: str
) -> None:
    found = one(rng_operation(dims, seed, layout=layout), {2: np.int64(offset)})
    expected = -1.0 + 4.0 * uniforms(seed, offset, math.prod(dims)).reshape(dims)
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_random_numbers_are_reproducible_and_continue() -> None:
    whole = one(rng_operation((32,), 5), {2: 100})
    np.testing.assert_array_equal(whole, one(rng_operation((32,), 5), {2: 100}))
    np.testing.assert_array_equal(whole[16:], one(rng_operation((16,), 5), {2: 104}))
    assert (whole != one(rng_operation((32,), 6), {2: 100})).any()
    for kind in ("i32", "i64"):
        np.testing.assert_array_equal(whole, one(rng_operation((32,), scalar(3, 1, kind)), {2: 100, 3: 5}))
        in_memory = tensor(3, (1,), kind)
        np.testing.assert_array_equal(whole, one(rng_operation((32,), in_memory), {2: 100, 3: [5]}))


@pytest.mark.parametrize("kind", ["f32", "f64", "bool", "boolean", "i8", "e4m3"])
def test_bernoulli_numbers_are_ones_and_zeros_in_every_type(kind: str) -> None:
    spec = RngSpec(distribution=RngDistribution.BERNOULLI, probability=0.3)
    found = one(rng_operation((40, 50), 9, spec, kind), {2: 0}).astype(np.float64)
    np.testing.assert_array_equal(found, (uniforms(9, 0, 2000) < 0.3).reshape(40, 50))
    assert 0.25 < found.mean() < 0.35


def test_normal_numbers_have_their_moments() -> None:
    spec = RngSpec(distribution=RngDistribution.NORMAL, mean=2.0, standard_deviation=0.5)
    found = one(rng_operation((100, 101), 1, spec), {2: 0})
    assert abs(found.mean() - 2.0) < 0.02
    assert abs(found.std() - 0.5) < 0.02
    u = uniforms(1, 0, 8)
    radius = np.sqrt(-2 * np.log(u[0::2] + 2.0**-24))
    pairs = np.stack([radius * np.cos(2 * np.pi * u[1::2]), radius * np.sin(2 * np.pi * u[1::2])], axis=1)
    np.testing.assert_allclose(found.ravel()[:8], 2.0 + 0.5 * pairs.ravel(), rtol=1e-6)


# Graphs.


def test_one_tensor_on_both_ports_of_a_product() -> None:
    """The chain that feeds both ports becomes one prologue."""
    x, squares = tensor(1, (3, 3)), tensor(2, (3, 3), is_virtual=True)
    operations = [
        pointwise(P.RELU_FWD, "f32", [x], squares),
        Matmul(a=squares, b=squares, c=tensor(3, (3, 3)), spec=MatmulSpec(compute_type="f32")),
    ]
    assert len(fuse(OperationGraph.of(operations))) == 1
    data = np.arange(9.0).reshape(3, 3) - 4
    np.testing.assert_array_equal(execute(operations, {1: data})[3], np.maximum(data, 0) @ np.maximum(data, 0))


def test_softmax_as_a_graph() -> None:
    """MAX -> SUB -> EXP -> ADD -> DIV over several kernels, through virtual tensors."""
    dims, row = (2, 5, 7), (2, 5, 1)
    x, y = tensor(1, dims, "f16"), tensor(2, dims)
    most, total = (tensor(uid, row, is_virtual=True) for uid in (3, 4))
    shifted, powers = (tensor(uid, dims, is_virtual=True) for uid in (5, 6))
    operations: list[Operation] = [
        Reduction(x=x, y=most, spec=ReductionSpec(operator=R.MAX, compute_type="f32")),
        pointwise(P.SUB, "f32", [x, most], shifted),
        pointwise(P.EXP, "f32", [shifted], powers),
        Reduction(x=powers, y=total, spec=ReductionSpec(operator=R.ADD, compute_type="f32")),
        pointwise(P.DIV, "f32", [powers, total], y),
    ]
    data = values_of(x, np.random.default_rng(0)).astype(np.float64) * 4
    expected = np.exp(data - data.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(execute(operations, {1: data})[2], expected, rtol=1e-5)


@pytest.mark.parametrize("magnitude", [1e300, -1e300])
def test_operands_beyond_float_overflow_quietly(magnitude: float) -> None:
    """DOUBLE values in FLOAT arithmetic become infinite, without a warning."""
    x, y = tensor(1, (4,), "f64"), tensor(2, (4,))
    found = one(pointwise(P.IDENTITY, "f32", [x], y), {1: np.full(4, magnitude)})
    np.testing.assert_array_equal(found, np.full(4, math.copysign(math.inf, magnitude)))
    op = Reduction(x=x, y=tensor(2, (1,)), spec=ReductionSpec(operator=R.ADD, compute_type=DataType.FLOAT))
    assert packed_strides(op.y.dims) == op.y.strides
    np.testing.assert_array_equal(one(op, {1: np.full(4, magnitude)}), [math.copysign(math.inf, magnitude)])
