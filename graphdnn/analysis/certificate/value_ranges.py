"""Where the results of a pointwise mode lie, given where its operands do: what is known without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, pi
from typing import Any

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.dtypes import Array
from graphdnn.enums import PointwiseMode
from graphdnn.operations import PointwiseOperation

_M = PointwiseMode
_RISING = (
    _M.SQRT, _M.EXP, _M.LOG, _M.ERF, _M.IDENTITY, _M.CEIL, _M.FLOOR, _M.TANH_FWD, _M.SIGMOID_FWD, _M.ELU_FWD,
    _M.SOFTPLUS_FWD,
)  # fmt: skip
_HOLLOW = (_M.GELU_FWD, _M.GELU_APPROX_TANH_FWD, _M.SWISH_FWD)  # fall to a small minimum, then rise
_DECISIONS = ("comparison", "logical")
_FACTORS = {
    _M.RELU_BWD: 1.0, _M.TANH_BWD: 1.0, _M.SIGMOID_BWD: 0.25, _M.SOFTPLUS_BWD: 1.0, _M.GELU_BWD: 1.13,
    _M.GELU_APPROX_TANH_BWD: 1.13, _M.SWISH_BWD: 1.1, _M.ELU_BWD: 1.0,
}  # fmt: skip


def range_of(
    op: PointwiseOperation, boxes: Sequence[ErrorInterval], parameters: Mapping[str, Any]
) -> tuple[Array, Array]:
    """The lowest and the highest result; infinite where nothing is known."""
    with np.errstate(all="ignore"):
        low, high = _range(op, boxes, parameters)
    return (np.asarray(np.nan_to_num(low, nan=-inf, posinf=inf, neginf=-inf)),
            np.asarray(np.nan_to_num(high, nan=inf, posinf=inf, neginf=-inf)))  # fmt: skip


def _range(op: PointwiseOperation, boxes: Sequence[ErrorInterval], parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    mode, row = op.spec.mode, op.spec.row
    if row.kind in _DECISIONS:
        return 0.0, 1.0
    if mode is _M.GEN_INDEX:
        return 0.0, float(max(next(iter(op.outputs().values())).extents) - 1)
    ends = [(float(box.low), float(box.high)) for box in boxes]
    if mode in _FACTORS:
        steepest = max(_FACTORS[mode], *(abs(float(v)) for v in parameters.values() if abs(float(v)) < inf), 0.0)
        most = steepest * float(boxes[0].most)
        return -most, most
    if mode in _RISING:
        found = [float(row.numpy(np.float64(end), **parameters)) for end in ends[0]]
        return min(found), max(found)
    if mode in _HOLLOW:
        found = [float(row.numpy(np.float64(end), **parameters)) for end in ends[0]]
        beta = abs(float(parameters.get("swish_beta", 1.0))) or 1.0
        return min(*found, -0.3 / beta if ends[0][0] < 0 else inf), max(found)
    if mode is _M.RELU_FWD:
        points = [*ends[0], *(p for p in (parameters["relu_lower_clip"],) if ends[0][0] < p < ends[0][1])]
        found = [float(row.numpy(np.float64(p), **parameters)) for p in points]
        return min(found), max(found)
    return _arithmetic(mode, boxes, ends)


def _arithmetic(
    mode: PointwiseMode, boxes: Sequence[ErrorInterval], ends: Sequence[tuple[float, float]]
) -> tuple[Any, Any]:
    (a, b), most = ends[0], float(boxes[0].most)
    c, d = ends[1] if len(ends) > 1 else (0.0, 0.0)
    if mode is _M.ADD:
        return a + c, b + d
    if mode is _M.SUB:
        return a - d, b - c
    if mode is _M.MUL:
        corners = [0.0 if 0 in (v, w) else v * w for v in (a, b) for w in (c, d)]
        return min(corners), max(corners)
    if mode in (_M.MIN, _M.MAX):
        pick = min if mode is _M.MIN else max
        return pick(a, c), pick(b, d)
    if mode is _M.BINARY_SELECT:
        return min(a, c), max(b, d)
    if mode is _M.ADD_SQUARE:
        return a + (0.0 if c <= 0 <= d else min(c * c, d * d)), b + max(c * c, d * d)
    if mode is _M.NEG:
        return -b, -a
    if mode is _M.ABS:
        return 0.0 if a <= 0 <= b else min(abs(a), abs(b)), most
    if mode in (_M.SIN, _M.COS):
        return -1.0, 1.0
    if mode is _M.ATAN2:
        return -pi, pi
    if mode in (_M.MOD, _M.FLOOR_MOD):
        return -max(abs(c), abs(d)), max(abs(c), abs(d))
    if mode is _M.DIV and not c <= 0 <= d:
        corners = [v / w for v in (a, b) for w in (c, d)]
        return min(corners), max(corners)
    if mode is _M.RECIPROCAL and not a <= 0 <= b:
        return 1 / b, 1 / a
    if mode is _M.RSQRT and a > 0:
        return b**-0.5, a**-0.5
    if mode is _M.POW and a > 0:
        corners = [v**w for v in (a, b) for w in (c, d)]
        return min(corners), max(corners)
    return -inf, inf
