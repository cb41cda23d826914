"""Elementwise arithmetic with the types and the broadcasting of ONNX. Integers wrap."""

from __future__ import annotations

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import Empty
from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import DataType
from graphdnn.onnx.element_types import ElementType
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator


def _unordered(node: Node) -> str:
    """An operand of a type whose carrier has another order, or an empty text."""
    given = [node.value(i).element_type for i in range(len(node.inputs)) if node.has(i)]
    return next((t.name for t in given if t is not None and not t.is_carried_whole), "")


ORDERED = Need(
    "element type",
    _unordered,
    Empty("a type other than UINT64"),
    "UINT64 is carried by its bits, whose order is that of INT64",
    "cast to INT64",
)


def whole(emit: Emitter, tensor: Tensor, kind: ElementType) -> Tensor:
    """The result of integer arithmetic in the range of its type; other types as they are."""
    return emit.wrapped(tensor, kind) if kind.is_integer else tensor


def wide_integer(x: Tensor) -> DataType | None:
    """The type in which narrow integers are computed, before they wrap."""
    element = ELEMENTS[type_of(x)]
    return DataType.INT32 if element.kind == "int" and element.bits < 32 else None


def binary(mode: str, node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    """A mode of two operands whose integers wrap."""
    kind = node.result_type()
    compute = DataType.INT64 if kind.name == "UINT16" and mode == "MUL" else None
    return whole(
        emit, emit.pointwise(mode, a, b, to=wide_integer(a) if compute is None else compute, compute=compute), kind
    )


def in_order(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    """UINT64 is carried by its bits: with the highest bit turned, INT64 has their order."""
    if not node.type(0).is_integer or node.type(0).is_carried_whole:
        return x
    return emit.pointwise("ADD", x, emit.constant(np.full((1,), -(2**63)), DataType.INT64))


@operator("Add", since=7)
def add(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return binary("ADD", node, emit, a, b)


@operator("Sub", since=7)
def sub(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return binary("SUB", node, emit, a, b)


@operator("Mul", since=7)
def mul(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return binary("MUL", node, emit, a, b)


@operator("Div", since=7, needs=(ORDERED,))
def div(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return binary("DIV", node, emit, a, b)


@operator("Mod", needs=(ORDERED,))
def mod(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return emit.pointwise("MOD" if node.attribute("fmod", 0) else "FLOOR_MOD", a, b)


@operator("Pow", since=7, needs=(ORDERED,))
def power(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    if node.result_type().is_float:
        return emit.pointwise("POW", emit.wide(a), emit.convert(b, emit.float_of(b)), to=type_of(a))
    found = emit.pointwise("POW", emit.convert(a, DataType.DOUBLE), emit.convert(b, DataType.DOUBLE))
    return emit.truncated(found, node.result_type())


@operator("Sum", "Max", "Min", "Mean")
def variadic(node: Node, emit: Emitter, *operands: Tensor) -> Tensor:
    extreme = node.op_type in ("Max", "Min")
    first, *rest = (in_order(node, emit, x) if extreme else x for x in operands)
    mode = {"Sum": "ADD", "Mean": "ADD", "Max": "MAX", "Min": "MIN"}[node.op_type]
    found = emit.wide(first) if node.result_type().is_float else first
    for operand in rest:
        found = emit.pointwise(mode, found, operand)
    if node.op_type == "Mean":
        found = emit.pointwise("MUL", found, 1.0 / (1 + len(rest)))
    found = emit.convert(found, type_of(first))
    return in_order(node, emit, found) if extreme else found


_UNARY = {
    "Ceil": "CEIL", "Floor": "FLOOR", "Cos": "COS", "Sin": "SIN", "Tan": "TAN", "Exp": "EXP", "Log": "LOG",
    "Sqrt": "SQRT", "Reciprocal": "RECIPROCAL", "Erf": "ERF",
}  # fmt: skip


@operator(*_UNARY)
def unary(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    if ELEMENTS[type_of(x)].kind != "float":  # Erf of integers
        return emit.truncated(
            emit.pointwise(_UNARY[node.op_type], emit.convert(x, DataType.DOUBLE)), node.result_type()
        )
    return emit.pointwise(_UNARY[node.op_type], x)


@operator("Abs")
def absolute(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    kind = node.result_type()
    if kind.is_integer and not kind.is_signed:
        return x
    return whole(emit, emit.pointwise("ABS", x, to=wide_integer(x)), kind)


@operator("Neg")
def negative(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return whole(emit, emit.pointwise("NEG", x, to=wide_integer(x)), node.result_type())


@operator("Sign", needs=(ORDERED,))
def sign(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    is_float = node.type(0).is_float
    one, zero = (1.0, 0.0) if is_float else (1, 0)
    above = emit.convert(emit.pointwise("CMP_GT", x, zero), type_of(x))
    if not is_float and not node.type(0).is_signed:
        return above
    found = emit.select(emit.pointwise("CMP_LT", x, zero), -one, above)
    # NaN is in no order, and its sign is NaN.
    return emit.select(emit.pointwise("CMP_EQ", x, x), found, x) if is_float else found


@operator("Round")
def round_to_even(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.rounded(x)
