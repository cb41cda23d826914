"""Pointwise modes: what each needs and computes, one row per mode of the header.

Every stage reads this table: validation takes the operands and the parameters
of a mode from it, the NumPy engine its function, the CUDA generator its
expression, the heuristics its cost. A mode that is not here does not exist,
and nothing elsewhere knows a mode by name.

The formulas are those of the backend's documentation, written so that they
hold at the extremes: nothing overflows on the way to a finite result, results
at +-inf are the limits, NaN is handed on (also by MIN, MAX and RELU_FWD).
Where the documentation is silent:

* Integer DIV truncates toward zero; x / 0 is 0, and so MOD and FLOOR_MOD by 0
  are x, as in x - (x/b)*b. Integer arithmetic wraps, ABS and NEG included.
* A derivative is taken at NaN as its formula reads: comparisons with NaN are
  false, so RELU_BWD and ELU_BWD hand dy on there.
* RELU_FWD in integers takes whole parameters; a clip beyond the type's range clips nothing.
* Comparisons and logical modes are true or false; in logical modes every
  number but 0 is true, NaN included.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from math import inf, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdnn.enums import PointwiseMode

Array = NDArray[Any]
Function = Callable[..., Array]
Result = Any  # what NumPy's types say of the result of arithmetic; ``_quiet`` makes it an array

_SQRT_HALF = sqrt(0.5)
_INV_SQRT_2PI = 1 / sqrt(2 * pi)
_TANH_SCALE = sqrt(2 / pi)
_TANH_CUBIC = 0.044715


@dataclass(frozen=True, slots=True)
class Pointwise:
    """One mode.

    ``numpy`` takes the operands in order, already in the math type and scaled, and the ``parameters`` by
    keyword. Operands broadcast; the result has their dtype, bool for comparisons and logical modes, int64
    for GEN_INDEX, which looks at the shape of its operand only.

    The CUDA expressions are format strings. ``{0}``, ``{1}``, ``{2}`` are the operands in the math type and
    occur more than once, so they should be variables; parameters stand under their names, as literals of the
    math type (``INFINITY`` allowed, negative ones in parentheses). GEN_INDEX reads ``{index}``, the
    coordinate along its axis, in place of an operand. Comparisons and logical modes yield ``bool``.
    """

    formula: str  # in words of the operands and of the parameters, for documents
    operands: tuple[str, ...]  # ports in order
    numpy: Function
    cuda: str  # float math
    parameters: tuple[str, ...] = ()
    kind: str = "arithmetic"  # or activation, backward, comparison, logical, index, select
    integer: bool = False  # has a meaning in integer math types
    flops: int = 1  # rough cost of one element
    cuda_double: str = ""
    cuda_int: str = ""  # int or long long math; empty unless ``integer``
    cuda_pack: str = ""  # float math: the function that does it for whole packs, in place of ``cuda``


def _quiet(function: Callable[..., Result]) -> Function:
    """``function`` with an array for a result whatever the rank, and without floating-point warnings."""

    @wraps(function)
    def run(*operands: Array, **parameters: float) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*operands, **parameters))

    return run


def _in_double(cuda: str) -> str:
    """The float expression with double functions and literals: ``expf(1.0f*x)`` to ``exp(1.0*x)``."""
    functions = re.sub(r"__f(add|sub|mul)_rn", r"__d\1_rn", re.sub(r"\b([a-z0-9]+)f\(", r"\1(", cuda))
    return re.sub(r"(\d\.\d+(?:e-?\d+)?)f\b", r"\1", functions)


def _is_integer(x: Array) -> bool:
    return x.dtype.kind in "iu"


def _like(x: Array, value: float) -> Array:
    """``value`` in the precision of ``x``: a float64 scalar would drag a float32 array along.

    In integers an infinite or too large value is the largest (smallest) integer, which clips nothing.
    """
    if x.dtype.kind != "i":
        return np.asarray(value, dtype=x.dtype)
    limits = np.iinfo(x.dtype)
    return np.asarray(limits.max if value >= limits.max else limits.min if value <= limits.min else int(value), x.dtype)


def _special() -> Any:
    """``scipy.special``, imported on first use: importing the package stays free of SciPy."""
    return import_module("scipy.special")


# Arithmetic


def _divide(x: Array, b: Array) -> Result:
    if not _is_integer(x):
        return x / b
    quotient = x // np.where(b == 0, 1, b)
    # Floor division is one too small where the exact quotient is negative and not whole.
    inexact = quotient * b != x
    return np.where(b == 0, 0, quotient + (inexact & ((x < 0) != (b < 0)))).astype(x.dtype, copy=False)


def _modulo(x: Array, b: Array) -> Result:
    if not _is_integer(x):
        return np.fmod(x, b)
    return np.where(b == 0, x, np.fmod(x, np.where(b == 0, 1, b)))


def _floor_modulo(x: Array, b: Array) -> Result:
    if not _is_integer(x):
        return np.remainder(x, b)
    return np.where(b == 0, x, np.remainder(x, np.where(b == 0, 1, b)))


def _ceil(x: Array) -> Result:
    return x if _is_integer(x) else np.ceil(x)


def _floor(x: Array) -> Result:
    return x if _is_integer(x) else np.floor(x)


def _reciprocal(x: Array) -> Result:
    return _like(x, 1) / x


def _reciprocal_root(x: Array) -> Result:
    return _like(x, 1) / np.sqrt(x)


def _erf(x: Array) -> Result:
    return _special().erf(x)


# Activations and their derivatives


def _sigmoid(x: Array) -> Result:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, _like(x, 1)) / (_like(x, 1) + small)


def _times_vanishing(x: Array, factor: Array) -> Result:
    """``x * factor`` for a factor that vanishes faster than x grows: 0, not NaN, at infinite x."""
    return np.where(factor == 0, _like(x, 0), x * factor)


def _relu(x: Array, relu_lower_clip: float, relu_upper_clip: float, relu_lower_clip_slope: float) -> Result:
    lower, slope = _like(x, relu_lower_clip), _like(x, relu_lower_clip_slope)
    if slope == 0 and relu_lower_clip <= relu_upper_clip:  # one pass over memory for the usual ReLU, two for ReLU6
        clipped = np.maximum(x, lower)
        return clipped if relu_upper_clip == inf else np.minimum(clipped, _like(x, relu_upper_clip))
    below = lower + slope * (x - lower) if slope != 0 else lower  # 0 * inf is no slope
    return np.where(x < lower, below, np.minimum(x, _like(x, relu_upper_clip)))


def _relu_backward(
    dy: Array, x: Array, relu_lower_clip: float, relu_upper_clip: float, relu_lower_clip_slope: float
) -> Result:
    zero, one = _like(dy, 0), _like(dy, 1)
    inside = np.where(x > _like(x, relu_upper_clip), zero, one)
    return dy * np.where(x <= _like(x, relu_lower_clip), _like(dy, relu_lower_clip_slope), inside)


def _tanh_backward(dy: Array, x: Array) -> Result:
    # 1 - tanh^2 without the cancellation
    root = _like(x, 1) / np.cosh(x)
    return dy * (root * root)


def _sigmoid_backward(dy: Array, x: Array) -> Result:
    # sigmoid(-x) is 1 - sigmoid(x) without the cancellation, here and below
    return dy * (_sigmoid(x) * _sigmoid(-x))


def _elu(x: Array, elu_alpha: float) -> Result:
    return np.where(x < 0, _like(x, elu_alpha) * np.expm1(np.minimum(x, _like(x, 0))), x)


def _elu_backward(dy: Array, x: Array, elu_alpha: float) -> Result:
    return dy * np.where(x < 0, _like(x, elu_alpha) * np.exp(np.minimum(x, _like(x, 0))), _like(x, 1))


def _normal_cdf(x: Array) -> Result:
    # 1 + erf(v) is erfc(-v), which keeps the digits of the lower tail
    return _like(x, 0.5) * _special().erfc(_like(x, -_SQRT_HALF) * x)


def _gelu(x: Array) -> Result:
    return _times_vanishing(x, _normal_cdf(x))


def _gelu_backward(dy: Array, x: Array) -> Result:
    density = _like(x, _INV_SQRT_2PI) * np.exp(_like(x, -0.5) * x * x)
    return dy * (_normal_cdf(x) + _times_vanishing(x, density))


def _softplus(x: Array, softplus_beta: float) -> Result:
    beta = _like(x, softplus_beta)
    return np.logaddexp(_like(x, 0), beta * x) / beta


def _softplus_backward(dy: Array, x: Array, softplus_beta: float) -> Result:
    return dy * _sigmoid(_like(x, softplus_beta) * x)


def _swish(x: Array, swish_beta: float) -> Result:
    return _times_vanishing(x, _sigmoid(_like(x, swish_beta) * x))


def _swish_backward(dy: Array, x: Array, swish_beta: float) -> Result:
    scaled = _like(x, swish_beta) * x
    rising = _sigmoid(scaled)
    return dy * (rising + _times_vanishing(scaled, rising * _sigmoid(-scaled)))


def _gelu_tanh_argument(x: Array) -> Result:
    """Twice the argument of tanh: (1 + tanh(v)) / 2 is sigmoid(2v), which keeps the lower tail."""
    return _like(x, 2 * _TANH_SCALE) * (x + _like(x, _TANH_CUBIC) * x * x * x)


def _gelu_tanh(x: Array) -> Result:
    return _times_vanishing(x, _sigmoid(_gelu_tanh_argument(x)))


def _gelu_tanh_backward(dy: Array, x: Array) -> Result:
    argument = _gelu_tanh_argument(x)
    rising = _sigmoid(argument)
    slope = _like(x, 2 * _TANH_SCALE) * (_like(x, 1) + _like(x, 3 * _TANH_CUBIC) * x * x)
    return dy * (rising + _times_vanishing(x * slope, rising * _sigmoid(-argument)))


# Index and select


def _index(x: Array, axis: int) -> Result:
    column = np.expand_dims(np.arange(x.shape[axis]), tuple(a for a in range(x.ndim) if a != axis))
    return np.broadcast_to(column, x.shape).copy()


def _select(x: Array, b: Array, t: Array) -> Result:
    return np.where(t != 0, x, b)


# CUDA expressions that are too long for a table row. They follow the NumPy functions above.

_CUDA_MIN = "({0} < {1} || {0} != {0} ? {0} : {1})"  # fminf would drop NaN
_CUDA_MAX = "({0} > {1} || {0} != {0} ? {0} : {1})"
# The smallest integer over -1 overflows, and a division that overflows may trap.
_CUDA_DIVIDE_INT = "({1} == 0 ? 0 : {1} == -1 ? -{0} : {0} / {1})"
_CUDA_MODULO_INT = "({1} == 0 ? {0} : {1} == -1 ? 0 : {0} % {1})"
_CUDA_FLOOR_MODULO = (
    "(fmodf({0}, {1}) == 0.0f ? copysignf(0.0f, {1})"
    " : (fmodf({0}, {1}) < 0.0f) != ({1} < 0.0f) ? fmodf({0}, {1}) + {1} : fmodf({0}, {1}))"
)
_CUDA_FLOOR_MODULO_INT = (
    "({1} == 0 ? {0} : {1} == -1 ? 0 : {0} % {1} != 0 && ({0} % {1} < 0) != ({1} < 0) ? {0} % {1} + {1} : {0} % {1})"
)
_CUDA_RELU = "rectifiedf({0}, {relu_lower_clip}, {relu_upper_clip}, {relu_lower_clip_slope})"
_CUDA_RELU_INT = (
    "({0} < {relu_lower_clip} ? {relu_lower_clip} + {relu_lower_clip_slope} * ({0} - {relu_lower_clip})"
    " : ({0} > {relu_upper_clip} ? {relu_upper_clip} : {0}))"
)


def _cuda_product(factor: str) -> str:
    """A product that is rounded: the compiler would take it and a sum that follows for one multiply-add, and fused
    operations would differ from the same ones apart. Sums (``__fadd_rn``) do not take what a function ends with either.
    """
    return f"__fmul_rn({{0}}, {factor})"


_CUDA_RELU_BACKWARD = _cuda_product(
    "({1} <= {relu_lower_clip} ? {relu_lower_clip_slope} : {1} > {relu_upper_clip} ? 0.0f : 1.0f)"
)


def _cuda_sigmoid(argument: str) -> str:
    return f"(1.0f / (1.0f + expf(-({argument}))))"  # expf may be inf, the quotient is then the limit 0


def _cuda_slope(argument: str) -> str:
    return f"({_cuda_sigmoid(argument)} * {_cuda_sigmoid(f'-({argument})')})"


_CUDA_SOFTPLUS = (
    "((fmaxf({softplus_beta} * {0}, 0.0f) + log1pf(expf(-fabsf({softplus_beta} * {0})))) / {softplus_beta})"
)


def _cuda_tanh_argument(x: str) -> str:
    return f"{2 * _TANH_SCALE}f * ({x} + {_TANH_CUBIC}f * {x} * {x} * {x})"


_CUDA_GELU_TANH_SLOPE = f"{{1}} * ({2 * _TANH_SCALE}f * (1.0f + {3 * _TANH_CUBIC}f * {{1}} * {{1}}))"
_ONE = ("x",)
_TWO = ("x", "b")
_GRADIENT = ("dy", "x")
_RELU = ("relu_lower_clip", "relu_upper_clip", "relu_lower_clip_slope")


def _row(
    formula: str, operands: tuple[str, ...], numpy: Callable[..., Result], cuda: str, flops: int = 1, **rest: Any
) -> Pointwise:
    return Pointwise(formula, operands, _quiet(numpy), cuda, flops=flops, cuda_double=_in_double(cuda), **rest)


def _exact(
    formula: str,
    operands: tuple[str, ...],
    numpy: Callable[..., Result],
    cuda: str,
    cuda_int: str = "",
    **rest: Any,
) -> Pointwise:
    """A row that also has a meaning in integers, with the same expression unless another is given."""
    return _row(formula, operands, numpy, cuda, integer=True, cuda_int=cuda_int or cuda, **rest)


def _activation(formula: str, numpy: Callable[..., Result], cuda: str, flops: int, *parameters: str) -> Pointwise:
    return _row(formula, _ONE, numpy, cuda, flops, parameters=parameters, kind="activation")


def _backward(formula: str, numpy: Callable[..., Result], cuda: str, flops: int, *parameters: str) -> Pointwise:
    return _row(formula, _GRADIENT, numpy, cuda, flops, parameters=parameters, kind="backward")


def _comparison(formula: str, numpy: Callable[..., Result], operator: str) -> Pointwise:
    return _exact(formula, _TWO, numpy, f"({{0}} {operator} {{1}})", kind="comparison")


POINTWISE: dict[PointwiseMode, Pointwise] = {
    PointwiseMode.ADD: _exact("x + b", _TWO, np.add, "__fadd_rn({0}, {1})", "({0} + {1})"),
    PointwiseMode.MUL: _exact("x * b", _TWO, np.multiply, _cuda_product("{1}"), "({0} * {1})"),
    PointwiseMode.MIN: _exact("min(x, b)", _TWO, np.minimum, _CUDA_MIN, "({0} < {1} ? {0} : {1})"),
    PointwiseMode.MAX: _exact("max(x, b)", _TWO, np.maximum, _CUDA_MAX, "({0} > {1} ? {0} : {1})"),
    PointwiseMode.SQRT: _row("sqrt(x)", _ONE, np.sqrt, "sqrtf({0})", 4),
    PointwiseMode.ADD_SQUARE: _exact(
        "x + b^2", _TWO, lambda x, b: x + b * b, "__fadd_rn({0}, __fmul_rn({1}, {1}))", "({0} + {1} * {1})", flops=2
    ),
    PointwiseMode.DIV: _exact("x / b", _TWO, _divide, "({0} / {1})", _CUDA_DIVIDE_INT, flops=4),
    PointwiseMode.MOD: _exact("x - b * trunc(x / b)", _TWO, _modulo, "fmodf({0}, {1})", _CUDA_MODULO_INT, flops=8),
    PointwiseMode.POW: _row("x^b", _TWO, np.power, "powf({0}, {1})", 16, cuda_pack="power"),
    PointwiseMode.SUB: _exact("x - b", _TWO, np.subtract, "__fsub_rn({0}, {1})", "({0} - {1})"),
    PointwiseMode.ABS: _exact("|x|", _ONE, np.abs, "fabsf({0})", "({0} < 0 ? -{0} : {0})"),
    PointwiseMode.CEIL: _exact("the least integer >= x", _ONE, _ceil, "ceilf({0})", "{0}"),
    PointwiseMode.COS: _row("cos(x)", _ONE, np.cos, "cosf({0})", 8),
    PointwiseMode.EXP: _row("exp(x)", _ONE, np.exp, "expf({0})", 8),
    PointwiseMode.FLOOR: _exact("the greatest integer <= x", _ONE, _floor, "floorf({0})", "{0}"),
    PointwiseMode.LOG: _row("ln(x)", _ONE, np.log, "logf({0})", 8),
    PointwiseMode.NEG: _exact("-x", _ONE, np.negative, "(-{0})"),
    PointwiseMode.RSQRT: _row("1 / sqrt(x)", _ONE, _reciprocal_root, "rsqrtf({0})", 4),
    PointwiseMode.SIN: _row("sin(x)", _ONE, np.sin, "sinf({0})", 8),
    PointwiseMode.TAN: _row("tan(x)", _ONE, np.tan, "tanf({0})", 12),
    PointwiseMode.ERF: _row("erf(x)", _ONE, _erf, "erff({0})", 12),
    PointwiseMode.IDENTITY: _exact("x", _ONE, lambda x: x, "{0}", flops=0),
    PointwiseMode.RECIPROCAL: _row("1 / x", _ONE, _reciprocal, "(1.0f / {0})", 4),
    PointwiseMode.ATAN2: _row("the angle of the point (b, x)", _TWO, np.arctan2, "atan2f({0}, {1})", 16),
    PointwiseMode.FLOOR_MOD: _exact(
        "x - b * floor(x / b)", _TWO, _floor_modulo, _CUDA_FLOOR_MODULO, _CUDA_FLOOR_MODULO_INT, flops=8
    ),
    PointwiseMode.RELU_FWD: _exact(
        "lower + slope * (x - lower) for x < lower, else min(x, upper)",
        _ONE,
        _relu,
        _CUDA_RELU,
        _CUDA_RELU_INT,
        flops=2,
        parameters=_RELU,
        kind="activation",
    ),
    PointwiseMode.TANH_FWD: _activation("tanh(x)", np.tanh, "tanhf({0})", 10),
    PointwiseMode.SIGMOID_FWD: _activation("1 / (1 + exp(-x))", _sigmoid, _cuda_sigmoid("{0}"), 10),
    PointwiseMode.ELU_FWD: _activation(
        "x for x >= 0, else alpha * (exp(x) - 1)",
        _elu,
        "({0} < 0.0f ? {elu_alpha} * expm1f({0}) : {0})",
        10,
        "elu_alpha",
    ),
    PointwiseMode.GELU_FWD: _activation("x * (1 + erf(x / sqrt(2))) / 2", _gelu, "geluf({0})", 14),
    PointwiseMode.SOFTPLUS_FWD: _activation(
        "ln(1 + exp(beta * x)) / beta", _softplus, _CUDA_SOFTPLUS, 16, "softplus_beta"
    ),
    PointwiseMode.SWISH_FWD: _activation(
        "x / (1 + exp(-beta * x))", _swish, "gatedf({0}, {swish_beta} * {0})", 12, "swish_beta"
    ),
    PointwiseMode.GELU_APPROX_TANH_FWD: _activation(
        "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2",
        _gelu_tanh,
        f"gatedf({{0}}, {_cuda_tanh_argument('{0}')})",
        16,
    ),
    PointwiseMode.RELU_BWD: _backward(
        "dy * slope for x <= lower, 0 for x > upper, else dy", _relu_backward, _CUDA_RELU_BACKWARD, 3, *_RELU
    ),
    PointwiseMode.TANH_BWD: _backward(
        "dy / cosh(x)^2", _tanh_backward, _cuda_product("(1.0f / coshf({1})) * (1.0f / coshf({1}))"), 12
    ),
    PointwiseMode.SIGMOID_BWD: _backward(
        "dy * s(x) * s(-x) with s(x) = 1 / (1 + exp(-x))", _sigmoid_backward, _cuda_product(_cuda_slope("{1}")), 14
    ),
    PointwiseMode.ELU_BWD: _backward(
        "dy for x >= 0, else dy * alpha * exp(x)",
        _elu_backward,
        _cuda_product("({1} < 0.0f ? {elu_alpha} * expf({1}) : 1.0f)"),
        10,
        "elu_alpha",
    ),
    PointwiseMode.GELU_BWD: _backward(
        "dy * (cdf(x) + x * pdf(x)) with the standard normal distribution",
        _gelu_backward,
        _cuda_product("geluslopef({1})"),
        24,
    ),
    PointwiseMode.SOFTPLUS_BWD: _backward(
        "dy / (1 + exp(-beta * x))",
        _softplus_backward,
        _cuda_product(_cuda_sigmoid("{softplus_beta} * {1}")),
        12,
        "softplus_beta",
    ),
    PointwiseMode.SWISH_BWD: _backward(
        "dy * (s(v) + v * s(v) * s(-v)) with v = beta * x and s(v) = 1 / (1 + exp(-v))",
        _swish_backward,
        _cuda_product("gateslopef({swish_beta} * {1}, {swish_beta} * {1})"),
        18,
        "swish_beta",
    ),
    PointwiseMode.GELU_APPROX_TANH_BWD: _backward(
        "dy * the derivative of GELU_APPROX_TANH_FWD at x",
        _gelu_tanh_backward,
        _cuda_product(f"gateslopef({_CUDA_GELU_TANH_SLOPE}, {_cuda_tanh_argument('{1}')})"),
        24,
    ),
    PointwiseMode.CMP_EQ: _comparison("x == b", np.equal, "=="),
    PointwiseMode.CMP_NEQ: _comparison("x != b", np.not_equal, "!="),
    PointwiseMode.CMP_GT: _comparison("x > b", np.greater, ">"),
    PointwiseMode.CMP_GE: _comparison("x >= b", np.greater_equal, ">="),
    PointwiseMode.CMP_LT: _comparison("x < b", np.less, "<"),
    PointwiseMode.CMP_LE: _comparison("x <= b", np.less_equal, "<="),
    PointwiseMode.LOGICAL_AND: _exact("x and b", _TWO, np.logical_and, "({0} != 0 && {1} != 0)", kind="logical"),
    PointwiseMode.LOGICAL_OR: _exact("x or b", _TWO, np.logical_or, "({0} != 0 || {1} != 0)", kind="logical"),
    PointwiseMode.LOGICAL_NOT: _exact("not x", _ONE, np.logical_not, "({0} == 0)", kind="logical"),
    PointwiseMode.GEN_INDEX: _exact(
        "the index of the element along axis", _ONE, _index, "{index}", parameters=("axis",), kind="index", flops=0
    ),
    PointwiseMode.BINARY_SELECT: _exact(
        "x where t is true, else b", ("x", "b", "t"), _select, "({2} != 0 ? {0} : {1})", kind="select"
    ),
}

ACTIVATIONS = tuple(mode for mode, row in POINTWISE.items() if row.kind == "activation")
COMPARISONS = tuple(mode for mode, row in POINTWISE.items() if row.kind == "comparison")
LOGICALS = tuple(mode for mode, row in POINTWISE.items() if row.kind == "logical")
BACKWARD_OF = {mode: PointwiseMode[mode.name.removesuffix("FWD") + "BWD"] for mode in ACTIVATIONS}
