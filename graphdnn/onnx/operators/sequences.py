"""Running sums and products, ordering, and transforms by constant matrices."""

from __future__ import annotations

from math import prod

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import AtMost, Equals
from graphdnn.dtypes import Array
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


@operator("ConstantOfShape", since=9, by_value=(0,))
def constant_of_shape(node: Node, emit: Emitter, _: None) -> Tensor:
    raise ValueError("the extents are not constant, or the value is no number")


# Fourier transforms.

_FACTORS = 2**22
_SMALL = Need(
    "elements of the matrix of factors",
    lambda node: _length(node) ** 2,
    AtMost(_FACTORS),
    "a transform is a product with a matrix of all factors",
)


def _axis(node: Node) -> int:
    given = node.attribute("axis", 1) if node.version < 20 else (node.integers(2) or [-2])[0]
    return int(given) % node.rank(0)


def _length(node: Node) -> int:
    given = node.integers(1)
    return given[0] if given else node.shape(0)[_axis(node)]


def _factors(length: int, outputs: int, inverse: bool) -> tuple[Array, Array]:
    """Cosines and sines [outputs, length] of exp(-2 pi i o k / length), or of its inverse."""
    angle = 2 * np.pi * (np.outer(np.arange(outputs), np.arange(length)) % length) / length
    scale = 1 / length if inverse else 1.0
    return np.cos(angle) * scale, np.sin(angle) * (scale if inverse else -scale)


@operator("DFT", since=17, by_value=(1, 2), needs=(
    _SMALL,
    Need("inverse with onesided", lambda node: bool(node.attribute("inverse", 0) and node.attribute("onesided", 0)),
         Equals(False), "the missing half of the spectrum is not completed here"),
))  # fmt: skip
def dft(node: Node, emit: Emitter, x: Tensor, *_: None) -> Tensor:
    axis, length, rank = _axis(node), _length(node), node.rank(0)
    inverse = bool(node.attribute("inverse", 0))
    wide = emit.convert(x, DataType.DOUBLE)  # where factors cancel, the digits of FLOAT would be left over
    extent = node.shape(0)[axis]
    if extent > length:
        wide = emit.part(wide, axis, 0, length)
    elif extent < length:
        wide = emit.padded(wide, axis, 0, length - extent, 0.0)
    cosine, sine = _factors(length, node.result_shape()[axis], inverse)
    real = emit.part(wide, rank - 1, 0, 1)
    parts = [_product(emit, real, axis, m) for m in (cosine, sine)]
    if node.shape(0)[-1] == 2:
        imaginary = emit.part(wide, rank - 1, 1, 2)
        crossed = [_product(emit, imaginary, axis, m) for m in (sine, cosine)]
        parts = [emit.pointwise("SUB", parts[0], crossed[0]), emit.pointwise("ADD", parts[1], crossed[1])]
    return emit.convert(emit.concat(parts, rank - 1), type_of(x))


def _product(emit: Emitter, x: Tensor, axis: int, matrix: Array) -> Tensor:
    dims = list(x.dim or ())
    flat = emit.reshape(x, (prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :])))
    found = emit.matmul(emit.constant(matrix[None], type_of(x)), flat)
    return emit.reshape(found, (*dims[:axis], len(matrix), *dims[axis + 1 :]))


def _spectra(node: Node) -> tuple[int, ...]:
    """[signals, frames, frequencies, 2]; the half of a symmetric spectrum by default."""
    (hop,) = node.integers(1) or (1,)
    length = _frame(node)
    frames = (node.shape(0)[1] - length) // hop + 1
    return node.shape(0)[0], frames, length // 2 + 1 if node.attribute("onesided", 1) else length, 2


