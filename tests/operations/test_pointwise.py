"""The pointwise table against formulas in float64, torch's operators and its autograd, and exact integers."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pointwise_formulas import DEFAULTS, EXACT, OTHERS, SCALAR, call, wrap

from graphdnn.enums import PointwiseMode
from graphdnn.operations.pointwise_modes import ACTIVATIONS, BACKWARD_OF, COMPARISONS, LOGICALS, POINTWISE

pytestmark = pytest.mark.filterwarnings("error")

without_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

P = PointwiseMode

FLOATS = [np.float32, np.float64]

EXTREMES = [0.0, -0.0, 1.0, -1.0, 88.0, -88.0, 1e4, -1e4, 1e30, -1e30, 1e-38, math.inf, -math.inf, math.nan]


def test_every_table_has_every_mode() -> None:
    assert set(POINTWISE) == set(PointwiseMode), (
        "POINTWISE in graphdnn/operations/pointwise_modes.py needs a row per mode"
    )
    assert set(SCALAR) | {P.GEN_INDEX} == set(PointwiseMode), (
        "SCALAR in tests/support/pointwise_formulas.py needs the formula of each mode"
    )
    gradients = {mode for mode, row in POINTWISE.items() if row.kind == "backward"}
    assert set(LIMITS) == {*ACTIVATIONS, *gradients}, "LIMITS in this file needs a row per activation and gradient"


def test_kinds_follow_the_numbers_of_the_header() -> None:
    """A mode that cuDNN does not have is numbered like one of its kind, with 10000 added."""
    hundreds = {"activation": 1, "backward": 2, "comparison": 3, "logical": 4, "index": 5, "select": 6}
    for mode, row in POINTWISE.items():
        assert mode % 10000 // 100 == hundreds.get(row.kind, 0), f"{mode} = {int(mode)} has the kind {row.kind}"
        assert row.operands == ("dy", "x") or row.kind != "backward"
    for forward, backward in BACKWARD_OF.items():
        assert backward - forward == 100, f"{backward} needs the number of {forward} plus 100"


@pytest.mark.parametrize("parameters", [DEFAULTS, OTHERS], ids=["defaults", "others"])
@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
@pytest.mark.parametrize("mode", SCALAR, ids=str)
def test_formula(mode: PointwiseMode, dtype: Any, parameters: dict[str, float]) -> None:
    row = POINTWISE[mode]
    rng = np.random.default_rng(int(mode))
    operands = [rng.uniform(-6, 6, (9, 7)).astype(dtype) for _ in row.operands]
    operands[0][0, :3] = operands[-1][0, :3] = (1.5, -0.5, 2.0)  # equal elements and clips
    if mode in LOGICALS or mode is P.BINARY_SELECT:
        operands = [np.where(rng.random(o.shape) < 0.5, 0, o).astype(dtype) for o in operands]
    if mode is P.POW:
        operands[0] = np.abs(operands[0])
    given_parameters = {name: parameters[name] for name in row.parameters}
    expected = np.vectorize(lambda *v: SCALAR[mode](*v, **given_parameters), otypes=[np.float64])(
        *(o.astype(np.float64) for o in operands)
    )
    result = row.numpy(*operands, **given_parameters)
    assert result.dtype == (np.bool_ if row.kind in ("comparison", "logical") else dtype)
    tolerance = 3e-6 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(result, expected, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("mode", POINTWISE, ids=str)
def test_operands_broadcast_and_scalars_stay_arrays(mode: PointwiseMode) -> None:
    count = len(POINTWISE[mode].operands)
    wide, narrow = np.full((2, 3, 4), 0.5, np.float32), np.full((1, 3, 1), 2.0, np.float32)
    assert call(mode, *[wide, narrow, narrow][:count]).shape == (2, 3, 4)
    assert call(mode, *[narrow, wide, wide][:count]).shape == ((2, 3, 4) if count > 1 else (1, 3, 1))
    if mode is not P.GEN_INDEX:
        result = call(mode, *[np.asarray(2.0, np.float32)] * count)
        assert isinstance(result, np.ndarray)
        assert result.shape == ()


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
@pytest.mark.parametrize("mode", POINTWISE, ids=str)
def test_extremes_raise_no_warning(mode: PointwiseMode, dtype: Any) -> None:
    values = np.asarray(EXTREMES, np.float64).astype(dtype)
    grids = np.meshgrid(*[values] * len(POINTWISE[mode].operands), indexing="ij")
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        call(mode, *grids)
        call(mode, *(g.ravel()[5:6].reshape(()) for g in grids)) if mode is not P.GEN_INDEX else None


LIMITS = {  # at -inf, at +inf
    P.RELU_FWD: (0, math.inf),
    P.TANH_FWD: (-1, 1),
    P.SIGMOID_FWD: (0, 1),
    P.ELU_FWD: (-1, math.inf),
    P.GELU_FWD: (0, math.inf),
    P.SOFTPLUS_FWD: (0, math.inf),
    P.SWISH_FWD: (0, math.inf),
    P.GELU_APPROX_TANH_FWD: (0, math.inf),
    P.RELU_BWD: (0, 1),
    P.TANH_BWD: (0, 0),
    P.SIGMOID_BWD: (0, 0),
    P.ELU_BWD: (0, 1),
    P.GELU_BWD: (0, 1),
    P.SOFTPLUS_BWD: (0, 1),
    P.SWISH_BWD: (0, 1),
    P.GELU_APPROX_TANH_BWD: (0, 1),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
@pytest.mark.parametrize("mode", LIMITS, ids=str)
def test_activations_reach_their_limits_without_overflow(mode: PointwiseMode, dtype: Any) -> None:
    x = np.array([-math.inf, -1e30, -1e4, 1e4, 1e30, math.inf], dtype)
    operands = (np.ones_like(x), x) if POINTWISE[mode].kind == "backward" else (x,)
    low, high = LIMITS[mode]
    expected = [low] * 3 + ([1e4, 1e30, math.inf] if high == math.inf else [high] * 3)
    np.testing.assert_allclose(call(mode, *operands), np.array(expected, dtype), rtol=1e-6)


def test_activations_and_extrema_hand_nan_on() -> None:
    nan, one = np.full(3, math.nan, np.float32), np.ones(3, np.float32)
    for mode in ACTIVATIONS:
        assert np.isnan(call(mode, nan)).all(), mode
    for mode in (P.MIN, P.MAX):
        assert np.isnan(call(mode, nan, one)).all()
        assert np.isnan(call(mode, one, nan)).all()


def test_small_values_keep_their_digits() -> None:
    """Cancellation in the formulas as printed would leave nothing of these."""
    x = np.array([-20.0], np.float32)
    one = np.ones_like(x)
    np.testing.assert_allclose(call(P.SIGMOID_FWD, x), math.exp(-20), rtol=1e-5)
    np.testing.assert_allclose(call(P.SIGMOID_BWD, one, -x), math.exp(-20), rtol=1e-5)
    np.testing.assert_allclose(call(P.TANH_BWD, one, x), 4 * math.exp(-40), rtol=1e-5)
    np.testing.assert_allclose(call(P.SOFTPLUS_FWD, x), math.exp(-20), rtol=1e-5)
    np.testing.assert_allclose(call(P.ELU_FWD, x * 1e-9), -2e-8, rtol=1e-5)
    np.testing.assert_allclose(call(P.GELU_FWD, x / 2), -10 * 7.61985302416e-24, rtol=1e-4)


@pytest.mark.parametrize("parameters", [DEFAULTS, OTHERS], ids=["defaults", "others"])
@pytest.mark.parametrize("forward", BACKWARD_OF, ids=str)
def test_derivative_matches_finite_differences(forward: PointwiseMode, parameters: dict[str, float]) -> None:
    rng = np.random.default_rng(int(forward))
    x = rng.uniform(-5, 5, 400)
    x = x[(np.abs(x) > 1e-3) & (np.abs(x + 0.5) > 1e-3) & (np.abs(x - 1.5) > 1e-3)]  # kinks
    dy = rng.standard_normal(x.shape)
    h = 1e-6
    slope = (call(forward, x + h, **parameters) - call(forward, x - h, **parameters)) / (2 * h)
    np.testing.assert_allclose(call(BACKWARD_OF[forward], dy, x, **parameters), dy * slope, atol=1e-7, rtol=1e-7)


def test_derivatives_at_the_kinks() -> None:
    dy = np.array([3.0, 3.0])
    clips = {"relu_lower_clip": -1.0, "relu_upper_clip": 2.0, "relu_lower_clip_slope": 0.5}
    np.testing.assert_array_equal(call(P.RELU_BWD, dy, np.array([-1.0, 2.0]), **clips), [1.5, 3.0])
    np.testing.assert_array_equal(call(P.ELU_BWD, dy, np.array([0.0, -0.0]), elu_alpha=0.5), [3.0, 3.0])


@pytest.mark.torch
@without_torch
@pytest.mark.parametrize("forward", BACKWARD_OF, ids=str)
def test_torch_agrees(forward: PointwiseMode) -> None:
    import torch
    from torch.nn import functional

    functions = {
        P.RELU_FWD: lambda v: functional.leaky_relu(v, 0.125),
        P.TANH_FWD: torch.tanh,
        P.SIGMOID_FWD: torch.sigmoid,
        P.ELU_FWD: lambda v: functional.elu(v, 0.75),
        P.GELU_FWD: functional.gelu,
        P.SOFTPLUS_FWD: lambda v: functional.softplus(v, 2.0, threshold=100),
        P.SWISH_FWD: functional.silu,
        P.GELU_APPROX_TANH_FWD: lambda v: functional.gelu(v, approximate="tanh"),
    }
    assert forward in functions, f"name PyTorch's function for {forward} in this test"
    parameters = {"relu_lower_clip_slope": 0.125, "elu_alpha": 0.75, "softplus_beta": 2.0}
    rng = np.random.default_rng(int(forward))
    x, dy = rng.uniform(-8, 8, (20, 30)), rng.standard_normal((20, 30))
    leaf = torch.tensor(x, requires_grad=True)
    y = functions[forward](leaf)
    y.backward(torch.tensor(dy))
    np.testing.assert_allclose(call(forward, x, **parameters), y.detach().numpy(), rtol=1e-12, atol=1e-14)
    assert leaf.grad is not None
    dx = call(BACKWARD_OF[forward], dy, x, **parameters)
    np.testing.assert_allclose(dx, leaf.grad.numpy(), rtol=1e-11, atol=1e-13)


INT32 = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-20, 20), st.sampled_from([-(2**31), 2**31 - 1]))

INT64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-20, 20), st.sampled_from([-(2**63), 2**63 - 1]))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("mode", EXACT, ids=str)
def test_integers_are_exact_and_wrap(mode: PointwiseMode, bits: int) -> None:
    count = len(POINTWISE[mode].operands)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(*[INT32 if bits == 32 else INT64] * count), min_size=1, max_size=6))
    def check(rows: list[tuple[int, ...]]) -> None:
        dtype = np.dtype(f"int{bits}")
        parameters = {name: DEFAULTS[name] for name in POINTWISE[mode].parameters}
        result = call(mode, *(np.array(column, dtype) for column in zip(*rows, strict=True)), **parameters)
        assert result.dtype == dtype
        assert result.tolist() == [wrap(EXACT[mode](*row), bits) for row in rows]

    check()


def test_modes_with_a_meaning_in_integers() -> None:
    selecting = {P.GEN_INDEX, P.BINARY_SELECT, *COMPARISONS, *LOGICALS}
    assert {m for m, row in POINTWISE.items() if row.integer} == set(EXACT) | selecting


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.int64])
def test_comparisons_logic_and_selection_in_booleans_and_integers(dtype: Any) -> None:
    x, b = np.array([0, 0, 1, 1]).astype(dtype), np.array([0, 1, 0, 1]).astype(dtype)
    for mode in (*COMPARISONS, *LOGICALS):
        operands = [x, b][: len(POINTWISE[mode].operands)]
        result = call(mode, *operands)
        assert result.dtype == np.bool_
        assert result.tolist() == [bool(SCALAR[mode](*v)) for v in zip(*(o.tolist() for o in operands), strict=True)]
    selected = call(P.BINARY_SELECT, x, b, ~x.astype(bool))
    assert selected.dtype == dtype
    assert selected.tolist() == [0, 0, 0, 1] if dtype != np.bool_ else [False, False, False, True]


def test_index_counts_along_the_axis_and_ignores_values() -> None:
    x = np.full((2, 300, 3), math.nan, np.float16)
    for axis, extent in enumerate(x.shape):
        result = call(P.GEN_INDEX, x, axis=axis)
        assert result.dtype == np.int64
        assert result.shape == x.shape
        np.testing.assert_array_equal(np.moveaxis(result, axis, -1) - np.arange(extent), 0)


def test_clips_beyond_the_float_range_do_not_clip() -> None:
    x = np.array([3e38, -3e38], np.float32)
    limits = {"relu_upper_clip": 1.7e308, "relu_lower_clip": -1.7e308}
    np.testing.assert_array_equal(call(P.RELU_FWD, x, **limits), x)
    np.testing.assert_array_equal(call(P.RELU_BWD, np.ones_like(x), x, **limits), 1)


def test_importing_the_table_does_not_import_scipy() -> None:
    program = "import sys, graphdnn.operations.pointwise_modes; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
