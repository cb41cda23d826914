"""Plainer settings: each attribute at its neutral value, each type FLOAT, each layout row-major."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import ConvolutionMode, DataType
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import ConvolutionOperation, Operation
from graphdnn.reducer.extent_reduction import Axes, with_extents
from graphdnn.reducer.graph_rebuild import changed, rebuilt, spec_with
from graphdnn.reducer.operation_reduction import Candidate
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec, packed_strides

# Neutral values of attributes that have no default; of the others it is the default.
_ZEROS, _ONES = ("pre_paddings", "post_paddings"), ("dilations", "filter_strides", "strides", "window_dims")
_TYPES = ("compute_type", "math_type")
_MEANINGS = ("mode", "padding_mode", "nan_propagation")  # another one is another operation


def plainer(graph: OperationGraph) -> Iterator[Candidate]:
    """One attribute after another; what follows from it is worked out again."""
    axes = Axes(graph)
    for i, op in enumerate(graph.operations):
        if isinstance(op, ConvolutionOperation):
            yield from _one_group(axes, op)
        for field in type(op).model_fields:
            value = getattr(op, field)
            if isinstance(value, Spec) and not isinstance(value, TensorSpec):
                for inner, neutral in _neutral(value):
                    words = f"{op.label()}: {inner} {_shown(getattr(value, inner))} to {_shown(neutral)}"
                    made = partial(_with_setting, axes, i, {field: partial(spec_with, value, **{inner: neutral})})
                    yield words, made
        for field, neutral in _neutral(op):
            yield f"{op.label()}: {field} to {_shown(neutral)}", partial(_with_setting, axes, i, {field: neutral})


def _one_group(axes: Axes, op: ConvolutionOperation) -> Iterator[Candidate]:
    """One group of what there is, or all channels in one."""
    x, w, y = op.roles
    problem = op.problem
    if problem.groups == 1 or x.rank == op.conv.spatial_dims + 3:
        return
    channels, own = axes.root((x.uid, 1)), axes.root((w.uid, 1))
    filters = {axes.root((w.uid, 0)): problem.k, axes.root((y.uid, 1)): problem.k}
    words = f"{op.label()}: groups {problem.groups} to 1"
    yield words, partial(with_extents, axes, {channels: problem.c, **filters}, grouped=False)
    yield f"{words}, of all channels", partial(with_extents, axes, {own: x.dims[1]}, grouped=False)


def plainer_tensors(graph: OperationGraph) -> Iterator[Candidate]:
    """Types to FLOAT, layouts to row-major, all of a kind first; then alignment and the rest."""
    kinds = sorted({t.data_type for t in graph.tensors.values()} - {DataType.FLOAT})
    for kind in kinds:
        uids = [uid for uid, t in sorted(graph.tensors.items()) if t.data_type is kind]
        yield f"{kind.name} to FLOAT", partial(_with_types, graph, uids)
        if len(uids) > 1:
            for uid in uids:
                yield f"{graph.tensors[uid].label()}: {kind.name} to FLOAT", partial(_with_types, graph, [uid])
    odd = [uid for uid, t in sorted(graph.tensors.items()) if t.strides != packed_strides(t.dims)]
    for uids in ([odd] if len(odd) > 1 else []) + [[uid] for uid in odd]:
        label = graph.tensors[uids[0]].label() if len(uids) == 1 else f"{len(uids)} tensors"
        yield f"{label}: row-major", partial(_packed, graph, uids)
    for uid, tensor in sorted(graph.tensors.items()):
        if tensor.byte_alignment != TensorSpec.model_fields["byte_alignment"].default:
            yield f"{tensor.label()}: default alignment", partial(_aligned, graph, uid)


def _neutral(spec: Any) -> Iterator[tuple[str, Any]]:
    """Fields that are not at their neutral value, with that value."""
    for name, field in type(spec).model_fields.items():
        value = getattr(spec, name)
        if isinstance(value, TensorSpec) or name in ("name", "origin"):
            continue
        if name in _ZEROS:
            neutral: Any = (type(value[0])(0),) * len(value) if value else value
        elif name in _ONES:
            neutral = (type(value[0])(1),) * len(value) if value else value
        elif name in _TYPES:
            neutral = DataType.FLOAT
        elif isinstance(value, ConvolutionMode):
            neutral = ConvolutionMode.CROSS_CORRELATION
        elif field.is_required() or isinstance(value, (Spec, tuple)) or name in _MEANINGS:
            continue
        else:
            neutral = field.default
        if value != neutral:
            yield name, neutral
        if isinstance(value, tuple) and value != neutral and len(value) > 1:
            for place, item in enumerate(neutral):
                if value[place] != item:
                    yield name, (*value[:place], item, *value[place + 1 :])


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(getattr(value, "name", value))


def _with_setting(axes: Axes, index: int, settings: dict[str, Any]) -> OperationGraph:
    """Extents that follow are worked out before the operations are checked."""
    made = {name: value() if isinstance(value, partial) else value for name, value in settings.items()}
    operations = list(axes.graph.operations)
    # Unchecked: its output has the old extents until they are worked out.
    operations[index] = operations[index].model_copy(update=made)
    return with_extents(axes, {}, operations)


def _with_types(graph: OperationGraph, uids: list[int]) -> OperationGraph:
    tensors = {uid: _as_float(graph.tensors[uid]) for uid in uids}
    operations = [_floating(changed_types(op, tensors)) for op in graph.operations]
    return OperationGraph.of([changed(op, lambda t: tensors.get(t.uid, t)) for op in operations], name=graph.name)


def _as_float(tensor: TensorSpec) -> TensorSpec:
    result: TensorSpec = spec_with(
        tensor, data_type=DataType.FLOAT, dims=tensor.extents, strides=packed_strides(tensor.extents)
        if tensor.vector_count > 1 else tensor.strides, vector_count=1, vectorized_dimension=-1,
    )  # fmt: skip
    return result


def changed_types(op: Operation, tensors: dict[int, TensorSpec]) -> Operation:
    """The operation on its new tensors, unchecked."""
    ports = {
        name: tensors.get(value.uid, value)
        for name in type(op).model_fields
        if isinstance(value := getattr(op, name), TensorSpec)
    }
    lists = {
        name: tuple(tensors.get(t.uid, t) for t in value)
        for name in type(op).model_fields
        if isinstance(value := getattr(op, name), tuple) and value and isinstance(value[0], TensorSpec)
    }
    return op.model_copy(update=ports | lists)


def _floating(op: Operation) -> Operation:
    """In FLOAT, where the operands are floats now and the arithmetic is not."""
    if any(ELEMENTS[t.data_type].kind != "float" for t in op.inputs().values()):
        return op
    updates: dict[str, Any] = {}
    for name in type(op).model_fields:
        value = getattr(op, name)
        if name in _TYPES and value not in _FLOATING:
            updates[name] = DataType.FLOAT
        elif isinstance(value, Spec) and not isinstance(value, TensorSpec):
            inner = {n: DataType.FLOAT for n in _TYPES if getattr(value, n, DataType.FLOAT) not in _FLOATING}
            if inner:
                updates[name] = value.model_copy(update=inner)
    return op.model_copy(update=updates) if updates else op


_FLOATING = (DataType.FLOAT, DataType.DOUBLE, DataType.HALF, DataType.BFLOAT16)


def _packed(graph: OperationGraph, uids: list[int]) -> OperationGraph:
    tensors = {uid: spec_with(graph.tensors[uid], strides=packed_strides(graph.tensors[uid].dims)) for uid in uids}
    return rebuilt(graph.operations, tensors, graph.name)


def _aligned(graph: OperationGraph, uid: int) -> OperationGraph:
    default = TensorSpec.model_fields["byte_alignment"].default
    return rebuilt(graph.operations, {uid: spec_with(graph.tensors[uid], byte_alignment=default)}, graph.name)
