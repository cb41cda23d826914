"""What data movement copies: pieces of x that become pieces of y, each side in its own axes.

Both sides of a piece count the same elements row by row. Where the two can be cut into common axes
(nearly always), the piece becomes a ``Block``: extents with a stride on each side, as few as
possible, which is what the fast kernels take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphdnn.enums import ReshapeMode
from graphdnn.operations.base import Operation
from graphdnn.operations.data_movement import Concat, Reshape, Slice, Transpose
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class Run:
    """Along one axis of a tensor: indices start, start + step, ...; ``stride`` elements apart, or in vectors."""

    size: int
    start: int
    step: int
    stride: int
    vector: int = 1


@dataclass(frozen=True, slots=True)
class Side:
    """A tensor and the part of it that a piece takes, outermost axis first."""

    tensor: TensorSpec
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    x: Side
    y: Side


@dataclass(frozen=True, slots=True)
class Axis:
    """``size`` elements, this far apart on each side."""

    size: int
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Block:
    """A piece in common axes, in y's memory order; ``x_start`` and ``y_start`` are its first elements."""

    axes: tuple[Axis, ...]
    x_start: int
    y_start: int


def pieces_of(op: Operation) -> list[Piece]:
    if isinstance(op, Concat):
        found, start = [], 0
        for x in op.inputs_list:
            y_runs = list(_runs(op.y))
            y_runs[op.axis] = replace(y_runs[op.axis], size=x.extents[op.axis], start=start)
            found.append(Piece(Side(x, _runs(x)), Side(op.y, tuple(y_runs))))
            start += x.extents[op.axis]
        return found
    assert isinstance(op, (Slice, Transpose, Reshape))
    runs = _runs(op.x)
    if isinstance(op, Slice):
        cut = zip(runs, op.y.extents, op.starts, op.steps, strict=True)
        runs = tuple(replace(run, size=size, start=start, step=step) for run, size, start, step in cut)
    elif isinstance(op, Transpose):
        runs = tuple(runs[axis] for axis in op.permutation)
    elif op.mode is ReshapeMode.VIEW_ONLY:  # both are packed: memory from the first element to the last
        flat = (Run(op.x.elements, 0, 1, 1),)
        return [Piece(Side(op.x, flat), Side(op.y, flat))]
    return [Piece(Side(op.x, runs), Side(op.y, _runs(op.y)))]


def _runs(spec: TensorSpec) -> tuple[Run, ...]:
    return tuple(
        Run(size, 0, 1, stride * spec.vector_count, spec.vector_count if axis == spec.vectorized_dimension else 1)
        for axis, (size, stride) in enumerate(zip(spec.extents, spec.strides, strict=True))
    )


def block_of(piece: Piece) -> Block | None:
    """The piece in common axes; None where the two sides cannot be cut alike."""
    x, y = _factors(piece.x.runs), _factors(piece.y.runs)
    if x is None or y is None:
        return None
    axes = _common(_merged_pairs(x[0]), _merged_pairs(y[0]))
    if axes is None:
        return None
    return Block(merged(sorted(axes, key=lambda a: -a.y)), x[1], y[1])


def merged(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Neighbouring axes as one where both sides step through them at one pace."""
    found: list[Axis] = []
    for axis in axes:
        if found and found[-1].x == axis.x * axis.size and found[-1].y == axis.y * axis.size:
            found[-1] = Axis(found[-1].size * axis.size, axis.x, axis.y)
        else:
            found.append(axis)
    return tuple(found) or (Axis(1, 1, 1),)


_Pairs = list[tuple[int, int]]  # (size, stride), outermost first


def _factors(runs: Sequence[Run]) -> tuple[_Pairs, int] | None:
    """A side as sizes and strides with its first element; None where it begins or ends inside a vector."""
    pairs, first = [], 0
    for run in runs:
        if run.vector == 1:
            pairs.append((run.size, run.step * run.stride))
            first += run.start * run.stride
        elif run.step == 1 and run.start % run.vector == 0 and run.size % run.vector == 0:
            pairs += [(run.size // run.vector, run.stride), (run.vector, 1)]
            first += run.start // run.vector * run.stride
        else:
            return None
    return [pair for pair in pairs if pair[0] != 1], first


def _merged_pairs(pairs: _Pairs) -> _Pairs:
    found: _Pairs = []
    for size, stride in pairs:
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found


def _common(x: _Pairs, y: _Pairs) -> list[Axis] | None:
    """Axes that both sides are made of, cut from the innermost out."""
    x, y, axes = list(x), list(y), []
    while x and y:
        (x_size, x_stride), (y_size, y_stride) = x.pop(), y.pop()
        size = min(x_size, y_size)
        if x_size % size or y_size % size:
            return None
        axes.append(Axis(size, x_stride, y_stride))
        if x_size > size:
            x.append((x_size // size, x_stride * size))
        if y_size > size:
            y.append((y_size // size, y_stride * size))
    return axes[::-1]
