"""Normalizations and the softmax family."""

from __future__ import annotations

from math import prod

from graphdnn.builder import Tensor
from graphdnn.checks import OneOf
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.convolution import per_channel
from graphdnn.onnx.operators.table import Need, operator


@operator(
    "BatchNormalization",
    needs=(
        Need("is_test", lambda node: node.attribute("is_test", 0) if node.version < 7 else None, OneOf(1),
             "before version 7 training has outputs of another form", "export the model for inference"),
        Need("spatial", lambda node: node.attribute("spatial", 1), OneOf(1), "statistics belong to channels"),
    ),
)  # fmt: skip
def batch_normalization(
    node: Node, emit: Emitter, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor | list[Tensor]:
    rank = max(node.rank(0), 2)
    wide = emit.wide(emit.reshape(x, node.shape(0) if node.rank(0) > 1 else (*node.shape(0), 1)))
    kept = [per_channel(emit, emit.wide(t), rank) for t in (scale, bias, mean, variance)]
    if not node.attribute("training_mode", 0):
        y = _normalized(emit, wide, kept[2], kept[3], node.attribute("epsilon", 1e-5))
        y = emit.pointwise("ADD", emit.pointwise("MUL", y, kept[0]), kept[1], to=type_of(x))
        return emit.reshape(y, node.result_shape())
    axes = (0, *range(2, rank))
    middle, spread = moments(emit, wide, axes)
    y = _normalized(emit, wide, middle, spread, node.attribute("epsilon", 1e-5))
    y = emit.pointwise("ADD", emit.pointwise("MUL", y, kept[0]), kept[1], to=type_of(x))
    share = node.attribute("momentum", 0.9)
    running = [
        emit.pointwise("ADD", emit.pointwise("MUL", old, share), emit.pointwise("MUL", new, 1.0 - share))
        for old, new in ((kept[2], middle), (kept[3], spread))
    ]
    made = [emit.convert(emit.reshape(t, node.shape(3)), type_of(mean)) for t in running]
    return [emit.reshape(y, node.result_shape()), *made]


def moments(emit: Emitter, x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and variance over axes."""
    mean = emit.reduce(x, "AVG", axes)
    centred = emit.pointwise("SUB", x, mean)
    return mean, emit.reduce(emit.pointwise("MUL", centred, centred), "AVG", axes)


def _normalized(emit: Emitter, x: Tensor, mean: Tensor, variance: Tensor, epsilon: float) -> Tensor:
    inverse = emit.pointwise("RSQRT", emit.pointwise("ADD", variance, epsilon))
    return emit.pointwise("MUL", emit.pointwise("SUB", x, mean), inverse)


@operator("InstanceNormalization")
def instance_normalization(node: Node, emit: Emitter, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    wide = emit.wide(x)
    mean, variance = moments(emit, wide, tuple(range(2, node.rank(0))))
    y = _normalized(emit, wide, mean, variance, node.attribute("epsilon", 1e-5))
    scale, bias = (per_channel(emit, t, node.rank(0)) for t in (scale, bias))
    return emit.pointwise("ADD", emit.pointwise("MUL", y, scale), bias, to=type_of(x))


@operator("GroupNormalization", since=18, shape=lambda node: node.shape(0))
def group_normalization(node: Node, emit: Emitter, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    shape, groups = node.shape(0), node.attribute("num_groups")
    rows = emit.reshape(emit.wide(x), (shape[0], groups, prod(shape[1:]) // groups))
    mean, variance = moments(emit, rows, (2,))
    y = _normalized(emit, rows, mean, variance, node.attribute("epsilon", 1e-5))
    scale, bias = (emit.wide(t) for t in (scale, bias))
    if node.version < 21:  # one value for each group
        y = emit.pointwise("MUL", y, emit.reshape(scale, (1, groups, 1)))
        y = emit.pointwise("ADD", y, emit.reshape(bias, (1, groups, 1)))
        return emit.convert(emit.reshape(y, shape), type_of(x))
    y = emit.reshape(y, shape)
    y = emit.pointwise("MUL", y, per_channel(emit, scale, len(shape)))
    return emit.pointwise("ADD", y, per_channel(emit, bias, len(shape)), to=type_of(x))


@operator("LayerNormalization", since=17)
def layer_normalization(
    node: Node, emit: Emitter, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> list[Tensor]:
    axes = tuple(range(node.axis(-1), node.rank(0)))
    wide = emit.wide(x)
    mean, variance = moments(emit, wide, axes)
    inverse = emit.pointwise("RSQRT", emit.pointwise("ADD", variance, node.attribute("epsilon", 1e-5)))
    y = emit.pointwise("MUL", emit.pointwise("SUB", wide, mean), inverse)
    y = emit.pointwise("MUL", emit.convert(y, type_of(x)), scale)
    y = y if bias is None else emit.pointwise("ADD", y, bias)
    found = [y]
    for index, statistic in ((1, mean), (2, inverse)):
        if node.gives(index):
            found.append(emit.convert(statistic, node.result_type(index).carrier))
    return found


@operator("RMSNormalization", since=23)
def rms_normalization(node: Node, emit: Emitter, x: Tensor, scale: Tensor) -> Tensor:
    axes = tuple(range(node.axis(-1), node.rank(0)))
    wide = emit.wide(x)
    square = emit.reduce(emit.pointwise("MUL", wide, wide), "AVG", axes)
    inverse = emit.pointwise("RSQRT", emit.pointwise("ADD", square, node.attribute("epsilon", 1e-5)))
    y = emit.pointwise("MUL", wide, inverse, to=type_of(x))
    return emit.pointwise("MUL", y, scale, to=node.result_type().carrier)


@operator("LRN")
def local_response_normalization(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    """Sums over neighbouring channels: slices of the padded squares."""
    size = node.attribute("size")
    wide = emit.wide(x)
    squares = emit.pointwise("MUL", wide, wide)
    before = (size - 1) // 2
    padded = emit.padded(squares, 1, before, size - 1 - before, 0.0)
    channels = node.shape(0)[1]
    total = emit.part(padded, 1, 0, channels)
    for i in range(1, size):
        total = emit.pointwise("ADD", total, emit.part(padded, 1, i, i + channels))
    base = emit.pointwise("MUL", total, node.attribute("alpha", 1e-4) / size)
    base = emit.pointwise("ADD", base, node.attribute("bias", 1.0))
    return emit.pointwise("DIV", wide, emit.pointwise("POW", base, node.attribute("beta", 0.75)), to=type_of(x))


@operator("LpNormalization")
def lp_normalization(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    wide, axis = emit.wide(x), node.axis(-1)
    if node.attribute("p", 2) == 1:
        norm = emit.reduce(wide, "NORM1", (axis,))
    else:
        norm = emit.pointwise("SQRT", emit.reduce(emit.pointwise("MUL", wide, wide), "ADD", (axis,)))
    is_zero = emit.pointwise("CMP_EQ", norm, 0.0)
    return emit.pointwise("DIV", wide, emit.select(is_zero, emit.constant_like(norm, 1), norm), to=type_of(x))


# Softmax.


def _rows(node: Node, emit: Emitter, x: Tensor) -> tuple[Tensor, int]:
    """The input and its axis: before version 13, all axes from the given one on are one axis."""
    shape, axis = node.shape(0), node.axis(1 if node.version < 13 else -1)
    if node.version >= 13 or not shape:
        return x, axis
    return emit.reshape(x, (prod(shape[:axis]), prod(shape[axis:]))), 1


def _shifted(emit: Emitter, x: Tensor, axis: int) -> Tensor:
    return emit.pointwise("SUB", x, emit.reduce(x, "MAX", (axis,)))


@operator("Softmax")
def softmax(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    rows, axis = _rows(node, emit, x)
    powers = emit.pointwise("EXP", _shifted(emit, emit.wide(rows), axis))
    y = emit.pointwise("DIV", powers, emit.reduce(powers, "ADD", (axis,)), to=type_of(x))
    return emit.reshape(y, node.result_shape())


@operator("LogSoftmax")
def log_softmax(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    rows, axis = _rows(node, emit, x)
    shifted = _shifted(emit, emit.wide(rows), axis)
    total = emit.reduce(emit.pointwise("EXP", shifted), "ADD", (axis,))
    y = emit.pointwise("SUB", shifted, emit.pointwise("LOG", total), to=type_of(x))
    return emit.reshape(y, node.result_shape())


@operator("Hardmax")
def hardmax(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    rows, axis = _rows(node, emit, x)
    dims = rows.dim or ()
    wide, positions = emit.wide(rows), emit.index(dims, axis)
    is_top = emit.pointwise("CMP_EQ", wide, emit.reduce(wide, "MAX", (axis,)))
    first = emit.reduce(emit.select(is_top, positions, dims[axis]), "MIN", (axis,))
    return emit.reshape(emit.convert(emit.pointwise("CMP_EQ", positions, first), type_of(x)), node.result_shape())
