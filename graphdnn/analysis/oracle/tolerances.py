"""How far each tensor of a graph may stray from its reference."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod, sqrt
from types import MappingProxyType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from graphdnn.analysis.oracle.close_decisions import Decisions, rounds_to_whole, tips
from graphdnn.analysis.oracle.largest_slopes import largest_slope
from graphdnn.dtypes import BOOLEANS, COMPUTE, ELEMENTS, FLOATS, Array
from graphdnn.engines.operation_cost import reduction_length
from graphdnn.enums import PointwiseMode, ReductionOperator, ResampleMode
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.graph.value_numbering import cancels, same_values
from graphdnn.operations import (
    Concat,
    ConvolutionOperation,
    Matmul,
    Operation,
    PointwiseOperation,
    Reduction,
    ResampleForward,
    Reshape,
    Slice,
    Transpose,
)
from graphdnn.tensors import TensorSpec

_SAFETY = 8.0
SMALLEST = 1e-30  # magnitudes below it are as good as 0
_M, _R = PointwiseMode, ReductionOperator
_MOVEMENT = (Concat, Reshape, Slice, Transpose)
# Modes that carry an error of an operand to the result as it is, and those of them that round nothing.
_SLOPE_ONE = {_M.ADD, _M.SUB, _M.MIN, _M.MAX, _M.ABS, _M.NEG, _M.IDENTITY, _M.RELU_FWD, _M.BINARY_SELECT}
_EXACT = {_M.MIN, _M.MAX, _M.ABS, _M.NEG, _M.IDENTITY, _M.BINARY_SELECT, _M.CEIL, _M.FLOOR}
_DECIDING = ("comparison", "logical", "index")
NO_GROWTH: Mapping[int, float] = MappingProxyType({})


class Bounds(NamedTuple):
    """By uid: what a tensor may be off by, and what an element may be off by besides because of close decisions."""

    errors: dict[int, float]
    swings: dict[int, Array]


def bounds(graph: OperationGraph, values: Mapping[int, Array], growth: Mapping[int, float] = NO_GROWTH) -> Bounds:
    """Of every tensor that an operation writes, in the order of execution."""
    scales = {uid: scale_of(tensor, values[uid]) for uid, tensor in graph.tensors.items()}
    numbers = same_values(graph.operations)
    decisions = Decisions(graph.operations, values, numbers)
    errors: dict[int, float] = {}
    followed: set[int] = set()  # decisions that are right wherever there is no swing
    for op in graph.operations:
        carried = {t.uid: errors.get(t.uid, 0.0) for t in op.inputs().values()}
        if isinstance(op, PointwiseOperation):
            carried.update(dict.fromkeys(followed & carried.keys(), 0.0))
        found = {}
        for port, tensor in op.outputs().items():
            found[port] = _bound(op, port, tensor, scales, carried, growth)
            if tips(op):
                followed.add(tensor.uid)
                found[port] = 0.0
        decisions.follow(op, {t.uid: errors.get(t.uid, 0.0) for t in op.inputs().values()}, found)
        for port, tensor in op.outputs().items():
            is_exact = decisions.is_sure(tensor.uid) or cancels(op, numbers)
            is_stepped = rounds_to_whole(op, tensor) and not decides(op, port, tensor)  # each element by its swing
            errors[tensor.uid] = 0.0 if is_exact or is_stepped else found[port]
    return Bounds(errors, decisions.swings)


def _bound(
    op: Operation,
    port: str,
    tensor: TensorSpec,
    scales: Mapping[int, float],
    carried: Mapping[int, float],
    growth: Mapping[int, float],
) -> float:
    """Of one result, from what its operands carry along."""
    scale, rounds = scales[tensor.uid], _rounds(op) and not _sums_whole_numbers(op, scales)
    error = sum(_gain(op, uid, scale, scales) * e for uid, e in carried.items() if e)
    if decides(op, port, tensor):
        return float((error > 0 or rounds) and not _counts_only(op))
    if rounds:
        own = _SAFETY * (sqrt(reduction_length(op)) + 1) * _roundoff(COMPUTE.get(op.compute_type)) * scale
        error += own * growth.get(tensor.uid, 1.0)
    if tensor.data_type in FLOATS:
        error += _roundoff(ELEMENTS[tensor.data_type].numpy) * scale + _tiny(tensor)
    elif error and _is_floating(op) and not rounds_to_whole(op, tensor):
        error += 1.0  # two roundings of nearly the same value
    return error


def scale_of(tensor: TensorSpec, values: Array) -> float:
    """The largest finite magnitude inside the type's range."""
    numbers, limit = np.asarray(values).astype(np.float64, copy=False), ELEMENTS[tensor.data_type].largest
    if numbers.size:
        low, high = float(numbers.min()), float(numbers.max())
        if -limit <= low and high <= limit < inf:  # no NaN, and nothing outside: the quick way
            return max(-low, high, SMALLEST)
    magnitudes = np.abs(numbers)
    inside = np.isfinite(magnitudes) & (magnitudes <= limit)
    return max(float(magnitudes[inside].max(initial=0.0)), SMALLEST)


