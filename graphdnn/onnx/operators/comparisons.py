"""Comparisons, logic and selection."""

from __future__ import annotations

from graphdnn.builder import Tensor
from graphdnn.onnx.emitter import Emitter
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.arithmetic import in_order
from graphdnn.onnx.operators.table import operator

_COMPARISONS = {
    "Equal": "CMP_EQ", "Greater": "CMP_GT", "GreaterOrEqual": "CMP_GE", "Less": "CMP_LT", "LessOrEqual": "CMP_LE",
}  # fmt: skip


@operator(*(name for name in _COMPARISONS if name != "Equal"), since=7)
def comparison(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return emit.pointwise(_COMPARISONS[node.op_type], in_order(node, emit, a), in_order(node, emit, b))


@operator("Equal", since=7)
def equal(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return emit.pointwise("CMP_EQ", a, b)


_LOGIC = {"And": "LOGICAL_AND", "Or": "LOGICAL_OR", "Xor": "CMP_NEQ", "Not": "LOGICAL_NOT"}


@operator("And", "Or", "Xor", since=7)
@operator("Not")
def logic(node: Node, emit: Emitter, *operands: Tensor) -> Tensor:
    return emit.pointwise(_LOGIC[node.op_type], *operands)


@operator("IsNaN")
def is_nan(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.pointwise("CMP_NEQ", x, x)


@operator("IsInf")
def is_infinite(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    positive, negative_too = node.attribute("detect_positive", 1), node.attribute("detect_negative", 1)
    if positive and negative_too:
        return emit.pointwise("CMP_EQ", emit.pointwise("ABS", x), float("inf"))
    if not positive and not negative_too:
        return emit.pointwise("LOGICAL_AND", *[emit.pointwise(m, x, x) for m in ("CMP_EQ", "CMP_NEQ")])
    return emit.pointwise("CMP_EQ", x, float("inf") if positive else float("-inf"))


@operator("Where")
def where(node: Node, emit: Emitter, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return emit.select(condition, a, b)
