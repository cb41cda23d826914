"""A graph once more in float64 and exact integers, with the general NumPy engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphdnn.device.profiles import this_cpu
from graphdnn.dtypes import FLOATS, Array, cast
from graphdnn.engines import Task
from graphdnn.engines.host.memory import empty, load
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.enums import DataType
from graphdnn.fusion import fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.operations import Operation
from graphdnn.operations.grid_sample import GridSampleBackward
from graphdnn.plan import ExecutionPlan
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec

_FLOAT_COMPUTE = (
    DataType.FLOAT, DataType.HALF, DataType.BFLOAT16, DataType.FAST_FLOAT_FOR_FP8,
)  # fmt: skip


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
