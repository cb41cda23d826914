"""GraphPart: a group of nodes as one ``graphdnn.Graph`` with its plan. Constants are bound once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphdnn.builder import Graph, Tensor
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import Array
from graphdnn.errors import GraphdnnError, Rejection
from graphdnn.heuristics import EngineConfig
from graphdnn.onnx.element_types import ElementType
from graphdnn.onnx.emitter import Emitter
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Operator
from graphdnn.onnx.partition import Group
from graphdnn.onnx.unreadable import ARGUMENT_ERRORS, unreadable
from graphdnn.onnx.value import Value
from graphdnn.pipeline import rank
from graphdnn.plan import ExecutionPlan
from graphdnn.tensors import packed_strides

_ALIGNMENT = 16


class NodeRefused(Exception):
    """A node whose operations the graph builder refuses."""

    def __init__(self, node: Node, rejections: tuple[Rejection, ...]) -> None:
        super().__init__(node.where)
        self.node, self.rejections = node, rejections


class GraphPart:
    """One graph of a model.

    Args:
        group: The nodes.
        values: What is known of the values.
        operators: The row of each node.
        device: The device of the plan.
        name: The name of the graph.

    Raises:
        NodeRefused: The builder refuses an operation of a node.
        NotSupported: No engine serves the graph.
    """

    def __init__(
        self,
        group: Group,
        values: Mapping[str, Value],
        operators: Mapping[Node, Operator],
        device: DeviceSpec,
        name: str,
    ) -> None:
        self.group, self._values = group, values
        self.graph = Graph(name, device=device)
        emit = Emitter(self.graph)
        tensors: dict[str, Tensor] = {}
        inputs: dict[str, Tensor] = {}
        for node in group.nodes:
            emit.label = node.name
            try:
                _lower(node, operators[node], emit, tensors, inputs, values)
            except GraphdnnError as error:
                raise NodeRefused(node, error.rejections) from None
            except ARGUMENT_ERRORS as error:  # attributes of a damaged file, which the checker lets pass
                raise NodeRefused(node, (unreadable(node, error),)) from error
        # A result that needs no operation, such as the mask of a Dropout, is known now.
        self.known = {n: emit.constants[tensors[n]] for n in group.outputs if tensors[n] in emit.constants}
        outputs = _outputs([n for n in group.outputs if n not in self.known], emit, tensors)
        emit.drop_unread(outputs.values())
        self.plan: ExecutionPlan | None = None
        self.config: EngineConfig | None = None
        self.inputs: dict[str, int] = {}
        self.outputs: dict[str, int] = {}
        self._constants: dict[int, Any] = {}
        if outputs:
            self._describe(inputs, outputs, emit)

    def _describe(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], emit: Emitter) -> None:
        graph = self.graph.build_operation_graph()
        self.config = rank(graph, self.graph.device).best
        specs = graph.tensors
        self._constants = {t.get_uid(): array for t, array in emit.constants.items() if t.get_uid() in specs}
        self.inputs = {n: t.get_uid() for n, t in inputs.items() if t.get_uid() in specs}
        self.outputs = {n: t.get_uid() for n, t in outputs.items()}
        self._specs = {uid: specs[uid] for uid in self.outputs.values()}

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants that the graph reads."""
        return sum(array.nbytes for array in self._constants.values())

    def bind(self) -> None:
        """Build the plan, and move the constants to its device.

        Raises:
            NotSupported: The device is not present.
        """
        if self.config is not None:
            self.plan = self.graph.build()
            self._constants = self.plan.to_device(self._constants)

    def type_of(self, name: str) -> ElementType:
        found = self._values[name].element_type
        assert found is not None
        return found

    def run(self, inputs: Mapping[str, Any], stream: Any = None) -> dict[str, Any]:
        """The outputs by name, in the storage and the memory of the plan.

        Args:
            inputs: An array of ``stored`` or of another part for each name of ``inputs``.
            stream: The stream of the execution.
        """
        if self.plan is None:
            return {}
        bindings = dict(self._constants)
        bindings.update({uid: inputs[name] for name, uid in self.inputs.items()})
        made = {uid: self.plan.new_array(spec) for uid, spec in self._specs.items()}
        bindings.update(made)
        self.graph.execute(bindings, stream=stream)
        return {name: made[uid] for name, uid in self.outputs.items()}

    def stored(self, name: str, array: Array) -> Any:
        """An array of ONNX's type in host memory, as the plan reads it."""
        value = self._values[name]
        encoded = np.ascontiguousarray(self.type_of(name).encoded(array)).reshape(value.dims)
        if encoded.ctypes.data % _ALIGNMENT:
            encoded = encoded.copy()
        uid = self.inputs[name]
        assert self.plan is not None
        return self.plan.to_device({uid: encoded})[uid]

    def loaded(self, name: str, array: Any) -> Array:
        """An output in host memory, with the type and the shape of the model."""
        uid = self.outputs[name]
        assert self.plan is not None
        return self.in_onnx(name, self.plan.to_host({uid: array})[uid])

    def in_onnx(self, name: str, host: Array) -> Array:
        """A host array in the storage of the plan, with the type and the shape of the model."""
        shape = self._values[name].shape
        assert shape is not None
        return self.type_of(name).decoded(host).reshape(shape)


def _lower(
    node: Node,
    row: Operator,
    emit: Emitter,
    tensors: dict[str, Tensor],
    inputs: dict[str, Tensor],
    values: Mapping[str, Value],
) -> None:
    operands: list[Tensor | None] = []
    for index, name in enumerate(node.inputs):
        if not name or index in row.by_value:
            operands.append(None)
            continue
        if name not in tensors:
            tensors[name] = _operand(name, values[name], emit)
            if values[name].constant is None:
                inputs[name] = tensors[name]
        operands.append(tensors[name])
    found = row.lower(node, emit, *operands)
    results = found if isinstance(found, (list, tuple)) else [found]
    for name, tensor in zip(node.outputs, results, strict=False):
        if name and tensor is not None:
            assert tuple(tensor.dim or ()) == values[name].dims, (node.where, tensor.dim, values[name].dims)
            tensors[name] = tensor


def _operand(name: str, value: Value, emit: Emitter) -> Tensor:
    kind = value.element_type
    assert kind is not None
    if value.constant is not None:
        return emit.constant(kind.encoded(value.constant), name=name)
    return emit.input(name, value.dims, kind.carrier)


def _outputs(names: Sequence[str], emit: Emitter, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A tensor with memory for each output: a copy of what is an input or an output already."""
    found: dict[str, Tensor] = {}
    for name in names:
        tensor = tensors[name]
        if not tensor.is_virtual or tensor in found.values():
            emit.label = name
            tensor = emit.computed(tensor)
        assert tensor.dim is not None
        found[name] = tensor.set_output(True).set_stride(packed_strides(tensor.dim)).set_name(name)
    return found
