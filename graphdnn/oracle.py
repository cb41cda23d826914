"""The oracle: what a graph should have computed, and how far floating point may stray from it.

``reference`` runs a graph once more in float64 with the general NumPy engine:
every floating tensor and arithmetic becomes DOUBLE, so no rounding but the inputs'
is left; integers and booleans keep their types, so they have to agree bit for bit.

The bound for a floating output is derived from the types on the way to it:

    |actual - reference| <= sum over operations on the path of  c * n * u * scale  +  u_out * scale

with u the unit roundoff of an operation's arithmetic or of a virtual tensor's
type, n the square root of the number of summed terms plus one (rounding errors of
a long sum are independent; the worst case, n itself, is never met), and scale the
largest magnitude in the reference. c is 8, for functions like exp whose argument
error is amplified. It is a bound for checking, not a proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from graphdnn.device import this_cpu
from graphdnn.dtypes import COMPUTE, ELEMENTS, FLOATS, Array
from graphdnn.engines import Task
from graphdnn.engines.host.memory import empty, load
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.enums import DataType
from graphdnn.fusion import fuse
from graphdnn.graph import OperationGraph
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.operations import ConvolutionOperation, Matmul, Operation, Reduction
from graphdnn.plan import ExecutionPlan
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec

_SAFETY = 8.0
_FLOAT_COMPUTE = (
    DataType.FLOAT, DataType.HALF, DataType.BFLOAT16, DataType.FAST_FLOAT_FOR_FP8,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output beside its reference."""

    tensor: TensorSpec
    difference: float  # largest absolute
    bound: float  # 0 for integers and booleans

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
    alignment = max(8, tensor.byte_alignment)
    return tensor.model_copy(update={"data_type": DataType.DOUBLE, "byte_alignment": alignment})


def _promoted_operation(op: Operation, tensors: Mapping[int, TensorSpec]) -> Operation:
    changes: dict[str, Any] = {}
    for name in type(op).model_fields:
        value = getattr(op, name)
        if isinstance(value, TensorSpec):
            changes[name] = tensors[value.uid]
        elif isinstance(value, tuple) and value and isinstance(value[0], TensorSpec):
            changes[name] = tuple(tensors[t.uid] for t in value)
        elif isinstance(value, Spec):
            changes[name] = value.model_copy(update=_promoted_types(value))
    return op.model_copy(update=changes | _promoted_types(op))


def _promoted_types(spec: Spec) -> dict[str, DataType]:
    names = ("compute_type", "math_type")
    return {n: DataType.DOUBLE for n in names if n in type(spec).model_fields and getattr(spec, n) in _FLOAT_COMPUTE}


def reference(graph: OperationGraph, bindings: Mapping[int, Any]) -> dict[int, Array]:
    """Outputs by uid as logical arrays, computed from the bound inputs in float64 or exact integers."""
    double = promoted(graph)
    fused = fuse(double)
    choices = tuple(Choice(Task(op, this_cpu()), NUMPY, NUMPY.defaults()) for op in fused)
    plan = ExecutionPlan(EngineConfig(fused, this_cpu(), choices))
    arrays: dict[int, Any] = {}
    blended = {t.uid for op in graph.operations if op.reads_output for t in op.outputs().values()}
    for spec in double.bound:
        given = bindings.get(spec.uid)
        if spec.is_by_value:
            arrays[spec.uid] = given
            continue
        arrays[spec.uid] = empty(spec)
        if spec.uid not in graph.producer or spec.uid in blended:
            arrays[spec.uid][...] = given
    plan.execute(arrays, plan.new_workspace())
    return {spec.uid: load(arrays[spec.uid], spec) for spec in double.outputs}


def compare(
    graph: OperationGraph, bindings: Mapping[int, Any], before: Mapping[int, Any] | None = None
) -> list[Comparison]:
    """Every output in ``bindings`` beside its reference. ``before`` holds the old outputs where beta reads them."""
    expected = reference(graph, {**bindings, **(before or {})})
    found = []
    for spec in graph.outputs:
        actual, wanted = load(bindings[spec.uid], spec), expected[spec.uid]
        if spec.data_type in FLOATS:
            found.append(_compare_floats(graph, spec, actual.astype(np.float64), wanted))
        else:
            difference = np.abs(actual.astype(np.float64) - wanted.astype(np.float64)).max()
            exact = bool((actual == wanted).all())
            found.append(Comparison(spec, 0.0 if exact else max(float(difference), 1.0), _integer_bound(graph, spec)))
    return found


def _compare_floats(graph: OperationGraph, spec: TensorSpec, actual: Array, wanted: Array) -> Comparison:
    element = ELEMENTS[spec.data_type]
    limited = np.clip(wanted, element.smallest, element.largest) if element.bits == 8 else wanted  # fp8 saturates
    finite = np.isfinite(limited) & (np.abs(limited) <= element.largest)
    same = np.array_equal(np.isnan(actual), np.isnan(limited))
    scale = float(np.abs(limited[finite]).max(initial=0.0))
    difference = float(np.abs(actual[finite] - limited[finite]).max(initial=0.0)) if same else float("nan")
    return Comparison(spec, difference, tolerance(graph, spec.uid, scale))


def tolerance(graph: OperationGraph, uid: int, scale: float) -> float:
    """The bound of this module's docstring for one output whose largest magnitude is ``scale``."""
    total, waiting, seen = 0.0, [uid], set()
    while waiting:
        producer = graph.producer.get(waiting.pop())
        if producer is None or producer in seen:
            continue
        seen.add(producer)
        op = graph.operations[producer]
        total += _SAFETY * (sqrt(reduction_length(op)) + 1) * _roundoff(COMPUTE.get(op.compute_type))
        total += sum(_roundoff(ELEMENTS[t.data_type].numpy) for t in op.outputs().values())
        waiting += [t.uid for t in op.inputs().values()]
    smallest = ELEMENTS[graph.tensors[uid].data_type].numpy
    tiny = float(ml_dtypes.finfo(smallest).smallest_subnormal)  # type: ignore[no-untyped-call]
    return total * max(scale, 1e-30) + tiny


def _integer_bound(graph: OperationGraph, spec: TensorSpec) -> float:
    """Integers are exact, unless a floating value was rounded to one: then the two roundings may differ by 1."""
    waiting, seen = [spec.uid], set()
    while waiting:
        producer = graph.producer.get(waiting.pop())
        if producer is None or producer in seen:
            continue
        seen.add(producer)
        op = graph.operations[producer]
        if op.compute_type in _FLOAT_COMPUTE and any(t.data_type in FLOATS for t in op.tensors().values()):
            return 1.0
        waiting += [t.uid for t in op.inputs().values()]
    return 0.0


def reduction_length(op: Operation) -> int:
    """Terms that are summed for one element of the result."""
    if isinstance(op, ConvolutionOperation):
        problem = op.problem
        sums = {
            "conv_fprop": problem.c * problem.taps,
            "conv_dgrad": problem.k * problem.taps,
            "conv_wgrad": problem.n * prod(problem.output),
        }
        return sums[op.tag]
    if isinstance(op, Matmul):
        return op.a.extents[-1]
    if isinstance(op, Reduction):
        return max(1, op.x.elements // op.y.elements)
    largest = max(t.elements for t in op.tensors().values())
    return max(1, largest // min(t.elements for t in op.outputs().values()))


def _roundoff(dtype: Any) -> float:
    if dtype is None or dtype.kind in "biu":
        return 0.0
    return float(ml_dtypes.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]
