"""The oracle: what a graph should have computed, and how far floating point may stray from it.

``reference`` runs a graph once more in float64 with the general NumPy engine:
every floating tensor and arithmetic becomes DOUBLE, so no rounding but that of the inputs,
by-value numbers and constants is left; integers and booleans keep their types, so they have
to agree bit for bit wherever nothing floating decides them.

The bound of a tensor follows from the operation that writes it and the bounds of its operands:

    bound = 8 * (sqrt(n) + 1) * u * scale  +  u_type * scale  +  sum of what the operands carry along

with u the unit roundoff of the arithmetic and u_type that of the tensor's own type, n the
number of summed terms (rounding errors of a long sum are independent; the worst case, n
itself, is never met), and scale the tensor's largest finite magnitude in the reference. The
8 is for functions like exp whose argument error is amplified. An operation that rounds
nothing (a maximum, a copy, small integers in floating arithmetic) lacks the first term.
Operand errors are carried absolutely by operations of slope 1 (sums, clips, copies), so
cancellation is allowed for, and relative to the magnitudes by all others (not less than by the
steepest slope of functions that flatten out, as tanh does).

An integer that a floating value is rounded to may differ by 1 more. What a comparison or a
maximum decides (booleans, indices) is exact when its operands are; otherwise values close
to the edge may tip over, and 1 % of the elements may differ. Values beyond the range of an
output's type count as the end of the range, which is where inf and saturation belong.
Elements that a close decision reaches through pointwise operations (graphdnn/undecided.py) are
not compared: between nearly equal values either choice is right. An engine whose rounding
errors are larger says how many times (``Engine.growth``); the first term grows by it. Where
tensor cores cut, errors have one sign and grow with n, which shows from 5,000 terms on.
It is a bound for checking, not a proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod, sqrt
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from graphdnn.device import this_cpu
from graphdnn.dtypes import BOOLEANS, COMPUTE, ELEMENTS, FLOATS, Array, cast
from graphdnn.engines import Task
from graphdnn.engines.host.memory import empty, load
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.engines.work import reduction_length
from graphdnn.enums import DataType, PointwiseMode, ReductionOperator, ResampleMode
from graphdnn.fusion import fuse
from graphdnn.graph import OperationGraph
from graphdnn.heuristics import Choice, EngineConfig
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
from graphdnn.operations.grid_sample import GridSampleBackward
from graphdnn.plan import ExecutionPlan
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec
from graphdnn.undecided import tips, undecided

_SAFETY = 8.0
_FLIPS = 0.01  # share of decisions that may tip over where rounded values are compared
_SMALLEST = 1e-30  # magnitudes below it are as good as 0
_M, _R = PointwiseMode, ReductionOperator
_MOVEMENT = (Concat, Reshape, Slice, Transpose)
# Modes that carry an error of an operand to the result as it is, and those of them that round nothing.
_SLOPE_ONE = {_M.ADD, _M.SUB, _M.MIN, _M.MAX, _M.ABS, _M.NEG, _M.IDENTITY, _M.RELU_FWD, _M.BINARY_SELECT}
# The steepest slope of functions that flatten out: relative to the magnitudes they would carry too little.
_STEEPEST = {
    _M.TANH_FWD: 1.0, _M.SIGMOID_FWD: 0.25, _M.ERF: 1.13, _M.SIN: 1.0, _M.COS: 1.0, _M.ELU_FWD: 1.0,
    _M.SOFTPLUS_FWD: 1.0, _M.SWISH_FWD: 1.1, _M.GELU_FWD: 1.13, _M.GELU_APPROX_TANH_FWD: 1.13,
}  # fmt: skip
_EXACT = {_M.MIN, _M.MAX, _M.ABS, _M.NEG, _M.IDENTITY, _M.BINARY_SELECT, _M.CEIL, _M.FLOOR}
_DECIDING = ("comparison", "logical", "index")
_NO_GROWTH: Mapping[int, float] = MappingProxyType({})
Bounds = tuple[dict[int, float], dict[int, Array]]  # by uid; and the elements that are not compared
_FLOAT_COMPUTE = (
    DataType.FLOAT, DataType.HALF, DataType.BFLOAT16, DataType.FAST_FLOAT_FOR_FP8,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output beside its reference."""

    tensor: TensorSpec
    difference: float  # largest absolute one; of booleans and indices the share that differs
    bound: float  # 0 where the result is exact

    @property
    def ok(self) -> bool:
        return self.difference <= self.bound  # a NaN difference is not ok

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "FAILED"
        exact = "exact" if self.bound == 0 else f"bound {self.bound:.3g}"
        return f"{self.tensor.label()}: largest difference {self.difference:.3g}, {exact}: {verdict}"

    def to_json(self) -> dict[str, Any]:
        return {"uid": self.tensor.uid, "difference": self.difference, "bound": self.bound, "ok": self.ok}


