"""Conv and ConvTranspose."""

from __future__ import annotations

from graphdnn.builder import Tensor
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import operator
from graphdnn.onnx.operators.windows import SPATIAL, windows_of


@operator("Conv", needs=(SPATIAL,))
def conv(node: Node, emit: Emitter, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    how = windows_of(node, node.shape(1)[2:])
    y = emit.graph.conv_fprop(
        x, w, stride=how.strides, dilation=how.dilations, pre_padding=how.pre, post_padding=how.post,
        compute_data_type=emit.arithmetic_of(x), name=node.name,
    )  # fmt: skip
    if b is None:
        return y.set_data_type(type_of(x))
    y.set_data_type(emit.arithmetic_of(x))  # rounded once, behind the bias
    return emit.pointwise("ADD", y, per_channel(emit, b, node.rank(0)), to=type_of(x))


@operator("ConvTranspose", needs=(SPATIAL,))
def conv_transpose(node: Node, emit: Emitter, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    shape, extents, window = node.result_shape(), node.shape(0)[2:], node.shape(1)[2:]
    pads = _transposed_pads(node, window)
    strides = tuple(node.attribute("strides", (1,) * len(window)))
    dilations = tuple(node.attribute("dilations", (1,) * len(window)))
    count = len(window)
    # The forward convolution of the result may read beyond it or leave out its end: output_padding in ONNX's words.
    reads = [(p - 1) * s + d * (r - 1) + 1 for p, s, d, r in zip(extents, strides, dilations, window, strict=True)]
    post = [reach - y - pre for reach, y, pre in zip(reads, shape[2:], pads[:count], strict=True)]
    short = [max(0, -p) for p in post]  # elements behind that no window reads
    full = [y - cut for y, cut in zip(shape[2:], short, strict=True)]
    y = emit.graph.conv_dgrad(
        x, w, stride=strides, dilation=dilations, pre_padding=pads[:count], post_padding=[max(0, p) for p in post],
        compute_data_type=emit.arithmetic_of(x), name=node.name,
    ).set_dim((*shape[:2], *full)).set_data_type(type_of(x))  # fmt: skip
    for axis, cut in enumerate(short):
        y = emit.padded(y, axis + 2, 0, cut, 0.0)
    return y if b is None else emit.pointwise("ADD", y, per_channel(emit, b, node.rank(0)))


def _transposed_pads(node: Node, window: tuple[int, ...]) -> tuple[int, ...]:
    """Paddings before, then behind. ``output_shape`` and ``auto_pad`` split what is cut off."""
    count = len(window)
    mode = node.attribute("auto_pad", "NOTSET")
    if mode in ("NOTSET", "") and not node.attribute("output_shape"):
        return tuple(node.attribute("pads", (0,) * 2 * count))
    if mode == "VALID" and not node.attribute("output_shape"):
        return (0,) * 2 * count
    strides = node.attribute("strides", (1,) * count)
    dilations = node.attribute("dilations", (1,) * count)
    extra = node.attribute("output_padding", (0,) * count)
    shape = node.result_shape()[2:]
    axes = zip(node.shape(0)[2:], strides, dilations, window, extra, shape, strict=True)
    totals = [s * (x - 1) + e + d * (r - 1) + 1 - y for x, s, d, r, e, y in axes]
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)


def per_channel(emit: Emitter, values: Tensor, rank: int) -> Tensor:
    """A vector of one value for each channel of [N, C, ...]."""
    return emit.reshape(values, (1, -1 if values.dim is None else values.dim[0], *(1,) * (rank - 2)))
