"""Running sums and products, and the largest elements in order."""

from __future__ import annotations

from math import prod

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import AtMost
from graphdnn.enums import DataType
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.arithmetic import ORDERED
from graphdnn.onnx.operators.table import Need, operator

_MOST_PAIRS = 2**24


@operator("CumSum", "CumProd", since=11, by_value=(1,))
def running(node: Node, emit: Emitter, x: Tensor, _: None) -> Tensor:
    """Each pass joins elements that are twice as far apart: log2 of the extent passes."""
    (given,) = node.integers(1) or (0,)
    axis, backward = given % node.rank(0), bool(node.attribute("reverse", 0))
    mode, neutral = ("ADD", 0) if node.op_type == "CumSum" else ("MUL", 1)
    extent = node.shape(0)[axis]
    found = emit.wide(x)
    if node.attribute("exclusive", 0):
        found = _moved(emit, found, axis, 1, backward, neutral)
    distance = 1
    while distance < extent:
        found = emit.pointwise(mode, found, _moved(emit, found, axis, distance, backward, neutral))
        distance *= 2
    return emit.convert(found, type_of(x)) if node.result_type().is_float else emit.wrapped(found, node.result_type())


def _moved(emit: Emitter, x: Tensor, axis: int, by: int, backward: bool, fill: int) -> Tensor:
    extent = (x.dim or ())[axis]
    if backward:
        return emit.padded(emit.part(x, axis, by, extent), axis, 0, by, fill) if by < extent else _full(emit, x, fill)
    return emit.padded(emit.part(x, axis, 0, extent - by), axis, by, 0, fill) if by < extent else _full(emit, x, fill)


def _full(emit: Emitter, x: Tensor, value: int) -> Tensor:
    """x with every element replaced."""
    return emit.select(emit.pointwise("CMP_EQ", x, x), emit.constant_like(x, value), emit.constant_like(x, value))


@operator(
    "TopK",
    since=10,
    by_value=(1,),
    needs=(
        ORDERED,
        Need("pairs of elements", lambda node: prod(node.shape(0)) * node.shape(0)[node.axis(-1)], AtMost(_MOST_PAIRS),
             "the place of an element is the number of elements before it, counted in pairs"),
    ),
)  # fmt: skip
def top_k(node: Node, emit: Emitter, x: Tensor, _: None) -> list[Tensor]:
    """The rank of an element counts the elements that come before it: greater ones, and equal ones with lower index."""
    shape, axis = node.shape(0), node.axis(-1)
    extent, count = shape[axis], node.result_shape()[axis]
    before, behind = prod(shape[:axis]), prod(shape[axis + 1 :])
    wide = emit.reshape(emit.wide(x), (before, extent, 1, behind))
    other = emit.reshape(wide, (before, 1, extent, behind))
    ahead = emit.pointwise("CMP_GT" if node.attribute("largest", 1) else "CMP_LT", other, wide)
    earlier = emit.constant(np.tri(extent, extent, -1, dtype=bool)[None, :, :, None])
    ties = emit.pointwise("LOGICAL_AND", emit.pointwise("CMP_EQ", other, wide), earlier)
    precedes = emit.convert(emit.pointwise("LOGICAL_OR", ahead, ties), DataType.INT32)
    rank = emit.reshape(emit.reduce(precedes, "ADD", (2,)), (before, 1, extent, behind))
    wanted = emit.constant(np.arange(count).reshape(1, count, 1, 1), DataType.INT32)
    chosen = emit.pointwise("CMP_EQ", rank, wanted)
    values = emit.reduce(emit.select(chosen, other, 0), "ADD", (2,))
    positions = emit.constant(np.arange(extent).reshape(1, 1, extent, 1), DataType.INT64)
    places = emit.reduce(emit.select(chosen, positions, 0), "ADD", (2,))
    return [
        emit.reshape(emit.convert(values, type_of(x)), node.result_shape(0)),
        emit.reshape(places, node.result_shape(1)),
    ]
