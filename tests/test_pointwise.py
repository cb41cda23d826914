"""The pointwise table against formulas in float64, torch's operators and its autograd, and exact integers."""

from __future__ import annotations

import importlib.util
import math
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdnn.enums import PointwiseMode
from graphdnn.pointwise import ACTIVATIONS, BACKWARD_OF, COMPARISONS, LOGICALS, POINTWISE

pytestmark = pytest.mark.filterwarnings("error")
without_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

P = PointwiseMode
DEFAULTS = {
    "relu_lower_clip": 0.0,
    "relu_upper_clip": math.inf,
    "relu_lower_clip_slope": 0.0,
    "elu_alpha": 1.0,
    "softplus_beta": 1.0,
    "swish_beta": 1.0,
    "axis": 0,
}
OTHERS = DEFAULTS | {
    "relu_lower_clip": -0.5,
    "relu_upper_clip": 1.5,
    "relu_lower_clip_slope": 0.125,
    "elu_alpha": 0.75,
    "softplus_beta": 2.0,
    "swish_beta": 1.5,
}
FLOATS = [np.float32, np.float64]
EXTREMES = [0.0, -0.0, 1.0, -1.0, 88.0, -88.0, 1e4, -1e4, 1e30, -1e30, 1e-38, math.inf, -math.inf, math.nan]


def call(mode: P, *operands: np.ndarray, **parameters: float) -> np.ndarray:
    row = POINTWISE[mode]
    chosen = DEFAULTS | parameters
    return row.numpy(*operands, **{name: chosen[name] for name in row.parameters})


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v)) if v > -700 else 0.0


def tanh_argument(v: float) -> float:
    return math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)


# One element in Python floats, as the documentation writes it.
SCALAR: dict[PointwiseMode, Callable[..., float]] = {
    P.ADD: lambda x, b: x + b,
    P.MUL: lambda x, b: x * b,
    P.MIN: min,
    P.MAX: max,
    P.SQRT: lambda x: math.sqrt(x) if x >= 0 else math.nan,
    P.ADD_SQUARE: lambda x, b: x + b * b,
    P.DIV: lambda x, b: x / b,
    P.MOD: lambda x, b: x - math.trunc(x / b) * b,
    P.POW: lambda x, b: abs(x) ** b,
    P.SUB: lambda x, b: x - b,
    P.ABS: abs,
    P.CEIL: math.ceil,
    P.COS: math.cos,
    P.EXP: math.exp,
    P.FLOOR: math.floor,
    P.LOG: lambda x: math.log(x) if x > 0 else math.nan,
    P.NEG: lambda x: -x,
    P.RSQRT: lambda x: 1 / math.sqrt(x) if x > 0 else math.nan,
    P.SIN: math.sin,
    P.TAN: math.tan,
    P.ERF: math.erf,
    P.IDENTITY: lambda x: x,
    P.RECIPROCAL: lambda x: 1 / x,
    P.ATAN2: math.atan2,
    P.FLOOR_MOD: lambda x, b: x - math.floor(x / b) * b,
    P.RELU_FWD: lambda x, relu_lower_clip, relu_upper_clip, relu_lower_clip_slope: (
        relu_lower_clip + relu_lower_clip_slope * (x - relu_lower_clip)
        if x < relu_lower_clip
        else min(x, relu_upper_clip)
    ),
    P.TANH_FWD: math.tanh,
    P.SIGMOID_FWD: sigmoid,
    P.ELU_FWD: lambda x, elu_alpha: elu_alpha * (math.exp(x) - 1) if x < 0 else x,
    P.GELU_FWD: lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    P.SOFTPLUS_FWD: lambda x, softplus_beta: math.log(1 + math.exp(softplus_beta * x)) / softplus_beta,
    P.SWISH_FWD: lambda x, swish_beta: x * sigmoid(swish_beta * x),
    P.GELU_APPROX_TANH_FWD: lambda x: 0.5 * x * (1 + math.tanh(tanh_argument(x))),
    P.RELU_BWD: lambda g, z, relu_lower_clip, relu_upper_clip, relu_lower_clip_slope: (
        g * (relu_lower_clip_slope if z <= relu_lower_clip else 0 if z > relu_upper_clip else 1)
    ),
    P.TANH_BWD: lambda g, z: g * (1 - math.tanh(z) ** 2),
    P.SIGMOID_BWD: lambda g, z: g * sigmoid(z) * (1 - sigmoid(z)),
    P.ELU_BWD: lambda g, z, elu_alpha: g * (elu_alpha * math.exp(z) if z < 0 else 1),
    P.GELU_BWD: lambda g, z: (
        g * (0.5 * (1 + math.erf(z / math.sqrt(2))) + z * math.exp(-z * z / 2) / math.sqrt(2 * math.pi))
    ),
    P.SOFTPLUS_BWD: lambda g, z, softplus_beta: g * sigmoid(softplus_beta * z),
    P.SWISH_BWD: lambda g, z, swish_beta: (
        g * (sigmoid(swish_beta * z) + swish_beta * z * sigmoid(swish_beta * z) * (1 - sigmoid(swish_beta * z)))
    ),
    P.GELU_APPROX_TANH_BWD: lambda g, z: (
        g
        * 0.5
        * (
            1
            + math.tanh(tanh_argument(z))
            + z * (1 - math.tanh(tanh_argument(z)) ** 2) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * z * z)
        )
    ),
    P.CMP_EQ: lambda x, b: x == b,
    P.CMP_NEQ: lambda x, b: x != b,
    P.CMP_GT: lambda x, b: x > b,
    P.CMP_GE: lambda x, b: x >= b,
    P.CMP_LT: lambda x, b: x < b,
    P.CMP_LE: lambda x, b: x <= b,
    P.LOGICAL_AND: lambda x, b: x != 0 and b != 0,
    P.LOGICAL_OR: lambda x, b: x != 0 or b != 0,
    P.LOGICAL_NOT: lambda x: x == 0,
    P.BINARY_SELECT: lambda x, b, t: x if t != 0 else b,
}