def promoted(graph: OperationGraph) -> OperationGraph:
    """The same computation with DOUBLE in place of every floating type; integers stay as they are."""
    tensors = {uid: _promoted_tensor(t) for uid, t in graph.tensors.items()}
    return OperationGraph.of((_promoted_operation(op, tensors) for op in graph.operations), name=graph.name)


def _promoted_tensor(tensor: TensorSpec) -> TensorSpec:
    if tensor.data_type not in FLOATS:
        return tensor
    changes: dict[str, Any] = {"data_type": DataType.DOUBLE, "byte_alignment": max(8, tensor.byte_alignment)}
    if tensor.constant_value is not None:
        changes["constant_value"] = float(_rounded(tensor.constant_value, tensor))
    return tensor.model_copy(update=changes)


def _rounded(number: Any, tensor: TensorSpec) -> Any:
    """A host scalar as every engine gets it: rounded to its tensor's type."""
    value = cast(np.asarray(number).reshape(1), tensor.data_type)
    return value.astype(np.float64)[0] if tensor.data_type in FLOATS else value[0]


def _promoted_operation(op: Operation, tensors: Mapping[int, TensorSpec]) -> Operation:
    settings = {name: getattr(op, name) for name in type(op).model_fields}
    changes = {
        name: value.model_copy(update=_promoted_types(value))
        for name, value in settings.items()
        if isinstance(value, Spec) and not isinstance(value, TensorSpec)
    }
    if isinstance(op, GridSampleBackward):  # it jumps from element to element: positions stay those of its arithmetic
        return with_tensors(op, tensors)
    return with_tensors(op, tensors).model_copy(update=changes | _promoted_types(op))


def with_tensors(op: Operation, tensors: Mapping[int, TensorSpec]) -> Operation:
    """The operation with other descriptions of its tensors."""
    changes: dict[str, Any] = {}
    for name in type(op).model_fields:
        value = getattr(op, name)
        if isinstance(value, TensorSpec):
            changes[name] = tensors[value.uid]
        elif isinstance(value, tuple) and value and isinstance(value[0], TensorSpec):
            changes[name] = tuple(tensors[t.uid] for t in value)
    return op.model_copy(update=changes)


def _promoted_types(spec: Spec) -> dict[str, DataType]:
    names = ("compute_type", "math_type", "arithmetic")
    return {n: DataType.DOUBLE for n in names if n in type(spec).model_fields and getattr(spec, n) in _FLOAT_COMPUTE}


def reference(graph: OperationGraph, bindings: Mapping[int, Any]) -> dict[int, Array]:
    """Outputs by uid as logical arrays, computed from the bound inputs in float64 or exact integers."""
    values = _run(graph, promoted(graph), bindings)
    return {spec.uid: values[spec.uid] for spec in graph.outputs}


def evaluate(graph: OperationGraph, bindings: Mapping[int, Any]) -> dict[int, Array]:
    """Like ``reference``, for every tensor of the graph, virtual ones included."""
    double = promoted(graph)
    tensors = {uid: t.model_copy(update={"is_virtual": False}) for uid, t in double.tensors.items()}
    seen = OperationGraph.of((with_tensors(op, tensors) for op in double.operations), name=graph.name)
    constants = {uid: np.asarray(t.constant_value) for uid, t in tensors.items() if t.is_constant}
    return constants | _run(graph, seen, bindings)


