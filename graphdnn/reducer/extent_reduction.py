"""Smaller extents: axes that belong together are found once, and what follows from them is worked out again.

An axis is (uid, place). Axes that an operation demands to be equal form a class and change together; output extents of
windows (convolution, pooling), of products and of everything with a shape rule follow from the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import (
    Concat,
    ConvolutionOperation,
    Matmul,
    Operation,
    ResampleBackward,
    ResampleForward,
    Reshape,
    Slice,
    Transpose,
)
from graphdnn.operations.conv_problem import output_extent
from graphdnn.reducer.graph_rebuild import rebuilt, resized
from graphdnn.reducer.operation_reduction import Candidate

Axis = tuple[int, int]
Extent = Callable[[Axis], int]


class Conflict(ValueError):
    """The extents that were asked for leave no graph."""


class Axes:
    """The classes of a graph's axes."""

    def __init__(self, graph: OperationGraph) -> None:
        self.graph = graph
        self._parent: dict[Axis, Axis] = {}
        for op in graph.operations:
            for first, second in _alike(op):
                self._parent[self.root(second)] = self.root(first)

    def root(self, axis: Axis) -> Axis:
        while self._parent.get(axis, axis) != axis:
            axis = self._parent[axis]
        return axis

    def classes(self) -> list[tuple[Axis, int]]:
        """Each class with an extent above 1, the largest extents first."""
        found: dict[Axis, int] = {}
        for uid, tensor in sorted(self.graph.tensors.items()):
            for place, extent in enumerate(tensor.dims):
                if extent > 1:
                    found.setdefault(self.root((uid, place)), extent)
        return sorted(found.items(), key=lambda item: (-item[1], item[0]))


