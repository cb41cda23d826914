"""Operators that select by position: positions that are data are compared with every position."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import AtMost, OneOf
from graphdnn.enums import DataType
from graphdnn.onnx.element_types import BY_NAME
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator

_MOST_PAIRS = 2**24
_CONSTANT_RUNS = 256
_INT64 = BY_NAME["INT64"]


def _pairs(node: Node) -> int | None:
    """Elements of the comparison of positions with indices."""
    if node.constant(1) is not None and len(node.integers(1) or ()) <= _CONSTANT_RUNS and node.op_type == "Gather":
        return None
    axis = node.axis(0)
    extent = node.shape(0)[axis]
    elements = prod(node.shape(0)) * prod(node.shape(1))
    return elements if node.op_type == "Gather" else prod(node.shape(1)) * extent


_FEW_PAIRS = Need(
    "elements compared",
    _pairs,
    AtMost(_MOST_PAIRS),
    "positions that are data are compared with every position of the axis",
    "make the indices constant, or pass fallback='reference'",
)


@operator("Gather", needs=(_FEW_PAIRS,))
def gather(node: Node, emit: Emitter, x: Tensor, indices: Tensor) -> Tensor:
    axis, shape = node.axis(0), node.shape(0)
    extent = shape[axis]
    known = node.integers(1)
    if known is not None and len(known) <= _CONSTANT_RUNS:
        return emit.reshape(emit.taken(x, axis, [i % extent for i in known]), node.result_shape())
    before, behind = prod(shape[:axis]), prod(shape[axis + 1 :])
    count = prod(node.shape(1))
    columns = emit.reshape(x, (before, 1, extent, behind))
    chosen = emit.reshape(nonnegative(emit, indices, extent), (1, count, 1, 1))
    return emit.reshape(picked(emit, columns, chosen, 2), node.result_shape())


@operator("GatherElements", needs=(_FEW_PAIRS,))
def gather_elements(node: Node, emit: Emitter, x: Tensor, indices: Tensor) -> Tensor:
    axis, shape = node.axis(0), node.shape(0)
    extent, wanted = shape[axis], node.shape(1)
    # Positions off the axis are the same in both: x is cut to the indices, and gets an axis of its own for positions.
    x = emit.slice(x, [slice(0, d if a == axis else w) for a, (d, w) in enumerate(zip(shape, wanted, strict=True))])
    split = (prod(wanted[:axis]), prod(wanted[axis + 1 :]))
    columns = emit.reshape(x, (split[0], 1, extent, split[1]))
    chosen = emit.reshape(nonnegative(emit, indices, extent), (split[0], wanted[axis], 1, split[1]))
    return emit.reshape(picked(emit, columns, chosen, 2), node.result_shape())


@operator("GatherND", since=11, needs=(
    Need("elements compared", lambda node: prod(node.shape(1)[:-1]) * prod(node.shape(0)), AtMost(_MOST_PAIRS),
         "positions that are data are compared with every position"),
))  # fmt: skip
def gather_nd(node: Node, emit: Emitter, x: Tensor, indices: Tensor) -> Tensor:
    batch = node.attribute("batch_dims", 0)
    shape, wanted = node.shape(0), node.shape(1)
    depth = wanted[-1]
    axes = shape[batch : batch + depth]
    images, count, rest = prod(shape[:batch]), prod(wanted[batch:-1]), prod(shape[batch + depth :])
    flat: Tensor | None = None
    for i, extent in enumerate(axes):
        column = emit.part(indices, len(wanted) - 1, i, i + 1)
        column = nonnegative(emit, column, extent)
        flat = column if flat is None else emit.pointwise("ADD", emit.pointwise("MUL", flat, extent), column)
    assert flat is not None
    columns = emit.reshape(x, (images, 1, prod(axes), rest))
    chosen = emit.reshape(flat, (images, count, 1, 1))
    return emit.reshape(picked(emit, columns, chosen, 2), node.result_shape())


def nonnegative(emit: Emitter, indices: Tensor, extent: int) -> Tensor:
    """Indices counted from 0: negative ones count from the end."""
    behind = emit.pointwise("ADD", indices, extent)
    return emit.select(emit.pointwise("CMP_LT", indices, 0), behind, indices)


def picked(emit: Emitter, columns: Tensor, chosen: Tensor, axis: int) -> Tensor:
    """The element of ``columns`` along ``axis`` at the position that ``chosen`` says; 0 where there is none."""
    dims = columns.dim or ()
    here = emit.pointwise("CMP_EQ", chosen, emit.index(dims, axis, type_of(chosen)))
    kind = type_of(columns)
    if kind is DataType.BYTE_BOOLEAN:
        columns, kind = emit.convert(columns, DataType.INT32), DataType.INT32
    found = emit.reduce(emit.select(here, columns, 0), "ADD", (axis,))
    return emit.convert(found, kind) if kind is not DataType.INT32 else emit.convert(found, type_of(columns))


@operator("OneHot", since=9, by_value=(1,))
def one_hot(node: Node, emit: Emitter, indices: Tensor, _: None, values: Tensor) -> Tensor:
    rank = len(node.result_shape())
    axis = node.attribute("axis", -1) % rank
    depth = node.result_shape()[axis]
    kind = DataType.INT64
    whole = emit.truncated(indices, _INT64) if node.type(0).is_float else emit.convert(indices, kind)
    shape = list(node.shape(0))
    shape.insert(axis, 1)
    here = emit.pointwise("CMP_EQ", emit.reshape(nonnegative(emit, whole, depth), shape),
                          emit.index(node.result_shape(), axis, kind))  # fmt: skip
    off, on = (emit.part(values, 0, i, i + 1) for i in (0, 1))
    return emit.select(here, emit.aligned(on, rank), emit.aligned(off, rank))


def _triangle(node: Node) -> np.ndarray:
    rows, columns = node.shape(0)[-2:]
    offset = (node.integers(1) or [0])[0]
    mask = np.tri(rows, columns, offset if not node.attribute("upper", 1) else offset - 1, dtype=bool)
    return ~mask if node.attribute("upper", 1) else mask


@operator("Trilu", since=14, by_value=(1,))
def trilu(node: Node, emit: Emitter, x: Tensor, _: None = None) -> Tensor:
    mask = emit.constant(_triangle(node).reshape((1,) * (node.rank(0) - 2) + node.shape(0)[-2:]))
    if type_of(x) is DataType.BYTE_BOOLEAN:
        return emit.pointwise("LOGICAL_AND", x, mask)
    return emit.select(mask, x, 0)


@operator("EyeLike", since=9)
def eye_like(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    rows, columns = node.result_shape()
    return emit.constant(np.eye(rows, columns, node.attribute("k", 0)), node.result_type().carrier)


@operator("ScatterElements", "Scatter", since=9, needs=(
    Need("elements compared", lambda node: prod(node.shape(1)) * node.shape(0)[node.axis(0)], AtMost(_MOST_PAIRS),
         "positions that are data are compared with every position of the axis"),
    Need("reduction", lambda node: node.attribute("reduction", "none"), OneOf("none", "add", "max", "min", "mul"),
         "these are the reductions of ONNX"),
))  # fmt: skip
def scatter_elements(node: Node, emit: Emitter, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """One update after another along the axis: a later update of an element replaces an earlier one."""
    axis, shape, wanted = node.axis(0), node.shape(0), node.shape(1)
    chosen = nonnegative(emit, indices, shape[axis])
    positions = emit.index(shape, axis, type_of(chosen))
    mode = {"none": "", "add": "ADD", "mul": "MUL", "max": "MAX", "min": "MIN"}[node.attribute("reduction", "none")]
    for i in range(wanted[axis]):
        row, place = emit.part(updates, axis, i, i + 1), emit.part(chosen, axis, i, i + 1)
        row, place = (_widened(emit, t, axis, shape, fill) for t, fill in ((row, 0), (place, -1)))
        here = emit.pointwise("CMP_EQ", place, positions)
        x = emit.select(here, emit.pointwise(mode, x, row) if mode else row, x)
    return x


def _widened(emit: Emitter, tensor: Tensor, axis: int, shape: Sequence[int], fill: int) -> Tensor:
    """Padded off the axis to the extents of the data."""
    for other, extent in enumerate(shape):
        have = (tensor.dim or ())[other]
        if other != axis and have < extent:
            tensor = emit.padded(tensor, other, 0, extent - have, fill)
    return tensor


@operator("ScatterND", since=11, needs=(
    Need("rows of updates", lambda node: prod(node.shape(1)[:-1]), AtMost(256), "updates are applied one by one"),
))  # fmt: skip
def scatter_nd(node: Node, emit: Emitter, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    shape, wanted = node.shape(0), node.shape(1)
    depth, count = wanted[-1], prod(wanted[:-1])
    rows = emit.reshape(indices, (count, depth))
    blocks = emit.reshape(updates, (count, 1, prod(shape[depth:])))
    x = emit.reshape(x, (1, prod(shape[:depth]), prod(shape[depth:])))
    mode = {"none": "", "add": "ADD", "mul": "MUL", "max": "MAX", "min": "MIN"}[node.attribute("reduction", "none")]
    flat: Tensor | None = None
    for i, extent in enumerate(shape[:depth]):
        column = nonnegative(emit, emit.part(rows, 1, i, i + 1), extent)
        flat = column if flat is None else emit.pointwise("ADD", emit.pointwise("MUL", flat, extent), column)
    assert flat is not None
    positions = emit.index((1, prod(shape[:depth]), 1), 1, type_of(flat))
    for i in range(count):
        place, row = emit.reshape(emit.part(flat, 0, i, i + 1), (1, 1, 1)), emit.part(blocks, 0, i, i + 1)
        here = emit.pointwise("CMP_EQ", place, positions)
        x = emit.select(here, emit.pointwise(mode, x, row) if mode else row, x)
    return emit.reshape(x, shape)
