"""Operators that move elements: reshapes, transposes, joins, repetition, blocks."""

from __future__ import annotations

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import OneOf
from graphdnn.onnx.emitter import Emitter
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator


@operator("Identity")
def identity(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return x


@operator("Reshape", since=5, by_value=(1,))
def reshape(node: Node, emit: Emitter, x: Tensor, _: None) -> Tensor:
    return emit.reshape(x, node.result_shape())


@operator("Flatten")
def flatten(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.reshape(x, node.result_shape())


@operator("Squeeze", "Unsqueeze", until=12)
def squeeze_by_attribute(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.reshape(x, node.result_shape())


@operator("Squeeze", "Unsqueeze", since=13, by_value=(1,))
def squeeze(node: Node, emit: Emitter, x: Tensor, _: None = None) -> Tensor:
    return emit.reshape(x, node.result_shape())


@operator("Transpose")
def transpose(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    rank = node.rank(0)
    return emit.transpose(x, node.attribute("perm", tuple(range(rank))[::-1])) if rank else x


@operator("Concat")
def concat(node: Node, emit: Emitter, *operands: Tensor) -> Tensor:
    given = [t for i, t in enumerate(operands) if not node.value(i).is_empty]
    axis = node.attribute("axis", 1)
    return emit.concat(given, axis % len(node.result_shape()))


@operator("Split", by_value=(1,))
def split(node: Node, emit: Emitter, x: Tensor, _: None = None) -> list[Tensor | None]:
    axis, start = node.axis(0), 0
    found: list[Tensor | None] = []
    for index in range(len(node.outputs)):
        extent = node.result_shape(index)[axis] if node.gives(index) else 0
        found.append(emit.part(x, axis, start, start + extent) if extent else None)
        start += extent
    return found


@operator("Expand", since=8, by_value=(1,))
def expand(node: Node, emit: Emitter, x: Tensor, _: None) -> Tensor:
    return emit.expand(x, node.result().dims)


@operator("Tile", since=6, by_value=(1,))
def tile(node: Node, emit: Emitter, x: Tensor, _: None) -> Tensor:
    for axis, count in enumerate(node.integers(1) or ()):
        x = emit.concat([x] * count, axis)
    return x


@operator("Dropout", until=11)
def dropout_by_attribute(node: Node, emit: Emitter, x: Tensor) -> list[Tensor]:
    return [x, *_kept(node, emit)]


def _draws(node: Node) -> bool:
    """Whether random numbers decide what is kept: in training, unless the ratio is 0."""
    ratio, training = node.constant(1), node.constant(2)
    return training is not None and bool(training.reshape(-1)[0]) and (ratio is None or bool(ratio.reshape(-1)[0]))


@operator(
    "Dropout",
    since=12,
    by_value=(1, 2),
    needs=(
        Need(
            "training_mode",
            _draws,
            OneOf(False),
            "the random numbers of ONNX's generators are not specified",
            "export the model for inference",
        ),
    ),
)
def dropout(node: Node, emit: Emitter, x: Tensor, *_: None) -> list[Tensor]:
    return [x, *_kept(node, emit)]


def _kept(node: Node, emit: Emitter) -> list[Tensor]:
    """The mask of what is kept: all."""
    if not node.gives(1):
        return []
    return [emit.constant(np.ones(node.result(1).dims), node.result_type(1).carrier)]


@operator("DepthToSpace")
def depth_to_space(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    n, c, h, w = node.shape(0)
    block = node.attribute("blocksize")
    depth = c // block**2
    if node.attribute("mode", "DCR") == "DCR":
        parts, order = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    return emit.reshape(emit.transpose(emit.reshape(x, parts), order), node.result_shape())


@operator("SpaceToDepth")
def space_to_depth(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    n, c, h, w = node.shape(0)
    block = node.attribute("blocksize")
    parts = emit.reshape(x, (n, c, h // block, block, w // block, block))
    order = (0, 3, 5, 1, 2, 4) if node.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return emit.reshape(emit.transpose(parts, order), node.result_shape())


@operator("ConstantOfShape", since=9, by_value=(0,))
def constant_of_shape(node: Node, emit: Emitter, _: None) -> Tensor:
    raise ValueError("the extents are not constant, or the value is no number")
