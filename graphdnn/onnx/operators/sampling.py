"""GridSample: positions are mapped to the convention of the engine, whose samples are bilinear with zeros outside."""

from __future__ import annotations

from graphdnn.builder import Tensor
from graphdnn.checks import Equals, OneOf
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator


@operator(
    "GridSample",
    since=16,
    needs=(
        Need("rank of the input", lambda node: node.rank(0), Equals(4), "the engines sample images of two axes"),
        Need("mode", lambda node: node.attribute("mode", "linear"), OneOf("linear", "bilinear", "nearest"),
             "the engines have no cubic samples"),
    ),
)  # fmt: skip
def grid_sample(node: Node, emit: Emitter, x: Tensor, grid: Tensor) -> Tensor:
    kind = type_of(x)
    parts = []
    for place in (0, 1):  # x along the width, y along the height
        axis = 3 - place
        extent = node.shape(0)[axis]
        position = _position(node, emit, emit.wide(emit.part(grid, 3, place, place + 1)), extent)
        if node.attribute("mode", "linear") == "nearest":
            position = emit.rounded(position)
        if extent == 1:  # a second row of zeros, so that positions have a scale
            x = emit.padded(x, axis, 0, 1, 0.0)
        parts.append(_affine(emit, position, 2.0 / max(extent - 1, 1), -1.0))
    mapped = emit.concat(parts, 3)
    y = emit.graph.grid_sample(x, mapped, compute_data_type=emit.arithmetic_of(mapped), name=emit.label)
    return y.set_data_type(kind)


def _affine(emit: Emitter, x: Tensor, factor: float, offset: float) -> Tensor:
    return emit.pointwise("ADD", emit.pointwise("MUL", x, factor), offset)


def _position(node: Node, emit: Emitter, grid: Tensor, extent: int) -> Tensor:
    """Positions in elements, with the padding mode applied."""
    corners = bool(node.attribute("align_corners", 0))
    half = (extent - 1) / 2 if corners else extent / 2
    position = _affine(emit, grid, half, half if corners else half - 0.5)
    mode = node.attribute("padding_mode", "zeros")
    if mode == "reflection":
        position = _reflected(emit, position, *((0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)))
    if mode in ("border", "reflection"):
        position = emit.pointwise("RELU_FWD", position, relu_upper_clip=float(extent - 1))
    return position


def _reflected(emit: Emitter, x: Tensor, low: float, high: float) -> Tensor:
    """Mirrored at both ends until it lies between them."""
    span = high - low
    if span <= 0:
        return emit.pointwise("MUL", x, 0.0)
    phase = emit.pointwise("FLOOR_MOD", emit.pointwise("SUB", x, low), 2 * span)
    back = emit.pointwise("ADD", emit.pointwise("NEG", phase), 2 * span)
    return emit.pointwise("ADD", emit.pointwise("MIN", phase, back), low)