def smaller(graph: OperationGraph) -> Iterator[Candidate]:
    """Every class at once, then each one: to 1, to the half, and by ever smaller steps."""
    axes = Axes(graph)
    classes = axes.classes()
    for divisor in (16, 4, 2):
        wanted = {root: max(1, extent // divisor) for root, extent in classes}
        yield f"all extents divided by {divisor}", partial(with_extents, axes, wanted)
    for root, extent in classes:
        label = graph.tensors[root[0]].label()
        for value in _steps(extent):
            yield f"{label}: axis {root[1]} from {extent} to {value}", partial(with_extents, axes, {root: value})


def _steps(extent: int) -> list[int]:
    steps, cut = [1], extent // 2
    while cut:
        steps.append(extent - cut)
        cut //= 2
    return list(dict.fromkeys(value for value in steps if 0 < value < extent))


def with_extents(
    axes: Axes, wanted: Mapping[Axis, int], operations: Sequence[Operation] = (), *, grouped: bool = True
) -> OperationGraph:
    """The graph with classes of other extents; ``operations``: with other settings. Raises where nothing fits.

    ``grouped``: channels follow their groups, which are as many as before.
    """
    graph = axes.graph
    given, chosen = operations or graph.operations, dict(wanted)

    def extent(axis: Axis) -> int:
        return chosen.get(axes.root(axis), graph.tensors[axis[0]].dims[axis[1]])

    for op in given:  # in order of execution: what follows from an operand follows from what it follows from
        for axis, value in _following(op, extent, grouped):
            if value < 1:
                raise Conflict(f"nothing is left of {axis}")
            chosen[axes.root(axis)] = value
    tensors = {
        uid: resized(tensor, tuple(extent((uid, place)) for place in range(tensor.rank)))
        for uid, tensor in graph.tensors.items()
    }
    return rebuilt(given, tensors, graph.name)


def _alike(op: Operation) -> Iterator[tuple[Axis, Axis]]:
    """Pairs of axes that have to stay equal."""
    if isinstance(op, ConvolutionOperation):
        yield from _alike_in_convolution(op)
        return
    if isinstance(op, Matmul):
        a, b, c = op.a, op.b, op.c
        last = a.rank - 1
        yield (a.uid, last), (b.uid, last - 1)
        yield (a.uid, last - 1), (c.uid, last - 1)
        yield (b.uid, last), (c.uid, last)
        for place in range(last - 1):
            for operand in (a, b):
                if operand.dims[place] == c.dims[place]:
                    yield (operand.uid, place), (c.uid, place)
        return
    if isinstance(op, Transpose):
        yield from (((op.x.uid, source), (op.y.uid, place)) for place, source in enumerate(op.permutation))
        return
    if isinstance(op, (Reshape, Slice)):
        return
    places = range(2) if isinstance(op, (ResampleForward, ResampleBackward)) else range(8)
    first: dict[tuple[int, int, int], Axis] = {}
    for tensor in op.tensors().values():
        for place, extent in enumerate(tensor.dims):
            if extent > 1 and place in places and not (isinstance(op, Concat) and place == op.axis):
                axis = (tensor.uid, place)
                known = first.setdefault((tensor.rank, place, extent), axis)
                if known != axis:
                    yield known, axis


def _alike_in_convolution(op: ConvolutionOperation) -> Iterator[tuple[Axis, Axis]]:
    x, w, y = op.roles
    yield (x.uid, 0), (y.uid, 0)
    if x.rank == op.conv.spatial_dims + 3:
        yield (x.uid, 1), (w.uid, 0)
        yield (x.uid, 1), (y.uid, 1)
        yield (x.uid, 2), (w.uid, 2)
        yield (w.uid, 1), (y.uid, 2)
        return
    yield (w.uid, 0), (y.uid, 1)
    if op.problem.groups == 1:
        yield (x.uid, 1), (w.uid, 1)


def _following(op: Operation, extent: Extent, grouped: bool) -> Iterator[tuple[Axis, int]]:
    """Extents that follow from others, worked out with those chosen so far."""
    if isinstance(op, ConvolutionOperation):
        x, w, y = op.roles
        conv, first = op.conv, x.rank - op.conv.spatial_dims
        if grouped and first == 2 and op.problem.groups > 1:
            yield from _grouped(op, extent)
        for i in range(conv.spatial_dims):
            place = first + i
            taps, stride, dilation = extent((w.uid, place)), conv.filter_strides[i], conv.dilations[i]
            pre, post = conv.pre_paddings[i], conv.post_paddings[i]
            size = extent((x.uid, place))
            if op.tag != "conv_fprop" and extent((y.uid, place)) != y.dims[place] and size == x.dims[place]:
                size = (extent((y.uid, place)) - 1) * stride + dilation * (taps - 1) + 1 - pre - post
                yield (x.uid, place), size
            yield (y.uid, place), output_extent(size, taps, pre, post, stride, dilation)
    if isinstance(op, (ResampleForward, ResampleBackward)):
        x, y = (op.x, op.y) if isinstance(op, ResampleForward) else (op.dx, op.dy)
        spec, first = op.spec, x.rank - op.spec.spatial_dims
        for i in range(spec.spatial_dims):
            padded = extent((x.uid, first + i)) + spec.pre_paddings[i] + spec.post_paddings[i]
            value = 1 + (padded - spec.window_dims[i]) // spec.strides[i]
            for tensor in (y, getattr(op, "index", None)):
                if tensor is not None:
                    yield (tensor.uid, first + i), int(value)
    if isinstance(op, Concat):
        yield (op.y.uid, op.axis), sum(extent((tensor.uid, op.axis)) for tensor in op.inputs().values())


def _grouped(op: ConvolutionOperation, extent: Extent) -> Iterator[tuple[Axis, int]]:
    """Channels in groups: a group's channels, or the number of groups, as one of them was chosen."""
    x, w, y = op.roles
    groups, per_group, filters = op.problem.groups, w.dims[1], w.dims[0] // op.problem.groups
    channels, own = extent((x.uid, 1)), extent((w.uid, 1))
    if own != per_group:
        yield (x.uid, 1), groups * own
    elif channels != x.dims[1]:
        if channels % per_group:
            raise Conflict(f"{channels} channels in groups of {per_group}")
        yield (w.uid, 0), filters * (channels // per_group)
        yield (y.uid, 1), filters * (channels // per_group)
