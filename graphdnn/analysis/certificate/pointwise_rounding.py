"""ROUNDED: what a pointwise mode itself rounds away, in units of roundoff of its arithmetic.

Sums, products, quotients and square roots are correctly rounded everywhere: one unit each. Of functions like exp the
libraries promise at most four units in the last place, which are eight units of roundoff (CUDA C++ Programming Guide,
"Mathematical Functions": 1 to 4 in single precision; NumPy's own tests hold its vector loops to 4). Formulas of
several steps count every step, and parameters that are rounded, relative to what the steps pass through: an error of
the argument of a sigmoid comes out as ``|v s'(v)| <= 0.23`` of it, whatever the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.dtypes import Array
from graphdnn.enums import PointwiseMode

FUNCTION = 8.0  # units of a library's function
_M = PointwiseMode
Parameters = Mapping[str, Any]
# (operands as computed, largest magnitude of the result, parameters) -> what the units are relative to
Scale = Callable[[Sequence[ErrorInterval], Array, Parameters], Any]
EXACT: tuple[float, Scale | None] = (0.0, None)  # choices, copies and remainders round nothing


def _result(boxes: Sequence[ErrorInterval], most: Array, _: Parameters) -> Any:
    return most


def _first(boxes: Sequence[ErrorInterval], most: Array, _: Parameters) -> Any:
    """Of gradients, dy: it is multiplied by a factor of at most about 1.13."""
    return boxes[0].reach


def _square(boxes: Sequence[ErrorInterval], most: Array, _: Parameters) -> Any:
    return boxes[0].reach + boxes[1].reach * boxes[1].reach


def _softplus(boxes: Sequence[ErrorInterval], most: Array, parameters: Parameters) -> Any:
    return most + 1 / abs(float(parameters["softplus_beta"]))


def _trigonometric(boxes: Sequence[ErrorInterval], most: Array, _: Parameters) -> Any:
    return np.maximum(most, np.minimum(boxes[0].reach, 1.0))


def _clipped(boxes: Sequence[ErrorInterval], most: Array, parameters: Parameters) -> Any:
    """A slope below the clip is a product and two sums; clips are rounded to the arithmetic's type themselves."""
    slope, low = abs(parameters["relu_lower_clip_slope"]), abs(parameters["relu_lower_clip"])
    if slope != 0:
        return most + slope * (boxes[0].reach + low) + low
    return np.asarray(max((abs(clip) for clip in _rounded_clips(parameters)), default=0.0))


def _rounded_clips(parameters: Parameters) -> list[float]:
    """The constants that no narrow arithmetic has exactly."""
    clips = (float(parameters[name]) for name in ("relu_lower_clip", "relu_upper_clip"))
    return [clip for clip in clips if isfinite(clip) and float(np.float32(clip)) != clip]


def _remainder(boxes: Sequence[ErrorInterval], most: Array, _: Parameters) -> Any:
    return boxes[1].reach


ROUNDED: dict[PointwiseMode, tuple[float, Scale | None]] = {
    **dict.fromkeys((_M.ADD, _M.SUB, _M.MUL, _M.DIV, _M.SQRT, _M.RECIPROCAL), (1.0, _result)),
    **dict.fromkeys((_M.EXP, _M.LOG, _M.ERF, _M.TANH_FWD, _M.ATAN2), (FUNCTION, _result)),
    **dict.fromkeys((_M.SIN, _M.COS, _M.TAN), (FUNCTION, _trigonometric)),
    _M.ADD_SQUARE: (2.0, _square),
    _M.RSQRT: (FUNCTION, _result),
    _M.POW: (2 * FUNCTION, _result),
    _M.FLOOR_MOD: (2.0, _remainder),
    _M.RELU_FWD: (5.0, _clipped),
    _M.RELU_BWD: (2.0, _result),
    _M.ELU_FWD: (FUNCTION + 2, _result),
    _M.SIGMOID_FWD: (FUNCTION + 3, _result),
    _M.SOFTPLUS_FWD: (2 * FUNCTION + 6, _softplus),
    **dict.fromkeys((_M.GELU_FWD, _M.SWISH_FWD), (2 * FUNCTION + 6, _first)),
    _M.GELU_APPROX_TANH_FWD: (2 * FUNCTION + 10, _first),
    **dict.fromkeys((_M.TANH_BWD, _M.SIGMOID_BWD, _M.ELU_BWD, _M.SOFTPLUS_BWD), (2 * FUNCTION + 8, _first)),
    **dict.fromkeys((_M.GELU_BWD, _M.SWISH_BWD, _M.GELU_APPROX_TANH_BWD), (4 * FUNCTION + 16, _first)),
    **dict.fromkeys((_M.MIN, _M.MAX, _M.ABS, _M.NEG, _M.IDENTITY, _M.CEIL, _M.FLOOR, _M.MOD), EXACT),
    **dict.fromkeys((_M.CMP_EQ, _M.CMP_NEQ, _M.CMP_GT, _M.CMP_GE, _M.CMP_LT, _M.CMP_LE), EXACT),
    **dict.fromkeys((_M.LOGICAL_AND, _M.LOGICAL_OR, _M.LOGICAL_NOT, _M.GEN_INDEX, _M.BINARY_SELECT), EXACT),
}
_ARITHMETIC = (_M.ADD, _M.SUB, _M.MUL, _M.DIV, _M.SQRT, _M.ADD_SQUARE, _M.RELU_FWD, _M.RELU_BWD)


def roundings(mode: PointwiseMode, parameters: Parameters) -> float:
    """Units that the mode may be off by; 0 for choices and copies, a clip without a slope among them."""
    if mode is _M.RELU_FWD and parameters["relu_lower_clip_slope"] == 0:
        return 1.0 if _rounded_clips(parameters) else 0.0
    return ROUNDED[mode][0]


def underflow(
    mode: PointwiseMode, parameters: Parameters, eta: float, normal: float, boxes: Sequence[ErrorInterval]
) -> Any:
    """Arithmetic loses less than a subnormal; a function may lose what is below the normal numbers, times dy."""
    if not roundings(mode, parameters):
        return 0.0
    if mode in _ARITHMETIC:
        return 2 * eta
    return normal * (1 + boxes[0].reach)
