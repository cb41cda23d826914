"""Operators of two operands before version 7, whose second operand broadcasts from an axis on."""

from __future__ import annotations

from graphdnn.builder import Tensor
from graphdnn.onnx.emitter import Emitter
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.arithmetic import ORDERED, add, div, mul, power, sub
from graphdnn.onnx.operators.comparisons import comparison, equal, logic
from graphdnn.onnx.operators.table import Lowering, operator


def by_old_rule(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    """The second operand of an operator before version 7, which broadcasts from ``axis`` on."""
    axis = node.attribute("axis")
    if not node.attribute("broadcast", 0) or axis is None:
        return b
    behind = node.rank(0) - axis % node.rank(0) - node.rank(1)
    return emit.reshape(b, (*node.shape(1), *(1,) * behind))


@operator("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", until=6, needs=(ORDERED,))
def old_binary(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    b = by_old_rule(node, emit, a, b)
    rows: dict[str, Lowering] = {
        "Pow": power, "And": logic, "Or": logic, "Xor": logic, "Equal": equal, "Greater": comparison,
        "Less": comparison, "Add": add, "Sub": sub, "Mul": mul, "Div": div,
    }  # fmt: skip
    found: Tensor = rows[node.op_type](node, emit, a, b)
    return found
