"""Pooling with windows."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import AtMost, OneOf
from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import DataType, PaddingMode, ResampleMode
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator
from graphdnn.onnx.operators.windows import SPATIAL, Windows, windows_of

_TAPS = Need(
    "extents of a dilated window",
    lambda node: sum(node.attribute("kernel_shape")) if _is_by_taps(node) else None,
    AtMost(512),
    "a dilated window is the maximum or the sum of one slice for each element of its axes",
)
_PLACES = Need(
    "elements of the window",
    lambda node: prod(node.attribute("kernel_shape")) if node.gives(1) else None,
    AtMost(256),
    "the position of a maximum is found among one slice for each element of the window",
)


def _pooled(node: Node) -> tuple[int, ...]:
    """Extents of the result. A window that would start behind the input is no window, also where extents round up."""
    how, found = windows_of(node, node.attribute("kernel_shape")), []
    ceil = bool(node.attribute("ceil_mode", 0))
    axes = zip(node.shape(0)[2:], how.reach, how.strides, how.pre, how.post, strict=True)
    for extent, reach, stride, pre, post in axes:
        steps, rest = divmod(extent + pre + post - reach, stride)
        count = steps + 1 + (ceil and rest > 0)
        found.append(count - (ceil and (count - 1) * stride >= extent + pre))
    return (*node.shape(0)[:2], *found)


def _is_by_taps(node: Node) -> bool:
    return bool(max(node.attribute("dilations", (1,))) > 1)


def _windows(node: Node) -> Windows:
    """With the padding behind that ``ceil_mode`` adds."""
    how = windows_of(node, node.attribute("kernel_shape"))
    post = how.beyond(node.shape(0)[2:], node.result_shape()[2:])
    return Windows(how.window, how.strides, how.dilations, how.pre, post)


def _taps(node: Node, emit: Emitter, x: Tensor, how: Windows, fill: float) -> list[Tensor]:
    """One slice of the padded input for each element of the window."""
    for axis, (pre, post) in enumerate(zip(how.pre, how.post, strict=True)):
        x = emit.padded(x, axis + 2, pre, post, fill)
    outputs = node.result_shape()[2:]
    found = []
    for offsets in product(*map(range, how.window)):
        cuts = [slice(None), slice(None)]
        for offset, q, stride, dilation in zip(offsets, outputs, how.strides, how.dilations, strict=True):
            start = offset * dilation
            cuts.append(slice(start, start + (q - 1) * stride + 1, stride))
        found.append(emit.slice(x, cuts))
    return found


def _by_axes(node: Node, emit: Emitter, x: Tensor, how: Windows, fill: float, mode: str) -> Tensor:
    """The maximum or the sum over a dilated window, along one axis after the other."""
    for axis, q in enumerate(node.result_shape()[2:]):
        x = emit.padded(x, axis + 2, how.pre[axis], how.post[axis], fill)
        reach = (q - 1) * how.strides[axis] + 1
        parts = [
            emit.part(x, axis + 2, i * how.dilations[axis], i * how.dilations[axis] + reach, how.strides[axis])
            for i in range(how.window[axis])
        ]
        x = parts[0]
        for part in parts[1:]:
            x = emit.pointwise(mode, x, part)
    return x


def _resample(emit: Emitter, x: Tensor, mode: ResampleMode, how: Windows, kind: DataType) -> Tensor:
    padding = PaddingMode.NEG_INF_PAD if mode is ResampleMode.MAXPOOL else PaddingMode.ZERO_PAD
    y, _ = emit.graph.resample(
        x, mode, window=how.window, stride=how.strides, pre_padding=how.pre, post_padding=how.post,
        padding_mode=padding, compute_data_type=emit.arithmetic_of(x), name=emit.label,
    )  # fmt: skip
    assert y is not None
    return y.set_data_type(kind)


@operator(
    "MaxPool",
    shape=_pooled,
    needs=(
        SPATIAL,
        _TAPS,
        _PLACES,
        Need("storage_order", lambda node: node.attribute("storage_order", 0) if node.gives(1) else None, OneOf(0, 1),
             "these are the orders of ONNX"),
        Need("elements of a plane", lambda node: prod(node.shape(0)) if node.gives(1) else None, AtMost(2**31),
             "positions are computed in INT64"),
    ),
)  # fmt: skip
def max_pool(node: Node, emit: Emitter, x: Tensor) -> Tensor | list[Tensor]:
    how = _windows(node)
    kind = type_of(x)
    if not node.gives(1) and not _is_by_taps(node):
        return _resample(emit, x, ResampleMode.MAXPOOL, how, kind)
    lowest = -np.inf if ELEMENTS[kind].kind == "float" else ELEMENTS[kind].smallest
    if not node.gives(1):
        return _by_axes(node, emit, x, how, lowest, "MAX")
    taps = _taps(node, emit, x, how, lowest)
    best = taps[0]
    for tap in taps[1:]:
        best = emit.pointwise("MAX", best, tap)
    places = _taps(node, emit, emit.constant(_positions(node), DataType.INT64), how, -1)
    index: Tensor | None = None
    for tap, place in zip(reversed(taps), reversed(places), strict=True):  # the first maximum stays
        index = place if index is None else emit.select(emit.pointwise("CMP_EQ", tap, best), place, index)
    assert index is not None
    return [best, emit.expand(index, node.result_shape(1))]


def _positions(node: Node) -> np.ndarray:
    """Positions in the whole input, in row-major order or with the spatial axes in column-major order."""
    shape = node.shape(0)
    if node.attribute("storage_order", 0):
        planes = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *(1,) * (len(shape) - 2)) * prod(shape[2:])
        return np.asarray(planes + np.arange(prod(shape[2:])).reshape(shape[2:][::-1]).T)
    return np.arange(prod(shape)).reshape(shape)


@operator("AveragePool", shape=_pooled, needs=(SPATIAL, _TAPS))
def average_pool(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    declared, how = windows_of(node, node.attribute("kernel_shape")), _windows(node)
    includes = bool(node.attribute("count_include_pad", 0))
    if not _is_by_taps(node) and (not includes or declared.post == how.post):
        mode = ResampleMode.AVGPOOL_INCLUDE_PADDING if includes else ResampleMode.AVGPOOL_EXCLUDE_PADDING
        return _resample(emit, x, mode, how, type_of(x))
    total = _by_axes(node, emit, emit.wide(x), how, 0.0, "ADD")
    counts = _counts(node, declared, how, includes)
    return emit.pointwise("DIV", total, emit.constant(counts, type_of(total)), to=type_of(x))


def _counts(node: Node, declared: Windows, how: Windows, includes: bool) -> np.ndarray:
    """Elements that each window averages: those of the input, and of the declared padding if it is included."""
    found = np.ones((1, 1, *node.result_shape()[2:]))
    axes = zip(node.shape(0)[2:], node.result_shape()[2:], how.window, how.strides, how.dilations, strict=True)
    for axis, (extent, q, r, stride, dilation) in enumerate(axes):
        starts = np.arange(q) * stride - how.pre[axis]
        taps = starts[:, None] + np.arange(r) * dilation
        low, high = (-declared.pre[axis], extent + declared.post[axis]) if includes else (0, extent)
        counts = ((taps >= low) & (taps < high)).sum(axis=1)
        found = found * counts.reshape([-1 if a == axis + 2 else 1 for a in range(found.ndim)])
    return np.maximum(found, 1)


@operator("LpPool", since=2, shape=_pooled, needs=(SPATIAL, _TAPS))
def lp_pool(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    """The p-th root of a sum: an average with padding times the volume of the window."""
    how, p = _windows(node), float(node.attribute("p", 2))
    powers = emit.pointwise("POW", emit.pointwise("ABS", emit.wide(x)), p)
    if _is_by_taps(node):
        total = _by_axes(node, emit, powers, how, 0.0, "ADD")
    else:
        average = _resample(emit, powers, ResampleMode.AVGPOOL_INCLUDE_PADDING, how, type_of(powers))
        total = emit.pointwise("MUL", average, float(prod(how.window)))
    return emit.pointwise("POW", total, 1.0 / p, to=type_of(x))