@operator("STFT", since=17, by_value=(1, 3), shape=_spectra, needs=(
    Need("frame_length", lambda node: _frame(node) ** 2, AtMost(_FACTORS), _SMALL.reason),
    Need("frames", lambda node: node.result_shape()[1], AtMost(512), "each frame is a slice of the signal"),
))  # fmt: skip
def stft(node: Node, emit: Emitter, x: Tensor, step: None, window: Tensor | None = None, *_: None) -> Tensor:
    (hop,) = node.integers(1) or (1,)
    length, frames = _frame(node), node.result_shape()[1]
    wide = emit.convert(x, DataType.DOUBLE)
    wide = emit.reshape(wide, (*node.shape(0)[:2], prod(node.shape(0)[2:])))
    rows = emit.concat([
        emit.reshape(emit.part(wide, 1, i * hop, i * hop + length), (node.shape(0)[0], 1, length, (wide.dim or ())[2]))
        for i in range(frames)
    ], 1)  # fmt: skip
    if window is not None:
        rows = emit.pointwise("MUL", rows, emit.reshape(emit.convert(window, DataType.DOUBLE), (1, 1, length, 1)))
    cosine, sine = _factors(length, node.result_shape()[2], inverse=False)
    real = emit.part(rows, 3, 0, 1)
    parts = [_product(emit, real, 2, m) for m in (cosine, sine)]
    if (rows.dim or ())[3] == 2:
        imaginary = emit.part(rows, 3, 1, 2)
        crossed = [_product(emit, imaginary, 2, m) for m in (sine, cosine)]
        parts = [emit.pointwise("SUB", parts[0], crossed[0]), emit.pointwise("ADD", parts[1], crossed[1])]
    return emit.convert(emit.concat(parts, 3), type_of(x))


def _frame(node: Node) -> int:
    given = node.integers(3)
    return given[0] if given else node.shape(2)[0]


@operator("Col2Im", since=18, by_value=(1, 2))
def col2im(node: Node, emit: Emitter, x: Tensor, *_: None) -> Tensor:
    """The data gradient of a convolution whose filters pick one element each, in groups of one channel."""
    block = node.integers(2) or []
    count = len(block)
    n, c, *image = node.result_shape()
    dilations = node.attribute("dilations", (1,) * count)
    strides = node.attribute("strides", (1,) * count)
    pads = tuple(node.attribute("pads", (0,) * 2 * count))
    axes = zip(image, block, dilations, strides, pads[:count], pads[count:], strict=True)
    places = [(i + pre + post - d * (b - 1) - 1) // s + 1 for i, b, d, s, pre, post in axes]
    filters = np.tile(np.eye(prod(block)).reshape(prod(block), 1, *block), (c, *(1,) * (count + 1)))
    y = emit.graph.conv_dgrad(
        emit.reshape(x, (n, c * prod(block), *places)), emit.constant(filters, type_of(x)), stride=strides,
        dilation=dilations, pre_padding=pads[:count], post_padding=pads[count:],
        compute_data_type=emit.arithmetic_of(x), name=emit.label,
    )  # fmt: skip
    return y.set_dim((n, c, *image)).set_data_type(type_of(x))


@operator("MaxUnpool", since=9, by_value=(2,), needs=(
    Need("pairs of elements", lambda node: prod(node.shape(0)) * prod(node.result_shape()), AtMost(_MOST_PAIRS),
         "positions that are data are compared with every position"),
))  # fmt: skip
def max_unpool(node: Node, emit: Emitter, x: Tensor, index: Tensor, _: None = None) -> Tensor:
    out, count = prod(node.result_shape()), prod(node.shape(0))
    pooled = _declared_extents(node)
    index = emit.reshape(index, (1, count))
    here = emit.pointwise("CMP_EQ", emit.constant(np.arange(prod(pooled)).reshape(-1, 1), DataType.INT64), index)
    found = emit.reduce(emit.select(here, emit.reshape(x, (1, count)), 0), "ADD", (1,))
    found = emit.reshape(found, pooled)
    if out != prod(pooled):
        for axis, (have, want) in enumerate(zip(pooled, node.result_shape(), strict=True)):
            found = emit.padded(found, axis, 0, want - have, 0)
    return found


def _declared_extents(node: Node) -> tuple[int, ...]:
    """Extents by which the indices were counted: ``output_shape`` may be larger."""
    window = node.attribute("kernel_shape")
    strides = node.attribute("strides", (1,) * len(window))
    pads = node.attribute("pads", (0,) * 2 * len(window))
    axes = zip(node.shape(0)[2:], window, strides, pads[: len(window)], pads[len(window) :], strict=True)
    return (*node.shape(0)[:2], *((x - 1) * s - pre - post + r for x, r, s, pre, post in axes))
