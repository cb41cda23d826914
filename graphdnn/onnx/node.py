"""Node: one node of a specialized model, with what is known of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphdnn.dtypes import Array
from graphdnn.onnx.element_types import ElementType
from graphdnn.onnx.value import Value


@dataclass(eq=False, slots=True)
class Node:
    """One node. Absent operands have the name ''."""

    name: str  # as the model has it, or the name of its first output
    op_type: str
    domain: str
    version: int  # of the operator set
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    values: Mapping[str, Value]  # of the whole model
    proto: Any  # onnx.NodeProto with the names above
    opsets: Mapping[str, int] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The node in error messages."""
        return f"node '{self.name}' ({self.op_type})"

    def has(self, index: int) -> bool:
        """Whether the operand is given."""
        return index < len(self.inputs) and bool(self.inputs[index])

    def gives(self, index: int) -> bool:
        """Whether the output is asked for."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def value(self, index: int) -> Value:
        return self.values[self.inputs[index]]

    def constant(self, index: int) -> Array | None:
        """The array of a constant operand; None for an absent one and for one that is no constant."""
        return self.value(index).constant if self.has(index) else None

    def integers(self, index: int) -> list[int] | None:
        """The numbers of a constant operand."""
        array = self.constant(index)
        return None if array is None else [int(i) for i in array.reshape(-1)]

    def shape(self, index: int) -> tuple[int, ...]:
        found = self.value(index).shape
        assert found is not None
        return found

    def rank(self, index: int) -> int:
        return len(self.shape(index))

    def type(self, index: int) -> ElementType:
        found = self.value(index).element_type
        assert found is not None
        return found

    def result(self, index: int = 0) -> Value:
        return self.values[self.outputs[index]]

    def result_shape(self, index: int = 0) -> tuple[int, ...]:
        found = self.result(index).shape
        assert found is not None
        return found

    def result_type(self, index: int = 0) -> ElementType:
        found = self.result(index).element_type
        assert found is not None
        return found

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or the default."""
        return self.attributes.get(name, default)

    def axis(self, default: int, index: int = 0) -> int:
        """The attribute ``axis``, counted from 0."""
        return int(self.attribute("axis", default)) % max(self.rank(index), 1)

    def axes(self, values: Sequence[int] | None, rank: int) -> tuple[int, ...] | None:
        """Axes counted from 0."""
        return None if values is None else tuple(int(a) % max(rank, 1) for a in values)
