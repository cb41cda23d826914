"""Cast and CastLike."""

from __future__ import annotations

from graphdnn.builder import Tensor
from graphdnn.checks import Empty, OneOf
from graphdnn.dtypes import FP8
from graphdnn.enums import DataType
from graphdnn.onnx.element_types import ElementType
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator

SATURATES = Need(
    "saturate",
    lambda node: node.attribute("saturate", 1) if node.result_type().carrier in FP8 else None,
    OneOf(1),
    "conversions to fp8 saturate, as the hardware's do",
    "leave saturate at 1",
)
ROUNDED = Need(
    "to",
    lambda node: node.result_type().name if node.result_type().is_stored_only else "",
    Empty("a type that conversions round to"),
    "no conversion of the engines rounds to this type",
    "cast to FLOAT8E4M3FN or FLOAT8E5M2",
)


def _between_bits_and_floats(node: Node) -> tuple[str, ...]:
    """UINT64 and a float, or nothing."""
    kinds = (node.type(0), node.result_type())
    apart = kinds[0].is_carried_whole != kinds[1].is_carried_whole and any(kind.is_float for kind in kinds)
    return tuple(kind.name for kind in kinds) if apart else ()


CARRIED = Need(
    "element types",
    _between_bits_and_floats,
    Empty("no conversion between UINT64 and a float"),
    "UINT64 is carried by its bits, which are no float's",
    "cast to INT64 first",
)


@operator("Cast", since=6, needs=(SATURATES, CARRIED, ROUNDED))
def cast(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return cast_to(emit, x, node.type(0), node.result_type())


@operator("CastLike", since=15, needs=(SATURATES, CARRIED, ROUNDED))
def cast_like(node: Node, emit: Emitter, x: Tensor, _: Tensor) -> Tensor:
    return cast_to(emit, x, node.type(0), node.result_type())


def cast_to(emit: Emitter, x: Tensor, source: ElementType, to: ElementType) -> Tensor:
    """Floats are cut toward zero to integers, integers wrap, and every number but 0 is true."""
    if source is to:
        return x
    if to.is_bool:
        return emit.pointwise("CMP_NEQ", x, 0.0 if source.is_float else 0)
    if not to.is_integer:
        return emit.convert(x, to.carrier)
    if source.is_float:
        return emit.truncated(x, to)
    return emit.wrapped(emit.convert(x, DataType.INT32) if type_of(x) is DataType.BYTE_BOOLEAN else x, to)
