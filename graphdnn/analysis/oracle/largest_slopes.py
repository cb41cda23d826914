"""The largest slopes of pointwise modes: how much an error of an operand can grow where the mode is steepest.

A result's error is at least the operand's error times the slope. The ratio of the largest result to the largest operand
underestimates the slope of a function that flattens out: tanh has slope 1 at 0, and the ratio is 0.01 for operands up
to 100. Such modes have an entry here. A mode with a pole or a step has no largest slope
and no entry.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphdnn.enums import PointwiseMode
from graphdnn.operations import PointwiseOperation

_M = PointwiseMode
# By operand, for parameters of 1. The slope of a gradient with respect to x is the slope for dy = 1.
LARGEST_SLOPES: dict[PointwiseMode, tuple[float, ...]] = {
    _M.TANH_FWD: (1.0,), _M.SIGMOID_FWD: (0.25,), _M.ERF: (1.13,), _M.SIN: (1.0,), _M.COS: (1.0,), _M.ELU_FWD: (1.0,),
    _M.SOFTPLUS_FWD: (1.0,), _M.SWISH_FWD: (1.1,), _M.GELU_FWD: (1.13,), _M.GELU_APPROX_TANH_FWD: (1.13,),
    _M.TANH_BWD: (1.0, 0.77), _M.SIGMOID_BWD: (0.25, 0.0963), _M.ELU_BWD: (1.0, 1.0), _M.SOFTPLUS_BWD: (1.0, 0.25),
    _M.SWISH_BWD: (1.1, 0.5), _M.GELU_BWD: (1.13, 0.8), _M.GELU_APPROX_TANH_BWD: (1.13, 0.8), _M.RELU_BWD: (1.0,),
}  # fmt: skip
_BETA = {_M.SOFTPLUS_BWD: "softplus_beta", _M.SWISH_BWD: "swish_beta"}  # a factor of the slope with respect to x


def largest_slope(op: PointwiseOperation, uid: int, scales: Mapping[int, float]) -> float:
    """The largest slope of the result with respect to a tensor.

    Args:
        op: The operation.
        uid: The tensor, an operand of the operation.
        scales: The largest magnitude of each tensor, by uid.

    Returns:
        The slope, summed over the operands that are this tensor; 0 for modes without an entry.
    """
    operands, total = [op.inputs()[port].uid for port in op.spec.row.operands], 0.0
    for place, slope in enumerate(LARGEST_SLOPES.get(op.spec.mode, ())):
        if operands[place] == uid:
            factor = abs(op.alpha1) if place == 0 else abs(op.alpha1 * op.alpha2) * scales[operands[0]]
            total += slope * factor * _parameter_factor(op, place)
    return total


def _parameter_factor(op: PointwiseOperation, place: int) -> float:
    mode = op.spec.mode
    if mode in (_M.ELU_FWD, _M.ELU_BWD):
        return max(1.0, abs(op.spec.elu_alpha))
    if mode is _M.RELU_BWD:
        return max(1.0, abs(op.spec.relu_lower_clip_slope))
    return abs(float(getattr(op.spec, _BETA[mode]))) if place == 1 and mode in _BETA else 1.0
