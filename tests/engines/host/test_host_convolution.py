"""The two convolutions of the NumPy engines: plain loops, adjointness, exact integers, layouts, memory, torch."""

from __future__ import annotations

import importlib.util
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graphdnn.engines.host import (
    convolution,
    convolution_blocks,
    convolution_matrices,
    convolution_sums,
    convolution_taps,
)
from graphdnn.operations.conv_problem import ConvProblem, output_extent
from graphdnn.problem import parse

pytestmark = pytest.mark.filterwarnings("error")
without_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

Array = np.ndarray[Any, Any]
DIRECTIONS = ("fprop", "dgrad", "wgrad")
IMPLEMENTATIONS: dict[str, dict[str, Callable[..., Array]]] = {
    "blocked": {d: getattr(convolution, d) for d in DIRECTIONS},
    "taps": {d: getattr(convolution_taps, f"{d}_by_taps") for d in DIRECTIONS},
}
STORAGE_FLOATS = (
    np.float64,
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
)
STORAGE_INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.int64)
F32, F64, I32, I64 = (np.dtype(t) for t in (np.float32, np.float64, np.int32, np.int64))


def make(  # one value stands for all axes
    *,
    input: tuple[int, ...],
    filter: tuple[int, ...],
    n: int = 2,
    groups: int = 1,
    c: int = 3,
    k: int = 4,
    pre: tuple[int, ...] = (0,),
    post: tuple[int, ...] | None = None,
    stride: tuple[int, ...] = (1,),
    dilation: tuple[int, ...] = (1,),
    flip: bool = False,
) -> ConvProblem:
    spatial = len(input)

    def spread(values: tuple[int, ...]) -> tuple[int, ...]:
        return values * spatial if len(values) == 1 else values

    axes = (input, filter, spread(pre), spread(pre if post is None else post), spread(stride), spread(dilation))
    output = tuple(output_extent(*axis) for axis in zip(*axes, strict=True))
    return ConvProblem(n, groups, c, k, input, filter, output, *axes[2:], flip)


CASES = {
    "1d": make(input=(9,), filter=(3,), pre=(1,), stride=(2,)),
    "3x3": make(input=(7, 6), filter=(3, 3), pre=(1,)),
    "stem": make(input=(13, 12), filter=(7, 7), pre=(3,), stride=(2,)),
    "1x1": make(input=(5, 6), filter=(1, 1)),
    "1x1 strided": make(input=(6, 7), filter=(1, 1), stride=(2, 3)),
    "stride beyond filter": make(input=(9, 8), filter=(2, 1), stride=(4, 3), pre=(1,)),
    "asymmetric padding": make(input=(6, 5), filter=(3, 2), pre=(2, 0), post=(0, 3), stride=(2, 1)),
    "trailing input unused": make(input=(8, 9), filter=(2, 2), stride=(5, 4)),
    "padding beyond filter": make(input=(2, 3), filter=(2, 2), pre=(4,), post=(3,), stride=(2, 1)),
    "dilated": make(input=(9, 10), filter=(3, 2), dilation=(2, 4), pre=(2,)),
    "dilated and strided": make(input=(11, 12), filter=(3, 3), dilation=(2, 3), stride=(4, 3), pre=(3,), flip=True),
    "flipped": make(input=(6, 7), filter=(3, 2), pre=(1,), flip=True),
    "grouped": make(input=(6, 6), filter=(3, 3), groups=3, c=2, k=5, pre=(1,)),
    "depthwise": make(input=(7, 6), filter=(3, 3), groups=6, c=1, k=1, pre=(1,), stride=(2, 1)),
    "depthwise with multiplier": make(input=(5, 6), filter=(2, 3), groups=4, c=1, k=3, flip=True),
    "whole image": make(input=(4, 5), filter=(4, 5)),
    "3d": make(input=(4, 5, 6), filter=(2, 3, 2), pre=(1, 0, 1), stride=(1, 2, 1), n=1),
    "one of everything": make(input=(1,), filter=(1,), n=1, c=1, k=1),
}


