"""Windows that are written back to an image: Col2Im and MaxUnpool."""

from __future__ import annotations

from math import prod

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import AtMost
from graphdnn.enums import DataType
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator

_MOST_PAIRS = 2**24


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
