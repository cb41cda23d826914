"""CARRIED: for each pointwise mode, what the errors of its operands come to in the result.

With the mean value theorem ``|f(x + e) - f(x)| <= sup |f'| |e|`` over everything between the exact and the
computed value, so each row is the largest derivative on a box of operands. Where a derivative is unbounded (a root
or a logarithm at 0, a quotient by nearly nothing, a step) the row has what is known instead, or infinity: no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi, sqrt
from typing import Any

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval, times
from graphdnn.dtypes import Array
from graphdnn.enums import PointwiseMode

Parameters = Mapping[str, Any]
Carry = Callable[[Sequence[ErrorInterval], Parameters], Any]
_M = PointwiseMode

# The largest |f'| of functions that have one, and of the factors that backward modes multiply dy by.
_ERF_SLOPE = 2 / sqrt(pi)
_GELU_SLOPE, _GELU_CURVE = 1.13, 0.80  # |Phi(x) + x phi(x)| <= 1.1290; |phi(x) (2 - x^2)| <= 2 phi(0) = 0.7979
_TANH_GELU_SLOPE, _TANH_GELU_CURVE = 1.13, 0.83
_SWISH_SLOPE, _SWISH_CURVE = 1.10, 0.50  # of beta x: |s + v s (1 - s)| <= 1.0998; |second derivative| <= 0.5
_SIGMOID_SLOPE, _SIGMOID_CURVE = 0.25, 0.0963  # 1 / (6 sqrt(3)) = 0.0962
_TANH_CURVE = 0.77  # 4 / (3 sqrt(3)) = 0.7698


def _sum(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    return boxes[0].error + boxes[1].error


def _same(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    return boxes[0].error


def _largest(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    return np.maximum(boxes[0].error, boxes[1].error)


def _product(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    x, b = boxes
    return times(b.reach, x.error) + times(x.most, b.error)


def _plus_square(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    x, b = boxes
    return x.error + times(b.most + b.reach, b.error)


def _nearest_to_zero(box: ErrorInterval) -> Array:
    """The smallest magnitude between exact and computed values; 0 where their signs may differ."""
    low, high = box.wide
    return np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))


def _quotient(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    x, b = boxes
    least = _nearest_to_zero(b)
    return times(1 / least, x.error) + times(x.most / (least * least), b.error)


def _reciprocal(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    least = _nearest_to_zero(boxes[0])
    return times(1 / (least * least), boxes[0].error)


def _root(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    (x,) = boxes
    low = x.low - x.error
    away = times(0.5 / np.sqrt(np.maximum(low, 0)), x.error)
    at_zero = np.where(x.low >= 0, np.sqrt(x.error), times(np.inf, x.error))  # |sqrt(a) - sqrt(b)|^2 <= |a - b|
    return np.where(low > 0, away, at_zero)


def _reciprocal_root(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    (x,) = boxes
    low = np.maximum(x.low - x.error, 0.0)
    return times(0.5 / (low * np.sqrt(low)), x.error)


def _exponential(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    (x,) = boxes
    return times(np.exp(x.wide[1]), x.error)


def _logarithm(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    (x,) = boxes
    return times(1 / np.maximum(x.wide[0], 0.0), x.error)


def _tangent(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    (x,) = boxes
    low, high = x.wide
    crosses = np.floor(low / pi + 0.5) != np.floor(high / pi + 0.5)  # a pole
    steepest = np.maximum(np.abs(np.tan(low)), np.abs(np.tan(high)))
    return times(np.where(crosses, np.inf, 1 + steepest * steepest), x.error)


def _power(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    """On the corners of the box, for positive x; an exact exponent of 1 or 2 for any."""
    x, b = boxes
    (low, high), (least, greatest) = x.wide, b.wide
    corners = [v**e for v in (low, high) for e in (least, greatest)]
    slopes = [v ** (e - 1) for v in (low, high) for e in (least, greatest)]
    most, slope = (np.maximum.reduce(np.broadcast_arrays(*found)) for found in (corners, slopes))
    logs = np.maximum(np.abs(np.log(low)), np.abs(np.log(high)))
    found = times(b.reach * slope, x.error) + times(most * logs, b.error)
    squares = b.is_exact and np.all((b.low == b.high) & ((b.low == 1) | (b.low == 2)))
    if squares:
        return times(b.low * np.where(b.low == 2, x.reach, 1.0), x.error)
    untouched = (x.error == 0) & (b.error == 0)
    return np.where(untouched, 0.0, np.where(low > 0, found, np.inf))


def _angle(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    y, x = boxes
    least = np.hypot(_nearest_to_zero(y), _nearest_to_zero(x))
    low, high = y.wide
    crosses = (x.wide[0] < 0) & (low <= 0) & (high >= 0)  # the cut, where the angle jumps
    found = times(1 / least, np.hypot(y.error, x.error))
    untouched = (y.error == 0) & (x.error == 0)
    return np.where(untouched, 0.0, np.minimum(np.where(crosses, 2 * pi, found), 2 * pi))


def _remainder(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    """Either remainder is smaller than the divisor."""
    x, b = boxes
    return np.where((x.error == 0) & (b.error == 0), 0.0, 2 * b.reach)


def _step(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    """Ceil, floor: whole numbers, so the next one above."""
    return np.ceil(boxes[0].error)


def _cosine(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    return np.minimum(boxes[0].error, 2.0)


def _smooth(slope: float) -> Carry:
    return lambda boxes, _: slope * boxes[0].error


def _hyperbolic(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    (x,) = boxes
    flat = np.cosh(np.minimum(_nearest_to_zero(x), 300.0))
    return np.minimum(times(1 / (flat * flat), x.error), 2.0)


def _logistic(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    (x,) = boxes
    small = np.exp(-_nearest_to_zero(x))
    return np.minimum(times(small / ((1 + small) * (1 + small)), x.error), 1.0)


def _clipped(boxes: Sequence[ErrorInterval], parameters: Parameters) -> Any:
    """Slope 1 between the clips, the parameter's below them and 0 above."""
    (x,) = boxes
    low, high = x.wide
    below, above = parameters["relu_lower_clip"], parameters["relu_upper_clip"]
    slope = abs(parameters["relu_lower_clip_slope"])
    inside = np.where((high < below) | (low > above), 0.0, 1.0)
    return times(np.maximum(inside, np.where(low < below, slope, 0.0)), x.error)


