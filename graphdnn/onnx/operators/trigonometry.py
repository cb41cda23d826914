"""Hyperbolic functions, and inverse trigonometric and hyperbolic ones."""

from __future__ import annotations

from graphdnn.builder import Tensor
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import operator

_HYPERBOLIC = {"Sinh": -1.0, "Cosh": 1.0}


@operator(*_HYPERBOLIC)
def hyperbolic(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    wide = emit.wide(x)
    up, down = emit.pointwise("EXP", wide), emit.pointwise("EXP", emit.pointwise("NEG", wide))
    total = emit.pointwise("ADD" if node.op_type == "Cosh" else "SUB", up, down)
    return emit.pointwise("MUL", total, 0.5, to=type_of(x))


@operator("Asin", "Acos", "Atan")
def inverse_trigonometric(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    """The angle of the point (b, x): atan2 of the other two sides of the triangle."""
    wide = emit.wide(x)
    if node.op_type == "Atan":
        return emit.pointwise("ATAN2", wide, 1.0, to=type_of(x))
    minus, plus = emit.pointwise("SUB", emit.constant_like(wide, 1), wide), emit.pointwise("ADD", wide, 1.0)
    side = emit.pointwise("SQRT", emit.pointwise("MUL", minus, plus))
    operands = (wide, side) if node.op_type == "Asin" else (side, wide)
    return emit.pointwise("ATAN2", *operands, to=type_of(x))


@operator("Asinh", "Acosh", "Atanh")
def inverse_hyperbolic(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    wide = emit.wide(x)
    if node.op_type == "Atanh":
        up, down = emit.pointwise("ADD", wide, 1.0), emit.pointwise("SUB", emit.constant_like(wide, 1), wide)
        return emit.pointwise("MUL", emit.pointwise("LOG", emit.pointwise("DIV", up, down)), 0.5, to=type_of(x))
    size = emit.pointwise("ABS", wide) if node.op_type == "Asinh" else wide  # no cancellation for negative x
    square = emit.pointwise("MUL", size, size)
    root = emit.pointwise("SQRT", emit.pointwise("ADD", square, 1.0 if node.op_type == "Asinh" else -1.0))
    found = emit.pointwise("LOG", emit.pointwise("ADD", size, root), to=type_of(x))
    if node.op_type == "Acosh":
        return found
    return emit.select(emit.pointwise("CMP_LT", x, 0.0), emit.pointwise("NEG", found), found)