def naive(problem: ConvProblem, x: Array, w: Array, dy: Array) -> dict[str, Array]:
    """All three results by loops over single elements, in Python's own numbers."""
    x, w, dy = (
        a.astype(np.float64).astype(object) if a.dtype.kind not in "iu" else a.astype(object) for a in (x, w, dy)
    )
    y, dx, dw = (np.full(a, 0, object) for a in (problem.y_extents, problem.x_extents, problem.w_extents))
    channels = product(range(problem.n), range(problem.groups), range(problem.c), range(problem.k))
    for n, g, c, k in channels:
        for p in np.ndindex(*problem.output):
            for i in np.ndindex(*problem.filter):
                geometry = zip(p, i, problem.stride, problem.dilation, problem.pre_padding, strict=True)
                h = tuple(p_ * stride + i_ * dilation - pre for p_, i_, stride, dilation, pre in geometry)
                if not all(0 <= h_ < size for h_, size in zip(h, problem.input, strict=True)):
                    continue
                f = tuple(size - 1 - i_ for i_, size in zip(i, problem.filter, strict=True)) if problem.flip else i
                y[(n, g, k, *p)] += w[(g, k, c, *f)] * x[(n, g, c, *h)]
                dx[(n, g, c, *h)] += w[(g, k, c, *f)] * dy[(n, g, k, *p)]
                dw[(g, k, c, *f)] += x[(n, g, c, *h)] * dy[(n, g, k, *p)]
    return {"fprop": y, "dgrad": dx, "wgrad": dw}