def test_the_table_has_every_mode_of_the_header() -> None:
    assert set(POINTWISE) == set(PointwiseMode)
    assert len(POINTWISE) == 52
    assert set(SCALAR) | {P.GEN_INDEX} == set(PointwiseMode)


def test_kinds_follow_the_numbers_of_the_header() -> None:
    assert {int(m) for m in ACTIVATIONS} == set(range(100, 108))
    assert {int(m) for m in COMPARISONS} == set(range(300, 306))
    assert {int(m) for m in LOGICALS} == set(range(400, 403))
    assert {int(backward) - int(forward) for forward, backward in BACKWARD_OF.items()} == {100}
    for mode, row in POINTWISE.items():
        assert (row.kind == "backward") == (200 <= mode < 300)
        assert row.operands == ("dy", "x") or row.kind != "backward"


@pytest.mark.parametrize("mode", POINTWISE, ids=str)
def test_cuda_expressions_name_each_operand_and_parameter_and_nothing_else(mode: PointwiseMode) -> None:
    row = POINTWISE[mode]
    wanted = {*map(str, range(len(row.operands))), *row.parameters}
    if mode is P.GEN_INDEX:
        wanted = {"index"}
    for text in (row.cuda, row.cuda_double, row.cuda_int)[: 3 if row.integer else 2]:
        assert set(re.findall(r"{(\w*)}", text)) == wanted
        assert text.count("(") == text.count(")")
    single, double = (re.sub(r"__[fd](add|sub|mul)_rn\(", "(", text) for text in (row.cuda, row.cuda_double))
    assert re.findall(r"(\w+)f\(", single) == re.findall(r"(\w+)\(", double)
    assert not re.search(r"\d\.\d*f", row.cuda_double)
    assert bool(row.cuda_int) == row.integer
    assert "." not in row.cuda_int


