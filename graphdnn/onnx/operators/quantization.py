"""Quantized operators: integers without their zero points go to the integer engines, and are scaled behind them."""

from __future__ import annotations

from math import prod

from graphdnn.builder import Tensor
from graphdnn.checks import OneOf
from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import DataType
from graphdnn.onnx.element_types import ElementType
from graphdnn.onnx.emitter import Emitter
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.convolution import per_channel
from graphdnn.onnx.operators.matrix_products import as_matrices
from graphdnn.onnx.operators.table import Need, operator
from graphdnn.onnx.operators.windows import SPATIAL, windows_of

_FAR = 2**20  # beyond every quantized type, and far from the end of INT32


def _spread(node: Node, emit: Emitter, tensor: Tensor, index: int, x: int = 0) -> Tensor:
    """Scales or zero points as an operand of x: one for all, one for each position of the axis, or one per block."""
    shape, given = node.shape(x), node.shape(index)
    rank, axis = len(shape), node.axis(1, x) if shape else 0
    if len(given) <= 1:
        dims = [1] * max(rank, 1)
        if prod(given) > 1:
            dims[axis] = prod(given)
        return emit.reshape(tensor, dims)
    block = node.attribute("block_size", 0) or -(-shape[axis] // given[axis])
    split = (*given[: axis + 1], 1, *given[axis + 1 :])
    wide = (*given[: axis + 1], block, *given[axis + 1 :])
    joined = (*given[:axis], given[axis] * block, *given[axis + 1 :])
    return emit.part(emit.reshape(emit.expand(emit.reshape(tensor, split), wide), joined), axis, 0, shape[axis])


def saturated(emit: Emitter, x: Tensor, zero_point: Tensor | None, to: ElementType) -> Tensor:
    """A scaled float as a quantized number: rounded to nearest even, shifted by the zero point, and clipped."""
    if not to.is_integer:
        return emit.convert(x, to.carrier)
    whole = emit.convert(x, DataType.INT32)
    whole = emit.pointwise("RELU_FWD", whole, relu_lower_clip=float(-_FAR), relu_upper_clip=float(_FAR))
    if zero_point is not None:
        whole = emit.pointwise("ADD", whole, zero_point)
    whole = emit.pointwise(
        "RELU_FWD", whole, relu_lower_clip=float(to.lowest), relu_upper_clip=float(to.highest)
    )  # fmt: skip
    return emit.convert(whole, to.carrier)


_PRECISION = Need(
    "output type",
    lambda node: node.result_type().name,
    OneOf("UINT8", "INT8", "UINT16", "INT16", "UINT4", "INT4", "UINT2", "INT2", "FLOAT8E4M3FN", "FLOAT8E5M2"),
    "these are the quantized types with a carrier",
)


@operator("QuantizeLinear", since=10, needs=(_PRECISION,))
def quantize(node: Node, emit: Emitter, x: Tensor, scale: Tensor, zero_point: Tensor | None = None) -> Tensor:
    shift = None if zero_point is None else _spread(node, emit, zero_point, 2)
    wide = emit.convert(x, DataType.FLOAT)
    quotient = emit.pointwise("DIV", wide, emit.convert(_spread(node, emit, scale, 1), DataType.FLOAT))
    return saturated(emit, quotient, shift, node.result_type())


@operator("DequantizeLinear", since=10)
def dequantize(node: Node, emit: Emitter, x: Tensor, scale: Tensor, zero_point: Tensor | None = None) -> Tensor:
    if zero_point is not None and node.type(0).is_integer:
        x = emit.pointwise("SUB", x, _spread(node, emit, zero_point, 2), to=DataType.INT32, compute=DataType.INT32)
    scale = _spread(node, emit, scale, 1)
    wide = emit.convert(x, DataType.FLOAT)
    return emit.pointwise("MUL", wide, emit.convert(scale, DataType.FLOAT), to=node.result_type().carrier)


def centred(node: Node, emit: Emitter, x: Tensor, zero_point: Tensor | None, index: int) -> Tensor:
    """x without its zero point: 8 bits if there is none, else 16, which hold every difference."""
    known = node.constant(index)
    if zero_point is None or (known is not None and not known.any()):
        return x
    return emit.pointwise("SUB", x, zero_point, to=DataType.INT16, compute=DataType.INT32)


def _convolved(node: Node, emit: Emitter, x: Tensor, w: Tensor, window: tuple[int, ...]) -> Tensor:
    how = windows_of(node, window)
    return emit.graph.conv_fprop(
        x, w, stride=how.strides, dilation=how.dilations, pre_padding=how.pre, post_padding=how.post,
        compute_data_type=DataType.INT32, name=node.name,
    ).set_data_type(DataType.INT32)  # fmt: skip


def _of_filters(node: Node, emit: Emitter, tensor: Tensor | None, rank: int) -> Tensor | None:
    """One number, or one for each filter [K, C, R, S]."""
    if tensor is None:
        return None
    return emit.reshape(tensor, ((tensor.dim or (1,))[0], *(1,) * (rank - 1)))


@operator("ConvInteger", since=10, needs=(SPATIAL,))
def conv_integer(
    node: Node, emit: Emitter, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
    x = centred(node, emit, x, x_zero, 2)
    w = centred(node, emit, w, _of_filters(node, emit, w_zero, node.rank(1)), 3)
    return _convolved(node, emit, x, w, node.shape(1)[2:])


@operator("QLinearConv", since=10, needs=(SPATIAL,))
def qlinear_conv(
    node: Node,
    emit: Emitter,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    rank = node.rank(3)
    w = centred(node, emit, w, _of_filters(node, emit, w_zero, rank), 5)
    y = _convolved(node, emit, centred(node, emit, x, x_zero, 2), w, node.shape(3)[2:])
    if bias is not None:
        y = emit.pointwise("ADD", y, per_channel(emit, bias, rank))
    return _rescaled(emit, y, x_scale, per_channel(emit, w_scale, rank), y_scale, y_zero, node.result_type())


def _rescaled(
    emit: Emitter, sums: Tensor, a: Tensor, b: Tensor, y_scale: Tensor, y_zero: Tensor, to: ElementType
) -> Tensor:
    a, b, y_scale = (emit.convert(t, DataType.FLOAT) for t in (a, b, y_scale))
    factor = emit.pointwise("DIV", emit.pointwise("MUL", b, a), y_scale)
    return saturated(emit, emit.pointwise("MUL", emit.convert(sums, DataType.FLOAT), factor), y_zero, to)


def _of_rows(emit: Emitter, tensor: Tensor | None) -> Tensor | None:
    """A vector [M] belongs to the rows of a matrix."""
    if tensor is None or len(tensor.dim or ()) > 1:
        return tensor
    return emit.reshape(tensor, ((tensor.dim or (1,))[0], 1))


@operator("MatMulInteger", since=10)
def matmul_integer(
    node: Node, emit: Emitter, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    a, b = as_matrices(node, emit, a, b, (0, 1))
    a, b = centred(node, emit, a, _of_rows(emit, a_zero), 2), centred(node, emit, b, b_zero, 3)
    return emit.reshape(emit.matmul(a, b, to=DataType.INT32), node.result_shape())


@operator("QLinearMatMul", since=10, needs=(Need(
    "element types", lambda node: ELEMENTS[node.type(0).carrier].kind, OneOf("int"),
    "products of fp8 are written as Cast and MatMul"),))  # fmt: skip
def qlinear_matmul(
    node: Node,
    emit: Emitter,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    a, b = as_matrices(node, emit, a, b, (0, 3))
    a = centred(node, emit, a, _of_rows(emit, a_zero), 2)
    y = emit.matmul(a, centred(node, emit, b, b_zero, 5), to=DataType.INT32)
    scale = _of_rows(emit, a_scale)
    assert scale is not None
    return emit.reshape(_rescaled(emit, y, scale, b_scale, y_scale, y_zero, node.result_type()), node.result_shape())
