"""Parts of tensors, and tensors with elements around them: Slice, ReverseSequence, Pad."""

from __future__ import annotations

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import AtMost, OneOf
from graphdnn.onnx.emitter import Emitter
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need, operator

_MOST_RUNS = 512


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