def _rectified(x: Any, lower: Any, upper: Any, slope: Any) -> Any:
    """As text/arithmetic.cuh has it."""
    below = lower + slope * (x - lower) if slope != 0 else lower
    return below if x < lower else upper if x > upper else x


def _gelu(x: Any) -> Any:
    """As text/activations.cuh defines it; how near that comes is measured on the emulator."""
    from scipy.special import erfc

    factor = 0.5 * erfc(-(0.5**0.5) * x)
    return 0 * factor if factor == 0 else x * factor


def _gated(x: Any, z: Any) -> Any:
    factor = 1 / (1 + np.exp(-z))
    return 0 * factor if factor == 0 else x * factor


def _gelu_slope(x: Any) -> Any:
    from scipy.special import erfc

    density = (0.5 / np.pi) ** 0.5 * np.exp(-0.5 * x * x)
    return 0.5 * erfc(-(0.5**0.5) * x) + (0 * density if density == 0 else x * density)


def _gate_slope(x: Any, z: Any) -> Any:
    rising = 1 / (1 + np.exp(-z))
    slope = rising * (1 / (1 + np.exp(z)))
    return rising + (0 * slope if slope == 0 else x * slope)


# The float expressions of the table are evaluated as Python, after a translation of the conditional operator,
# with the names of the CUDA math library standing for NumPy functions of one precision.
def _library(dtype: Any) -> dict[str, Any]:
    from scipy.special import erf, erfc

    def one(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *values: dtype(function(*values))

    same = (np.sqrt, np.fmod, np.cos, np.exp, np.floor, np.log, np.sin, np.tan, np.tanh, np.expm1, np.log1p)
    names: dict[str, Callable[..., Any]] = {
        f"{function.__name__}f": function for function in (*same, np.cosh, np.copysign, np.ceil, np.fmax)
    }
    names |= {"powf": np.power, "fabsf": np.abs, "atan2f": np.arctan2, "erff": erf, "erfcf": erfc}
    names["rsqrtf"] = lambda v: dtype(1) / np.sqrt(v)
    names |= {"__fadd_rn": np.add, "__fsub_rn": np.subtract, "__fmul_rn": np.multiply}
    names |= {"rectifiedf": _rectified, "geluf": _gelu, "gatedf": _gated}
    names |= {"geluslopef": _gelu_slope, "gateslopef": _gate_slope}
    return {name: one(function) for name, function in names.items()}


def _python(expression: str) -> str:
    """A CUDA expression as a Python one: conditionals inside out, C's logical operators, float literals."""
    text = re.sub(r"(\d+\.\d+)f", r"F(\1)", expression)
    text = text.replace("&&", " and ").replace("||", " or ")
    while "?" in text:
        # The last question mark has no conditional to its right: its colon is the next one at its own depth.
        question = text.rindex("?")
        start, colon, end = _reach(text, question)
        condition, yes, no = text[start:question], text[question + 1 : colon], text[colon + 1 : end]
        text = f"{text[:start]}(({yes}) if ({condition}) else ({no})){text[end:]}"
    return text


def _reach(text: str, question: int) -> tuple[int, int, int]:
    """Start of the condition, the colon, and the end of the conditional whose mark is at ``question``."""
    depth, start = 0, question
    while start > 0 and not (depth == 0 and text[start - 1] in "(,:?"):
        start -= 1
        depth += {")": 1, "(": -1}.get(text[start], 0)
    depth, colon = 0, question + 1
    while not (depth == 0 and text[colon] == ":"):
        depth += {"(": 1, ")": -1}.get(text[colon], 0)
        colon += 1
    depth, end = 0, colon + 1
    while end < len(text) and not (depth == 0 and text[end] in "),:"):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return start, colon, end


def test_the_translation_of_conditionals() -> None:
    source = _python("(1 == 2 ? 10 : 3 == 3 ? (4 == 4 ? 20 : 30) : 40)")
    assert eval(source) == 20
    assert eval(_python("(1 < 2 || 5 < 3 ? 7 : 8)")) == 7


@pytest.mark.parametrize("parameters", [DEFAULTS, OTHERS], ids=["defaults", "others"])
@pytest.mark.parametrize("mode", [m for m in POINTWISE if m is not P.GEN_INDEX], ids=str)
def test_cuda_expressions_compute_what_numpy_computes(mode: PointwiseMode, parameters: dict[str, float]) -> None:
    row = POINTWISE[mode]
    values = [0.0, 0.25, -0.75, 1.5, -3.0, 9.0, -9.0, 40.0, -40.0, 1e30, -1e30, math.inf, -math.inf, math.nan]
    others = values if len(row.operands) > 1 else [0.0]
    placeholders = {name: f"F({parameters[name]!r})".replace("inf", "INFINITY") for name in row.parameters}
    source = _python(row.cuda.format("x", "y", "z", **placeholders))
    code = compile(source, str(mode), "eval")
    names = {**_library(np.float32), "F": np.float32, "INFINITY": np.inf}
    for x in map(np.float32, values):
        for y in map(np.float32, others):
            with np.errstate(all="ignore"):
                got = eval(code, names | {"x": x, "y": y, "z": np.float32(1.0)})
                arrays = [np.asarray(v, np.float32) for v in (x, y, 1.0)][: len(row.operands)]
            expected = call(mode, *arrays, **parameters)
            np.testing.assert_allclose(
                np.float32(got),
                expected.astype(np.float32),
                rtol=2e-5,
                atol=1e-30,
                err_msg=f"{x} {y} {source}",
            )


@pytest.mark.parametrize("mode", [m for m in POINTWISE if POINTWISE[m].integer and m is not P.GEN_INDEX], ids=str)
def test_integer_cuda_expressions_compute_what_numpy_computes(mode: PointwiseMode) -> None:
    row = POINTWISE[mode]
    values = [0, 1, -1, 2, -3, 7, -7, 100]
    parameters = {
        name: round(DEFAULTS[name]) if math.isfinite(DEFAULTS[name]) else 2**31 - 1 for name in row.parameters
    }
    source = _python(row.cuda_int.format("x", "y", "z", **parameters))
    # C truncates where Python floors
    source = re.sub(r"([xy]) / ([xy])", r"trunc(\1 / \2)", source)
    source = re.sub(r"([xy]) % ([xy])", r"int(fmod(\1, \2))", source)
    code = compile(source, str(mode), "eval")
    for x in values:
        for y in values if len(row.operands) > 1 else [0]:
            got = eval(code, {"x": x, "y": y, "z": y, "trunc": math.trunc, "fmod": math.fmod})
            arrays = [np.asarray(v, np.int32) for v in (x, y, y)][: len(row.operands)]
            assert int(got) == int(call(mode, *arrays, **parameters)), (x, y)


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


def wrap(value: int, bits: int) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def truncated(x: int, b: int) -> int:
    return 0 if b == 0 else (abs(x) // abs(b)) * (1 if (x < 0) == (b < 0) else -1)


EXACT: dict[PointwiseMode, Callable[..., int]] = {
    P.ADD: lambda x, b: x + b,
    P.MUL: lambda x, b: x * b,
    P.MIN: min,
    P.MAX: max,
    P.ADD_SQUARE: lambda x, b: x + b * b,
    P.DIV: truncated,
    P.MOD: lambda x, b: x - truncated(x, b) * b,
    P.FLOOR_MOD: lambda x, b: x if b == 0 else x % b,
    P.SUB: lambda x, b: x - b,
    P.ABS: abs,
    P.CEIL: lambda x: x,
    P.FLOOR: lambda x: x,
    P.NEG: lambda x: -x,
    P.IDENTITY: lambda x: x,
    P.RELU_FWD: lambda x: max(x, 0),
}


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
    program = "import sys, graphdnn.pointwise; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
