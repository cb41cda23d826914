"""Operators that move elements: reshapes, transposes, slices, joins, padding, selection by position."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import AtMost, OneOf
from graphdnn.enums import DataType
from graphdnn.onnx.element_types import BY_NAME
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator

_MOST_RUNS = 512
_INT64 = BY_NAME["INT64"]


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


# Slices.


def _cuts(node: Node) -> list[slice]:
    """A Python slice for each axis."""
    rank, found = node.rank(0), [slice(None)] * node.rank(0)
    if node.version < 10:
        starts, ends = node.attribute("starts"), node.attribute("ends")
        axes, steps = node.attribute("axes"), None
    else:
        starts, ends, axes, steps = (node.integers(i) for i in range(1, 5))
    axes = node.axes(axes, rank) or range(len(starts))
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        found[axis] = slice(*_bounds(node.shape(0)[axis], start, end, step))
    return found


def _bounds(extent: int, start: int, end: int, step: int) -> tuple[int, int | None, int]:
    """Bounds as Python reads them. ONNX moves a bound that lies outside to the next end, for negative steps as well."""
    first, last = (bound + extent if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return min(max(first, 0), extent), min(max(last, 0), extent), step
    last = min(max(last, -1), extent - 1)
    return min(max(first, 0), extent - 1), (None if last < 0 else last), step


@operator(
    "Slice",
    by_value=(1, 2, 3, 4),
    needs=(
        Need(
            "extent of an axis with a negative step",
            lambda node: max((node.shape(0)[a] for a, s in enumerate(_cuts(node)) if (s.step or 1) < 0), default=0),
            AtMost(_MOST_RUNS),
            "slices run forward, so a reversed axis is joined of its elements",
        ),
    ),
)
def slice_(node: Node, emit: Emitter, x: Tensor, *_: None) -> Tensor:
    cuts = _cuts(node)
    x = emit.slice(x, [s if (s.step or 1) > 0 else slice(None) for s in cuts]) if cuts else x
    for axis, cut in enumerate(cuts):
        if (cut.step or 1) < 0:
            x = emit.taken(x, axis, range(node.shape(0)[axis])[cut])
    return x


@operator("ReverseSequence", by_value=(1,))
def reverse_sequence(node: Node, emit: Emitter, x: Tensor, _: None) -> Tensor:
    batch, time = node.attribute("batch_axis", 1), node.attribute("time_axis", 0)
    rows = []
    for i, length in enumerate(node.integers(1) or ()):
        row = emit.part(x, batch, i, i + 1)
        rows.append(emit.taken(row, time, [*range(length)[::-1], *range(length, node.shape(0)[time])]))
    return emit.concat(rows, batch)


# Padding.


def pads_of(node: Node) -> tuple[list[int], list[int]]:
    """Elements before and behind each axis."""
    rank = node.rank(0)
    pads = list(node.attribute("pads") or node.integers(1) or ())
    before, behind = [0] * rank, [0] * rank
    axes = node.axes(node.integers(3), rank) or tuple(range(rank))
    for place, axis in enumerate(axes):
        before[axis], behind[axis] = pads[place], pads[place + len(axes)]
    return before, behind


@operator(
    "Pad",
    since=2,
    by_value=(1, 2, 3),
    needs=(Need("mode", lambda node: node.attribute("mode", "constant"),
                OneOf("constant", "edge", "reflect", "wrap"), "these are the modes of ONNX"),),
)  # fmt: skip
def pad(node: Node, emit: Emitter, x: Tensor, *_: None) -> Tensor:
    before, behind = pads_of(node)
    mode = node.attribute("mode", "constant")
    given = node.constant(2)
    value = node.attribute("value", 0.0) if given is None else given.reshape(-1)[0]
    cuts = [slice(max(0, -b), d - max(0, -e)) for b, e, d in zip(before, behind, node.shape(0), strict=True)]
    x = emit.slice(x, cuts) if cuts else x
    for axis in range(len(before)):
        front, back = max(0, before[axis]), max(0, behind[axis])
        if not front and not back:
            continue
        if mode == "constant":
            x = emit.padded(x, axis, front, back, value)
        else:
            extent = (x.dim or ())[axis]
            x = emit.taken(x, axis, _mirrored(mode, extent, front, back))
    return x


def _mirrored(mode: str, extent: int, front: int, back: int) -> list[int]:
    """The positions that padded elements repeat."""
    numpy_mode = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}[mode]
    return [int(i) for i in np.pad(np.arange(extent), (front, back), mode=numpy_mode)]  # type: ignore[call-overload]


# Blocks.


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


# Positions that are data: a comparison of positions selects the elements.

_MOST_PAIRS = 2**24
_CONSTANT_RUNS = 256


def _pairs(node: Node) -> int | None:
    """Elements of the comparison of positions with indices."""
    if node.constant(1) is not None and len(node.integers(1) or ()) <= _CONSTANT_RUNS and node.op_type == "Gather":
        return None
    axis = node.axis(0)
    extent = node.shape(0)[axis]
    elements = prod(node.shape(0)) * prod(node.shape(1))
    return elements if node.op_type == "Gather" else prod(node.shape(1)) * extent


_FEW_PAIRS = Need(
    "elements compared",
    _pairs,
    AtMost(_MOST_PAIRS),
    "positions that are data are compared with every position of the axis",
    "make the indices constant, or pass fallback='reference'",
)


@operator("Gather", needs=(_FEW_PAIRS,))
def gather(node: Node, emit: Emitter, x: Tensor, indices: Tensor) -> Tensor:
    axis, shape = node.axis(0), node.shape(0)
    extent = shape[axis]
    known = node.integers(1)
    if known is not None and len(known) <= _CONSTANT_RUNS:
        return emit.reshape(emit.taken(x, axis, [i % extent for i in known]), node.result_shape())
    before, behind = prod(shape[:axis]), prod(shape[axis + 1 :])
    count = prod(node.shape(1))
    columns = emit.reshape(x, (before, 1, extent, behind))
    chosen = emit.reshape(nonnegative(emit, indices, extent), (1, count, 1, 1))
    return emit.reshape(picked(emit, columns, chosen, 2), node.result_shape())


@operator("GatherElements", needs=(_FEW_PAIRS,))
def gather_elements(node: Node, emit: Emitter, x: Tensor, indices: Tensor) -> Tensor:
    axis, shape = node.axis(0), node.shape(0)
    extent, wanted = shape[axis], node.shape(1)
    # Positions off the axis are the same in both: x is cut to the indices, and gets an axis of its own for positions.
    x = emit.slice(x, [slice(0, d if a == axis else w) for a, (d, w) in enumerate(zip(shape, wanted, strict=True))])
    split = (prod(wanted[:axis]), prod(wanted[axis + 1 :]))
    columns = emit.reshape(x, (split[0], 1, extent, split[1]))
    chosen = emit.reshape(nonnegative(emit, indices, extent), (split[0], wanted[axis], 1, split[1]))
    return emit.reshape(picked(emit, columns, chosen, 2), node.result_shape())


@operator("GatherND", since=11, needs=(
    Need("elements compared", lambda node: prod(node.shape(1)[:-1]) * prod(node.shape(0)), AtMost(_MOST_PAIRS),
         "positions that are data are compared with every position"),
))  # fmt: skip
def gather_nd(node: Node, emit: Emitter, x: Tensor, indices: Tensor) -> Tensor:
    batch = node.attribute("batch_dims", 0)
    shape, wanted = node.shape(0), node.shape(1)
    depth = wanted[-1]
    axes = shape[batch : batch + depth]
    images, count, rest = prod(shape[:batch]), prod(wanted[batch:-1]), prod(shape[batch + depth :])
    flat: Tensor | None = None
    for i, extent in enumerate(axes):
        column = emit.part(indices, len(wanted) - 1, i, i + 1)
        column = nonnegative(emit, column, extent)
        flat = column if flat is None else emit.pointwise("ADD", emit.pointwise("MUL", flat, extent), column)
    assert flat is not None
    columns = emit.reshape(x, (images, 1, prod(axes), rest))
    chosen = emit.reshape(flat, (images, count, 1, 1))
    return emit.reshape(picked(emit, columns, chosen, 2), node.result_shape())


def nonnegative(emit: Emitter, indices: Tensor, extent: int) -> Tensor:
    """Indices counted from 0: negative ones count from the end."""
    behind = emit.pointwise("ADD", indices, extent)
    return emit.select(emit.pointwise("CMP_LT", indices, 0), behind, indices)


def picked(emit: Emitter, columns: Tensor, chosen: Tensor, axis: int) -> Tensor:
    """The element of ``columns`` along ``axis`` at the position that ``chosen`` says; 0 where there is none."""
    dims = columns.dim or ()
    here = emit.pointwise("CMP_EQ", chosen, emit.index(dims, axis, type_of(chosen)))
    kind = type_of(columns)
    if kind is DataType.BYTE_BOOLEAN:
        columns, kind = emit.convert(columns, DataType.INT32), DataType.INT32
    found = emit.reduce(emit.select(here, columns, 0), "ADD", (axis,))
    return emit.convert(found, kind) if kind is not DataType.INT32 else emit.convert(found, type_of(columns))


@operator("OneHot", since=9, by_value=(1,))
def one_hot(node: Node, emit: Emitter, indices: Tensor, _: None, values: Tensor) -> Tensor:
    rank = len(node.result_shape())
    axis = node.attribute("axis", -1) % rank
    depth = node.result_shape()[axis]
    kind = DataType.INT64
    whole = emit.truncated(indices, _INT64) if node.type(0).is_float else emit.convert(indices, kind)
    shape = list(node.shape(0))
    shape.insert(axis, 1)
    here = emit.pointwise("CMP_EQ", emit.reshape(nonnegative(emit, whole, depth), shape),
                          emit.index(node.result_shape(), axis, kind))  # fmt: skip
    off, on = (emit.part(values, 0, i, i + 1) for i in (0, 1))
    return emit.select(here, emit.aligned(on, rank), emit.aligned(off, rank))


def _triangle(node: Node) -> np.ndarray:
    rows, columns = node.shape(0)[-2:]
    offset = (node.integers(1) or [0])[0]
    mask = np.tri(rows, columns, offset if not node.attribute("upper", 1) else offset - 1, dtype=bool)
    return ~mask if node.attribute("upper", 1) else mask


@operator("Trilu", since=14, by_value=(1,))
def trilu(node: Node, emit: Emitter, x: Tensor, _: None = None) -> Tensor:
    mask = emit.constant(_triangle(node).reshape((1,) * (node.rank(0) - 2) + node.shape(0)[-2:]))
    if type_of(x) is DataType.BYTE_BOOLEAN:
        return emit.pointwise("LOGICAL_AND", x, mask)
    return emit.select(mask, x, 0)


@operator("EyeLike", since=9)
def eye_like(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    rows, columns = node.result_shape()
    return emit.constant(np.eye(rows, columns, node.attribute("k", 0)), node.result_type().carrier)


@operator("ScatterElements", "Scatter", since=9, needs=(
    Need("elements compared", lambda node: prod(node.shape(1)) * node.shape(0)[node.axis(0)], AtMost(_MOST_PAIRS),
         "positions that are data are compared with every position of the axis"),
    Need("reduction", lambda node: node.attribute("reduction", "none"), OneOf("none", "add", "max", "min", "mul"),
         "these are the reductions of ONNX"),
))  # fmt: skip
def scatter_elements(node: Node, emit: Emitter, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """One update after another along the axis: a later update of an element replaces an earlier one."""
    axis, shape, wanted = node.axis(0), node.shape(0), node.shape(1)
    chosen = nonnegative(emit, indices, shape[axis])
    positions = emit.index(shape, axis, type_of(chosen))
    mode = {"none": "", "add": "ADD", "mul": "MUL", "max": "MAX", "min": "MIN"}[node.attribute("reduction", "none")]
    for i in range(wanted[axis]):
        row, place = emit.part(updates, axis, i, i + 1), emit.part(chosen, axis, i, i + 1)
        row, place = (_widened(emit, t, axis, shape, fill) for t, fill in ((row, 0), (place, -1)))
        here = emit.pointwise("CMP_EQ", place, positions)
        x = emit.select(here, emit.pointwise(mode, x, row) if mode else row, x)
    return x


def _widened(emit: Emitter, tensor: Tensor, axis: int, shape: Sequence[int], fill: int) -> Tensor:
    """Padded off the axis to the extents of the data."""
    for other, extent in enumerate(shape):
        have = (tensor.dim or ())[other]
        if other != axis and have < extent:
            tensor = emit.padded(tensor, other, 0, extent - have, fill)
    return tensor


@operator("ScatterND", since=11, needs=(
    Need("rows of updates", lambda node: prod(node.shape(1)[:-1]), AtMost(256), "updates are applied one by one"),
))  # fmt: skip
def scatter_nd(node: Node, emit: Emitter, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    shape, wanted = node.shape(0), node.shape(1)
    depth, count = wanted[-1], prod(wanted[:-1])
    rows = emit.reshape(indices, (count, depth))
    blocks = emit.reshape(updates, (count, 1, prod(shape[depth:])))
    x = emit.reshape(x, (1, prod(shape[:depth]), prod(shape[depth:])))
    mode = {"none": "", "add": "ADD", "mul": "MUL", "max": "MAX", "min": "MIN"}[node.attribute("reduction", "none")]
    flat: Tensor | None = None
    for i, extent in enumerate(shape[:depth]):
        column = nonnegative(emit, emit.part(rows, 1, i, i + 1), extent)
        flat = column if flat is None else emit.pointwise("ADD", emit.pointwise("MUL", flat, extent), column)
    assert flat is not None
    positions = emit.index((1, prod(shape[:depth]), 1), 1, type_of(flat))
    for i in range(count):
        place, row = emit.reshape(emit.part(flat, 0, i, i + 1), (1, 1, 1)), emit.part(blocks, 0, i, i + 1)
        here = emit.pointwise("CMP_EQ", place, positions)
        x = emit.select(here, emit.pointwise(mode, x, row) if mode else row, x)
    return emit.reshape(x, shape)