def _gain(op: Operation, uid: int, scale: float, scales: Mapping[int, float]) -> float:
    """The factor by which an error of an operand grows at most. ``scale``: the largest magnitude of the result."""
    if isinstance(op, _MOVEMENT):
        return 1.0
    ratio = scale / scales[uid]
    if not isinstance(op, PointwiseOperation):
        return ratio
    alpha = max(abs(op.alpha1), abs(op.alpha2))
    if op.spec.mode in _SLOPE_ONE:
        return max(1.0, alpha) * max(1.0, abs(op.spec.relu_lower_clip_slope))
    if op.spec.mode is _M.EXP:  # the slope is the result
        return abs(op.alpha1) * scale
    return max(ratio, largest_slope(op, uid, scales))


def _rounds(op: Operation) -> bool:
    """False when the arithmetic is a choice or a copy, of operands that it holds without loss."""
    compute = COMPUTE.get(op.compute_type)
    if isinstance(op, _MOVEMENT) or compute is None or compute.kind in "biu":
        return False
    if any(not np.can_cast(ELEMENTS[t.data_type].numpy, compute) for t in op.inputs().values()):
        return True
    if isinstance(op, PointwiseOperation):
        scaled = op.alpha1 != 1.0 or op.alpha2 != 1.0
        return scaled or not (op.spec.mode in _EXACT or op.spec.row.kind in _DECIDING)
    if isinstance(op, Reduction):
        return op.spec.operator not in (_R.MAX, _R.MIN, _R.AMAX)
    if isinstance(op, ResampleForward):
        return op.spec.mode is not ResampleMode.MAXPOOL or op.alpha != 1.0 or op.beta != 0.0
    return True


def _sums_whole_numbers(op: Operation, scales: Mapping[int, float]) -> bool:
    """True for products of integers whose sums stay below the integers that the arithmetic holds exactly."""
    tensors = op.inputs().values()
    whole = all(ELEMENTS[t.data_type].kind != "float" for t in tensors)
    if not whole or not isinstance(op, (ConvolutionOperation, Matmul)) or getattr(op, "alpha", 1.0) != 1.0:
        return False
    return reduction_length(op) * prod(scales[t.uid] for t in tensors) <= 1 / _roundoff(COMPUTE[op.compute_type])


def decides(op: Operation, port: str, tensor: TensorSpec) -> bool:
    """True for results that are one thing or another: booleans, indices."""
    if tensor.data_type in BOOLEANS or port == "index":
        return True
    return isinstance(op, PointwiseOperation) and op.spec.row.kind in _DECIDING


def _counts_only(op: Operation) -> bool:
    """GEN_INDEX looks at the shape of its operand only."""
    return isinstance(op, PointwiseOperation) and op.spec.mode is PointwiseMode.GEN_INDEX


def _is_floating(op: Operation) -> bool:
    compute = COMPUTE.get(op.compute_type)
    return compute is not None and compute.kind not in "biu"


def _tiny(tensor: TensorSpec) -> float:
    return float(ml_dtypes.finfo(ELEMENTS[tensor.data_type].numpy).smallest_subnormal)  # type: ignore[no-untyped-call]


def _roundoff(dtype: Any) -> float:
    if dtype is None or dtype.kind in "biu":
        return 0.0
    return float(ml_dtypes.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]
