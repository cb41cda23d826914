"""Reductions over axes, and the positions of extremes."""

from __future__ import annotations

from math import prod

from graphdnn.builder import Tensor
from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import DataType
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.arithmetic import ORDERED
from graphdnn.onnx.operators.table import Lowering, operator


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes of the attribute or of operand 1; all axes where there are none."""
    rank = node.rank(0)
    given = node.attribute("axes") or node.integers(1)
    if not given:
        return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return node.axes(given, rank) or ()


def _reduction(name: str, attribute_until: int) -> None:
    """Two rows: axes are an attribute until a version, an operand from the next one on."""

    def lower(node: Node, emit: Emitter, x: Tensor, _: None = None) -> Tensor:
        axes = reduced_axes(node)
        if node.rank(0) == 0:
            axes = (0,)
        kind = type_of(x)
        found = _RULES[name](emit, emit.wide(x), axes)
        if ELEMENTS[kind].kind == "bool" or ELEMENTS[kind].kind == "float":
            found = emit.convert(found, kind)
        else:
            found = emit.truncated(found, node.result_type())
        return emit.reshape(found, node.result_shape())

    operator(name, until=attribute_until, needs=(ORDERED,))(lower)
    operator(name, since=attribute_until + 1, needs=(ORDERED,), by_value=(1,))(lower)


def _plain(mode: str) -> Lowering:
    return lambda emit, x, axes: emit.reduce(x, mode, axes) if axes else x


def _average(emit: Emitter, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    if not axes:
        return x
    if ELEMENTS[type_of(x)].kind == "float":
        return emit.reduce(x, "AVG", axes)
    count = prod((x.dim or ())[a] for a in axes)
    return emit.pointwise("DIV", emit.reduce(emit.convert(x, DataType.INT64), "ADD", axes), count)


def _squares(emit: Emitter, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    square = emit.pointwise("MUL", x, x)
    return emit.reduce(square, "ADD", axes) if axes else square


def _norm(emit: Emitter, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    found = _squares(emit, x, axes)
    wide = found if ELEMENTS[type_of(x)].kind == "float" else emit.convert(found, DataType.DOUBLE)
    return emit.pointwise("SQRT", wide)


def _log_sum(emit: Emitter, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    wide = x if ELEMENTS[type_of(x)].kind == "float" else emit.convert(x, DataType.DOUBLE)
    return emit.pointwise("LOG", emit.reduce(wide, "ADD", axes) if axes else wide)


def _log_sum_exp(emit: Emitter, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Shifted by the maximum, so that nothing overflows; a maximum that is infinite shifts by 0."""
    wide = x if ELEMENTS[type_of(x)].kind == "float" else emit.convert(x, DataType.DOUBLE)
    if not axes:
        return wide
    top = emit.reduce(wide, "MAX", axes)
    finite = emit.pointwise("CMP_LT", emit.pointwise("ABS", top), float("inf"))
    top = emit.select(finite, top, 0.0)
    total = emit.reduce(emit.pointwise("EXP", emit.pointwise("SUB", wide, top)), "ADD", axes)
    return emit.pointwise("ADD", emit.pointwise("LOG", total), top)


_RULES: dict[str, Lowering] = {
    "ReduceSum": _plain("ADD"),
    "ReduceProd": _plain("MUL"),
    "ReduceMax": _plain("MAX"),
    "ReduceMin": _plain("MIN"),
    "ReduceMean": _average,
    "ReduceL1": lambda emit, x, axes: emit.reduce(x, "NORM1", axes) if axes else emit.pointwise("ABS", x),
    "ReduceL2": _norm,
    "ReduceSumSquare": _squares,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}
for _name in _RULES:
    _reduction(_name, 12 if _name == "ReduceSum" else 17)


@operator("ArgMax", "ArgMin", needs=(ORDERED,))
def position_of_extreme(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    """Positions of the extreme, reduced to the first or the last one."""
    if node.rank(0) == 0:
        return emit.pointwise("SUB", emit.convert(x, DataType.INT64), emit.convert(x, DataType.INT64))
    axis, last = node.axis(0), node.attribute("select_last_index", 0)
    extent = node.shape(0)[axis]
    wide = emit.wide(x)
    top = emit.reduce(wide, "MAX" if node.op_type == "ArgMax" else "MIN", (axis,))
    positions = emit.index(node.shape(0), axis)
    here = emit.select(emit.pointwise("CMP_EQ", wide, top), positions, -1 if last else extent)
    found = emit.reduce(here, "MAX" if last else "MIN", (axis,))
    return emit.reshape(found, node.result_shape())


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    mode = "AVG" if node.op_type == "GlobalAveragePool" else "MAX"
    return emit.reduce(x, mode, tuple(range(2, node.rank(0))))


@operator("GlobalLpPool")
def global_lp_pool(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    p = float(node.attribute("p", 2))
    powers = emit.pointwise("POW", emit.pointwise("ABS", emit.wide(x)), p)
    total = emit.reduce(powers, "ADD", tuple(range(2, node.rank(0))))
    return emit.pointwise("POW", total, 1.0 / p, to=type_of(x))
