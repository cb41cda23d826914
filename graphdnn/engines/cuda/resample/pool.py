"""Pooling with a small window as one kernel: the work of a thread of resample_pool.cu.

Windows move along one or two axes, which may have any strides: a window over channels is treated as rows or columns
too. All other axes are merged if the layouts of all operands allow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import COMPUTE, ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace, collapsed
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.resample.resample_axes import reads_edges
from graphdnn.enums import PaddingMode, ResampleMode
from graphdnn.operations import ResampleForward, ResampleSpec
from graphdnn.operations.resample import POOLING
from graphdnn.tensors import TensorSpec, stride_order

_LARGEST_WINDOW, _LARGEST_STRIDE, _MOST_AXES = 5, 4, 2
_MOST_COLUMNS = 8
_LARGEST_FLOAT = 3.4e38
_THREADS_PER_SM = 700  # with fewer threads, smaller tiles are better than shared rows
_REGISTER = 4  # bytes


@dataclass(frozen=True, slots=True)
class Moving:
    """One axis along which windows move."""

    window: int = 1
    stride: int = 1
    before: int = 0
    x: Axis = field(default_factory=lambda: Axis(1, 0))
    y: Axis = field(default_factory=lambda: Axis(1, 0))

    @property
    def last_start(self) -> int:
        """The position of the last window."""
        return (self.y.size - 1) * self.stride - self.before

    @property
    def pads(self) -> bool:
        return self.before > 0 or self.last_start + self.window > self.x.size

    @property
    def is_supported(self) -> bool:
        """Whether the window is small, and every window contains an element of x."""
        small = self.window <= _LARGEST_WINDOW and self.stride <= _LARGEST_STRIDE
        return small and self.before < self.window and self.last_start < self.x.size


@dataclass(frozen=True, slots=True)
class Tile:
    """The work of a thread: ``turns`` times ``rows`` x ``columns`` outputs of ``vec_width`` elements.

    ``fetches``: the rows of the next turn are loaded before a turn; ``shares``: the lanes of a warp exchange the
    elements beside their columns; ``blocks``: CTAs of an SM.
    """

    vec_width: int = 1
    columns: int = 1
    rows: int = 1
    turns: int = 1
    fetches: bool = False
    x_vec_width: int = 1
    halo: int = 1
    shares: bool = False
    blocks: int = 2


@dataclass(frozen=True, slots=True)
class Pool:
    """The axes in memory order, and the axes along which windows move."""

    axes: tuple[Axis | Moving, ...]
    row: Moving
    column: Moving
    tile: Tile

    @property
    def along(self) -> bool:
        """Whether columns are contiguous in memory."""
        return self.axes[-1] is self.column

    def space(self, extents: tuple[int, ...], *, is_input: bool) -> IndexSpace:
        axes = (a if isinstance(a, Axis) else a.x if is_input else a.y for a in self.axes)
        return IndexSpace(extents, tuple(axes))

    @property
    def steps(self) -> tuple[int, ...]:
        """Threads along each coordinate."""
        tile, sizes = self.tile, [a.size if isinstance(a, Axis) else a.y.size for a in self.axes]
        row, column = self.place(self.row), self.place(self.column)
        sizes[row] = -(-sizes[row] // (tile.rows * tile.turns))
        sizes[column] = -(-sizes[column] // tile.columns)
        sizes[-1] //= tile.vec_width
        return tuple(sizes)

    def place(self, axis: Moving) -> int:
        return next(i for i, a in enumerate(self.axes) if a is axis)

    @property
    def checked_from(self) -> int:
        """The first element of a span that may lie beyond the end of x: the first, the first of the halo, or none."""
        column, tile = self.column, self.tile
        middle, span = tile.columns * column.stride, (tile.columns - 1) * column.stride + column.window
        beyond = column.x.size + column.before - (-(-column.y.size // tile.columns) - 1) * middle
        return span if beyond >= span else column.before + middle if beyond >= column.before + middle else 0


def has_windows(spec: ResampleSpec, x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """False if windows are large, move along three axes, or contain only padding."""
    return _moving(spec, x, y) is not None


def _moving(spec: ResampleSpec, x: tuple[int, ...], y: tuple[int, ...]) -> list[Moving] | None:
    if spec.mode not in POOLING:
        return None
    known = zip(spec.window_dims, spec.strides, spec.pre_paddings, strict=True)
    moving = [
        Moving(int(window), int(stride), int(pre), Axis(x[i], i), Axis(y[i], i))
        for i, (window, stride, pre) in enumerate(known, 2)
        if not window == stride == 1 or x[i] != y[i]
    ]
    return moving if len(moving) <= _MOST_AXES and all(axis.is_supported for axis in moving) else None


def pool_of(
    op: ResampleForward,
    read: Sequence[TensorSpec],
    written: Sequence[TensorSpec],
    asked: frozenset[int],
    device: DeviceSpec,
) -> Pool | None:
    """None if ``has_windows`` is false, or if positions in windows would be counted against the memory order."""
    y = op.y.extents
    # A virtual y has no layout; the layout of the epilogue's result counts.
    main = next((t for t in (op.y, *reversed(written)) if not t.is_virtual and t.extents == y), op.y)
    pool = pool_in(op.spec, op.x.extents, y, main, [*read, *written], asked, places=op.index is not None)
    return None if pool is None else replace(pool, tile=tile_of(op, pool, read, written, device))


def pool_in(
    spec: ResampleSpec,
    x: tuple[int, ...],
    y: tuple[int, ...],
    main: TensorSpec,
    tensors: Sequence[TensorSpec],
    asked: frozenset[int],
    *,
    places: bool,
) -> Pool | None:
    """Axes in the memory order of ``main``; ``places``: positions in windows are counted row by row."""
    moving = _moving(spec, x, y)
    if moving is None:
        return None
    order = stride_order(main.dims, main.strides)

    def depth(axis: Axis | Moving) -> int:
        y_axis = axis.y if isinstance(axis, Moving) else axis
        return -1 if y_axis.size == 1 else order.index(y_axis.logical)

    found = {axis.x.logical for axis in moving}
    rest = IndexSpace(y, tuple(Axis(size, i) for i, size in enumerate(y) if i not in found))
    still = collapsed(rest, main, tensors, asked).axes
    axes: list[Axis | Moving] = sorted((*still, *moving), key=depth)
    if isinstance(axes[-1], Moving):  # contiguous columns
        column = axes[-1]
        if len(moving) == 1:
            *outer, last = axes[:-1] or [Axis(1, 0)]
            assert isinstance(last, Axis)
            row = Moving(x=last, y=last)
            axes = [*outer, row, column]
        else:
            (row,) = (axis for axis in moving if axis is not column)
            if places and column is moving[0]:  # the kernel counts positions row by row
                return None
    else:
        row, column = (*moving, Moving(), Moving())[:2]
        axes = [*(a for a in (row, column) if a not in moving), *axes]
    return Pool(tuple(axes), row, column, Tile())


def tile_of(
    op: ResampleForward, pool: Pool, read: Sequence[TensorSpec], written: Sequence[TensorSpec], device: DeviceSpec
) -> Tile:
    row, column = pool.row, pool.column
    x_width = width_for(pool.space(op.x.extents, is_input=True), read)
    y_width = width_for(pool.space(op.y.extents, is_input=False), written)
    if pool.along:
        columns = min(y_width, _MOST_COLUMNS)
        while columns * column.stride % x_width:
            x_width //= 2
        beside = max(column.before, column.window - column.stride - column.before, 1)
        halo = min(x_width, 1 << (beside - 1).bit_length())
        ends_with_x = column.x.size == column.y.size * column.stride
        shares = ends_with_x and beside <= halo and column.window > column.stride
        # Shuffles move 32 bits. Surplus threads of a warp repeat the stores of other threads, and must not have read
        # their results.
        shares = shares and COMPUTE[op.compute_type].itemsize >= _REGISTER and op.beta == 0.0
        tile = Tile(columns=columns, x_vec_width=x_width, halo=halo, shares=shares)
    else:
        tile = Tile(vec_width=min(x_width, y_width, _MOST_COLUMNS), columns=min(2, column.y.size))
    operands = {t.uid for t in (*read, *written) if not (t.is_by_value or t.is_constant)}
    is_wide = COMPUTE[op.compute_type].itemsize > _REGISTER
    known = _measured(op, pool, tile) if op.index is None and not is_wide and len(operands) <= 2 else None
    has_lines = row.stride < row.window and sums_rows_first(op, pool) and not is_wide
    tile = known or replace(tile, rows=4 if has_lines else 1, blocks=2)
    choices = (tile.rows, tile.turns), (tile.rows, 1), (1, 1)
    tiles = [replace(tile, rows=r, turns=t) for r, t in choices if r * t <= row.y.size]
    enough = _THREADS_PER_SM * device.sm_count
    return next((t for t in tiles if prod(replace(pool, tile=t).steps) >= enough), tiles[-1])


def _measured(op: ResampleForward, pool: Pool, tile: Tile) -> Tile | None:
    """The fastest tile of a few on an H200; None for other kinds of windows."""
    row, column, is_full = pool.row, pool.column, tile.vec_width == _MOST_COLUMNS
    if row.window == row.stride == column.stride == 1:
        return replace(tile, rows=4, blocks=7)
    if column.window == column.stride == row.stride == 1:
        turns, blocks = (2, 6) if is_full else (1, 8)
        return replace(tile, vec_width=min(tile.vec_width, 4), rows=8, turns=turns, fetches=is_full, blocks=blocks)
    if row.stride != column.stride or max(row.window, column.window) > 3:
        return None
    if row.stride >= row.window:
        return replace(tile, blocks=4)  # rows share no elements
    if row.stride > 1:
        return replace(tile, rows=4, blocks=4)
    if pool.along:
        return replace(tile, rows=4, turns=1 if tile.columns == _MOST_COLUMNS else 2, blocks=8)
    if is_full and sums_rows_first(op, pool):
        return replace(tile, rows=8, blocks=4)
    return replace(tile, rows=4, turns=2, blocks=3 if is_full else 4)


def sums_rows_first(op: ResampleForward, pool: Pool) -> bool:
    """Whether sums are computed row by row. Sums that may overflow use the host's order, which starts with the first
    axis.
    """
    row, column = pool.row, pool.column
    is_line = row.window == 1 or column.window == 1
    cannot_overflow = float(ELEMENTS[op.x.data_type].largest) * _LARGEST_WINDOW**2 < _LARGEST_FLOAT
    return op.spec.mode is ResampleMode.MAXPOOL or is_line or cannot_overflow or column.x.logical < row.x.logical


def pads_zeros(op: ResampleForward) -> bool:
    """Whether padding counts as zeros; otherwise addresses outside x are clamped to its edge."""
    if op.spec.mode is ResampleMode.MAXPOOL:
        return op.spec.padding_mode is PaddingMode.ZERO_PAD
    return not reads_edges(op.spec)