def _elu(boxes: Sequence[ErrorInterval], parameters: Parameters) -> Any:
    (x,) = boxes
    low, high = x.wide
    alpha = abs(parameters["elu_alpha"])
    slope = np.maximum(np.where(high >= 0, 1.0, 0.0), np.where(low < 0, alpha * np.exp(np.minimum(high, 0.0)), 0.0))
    return times(slope, x.error)


def _softplus(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    return boxes[0].error


def _swish(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    return _SWISH_SLOPE * boxes[0].error


# Backward modes are dy times a factor of x: the factor's largest magnitude and its largest slope.


def _backward(most: Callable[[Parameters], float], slope: Callable[[Parameters], float]) -> Carry:
    def carry(boxes: Sequence[ErrorInterval], parameters: Parameters) -> Any:
        dy, x = boxes
        return times(most(parameters), dy.error) + times(dy.reach * slope(parameters), x.error)

    return carry


def _stepped(boxes: Sequence[ErrorInterval], factors: Array, jump: Any, is_near: Array) -> Any:
    """A factor with steps: where x may be on either side of one, the whole step counts."""
    dy, x = boxes
    return times(factors, dy.error) + np.where(is_near & (x.error > 0), dy.reach * jump, 0.0)


def _relu_backward(boxes: Sequence[ErrorInterval], parameters: Parameters) -> Any:
    low, high = boxes[1].wide
    slope = abs(parameters["relu_lower_clip_slope"])
    near = np.zeros(np.shape(low), np.bool_)
    for clip in (parameters["relu_lower_clip"], parameters["relu_upper_clip"]):
        near = near | ((low <= clip) & (high >= clip))
    return _stepped(boxes, np.asarray(max(1.0, slope)), max(1.0, slope) + slope, near)


def _elu_backward(boxes: Sequence[ErrorInterval], parameters: Parameters) -> Any:
    dy, x = boxes
    low, high = x.wide
    alpha = abs(parameters["elu_alpha"])
    near = (low <= 0) & (high >= 0)
    most = np.asarray(max(1.0, alpha))
    smooth = times(dy.reach * np.where(low < 0, alpha * np.exp(np.minimum(high, 0.0)), 0.0), x.error)
    return smooth + _stepped(boxes, most, abs(1.0 - parameters["elu_alpha"]), near)


# What is one thing or another.


def _compared(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    """1 where the operands may change places."""
    a, b = boxes
    (a_low, a_high), (b_low, b_high) = a.wide, b.wide
    return ((a.error + b.error > 0) & (a_low <= b_high) & (b_low <= a_high)).astype(np.float64)


def _logical(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    found = np.zeros(())
    for box in boxes:
        low, high = box.wide
        found = np.maximum(found, ((box.error > 0) & (low <= 0) & (high >= 0)).astype(np.float64))
    return found


def _selected(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    x, b, t = boxes
    low, high = t.wide
    unclear = (t.error > 0) & (low <= 0) & (high >= 0)
    apart = np.maximum(np.abs(x.high - b.low), np.abs(b.high - x.low))
    return np.maximum(x.error, b.error) + np.where(unclear, apart, 0.0)


def _counted(boxes: Sequence[ErrorInterval], _: Parameters) -> Any:
    return np.zeros_like(boxes[0].error)


def _one(_: Parameters) -> float:
    return 1.0


def _beta(parameters: Parameters) -> float:
    return abs(float(parameters["softplus_beta"]))


def _swish_curve(parameters: Parameters) -> float:
    return _SWISH_CURVE * abs(float(parameters["swish_beta"]))


_COMPARISONS = (_M.CMP_EQ, _M.CMP_NEQ, _M.CMP_GT, _M.CMP_GE, _M.CMP_LT, _M.CMP_LE)

CARRIED: dict[PointwiseMode, Carry] = {
    _M.ADD: _sum, _M.SUB: _sum, _M.MUL: _product, _M.MIN: _largest, _M.MAX: _largest, _M.ADD_SQUARE: _plus_square,
    _M.DIV: _quotient, _M.MOD: _remainder, _M.FLOOR_MOD: _remainder, _M.POW: _power, _M.ATAN2: _angle,
    _M.SQRT: _root, _M.RSQRT: _reciprocal_root, _M.RECIPROCAL: _reciprocal, _M.ABS: _same, _M.NEG: _same,
    _M.IDENTITY: _same, _M.CEIL: _step, _M.FLOOR: _step, _M.COS: _cosine, _M.SIN: _cosine, _M.TAN: _tangent,
    _M.EXP: _exponential, _M.LOG: _logarithm, _M.ERF: _smooth(_ERF_SLOPE), _M.RELU_FWD: _clipped,
    _M.TANH_FWD: _hyperbolic, _M.SIGMOID_FWD: _logistic, _M.ELU_FWD: _elu, _M.GELU_FWD: _smooth(_GELU_SLOPE),
    _M.GELU_APPROX_TANH_FWD: _smooth(_TANH_GELU_SLOPE), _M.SOFTPLUS_FWD: _softplus, _M.SWISH_FWD: _swish,
    _M.RELU_BWD: _relu_backward, _M.ELU_BWD: _elu_backward,
    _M.TANH_BWD: _backward(_one, lambda p: _TANH_CURVE),
    _M.SIGMOID_BWD: _backward(lambda p: _SIGMOID_SLOPE, lambda p: _SIGMOID_CURVE),
    _M.GELU_BWD: _backward(lambda p: _GELU_SLOPE, lambda p: _GELU_CURVE),
    _M.GELU_APPROX_TANH_BWD: _backward(lambda p: _TANH_GELU_SLOPE, lambda p: _TANH_GELU_CURVE),
    _M.SOFTPLUS_BWD: _backward(_one, lambda p: _SIGMOID_SLOPE * _beta(p)),
    _M.SWISH_BWD: _backward(lambda p: _SWISH_SLOPE, _swish_curve),
    **dict.fromkeys(_COMPARISONS, _compared), _M.LOGICAL_AND: _logical, _M.LOGICAL_OR: _logical,
    _M.LOGICAL_NOT: _logical, _M.GEN_INDEX: _counted, _M.BINARY_SELECT: _selected,
}  # fmt: skip
