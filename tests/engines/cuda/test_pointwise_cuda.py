"""The CUDA expressions of the pointwise table, run as Python, against its NumPy functions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pointwise_formulas import DEFAULTS, OTHERS, call

from graphdnn.enums import PointwiseMode
from graphdnn.operations.pointwise_modes import POINTWISE

P = PointwiseMode


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
    """As codegen/include/arithmetic.cuh has it."""
    below = lower + slope * (x - lower) if slope != 0 else lower
    return below if x < lower else upper if x > upper else x


def _gelu(x: Any) -> Any:
    """As codegen/include/activations.cuh defines it; how near that comes is measured on the emulator."""
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
