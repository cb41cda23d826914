"""Elementwise arithmetic, comparisons and logic, with the types and the broadcasting of ONNX."""

from __future__ import annotations

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import Empty, OneOf
from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import DataType
from graphdnn.onnx.element_types import ElementType
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Lowering, Need, operator


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


def _wide_integer(x: Tensor) -> DataType | None:
    """The type in which narrow integers are computed, before they wrap."""
    element = ELEMENTS[type_of(x)]
    return DataType.INT32 if element.kind == "int" and element.bits < 32 else None


def binary(mode: str, node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    """A mode of two operands whose integers wrap."""
    kind = node.result_type()
    compute = DataType.INT64 if kind.name == "UINT16" and mode == "MUL" else None
    return whole(
        emit, emit.pointwise(mode, a, b, to=_wide_integer(a) if compute is None else compute, compute=compute), kind
    )


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
    return whole(emit, emit.pointwise("ABS", x, to=_wide_integer(x)), kind)


@operator("Neg")
def negative(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return whole(emit, emit.pointwise("NEG", x, to=_wide_integer(x)), node.result_type())


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


_COMPARISONS = {
    "Equal": "CMP_EQ", "Greater": "CMP_GT", "GreaterOrEqual": "CMP_GE", "Less": "CMP_LT", "LessOrEqual": "CMP_LE",
}  # fmt: skip


@operator(*(name for name in _COMPARISONS if name != "Equal"), since=7)
def comparison(node: Node, emit: Emitter, a: Tensor, b: Tensor) -> Tensor:
    return emit.pointwise(_COMPARISONS[node.op_type], in_order(node, emit, a), in_order(node, emit, b))


def in_order(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    """UINT64 is carried by its bits: with the highest bit turned, INT64 has their order."""
    if not node.type(0).is_integer or node.type(0).is_carried_whole:
        return x
    return emit.pointwise("ADD", x, emit.constant(np.full((1,), -(2**63)), DataType.INT64))


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


def _power_of_two(node: Node, emit: Emitter, count: Tensor) -> Tensor:
    """2^count in INT64: the factors 2^(2^i) of the bits that are set in the count."""
    factor: Tensor | None = None
    for i in range((node.type(0).bits - 1).bit_length()):
        bit = emit.pointwise("FLOOR_MOD", count, 2)
        count = emit.pointwise("DIV", count, 2)
        step = emit.pointwise("ADD", emit.pointwise("MUL", bit, 2 ** (2**i) - 1), 1)
        factor = step if factor is None else emit.pointwise("MUL", factor, step)
    assert factor is not None
    return factor


@operator(
    "BitShift",
    since=11,
    needs=(
        Need("element type", lambda node: node.type(0).name,
             OneOf("UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32"),
             "shifts are products and quotients in INT64", "cast to INT32"),
    ),
)  # fmt: skip
def bit_shift(node: Node, emit: Emitter, x: Tensor, count: Tensor) -> Tensor:
    """A count outside of the type's bits leaves no bit but copies of the sign."""
    bits, is_left = node.type(0).bits, node.attribute("direction") == "LEFT"
    wide, count = (emit.convert(t, DataType.INT64) for t in (x, count))
    inside = emit.pointwise("CMP_EQ", emit.pointwise("FLOOR_MOD", count, bits), count)
    factor = _power_of_two(node, emit, emit.select(inside, count, bits - 1))
    if is_left:
        shifted = emit.select(inside, emit.pointwise("MUL", wide, factor), 0)
    else:  # negative numbers are rounded down, as their bits are
        rest = emit.pointwise("FLOOR_MOD", wide, factor)
        shifted = emit.pointwise("DIV", emit.pointwise("SUB", wide, rest), factor)
        if not node.type(0).is_signed:
            shifted = emit.select(inside, shifted, 0)
    return emit.wrapped(shifted, node.result_type())


@operator("BitwiseNot")
def bitwise_not(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    kind = node.result_type()
    return whole(emit, emit.pointwise("SUB", emit.constant_like(x, -1), x, to=_wide_integer(x)), kind)


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
