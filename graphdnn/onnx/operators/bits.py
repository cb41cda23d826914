"""Shifts and complements of the bits of integers."""

from __future__ import annotations

from graphdnn.builder import Tensor
from graphdnn.checks import OneOf
from graphdnn.enums import DataType
from graphdnn.onnx.emitter import Emitter
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.arithmetic import whole, wide_integer
from graphdnn.onnx.operators.table import Need, operator


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
    return whole(emit, emit.pointwise("SUB", emit.constant_like(x, -1), x, to=wide_integer(x)), kind)