def wrapped(values: Array, dtype: np.dtype[Any]) -> Array:
    """Python integers modulo the range of a signed type."""
    bits = dtype.itemsize * 8
    return np.array([(int(v) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for v in values.flat], dtype).reshape(
        values.shape
    )


def extents(problem: ConvProblem, direction: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Of the two operands and the result."""
    x, w, y = problem.x_extents, problem.w_extents, problem.y_extents
    return {"fprop": (x, w, y), "dgrad": (y, w, x), "wgrad": (x, y, w)}[direction]


def whole_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
    """Small integers: every sum of their products is exact in floats, whatever its order."""
    return rng.integers(-4, 5, shape).astype(dtype)


def with_layout(values: Array, rng: np.random.Generator) -> Array:
    """The same values with axes permuted in memory, gaps after some, and some mirrored."""
    order = rng.permutation(values.ndim)
    shape = [values.shape[axis] for axis in order]
    buffer = np.zeros([e + int(rng.integers(0, 3)) for e in shape], values.dtype)
    view = buffer[tuple(slice(e) for e in shape)].transpose(np.argsort(order))
    view = view[tuple(slice(None, None, -1) if rng.random() < 0.2 else slice(None) for _ in shape)]
    view[...] = values
    return view


def nhwc(values: Array) -> Array:
    """Channels innermost in memory: [n, *h, g, c]."""
    return np.moveaxis(np.moveaxis(values, (1, 2), (-2, -1)).copy(), (-2, -1), (1, 2))


@contextmanager
def small_blocks(depth: int = 6) -> Iterator[None]:
    """Blocks and parts of a few elements, so that small problems are cut along every axis."""
    convolution_blocks.plan_for.cache_clear()
    try:
        with (
            mock.patch.multiple(convolution_blocks, BLOCK_BYTES=400, _FILTER_BYTES=200, _DEPTH=depth, _FEW=1),
            mock.patch.multiple(convolution_sums, _STACK_POSITIONS=3),
            mock.patch.multiple(convolution_matrices, _NARROW=2),
        ):
            yield
    finally:
        convolution_blocks.plan_for.cache_clear()


@st.composite
def problems(draw: st.DrawFn) -> ConvProblem:
    spatial = draw(st.integers(1, 3))
    most = (9, 6, 4)[spatial - 1]

    def axes(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=spatial, max_size=spatial)))

    problem = make(
        input=axes(1, most),
        filter=axes(1, 3),
        n=draw(st.integers(1, 3)),
        groups=draw(st.integers(1, 3)),
        c=draw(st.integers(1, 3)),
        k=draw(st.integers(1, 3)),
        pre=axes(0, 3),
        post=axes(0, 3),
        stride=axes(1, 4),
        dilation=axes(1, 3),
        flip=draw(st.booleans()),
    )
    assume(min(problem.output) > 0)
    return problem


# Against loops over single elements.


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("case", CASES)
def test_loops(case: str, name: str) -> None:
    problem, rng = CASES[case], np.random.default_rng(0)
    x, w, dy = (rng.standard_normal(e) for e in (problem.x_extents, problem.w_extents, problem.y_extents))
    expected = naive(problem, x, w, dy)
    for direction, operands in {"fprop": (x, w), "dgrad": (dy, w), "wgrad": (x, dy)}.items():
        result = IMPLEMENTATIONS[name][direction](problem, *operands, compute=F64)
        assert result.dtype == F64
        np.testing.assert_allclose(result, expected[direction].astype(np.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@settings(max_examples=60, deadline=None)
@given(problem=problems(), seed=st.integers(0, 2**32), cut=st.booleans())
def test_loops_for_any_problem_and_layout(name: str, problem: ConvProblem, seed: int, cut: bool) -> None:
    assume(problem.macs < 3000)
    rng = np.random.default_rng(seed)
    x, w, dy = (
        with_layout(whole_numbers(rng, e), rng) for e in (problem.x_extents, problem.w_extents, problem.y_extents)
    )
    expected = naive(problem, x, w, dy)
    for direction, operands in {"fprop": (x, w), "dgrad": (dy, w), "wgrad": (x, dy)}.items():
        with small_blocks() if cut else mock.MagicMock():
            result = IMPLEMENTATIONS[name][direction](problem, *operands, compute=F64)
        np.testing.assert_array_equal(result, expected[direction].astype(np.float64))


# The two implementations against each other, and the three directions against each other.


@settings(max_examples=150, deadline=None)
@given(problem=problems(), seed=st.integers(0, 2**32), cut=st.booleans(), compute=st.sampled_from((F32, F64, I32, I64)))
def test_both_agree_into_any_layout(problem: ConvProblem, seed: int, cut: bool, compute: np.dtype[Any]) -> None:
    """Also with operands and results of odd strides and with scratch full of NaN."""
    rng = np.random.default_rng(seed)
    for direction in DIRECTIONS:
        first, second, result = extents(problem, direction)
        operands = [with_layout(whole_numbers(rng, e, np.float32), rng) for e in (first, second)]
        expected = IMPLEMENTATIONS["taps"][direction](problem, *operands, compute=compute)
        out = with_layout(np.full(result, 99, compute), rng)
        with small_blocks() if cut else mock.MagicMock():
            scratch = np.full(convolution.scratch_bytes(problem, direction, compute), 255, np.uint8)
            function = IMPLEMENTATIONS["blocked"][direction]
            assert function(problem, *operands, compute=compute, out=out, scratch=scratch) is out
            np.testing.assert_array_equal(out, expected)
            np.testing.assert_array_equal(function(problem, *operands, compute=compute), expected)


@settings(max_examples=60, deadline=None)
@given(problem=problems(), seed=st.integers(0, 2**32))
def test_adjointness(problem: ConvProblem, seed: int) -> None:
    """<fprop(x, w), dy> = <x, dgrad(dy, w)> = <w, wgrad(x, dy)>, exactly for whole numbers."""
    rng = np.random.default_rng(seed)
    x, w, dy = (whole_numbers(rng, e) for e in (problem.x_extents, problem.w_extents, problem.y_extents))
    for functions in IMPLEMENTATIONS.values():
        products = (
            np.vdot(functions["fprop"](problem, x, w, compute=F64), dy),
            np.vdot(x, functions["dgrad"](problem, dy, w, compute=F64)),
            np.vdot(w, functions["wgrad"](problem, x, dy, compute=F64)),
        )
        assert products[0] == products[1] == products[2]


LARGER = {
    "3x3": make(input=(23, 30), filter=(3, 3), c=32, k=24, pre=(1,)),
    "3x3 strided": make(input=(24, 21), filter=(3, 3), c=16, k=32, pre=(1,), stride=(2,)),
    "stem": make(input=(64, 60), filter=(7, 7), c=3, k=16, pre=(3,), stride=(2,)),
    "1x1": make(input=(14, 14), filter=(1, 1), c=64, k=48),
    "1x1 strided": make(input=(28, 28), filter=(1, 1), c=32, k=48, stride=(2,)),
    "small images": make(input=(7, 7), filter=(3, 3), n=4, c=64, k=96, pre=(1,)),
    "grouped": make(input=(14, 15), filter=(3, 3), groups=8, c=4, k=6, pre=(1,)),
    "depthwise": make(input=(28, 30), filter=(3, 3), groups=48, c=1, k=1, pre=(1,)),
    "depthwise strided, dilated": make(
        input=(31, 30), filter=(5, 3), groups=20, c=1, k=2, pre=(4,), stride=(2,), dilation=(2,)
    ),
    "few outputs": make(input=(40, 33), filter=(5, 5), c=48, k=2, pre=(2,)),
    "3d": make(input=(8, 12, 13), filter=(3, 3, 3), c=8, k=12, pre=(1,), stride=(1, 2, 2)),
    "1d": make(input=(400,), filter=(9,), c=24, k=16, pre=(8,), post=(0,), dilation=(1,)),
}


@pytest.mark.parametrize("layout", [np.ascontiguousarray, nhwc], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("case", LARGER)
def test_larger(case: str, layout: Callable[[Array], Array]) -> None:
    """Sizes at which blocks, stacks of matrices and copies are those of real layers."""
    problem, rng = LARGER[case], np.random.default_rng(0)
    for direction in DIRECTIONS:
        first, second, _ = extents(problem, direction)
        operands = [layout(whole_numbers(rng, e, np.float32)) for e in (first, second)]
        expected = IMPLEMENTATIONS["taps"][direction](problem, *operands, compute=F32)
        result = IMPLEMENTATIONS["blocked"][direction](problem, *operands, compute=F32)
        np.testing.assert_array_equal(result, expected)


# Types.


@pytest.mark.parametrize("dtype", STORAGE_FLOATS, ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_storage_floats(name: str, dtype: Any) -> None:
    """Operands are converted to the compute type before anything is computed."""
    rng = np.random.default_rng(0)
    for problem in (CASES["3x3"], CASES["1x1"], CASES["depthwise"]):
        for direction in DIRECTIONS:
            first, second, _ = extents(problem, direction)
            operands = [rng.standard_normal(e).astype(dtype) for e in (first, second)]
            function = IMPLEMENTATIONS[name][direction]
            result = function(problem, *operands, compute=F64)
            expected = function(problem, *(o.astype(np.float64) for o in operands), compute=F64)
            np.testing.assert_array_equal(result, expected)
            assert function(problem, *operands, compute=F32).dtype == F32


def extreme(dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    info = np.iinfo(dtype)
    return rng.choice(np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1], dtype), shape)


@pytest.mark.parametrize("compute", [I32, I64], ids=str)
@pytest.mark.parametrize(
    "types", list(product(STORAGE_INTEGERS, repeat=2)), ids=lambda t: "-".join(e.__name__ for e in t)
)
def test_integers_are_exact(types: tuple[Any, Any], compute: np.dtype[Any]) -> None:
    """Two's complement for every sum, at the ends of every type's range."""
    rng = np.random.default_rng(0)
    problem = make(input=(4, 5), filter=(2, 3), groups=1, c=3, k=2, pre=(1,), stride=(1, 2), n=1)
    x, w = (extreme(t, e, rng) for t, e in zip(types, (problem.x_extents, problem.w_extents), strict=True))
    dy = extreme(types[1], problem.y_extents, rng)
    expected = naive(problem, x, w, dy)
    for functions in IMPLEMENTATIONS.values():
        for direction, operands in {"fprop": (x, w), "dgrad": (dy, w), "wgrad": (x, dy)}.items():
            result = functions[direction](problem, *operands, compute=compute)
            np.testing.assert_array_equal(result, wrapped(expected[direction], compute))


@pytest.mark.parametrize(
    ("dtype", "c"), [(np.int8, 64), (np.int8, 300), (np.int16, 64), (np.int32, 16), (np.int64, 16)], ids=str
)
def test_integer_sums_at_every_width(dtype: Any, c: int) -> None:
    """All operands at the lowest value: sums as large as their type allows, past what float32 and float64 hold."""
    problem = make(input=(6, 6), filter=(3, 3), n=1, c=c, k=5, pre=(1,))
    lowest = np.iinfo(dtype).min
    x, w = (np.full(e, lowest, dtype) for e in (problem.x_extents, problem.w_extents))
    x[..., 2, 3] += 1  # an odd value among them, or every sum would be a power of two
    for compute in (I32, I64):
        expected = convolution_taps.fprop_by_taps(problem, x, w, compute=compute)
        np.testing.assert_array_equal(convolution.fprop(problem, x, w, compute=compute), expected)
        with small_blocks(depth=100):
            np.testing.assert_array_equal(convolution.fprop(problem, x, w, compute=compute), expected)


def test_depthwise_integers_wrap() -> None:
    problem, rng = CASES["depthwise"], np.random.default_rng(0)
    x, w = (extreme(np.int32, e, rng) for e in (problem.x_extents, problem.w_extents))
    dy = extreme(np.int32, problem.y_extents, rng)
    expected = naive(problem, x, w, dy)
    for functions in IMPLEMENTATIONS.values():
        for direction, operands in {"fprop": (x, w), "dgrad": (dy, w), "wgrad": (x, dy)}.items():
            result = functions[direction](problem, *operands, compute=I32)
            np.testing.assert_array_equal(result, wrapped(expected[direction], I32))


# Values that are not finite.


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_nan_and_infinity_reach_exactly_their_outputs(name: str) -> None:
    problem = make(input=(6, 6), filter=(3, 3), n=1, c=2, k=2, pre=(1,))
    x, w = np.ones(problem.x_extents), np.ones(problem.w_extents)
    x[0, 0, 0, 0, 0], x[0, 0, 1, 5, 5] = np.nan, np.inf
    y = IMPLEMENTATIONS[name]["fprop"](problem, x, w, compute=F64)
    nan, inf = np.zeros((6, 6), bool), np.zeros((6, 6), bool)
    nan[:2, :2] = inf[4:, 4:] = True
    np.testing.assert_array_equal(np.isnan(y), np.broadcast_to(nan, y.shape))
    np.testing.assert_array_equal(np.isinf(y), np.broadcast_to(inf, y.shape))


def test_padding_and_an_infinite_filter() -> None:
    """By taps, padding takes no part; in blocks it is zeros, and zero times infinity is NaN. Inside both agree."""
    problem = make(input=(5,), filter=(3,), n=1, c=3, k=2, pre=(1,))
    x, w = np.ones(problem.x_extents), np.ones(problem.w_extents)
    w[..., 0] = np.inf
    by_taps = convolution_taps.fprop_by_taps(problem, x, w, compute=F64)
    in_blocks = convolution.fprop(problem, x, w, compute=F64)
    assert (by_taps[..., 0] == 6).all()
    assert np.isnan(in_blocks[..., 0]).all()
    assert (by_taps[..., 1:] == np.inf).all()
    assert (in_blocks[..., 1:] == np.inf).all()


def test_overflow_is_silent() -> None:
    problem = CASES["3x3"]
    x, w = np.full(problem.x_extents, 1e300), np.full(problem.w_extents, 1e300)
    for functions in IMPLEMENTATIONS.values():
        assert np.isinf(functions["fprop"](problem, x, w, compute=F32)).any()
        assert np.isinf(functions["fprop"](problem, x, w, compute=F64)).all()


# Memory.


def test_out_keeps_what_lies_between_its_elements() -> None:
    for problem in (CASES["3x3"], CASES["1x1"], CASES["depthwise"]):
        for direction in DIRECTIONS:
            first, second, result = extents(problem, direction)
            buffer = np.full([2 * e for e in result], 7.0)
            out = buffer[tuple(slice(None, None, 2) for _ in result)]
            IMPLEMENTATIONS["blocked"][direction](problem, np.ones(first), np.ones(second), compute=F64, out=out)
            out[...] = 7
            assert (buffer == 7).all()


def test_results_follow_the_layout_of_their_input() -> None:
    problem = LARGER["3x3"]
    x, w = np.ones(problem.x_extents, np.float32), np.ones(problem.w_extents, np.float32)
    assert convolution.fprop(problem, x, w, compute=F32).flags.c_contiguous
    y = convolution.fprop(problem, nhwc(x), w, compute=F32)
    assert np.moveaxis(y, (1, 2), (-2, -1)).flags.c_contiguous


@pytest.mark.parametrize("layout", [np.ascontiguousarray, nhwc], ids=["nchw", "nhwc"])
def test_pointwise_convolutions_copy_nothing(layout: Callable[[Array], Array]) -> None:
    problem = LARGER["1x1"]
    for direction in ("fprop", "dgrad"):
        first, second, _ = extents(problem, direction)
        scratch = np.full(convolution.scratch_bytes(problem, direction, F32), 170, np.uint8)
        operands = layout(np.ones(first, np.float32)), np.ones(second, np.float32)
        IMPLEMENTATIONS["blocked"][direction](problem, *operands, compute=F32, scratch=scratch)
        assert (scratch == 170).all()


HUGE = (
    make(input=(224, 224), filter=(3, 3), n=64, c=512, k=512, pre=(1,)),
    make(input=(8, 8), filter=(3, 3), n=1, c=1 << 16, k=1 << 16, pre=(1,)),
    make(input=(1, 1), filter=(1, 1), n=1 << 16, c=1 << 24, k=1 << 24),
    make(input=(9, 9), filter=(3, 3), n=64, groups=1 << 24, c=1, k=1),
    make(input=(9, 9), filter=(3, 3), n=64, groups=1 << 20, c=4, k=16),
    make(input=(1 << 14, 1 << 14), filter=(1 << 13, 1 << 13), n=1, c=3, k=3),
    make(input=(1 << 12,) * 3, filter=(3, 3, 3), n=1, c=8, k=8, dilation=(2000,)),
    make(input=(1 << 12,) * 3, filter=(2, 2, 2), n=1, c=8, k=8, stride=(1999,)),
    make(input=(1 << 12,) * 3, filter=(2, 2, 2), n=1, groups=64, c=1, k=1, stride=(1999,), dilation=(600,)),
    make(input=(1 << 30,), filter=(5,), n=1, c=1, k=1, pre=(1 << 20,), dilation=(1 << 26,)),
)


@pytest.mark.parametrize("compute", [F32, F64, I32, I64], ids=str)
def test_scratch_is_bounded(compute: np.dtype[Any]) -> None:
    for problem in (*HUGE, *CASES.values(), *LARGER.values()):
        for direction in DIRECTIONS:
            assert convolution.scratch_bytes(problem, direction, compute) <= 128 << 20
    for problem in CASES.values():
        for direction in DIRECTIONS:
            assert convolution.scratch_bytes(problem, direction, compute) < 1 << 20


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.int32], ids=lambda t: np.dtype(t).name)
def test_nothing_else_is_allocated(dtype: Any) -> None:
    """Results and scratch aside, conversions included; integers have some megabytes more in their exact product."""
    problem = make(input=(100, 100), filter=(3, 3), n=4, c=64, k=48, pre=(1,))
    compute = I32 if np.dtype(dtype).kind == "i" else F32
    for direction in DIRECTIONS:
        first, second, result = extents(problem, direction)
        operands = [np.ones(e, dtype) for e in (first, second)]
        out = np.empty(result, compute)
        scratch = np.empty(convolution.scratch_bytes(problem, direction, compute), np.uint8)
        tracemalloc.start()
        IMPLEMENTATIONS["blocked"][direction](problem, *operands, compute=compute, out=out, scratch=scratch)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < (128 << 20 if compute == I32 else 1 << 20)


def test_arguments_are_checked() -> None:
    problem = CASES["3x3"]
    x, w = np.ones(problem.x_extents), np.ones(problem.w_extents)
    y = np.empty(problem.y_extents)
    with pytest.raises(ValueError, match="w has extents"):
        convolution.fprop(problem, x, w[..., :2], compute=F64)
    with pytest.raises(ValueError, match="out has extents"):
        convolution.fprop(problem, x, w, compute=F64, out=y[:1])
    with pytest.raises(ValueError, match="out has type float64, the arithmetic is in float32"):
        convolution.fprop(problem, x, w, compute=F32, out=y)
    with pytest.raises(ValueError, match="computed in"):
        convolution.fprop(problem, x, w, compute=np.dtype(np.float16))
    with pytest.raises(ValueError, match=r"wants \d+ bytes of scratch, got 16"):
        convolution.fprop(problem, x, w, compute=F64, scratch=np.empty(16, np.uint8))


# Against torch.


@pytest.mark.torch
@without_torch
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, nhwc], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("case", [*LARGER, "dilated", "trailing input unused", "3d small"])
def test_torch(case: str, layout: Callable[[Array], Array], dtype: Any) -> None:
    import torch

    problem = {**CASES, **LARGER, "3d small": CASES["3d"]}[case]
    if problem.pre_padding != problem.post_padding:
        problem = make(
            **{f: getattr(problem, f) for f in ("n", "groups", "c", "k", "input", "filter", "stride", "dilation")}
        )
    rng, compute = np.random.default_rng(0), np.dtype(dtype)
    x, w, dy = (rng.standard_normal(e).astype(dtype) for e in (problem.x_extents, problem.w_extents, problem.y_extents))

    def joined(values: Array) -> Any:
        """Groups and channels as torch has them, one axis."""
        first = values.shape[0] if values.ndim == problem.spatial + 3 and values is not w else None
        shape = (-1, *values.shape[2:]) if first is None else (first, -1, *values.shape[3:])
        return torch.from_numpy(values.reshape(shape))

    tx, tw = joined(x).requires_grad_(), joined(w).requires_grad_()
    operator = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[problem.spatial - 1]
    ty = operator(
        tx, tw, stride=problem.stride, padding=problem.pre_padding, dilation=problem.dilation, groups=problem.groups
    )
    ty.backward(joined(dy))
    expected = {"fprop": ty.detach(), "dgrad": tx.grad, "wgrad": tw.grad}
    for functions in IMPLEMENTATIONS.values():
        for direction, operands in {"fprop": (x, w), "dgrad": (dy, w), "wgrad": (x, dy)}.items():
            result = functions[direction](problem, *map(layout, operands), compute=compute)
            reference = expected[direction].numpy().reshape(result.shape)
            tolerance = float(np.finfo(dtype).eps) * 32 * float(np.abs(reference).max())
            np.testing.assert_allclose(result, reference, rtol=0, atol=tolerance)


def test_bits_of_the_oracle_do_not_depend_on_the_layout_of_its_operands() -> None:
    """BLAS has a kernel for each order of an operand's elements, and the kernels add in different orders."""
    graph = parse("conv x=f32[1,9,3,2] w=f32[3,3,3,3] pad=1 stride=3,1").build_operation_graph()
    problem, rng = graph.operations[0].problem, np.random.default_rng(0)  # type: ignore[attr-defined]
    for _ in range(50):
        x = rng.standard_normal((1, 3, 3, 3, 2)).astype(np.float32)
        w = rng.standard_normal((3, 1, 3, 3, 3)).astype(np.float32)
        other = np.asarray(np.moveaxis(np.moveaxis(x, (1, 2), (3, 4)).copy(), (3, 4), (1, 2)))
        assert other.strides != x.strides
        first, second = (
            convolution_taps.fprop_by_taps(problem, array, w, compute=np.dtype(np.float32)) for array in (x, other)
        )
        assert first.tobytes() == second.tobytes()
