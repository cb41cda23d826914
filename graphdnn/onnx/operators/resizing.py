"""Resize and Upsample: an axis is interpolated by a matrix, or by elements that repeat."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import OneOf
from graphdnn.dtypes import Array
from graphdnn.enums import PaddingMode, ResampleMode
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator

_ROUNDINGS = {
    "round_prefer_floor": lambda x: ceil(x - 0.5),
    "round_prefer_ceil": lambda x: floor(x + 0.5),
    "floor": floor,
    "ceil": ceil,
    "simple": floor,
}
_MODES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)  # fmt: skip


def _position(mode: str, o: int, extent: int, length: int, scale: float, roi: tuple[float, float]) -> float:
    """Where output o lies among the elements of the input. Source: the ONNX operator Resize."""
    if mode == "asymmetric":
        return o / scale
    if mode == "align_corners":
        wide = scale * extent
        return 0.0 if wide == 1 else o * (extent - 1) / (wide - 1)
    if mode == "tf_crop_and_resize":
        start, end = roi
        if length > 1:
            return start * (extent - 1) + o * (end - start) * (extent - 1) / (length - 1)
        return 0.5 * (start + end) * (extent - 1)
    if mode == "pytorch_half_pixel" and length == 1:
        return 0.0
    if mode == "half_pixel_symmetric":
        adjustment = length / (scale * extent)
        return extent / 2 * (1 - adjustment) + (o + 0.5) / scale - 0.5
    return (o + 0.5) / scale - (0.0 if mode == "tf_half_pixel_for_nn" else 0.5)


def _linear(distance: Array) -> Array:
    return np.asarray(np.clip(1 - np.abs(distance), 0, 1))


def _cubic(a: float, distance: Array) -> Array:
    """Keys' kernel. Source: Keys, "Cubic convolution interpolation for digital image processing", 1981."""
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.asarray(np.where(x <= 1, near, np.where(x < 2, far, 0.0)))


def _row(node: Node, x: float, extent: int, scale: float) -> Array:
    """Weights of all elements for the position x. Taps beyond the ends repeat the edge, or are left out."""
    row = np.zeros(extent)
    if node.attribute("coordinate_transformation_mode") == "tf_crop_and_resize" and not 0 <= x <= extent - 1:
        return row
    squeeze = min(scale, 1.0) if node.attribute("antialias", 0) else 1.0
    is_cubic = node.attribute("mode") == "cubic"
    reach = ceil((2 if is_cubic else 1) / squeeze)
    taps = np.arange(floor(x) - reach + 1, floor(x) + reach + 1)
    distance = (taps - x) * squeeze
    weights = _cubic(node.attribute("cubic_coeff_a", -0.75), distance) if is_cubic else _linear(distance)
    if node.attribute("exclude_outside", 0):
        weights = np.where((taps >= 0) & (taps < extent), weights, 0.0)
    if node.attribute("exclude_outside", 0) or squeeze < 1.0:
        weights = weights / weights.sum()
    np.add.at(row, np.clip(taps, 0, extent - 1), weights)
    return row


def _scales(node: Node) -> list[float]:
    """The scale of each axis: as given, or the quotient of the extents."""
    rank = node.rank(0)
    found = [out / extent for out, extent in zip(node.result_shape(), node.shape(0), strict=True)]
    given = node.attribute("scales") if node.version < 9 and node.op_type == "Upsample" else _given_scales(node)
    axes = node.axes(node.attribute("axes"), rank) or tuple(range(rank))
    if given is None or not len(given):
        return _kept_aspect(node, found, axes)
    for axis, scale in zip(axes, given, strict=True):
        found[axis] = float(scale)
    return found


def _kept_aspect(node: Node, scales: list[float], axes: Sequence[int]) -> list[float]:
    """With ``keep_aspect_ratio_policy`` one scale serves all axes, before extents are rounded."""
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    sizes = node.integers(3) or []
    if policy == "stretch" or not sizes:
        return scales
    wanted = [size / node.shape(0)[a] for a, size in zip(axes, sizes, strict=True)]
    common = min(wanted) if policy == "not_larger" else max(wanted)
    return [common if a in axes else s for a, s in enumerate(scales)]


def _given_scales(node: Node) -> Array | None:
    place = 1 if node.op_type == "Upsample" or node.version < 11 else 2
    return node.constant(place)


def _roi(node: Node, axis: int) -> tuple[float, float]:
    roi = node.constant(1) if node.version >= 11 and node.op_type == "Resize" else None
    axes = node.axes(node.attribute("axes"), node.rank(0)) or tuple(range(node.rank(0)))
    if roi is None or roi.size == 0 or axis not in axes:
        return 0.0, 1.0
    place = axes.index(axis)
    return float(roi[place]), float(roi[place + len(axes)])


def _mode(node: Node) -> str:
    default = "half_pixel" if node.op_type == "Resize" and node.version >= 11 else "asymmetric"
    return str(node.attribute("coordinate_transformation_mode", default))