def _run(graph: OperationGraph, double: OperationGraph, bindings: Mapping[int, Any]) -> dict[int, Array]:
    """Every bound tensor of ``double``, a form of ``graph`` whose inputs are bound in the original types."""
    fused = fuse(double)
    choices = tuple(Choice(Task(op, this_cpu()), NUMPY, NUMPY.defaults()) for op in fused)
    plan = ExecutionPlan(EngineConfig(fused, this_cpu(), choices))
    arrays: dict[int, Any] = {}
    blended = {t.uid for op in graph.operations if op.reads_output for t in op.outputs().values()}
    for spec in double.bound:
        if spec.is_by_value:
            arrays[spec.uid] = np.full(spec.dims, _rounded(bindings[spec.uid], graph.tensors[spec.uid]))
            continue
        arrays[spec.uid] = empty(spec)
        if spec.uid not in graph.producer or spec.uid in blended:
            arrays[spec.uid][...] = bindings[spec.uid]
    plan.execute(arrays, plan.new_workspace())
    return {spec.uid: load(arrays[spec.uid], spec) for spec in double.bound}


def compare(
    graph: OperationGraph,
    bindings: Mapping[int, Any],
    before: Mapping[int, Any] | None = None,
    growth: Mapping[int, float] = _NO_GROWTH,
) -> list[Comparison]:
    """Every output in ``bindings`` beside its reference. ``before`` holds the old outputs where beta reads them.

    ``growth``: ``EngineConfig.error_growth``, the factors of the engines that computed them.
    """
    values = evaluate(graph, {**bindings, **(before or {})})
    return compare_values(graph, values, bounds(graph, values, growth), bindings)


def compare_values(
    graph: OperationGraph, values: Mapping[int, Array], within: Bounds, bindings: Mapping[int, Any]
) -> list[Comparison]:
    """Like ``compare``, beside what ``evaluate`` and ``bounds`` gave: for several results of the same inputs."""
    errors, unclear = within
    found = []
    for spec in graph.outputs:
        actual, wanted, bound = load(bindings[spec.uid], spec), values[spec.uid], _allowed(graph, spec, errors)
        if spec.data_type in FLOATS:
            actual = actual.astype(np.float64)
        if spec.uid in unclear:
            actual = np.where(unclear[spec.uid], wanted, actual)
        if _is_decision(graph, spec):
            found.append(Comparison(spec, float(np.mean(actual != wanted)), bound))
        elif spec.data_type in FLOATS:
            found.append(Comparison(spec, _float_difference(spec, actual, wanted), bound))
        else:
            found.append(Comparison(spec, _integer_difference(actual, wanted), bound))
    return found


def allowances(
    graph: OperationGraph, values: Mapping[int, Array], growth: Mapping[int, float] = _NO_GROWTH
) -> dict[int, float]:
    """What ``compare`` allows each output to differ by; of decisions the share."""
    errors, _ = bounds(graph, values, growth)
    return {spec.uid: _allowed(graph, spec, errors) for spec in graph.outputs}


def _allowed(graph: OperationGraph, spec: TensorSpec, errors: Mapping[int, float]) -> float:
    if _is_decision(graph, spec):
        return max(_FLIPS, 1 / spec.elements) if errors[spec.uid] else 0.0
    return errors[spec.uid]


def _float_difference(spec: TensorSpec, actual: Array, wanted: Array) -> float:
    """The largest one inside the range of the type; NaN when the NaNs are not in the same places."""
    if not np.array_equal(np.isnan(actual), np.isnan(wanted)):
        return float("nan")
    number = ~np.isnan(wanted)
    actual, wanted = _in_range(spec, actual[number]), _in_range(spec, wanted[number])
    with np.errstate(over="ignore"):
        return float(np.abs(actual - wanted).max(initial=0.0))


