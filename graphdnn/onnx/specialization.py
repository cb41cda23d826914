"""Specialization: a model for given shapes of its inputs. Constants are folded, shapes inferred, bodies expanded.

Nodes are visited once, in order. A node with constant operands becomes constants. A node of an operator without a
lowering is replaced by the body of its function, if it has one. What is left are nodes that a lowering serves, and
nodes with the reasons why none does. The operands that decide shapes have to be constants; if such an operand
follows from an input of the model, ``wanted`` names that input, and the model is specialized again for its value.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphdnn.dtypes import Array
from graphdnn.errors import BadParam, GraphdnnError, MalformedFile, NotSupported, Rejection
from graphdnn.onnx.attributes import attributes_of, outer_names, renamed, with_arguments
from graphdnn.onnx.control_flow import CONTROL_FLOW
from graphdnn.onnx.element_types import BY_NUMPY, ELEMENT_TYPES
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators import operator_of
from graphdnn.onnx.operators.table import Operator
from graphdnn.onnx.package import onnx_package
from graphdnn.onnx.reference import ReferenceNodes
from graphdnn.onnx.rules import ELEMENT_TYPE, FOLDING, INFERENCE, NEED, NOT_A_MODEL, OPERATOR, RANK, SHAPE, SIZE, VALUE
from graphdnn.onnx.unreadable import ARGUMENT_ERRORS, unreadable
from graphdnn.onnx.value import Value
from graphdnn.tensors import DIM_MAX

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_OF_A_SHAPE = ("Shape", "Size")
_OF_ANY_SIZE = ("ConstantOfShape", "Expand", "Tile", "Pad", "Resize", "Upsample", "Range", "OneHot", "CenterCropPad")
_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**36
_FARTHEST_AXIS = 1024
_DEEPEST = 64  # functions inside functions


@dataclass(eq=False)
class Specialization:
    """A model for given shapes. ``refused`` lists the reasons by node; nodes that are not in it have an operator."""

    nodes: list[Node] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    operators: dict[Node, Operator] = field(default_factory=dict)
    refused: dict[Node, list[Rejection]] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)  # inputs of the model whose values are needed
    folded: int = 0  # nodes that became constants
    expanded: dict[str, int] = field(default_factory=dict)  # functions that were replaced by their bodies
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def specialized(graph: Any, opsets: Mapping[str, int], inputs: Mapping[str, Value]) -> Specialization:
    """The specialization of a graph.

    Args:
        graph: The onnx.GraphProto.
        opsets: The version of each operator set, by domain.
        inputs: Type and shape of each input, with the array where the value is known.

    Returns:
        The specialization.

    Raises:
        BadParam: A constant node cannot be computed, or operands do not fit.
    """
    return _Specializer(graph, opsets, inputs).found


class _Specializer:
    def __init__(self, graph: Any, opsets: Mapping[str, int], inputs: Mapping[str, Value]) -> None:
        self.onnx = onnx_package()
        self.found = Specialization(inputs=tuple(inputs), outputs=tuple(o.name for o in graph.output))
        values = self.found.values
        self.producers: dict[str, Node] = {}
        self._count = 0
        for name, value in inputs.items():
            empty = value.is_empty and value.constant is None and value.element_type is not None
            values[name] = _empty(value) if empty else value
        self.add_initializers(graph)
        self.read = {name for node in graph.node for name in (*node.input, *outer_names(node))} | {*self.found.outputs}
        self.visit_all(graph.node, opsets)

    # Constants.

    def add_initializers(self, graph: Any, prefix: str = "") -> None:
        """Initializers that no input overrides."""
        values = self.found.values
        for tensor in graph.initializer:
            if prefix + tensor.name not in values:
                self.add_constant(prefix + tensor.name, self._array(tensor))
        for sparse in graph.sparse_initializer:
            if prefix + sparse.values.name not in values:
                self.add_constant(prefix + sparse.values.name, self._array(sparse))

    def _array(self, proto: Any) -> Any:
        """The array of an initializer, dense or sparse."""
        is_sparse = isinstance(proto, self.onnx.SparseTensorProto)
        try:
            return _dense(self.onnx, proto) if is_sparse else self.onnx.numpy_helper.to_array(proto)
        except Exception as error:  # extents that do not fit the data, or a number that is no element type
            name = proto.values.name if is_sparse else proto.name
            detail = f"initializer {name!r}: {type(error).__name__}: {error}"[:300]
            raise MalformedFile(NOT_A_MODEL.reject("load", "initializer", name, detail=detail)) from None

    def add_constant(self, name: str, array: Any) -> None:
        if not isinstance(array, (np.ndarray, np.generic)):
            self.found.values[name] = Value(0, None)
            return
        array = np.asarray(array)
        kind = BY_NUMPY.get(array.dtype)
        number = kind.number if kind else self.onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        self.found.values[name] = Value(number, array.shape, array)

    # Nodes.

    def visit_all(self, protos: Iterable[Any], opsets: Mapping[str, int], depth: int = 0) -> None:
        for proto in protos:
            self.visit(proto, opsets, depth)

    def visit(self, proto: Any, opsets: Mapping[str, int], depth: int) -> None:
        values = self.found.values
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        node = Node(
            name=proto.name or next(iter(proto.output), proto.op_type), op_type=proto.op_type, domain=domain,
            version=opsets.get(domain, 1), inputs=list(proto.input), outputs=list(proto.output),
            attributes=attributes_of(proto), values=values, proto=proto, opsets=opsets,
        )  # fmt: skip
        if depth == 0 and any(name in self.read for name in node.outputs):  # an output that nothing reads has no shape
            node.outputs = [name if name in self.read or "/" in name else "" for name in node.outputs]
        missing = [name for name in (*node.inputs, *outer_names(proto)) if name and name not in values]
        if missing:
            detail = f"no node before it computes {missing[0]!r}"
            raise BadParam(INFERENCE.reject(node.where, "inputs", missing, detail=detail))
        try:
            if domain == "" and node.op_type in CONTROL_FLOW and depth < _DEEPEST:
                CONTROL_FLOW[node.op_type](self, node, opsets, depth)
            elif not self._fold(node):
                self._serve(node, depth)
        except ARGUMENT_ERRORS as error:  # attributes of a damaged file, which the checker lets pass
            if isinstance(error, GraphdnnError):
                raise
            self.refuse(node, unreadable(node, error))

    def _serve(self, node: Node, depth: int) -> None:
        """Enter a node with its operator or with the reasons against it, or the body of its function."""
        values = self.found.values
        self._infer(node)
        self._refuse_large(node)
        if all(values[name].is_empty and values[name].element_type for name in node.outputs if name):
            for name in filter(None, node.outputs):
                values[name] = _empty(values[name])
            return
        wanted = len(self.found.wanted)
        reasons, row = self._reasons(node)
        expands = row is None or all(reason.rule in (NEED.id, SHAPE.id) for reason in reasons)
        known = len(self.found.wanted) == wanted  # else the model is specialized again, with a value
        if reasons and expands and known and depth < _DEEPEST and self._expand(node, depth):
            return
        self._add(node, row, reasons)

    def _add(self, node: Node, row: Operator | None, reasons: list[Rejection]) -> None:
        found = self.found
        found.nodes.append(node)
        self.producers.update(dict.fromkeys(filter(None, node.outputs), node))
        if reasons or row is None:
            found.refused[node] = reasons
        else:
            found.operators[node] = row

    def refuse(self, node: Node, rejection: Rejection) -> None:
        """Enter a node that is not served."""
        for name in filter(None, node.outputs):
            self.found.values.setdefault(name, Value(0, None))
        self._add(node, None, [rejection])

    def _fold(self, node: Node) -> bool:
        """Replace a node with constant operands by constants."""
        values = self.found.values
        if node.op_type in _OF_A_SHAPE and node.domain == "" and (shape := node.value(0).shape) is not None:
            start, end = node.attribute("start", 0), node.attribute("end")
            array = np.array(shape[start:end] if node.op_type == "Shape" else int(np.prod(shape)), np.int64)
            self.add_constant(node.outputs[0], array)
            self.found.folded += 1
            return True
        if node.op_type in _RANDOM or any(values[name].constant is None for name in node.inputs if name):
            return False
        if any(name not in values or values[name].constant is None for name in outer_names(node.proto)):
            return False
        if node.domain not in ("", "ai.onnx.ml"):
            return False
        if node.op_type in _OF_ANY_SIZE and self._infers(node):
            self._refuse_large(node)
        names = list(dict.fromkeys(filter(None, (*node.inputs, *outer_names(node.proto)))))
        outputs = [name for name in node.outputs if name]
        try:
            arrays = ReferenceNodes([node], names, outputs).run({name: values[name].constant for name in names})
        except GraphdnnError as error:
            detail = error.rejections[0].reason
            if self._infers(node):  # the evaluator lacks it; perhaps an engine does not
                return False
            raise BadParam(FOLDING.reject(node.where, "operands", names, detail=detail)) from None
        for name in outputs:
            self.add_constant(name, arrays[name])
        self.found.folded += 1
        return all(isinstance(arrays[name], (np.ndarray, np.generic)) for name in outputs)

    def _refuse_large(self, node: Node) -> None:
        """Raise for a result that no memory holds: a damaged file may ask for any extents."""
        for name in filter(None, node.outputs):
            value = self.found.values[name]
            if value.bytes > _MEMORY:
                raise NotSupported(SIZE.reject(node.where, f"output '{name}'", value.shape, most=_MEMORY))

    def _infers(self, node: Node) -> bool:
        try:
            self._infer(node)
        except GraphdnnError:
            return False
        return True

    def _schema(self, node: Node) -> Any:
        try:
            return self.onnx.defs.get_schema(node.op_type, node.version, node.domain)
        except self.onnx.defs.SchemaError:
            return None

    def _infer(self, node: Node) -> None:
        """Types and shapes of the outputs, by ONNX's own inference."""
        axes = [node.attribute("axis", 0), *(node.attribute("axes") or ())]
        if any(isinstance(a, int) and abs(a) > _FARTHEST_AXIS for a in axes):  # the inference would end the process
            raise BadParam(INFERENCE.reject(node.where, "axis", axes, detail="no tensor has such an axis"))
        count = node.attribute("num_outputs", len(node.outputs)) if node.op_type == "Split" else len(node.outputs)
        if count != len(node.outputs):
            raise BadParam(INFERENCE.reject(node.where, "num_outputs", count, detail="the node has other outputs"))
        values, onnx = self.found.values, self.onnx
        for name in filter(None, node.outputs):
            values[name] = Value(0, None)
        schema = self._schema(node)
        if schema is None or any(values[name].number == 0 for name in node.inputs if name):
            return
        names = {*filter(None, node.inputs), *outer_names(node.proto)}
        types = {name: _type_proto(onnx, values[name]) for name in names}
        data = {
            name: onnx.numpy_helper.from_array(array, name)
            for name in node.inputs
            if name and (array := values[name].constant) is not None and array.size <= 4096 and array.ndim <= 1
        }
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in node.opsets.items()]
        try:
            found = onnx.shape_inference.infer_node_outputs(schema, node.proto, types, data, None, imports)
        except Exception as error:  # in classes of its own, some of the C++ library
            raise BadParam(INFERENCE.reject(node.where, "operands", _told(node), detail=_first(error))) from None
        for name, proto in found.items():
            if name in node.outputs:
                values[name] = _value_of(proto)
        row = operator_of(node.domain, node.op_type, node.version)
        if (
            row is not None
            and row.shape is not None
            and all(node.constant(i) is not None for i in row.by_value if node.has(i))
        ):
            shape = row.shape(node)
            for name in filter(None, node.outputs):
                values[name] = Value(values[name].number, shape)

    def _reasons(self, node: Node) -> tuple[list[Rejection], Operator | None]:
        """Why no lowering serves the node, and the row of its operator."""
        row = operator_of(node.domain, node.op_type, node.version)
        if row is None:
            detail = f" of domain '{node.domain}'" if node.domain else ""
            given = f"{node.op_type}, version {node.version}"
            return [OPERATOR.reject(node.where, "op_type", given, detail=detail)], None
        needed = [node.inputs[i] for i in row.by_value if node.has(i) and node.constant(i) is None]
        if needed:
            self._want(needed)
            return self._unknown(node, row), row
        reasons: list[Rejection] = []
        ports = [("input", name) for i, name in enumerate(node.inputs) if name and i not in row.by_value]
        ports += [("output", name) for name in node.outputs if name]
        for role, name in ports:
            value = self.found.values[name]
            if value.element_type is None:
                shown = self.onnx.TensorProto.DataType.Name(value.number) if value.number else "no known tensor"
                served = ", ".join(t.name for t in ELEMENT_TYPES.values())
                reasons.append(ELEMENT_TYPE.reject(node.where, f"{role} '{name}'", shown, served=served))
            elif value.shape is None:
                detail = "it depends on the values of operands" if role == "output" else "its producer is not served"
                reasons.append(SHAPE.reject(node.where, f"{role} '{name}'", "unknown", detail=detail))
            elif len(value.shape) > DIM_MAX:
                reasons.append(RANK.reject(node.where, f"{role} '{name}'", value.shape, most=DIM_MAX))
        return reasons or list(row.refusals(node)), row

    def _unknown(self, node: Node, row: Operator) -> list[Rejection]:
        detail = f"the operand decides shapes or positions of {node.op_type}"
        return [
            VALUE.reject(node.where, f"input '{node.inputs[i]}'", "not constant", detail=detail)
            for i in row.by_value
            if node.has(i) and node.constant(i) is None
        ]

    def _want(self, names: Iterable[str]) -> None:
        """Enter the inputs of the model that the values of these names follow from."""
        seen: set[str] = set()
        waiting = [name for name in names if name]
        while waiting:
            name = waiting.pop()
            if name in seen or self.found.values[name].constant is not None:
                continue
            seen.add(name)
            producer = self.producers.get(name)
            if producer is not None:
                waiting += [*filter(None, producer.inputs)] if producer.op_type not in _OF_A_SHAPE else []
            elif name in self.found.inputs:
                self.found.wanted.add(name)

    want = _want

    # Functions.

    def _expand(self, node: Node, depth: int) -> bool:
        """Visit the body of the operator's function in place of the node; False if it has none."""
        schema = self._schema(node)
        body = None if schema is None else _body(self.onnx, schema, node, self.found.values)
        if body is None:
            return False
        defaults = {a.name: a for a in body.attribute_proto}
        defaults |= {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
        given = defaults | {a.name: a for a in node.proto.attribute}
        protos = [with_arguments(proto, given) for proto in body.node]
        ports = dict(zip(body.input, [*node.inputs, *[""] * len(body.input)], strict=False))
        ports |= dict(zip(body.output, [*node.outputs], strict=False))
        self.found.expanded[node.op_type] = self.found.expanded.get(node.op_type, 0) + 1
        opsets = {**node.opsets, **{o.domain: o.version for o in body.opset_import}}
        self.visit_body(protos, ports, node.name, opsets, depth)
        return True

    def visit_body(
        self, protos: Sequence[Any], ports: Mapping[str, str], label: str, opsets: Mapping[str, int], depth: int
    ) -> None:
        """Visit nodes of an inner scope. ``ports`` has the outer names; names that the scope defines get new ones."""
        self._count += 1
        prefix = f"{label}/{self._count}/"
        own = {name for proto in protos for name in proto.output} - set(ports)

        def name_of(name: str) -> str:
            return ports.get(name, prefix + name if name in own else name) if name else ""

        for proto in protos:
            inner = renamed(proto, name_of)
            inner.name = f"{label}/{proto.name or proto.op_type}"
            self.visit(inner, opsets, depth + 1)

    def alias(self, source: str, name: str, node: Node) -> None:
        """Give a value a second name."""
        if self.found.values[source].constant is not None:
            self.found.values[name] = self.found.values[source]
            return
        proto = self.onnx.helper.make_node("Identity", [source], [name], name=f"{node.name}/{name}")
        self.visit(proto, node.opsets, 0)


def _body(onnx: Any, schema: Any, node: Node, values: Mapping[str, Value]) -> Any:
    if schema.has_context_dependent_function:
        types = [_type_proto(onnx, values[name]) if name else onnx.TypeProto() for name in node.inputs]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.version]
        try:
            text = schema.get_context_dependent_function_with_opset_version(
                max(versions, default=schema.since_version),
                node.proto.SerializeToString(),
                [t.SerializeToString() for t in types],
            )
        except Exception:  # the schema builds no body for these operands
            return None
        function = onnx.FunctionProto()
        function.ParseFromString(text)
        return function if function.node else None
    if not schema.has_function:
        return None
    versions = [v for v in schema.function_opset_versions if v <= node.version]
    function = onnx.FunctionProto()
    text = schema.get_function_with_opset_version(max(versions, default=schema.since_version))
    if isinstance(text, bytes):
        function.ParseFromString(text)
        return function
    return text


def _empty(value: Value) -> Value:
    assert value.element_type is not None
    array: Array = np.empty(value.shape or (), value.element_type.numpy)
    return Value(value.number, value.shape, array)


def _dense(onnx: Any, sparse: Any) -> Array:
    values = onnx.numpy_helper.to_array(sparse.values)
    indices = onnx.numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def _type_proto(onnx: Any, value: Value) -> Any:
    if value.number == 0:
        return onnx.TypeProto()
    return onnx.helper.make_tensor_type_proto(value.number, value.shape)


def _value_of(proto: Any) -> Value:
    if not proto.HasField("tensor_type"):
        return Value(0, None)
    tensor = proto.tensor_type
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return Value(tensor.elem_type, None)
    return Value(tensor.elem_type, tuple(d.dim_value for d in tensor.shape.dim))


def _told(node: Node) -> str:
    return ", ".join(f"{name} {node.values[name].shape}" for name in node.inputs if name)


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