def _positions(node: Node, axis: int, scale: float) -> list[float]:
    extent, length = node.shape(0)[axis], node.result_shape()[axis]
    return [_position(_mode(node), o, extent, length, scale, _roi(node, axis)) for o in range(length)]


@operator(
    "Resize",
    "Upsample",
    since=7,
    by_value=(1, 2, 3),
    needs=(
        Need("coordinate_transformation_mode", _mode, OneOf(*_MODES), "these are the modes of ONNX"),
        Need("mode", lambda node: node.attribute("mode", "nearest"), OneOf("nearest", "linear", "bilinear", "cubic"),
             "these are the modes of ONNX"),
    ),
)  # fmt: skip
def resize(node: Node, emit: Emitter, x: Tensor, *_: None) -> Tensor:
    scales, shape = _scales(node), node.shape(0)
    crops = _mode(node) == "tf_crop_and_resize"
    axes = [a for a, s in enumerate(scales) if s != 1.0 or node.result_shape()[a] != shape[a] or crops]
    if node.attribute("mode", "nearest") == "nearest":
        for axis in axes:
            x = _nearest(node, emit, x, axis, scales[axis])
        return x
    fast = _by_resample(node, emit, x, scales)
    if fast is not None:
        return fast
    kind = type_of(x)
    y = emit.convert(x, emit.float_of(x))
    outside = np.zeros(())
    for axis in axes:
        positions = _positions(node, axis, scales[axis])
        matrix = np.stack([_row(node, p, shape[axis], scales[axis]) for p in positions])
        y = _along(emit, y, axis, matrix)
        if crops:
            mask = np.array([not 0 <= p <= shape[axis] - 1 for p in positions])
            outside = outside + mask.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    if outside.any():
        value = node.attribute("extrapolation_value", 0.0)
        y = emit.select(emit.constant(np.broadcast_to(outside != 0, node.result_shape())), value, y)
    return emit.convert(y, kind) if node.result_type().is_float else emit.truncated(y, node.result_type())


def _nearest(node: Node, emit: Emitter, x: Tensor, axis: int, scale: float) -> Tensor:
    legacy = node.op_type == "Upsample" or node.version < 11
    rounding = _ROUNDINGS["floor" if legacy else node.attribute("nearest_mode", "round_prefer_floor")]
    extent = node.shape(0)[axis]
    positions = [min(max(rounding(p), 0), extent - 1) for p in _positions(node, axis, scale)]
    count, rest = divmod(len(positions), extent)
    if not rest and positions == [i for i in range(extent) for _ in range(count)]:
        dims = list(x.dim or ())
        split = emit.reshape(x, (*dims[: axis + 1], 1, *dims[axis + 1 :]))
        wide = emit.expand(split, (*dims[: axis + 1], count, *dims[axis + 1 :]))
        return emit.reshape(wide, (*dims[:axis], extent * count, *dims[axis + 1 :]))
    return emit.taken(x, axis, positions)


def _along(emit: Emitter, x: Tensor, axis: int, matrix: Array) -> Tensor:
    """The matrix [outputs, inputs] applied along an axis."""
    dims = list(x.dim or ())
    before, behind = int(np.prod(dims[:axis])), int(np.prod(dims[axis + 1 :]))
    flat = emit.reshape(x, (before, dims[axis], behind))
    weights = emit.constant(matrix[None], type_of(x))
    return emit.reshape(emit.matmul(weights, flat), (*dims[:axis], len(matrix), *dims[axis + 1 :]))


def _by_resample(node: Node, emit: Emitter, x: Tensor, scales: Sequence[float]) -> Tensor | None:
    """Bilinear upsampling of images with half-pixel centres, which the engines have an operation for."""
    rank, shape, out = node.rank(0), node.shape(0), node.result_shape()
    plain = _mode(node) in ("half_pixel", "pytorch_half_pixel") and not node.attribute("exclude_outside", 0)
    if not plain or rank < 3 or rank > 5 or node.attribute("mode") != "linear" or shape[:2] != out[:2]:
        return None
    strides = [Fraction(a, b) for a, b in zip(shape[2:], out[2:], strict=True)]
    exact = all(s == b / a for s, a, b in zip(scales[2:], shape[2:], out[2:], strict=True))
    if not exact or max(strides) > 1 or min(out[2:]) < 2 or not node.type(0).is_float:
        return None
    y, _ = emit.graph.resample(
        x, ResampleMode.BILINEAR, window=[2] * (rank - 2), stride=strides, pre_padding=[Fraction(1, 2)] * (rank - 2),
        post_padding=[Fraction(3, 2) - s for s in strides], padding_mode=PaddingMode.EDGE_VAL_PAD,
        compute_data_type=emit.arithmetic_of(x), name=emit.label,
    )  # fmt: skip
    assert y is not None
    return y.set_data_type(type_of(x))