def _in_range(spec: TensorSpec, values: Array) -> Array:
    element = ELEMENTS[spec.data_type]
    return np.asarray(np.clip(values, element.smallest, element.largest))


def _integer_difference(actual: Array, wanted: Array) -> float:
    if (actual == wanted).all():
        return 0.0
    return max(float(np.abs(actual.astype(np.float64) - wanted.astype(np.float64)).max()), 1.0)


def bounds(graph: OperationGraph, values: Mapping[int, Array], growth: Mapping[int, float] = _NO_GROWTH) -> Bounds:
    """The bound of every tensor that an operation writes, in the order of execution; elements it does not hold for."""
    scales = {uid: _scale(tensor, values[uid]) for uid, tensor in graph.tensors.items()}
    errors: dict[int, float] = {}
    unclear: dict[int, Array] = {}
    followed: set[int] = set()  # decisions that are right wherever ``unclear`` does not say otherwise
    for op in graph.operations:
        carried = {t.uid: errors.get(t.uid, 0.0) for t in op.inputs().values()}
        reached = undecided(op, values, carried, unclear)
        if reached is not None:
            unclear.update((t.uid, reached) for t in op.outputs().values())
        if isinstance(op, PointwiseOperation):
            carried.update(dict.fromkeys(followed & carried.keys(), 0.0))
        else:  # there an undecided element may be anything
            carried.update({uid: carried[uid] + scales[uid] for uid in unclear.keys() & carried.keys()})
        rounds = _rounds(op) and not _sums_whole_numbers(op, scales)
        for port, tensor in op.outputs().items():
            scale = scales[tensor.uid]
            error = sum(_gain(op, scale, scales[uid]) * e for uid, e in carried.items() if e)
            if _decides(op, port, tensor):
                errors[tensor.uid] = float((error > 0 or rounds) and not _counts_only(op))
                if tips(op) and not rounds:
                    followed.add(tensor.uid)
                continue
            if rounds:
                own = _SAFETY * (sqrt(reduction_length(op)) + 1) * _roundoff(COMPUTE.get(op.compute_type)) * scale
                error += own * growth.get(tensor.uid, 1.0)
            if tensor.data_type in FLOATS:
                error += _roundoff(ELEMENTS[tensor.data_type].numpy) * scale + _tiny(tensor)
            elif error and _is_floating(op):
                error += 1.0  # two roundings of nearly the same value
            errors[tensor.uid] = error
    return errors, unclear


def _scale(tensor: TensorSpec, values: Array) -> float:
    """The largest finite magnitude inside the type's range."""
    magnitudes = np.abs(np.asarray(values).astype(np.float64))
    inside = np.isfinite(magnitudes) & (magnitudes <= ELEMENTS[tensor.data_type].largest)
    return max(float(magnitudes[inside].max(initial=0.0)), _SMALLEST)


def _gain(op: Operation, scale: float, operand_scale: float) -> float:
    """How an error of an operand grows on its way to the result."""
    if isinstance(op, _MOVEMENT):
        return 1.0
    if isinstance(op, PointwiseOperation) and op.spec.mode in _SLOPE_ONE:
        return max(1.0, abs(op.alpha1), abs(op.alpha2), abs(op.spec.relu_lower_clip_slope))
    steepest = _STEEPEST.get(op.spec.mode, 0.0) if isinstance(op, PointwiseOperation) else 0.0
    return max(scale / operand_scale, steepest)


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


def _decides(op: Operation, port: str, tensor: TensorSpec) -> bool:
    """True for results that are one thing or another: booleans, indices."""
    if tensor.data_type in BOOLEANS or port == "index":
        return True
    return isinstance(op, PointwiseOperation) and op.spec.row.kind in _DECIDING


def _is_decision(graph: OperationGraph, spec: TensorSpec) -> bool:
    op = graph.operations[graph.producer[spec.uid]]
    port = next(p for p, t in op.outputs().items() if t.uid == spec.uid)
    return _decides(op, port, spec)


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
