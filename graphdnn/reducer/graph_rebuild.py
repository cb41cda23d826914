"""Graphs with something changed, made anew so that every rule is asked: what is no graph is no candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graphdnn.errors import GraphdnnError
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec, stride_order

Tensors = Mapping[int, TensorSpec]


def possible(make: Callable[[], OperationGraph]) -> OperationGraph | None:
    """The graph, or None where the rules refuse it."""
    try:
        return make()
    except (GraphdnnError, ValueError, IndexError, ZeroDivisionError):
        return None


def rebuilt(operations: Iterable[Operation], tensors: Tensors, name: str = "") -> OperationGraph:
    """The operations on other descriptions of their tensors. Raises where that is no graph."""
    return OperationGraph.of([with_tensors(op, tensors) for op in operations], name=name)


def with_tensors(op: Operation, tensors: Tensors) -> Operation:
    return changed(op, lambda value: tensors.get(value.uid, value))


def changed(op: Operation, tensor: Callable[[TensorSpec], TensorSpec], **settings: Any) -> Operation:
    """The operation with other tensors and settings, checked."""
    fields: dict[str, Any] = {}
    for field in type(op).model_fields:
        value = settings.get(field, getattr(op, field))
        if isinstance(value, TensorSpec):
            value = tensor(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], TensorSpec):
            value = tuple(map(tensor, value))
        fields[field] = value
    return type(op)(**fields)


def spec_with(spec: Spec, **changes: Any) -> Any:
    """A tensor, or settings, with other fields, checked."""
    return type(spec)(**{name: getattr(spec, name) for name in type(spec).model_fields} | changes)


def resized(tensor: TensorSpec, dims: tuple[int, ...]) -> TensorSpec:
    """Other extents in the same order in memory, with the same gaps."""
    if dims == tensor.dims:
        return tensor
    strides, before = [0] * len(dims), -1
    for axis in reversed(stride_order(tensor.dims, tensor.strides)):
        if before < 0:
            strides[axis] = tensor.strides[axis] if tensor.dims[axis] > 1 else 1
        else:
            gap = tensor.strides[axis] - tensor.dims[before] * tensor.strides[before]
            strides[axis] = dims[before] * strides[before] + (max(gap, 0) if tensor.dims[axis] > 1 else 0)
        before = axis
    result: TensorSpec = spec_with(tensor, dims=dims, strides=tuple(strides))
    return result
