"""Rows of elements that are normalized together, and their assignment to threads (row_threads.cuh)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.fast_division import magic
from graphdnn.engines.cuda.codegen.index_space import INT_MAX, Axis, IndexSpace
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.source import include
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.reduction.reduced_axes import reduced_axes
from graphdnn.tensors import TensorSpec

_THREADS = 256
_MOST_THREADS = 1024
_VEC_BYTES = 16
_ACROSS_BYTES = 8  # bytes of a vector of adjacent rows: small, so that the threads of a row have little to exchange
_HELD = 64  # bytes of values of a thread, or twice as many if a row would not fit otherwise
_MOSTLY = 0.8  # share of the vectors that fit into a CTA
_MOST_HELD = 256  # for short rows along a strided axis: fewer threads exchange less, and each has more loads in flight
_IN_FLIGHT = 128  # bytes of memory that such a thread loads at once
# Long contiguous rows: most vectors, threads of a row, threads of an SM. The fastest candidates on an H200.
_LONG = ((96, 32, 1024), (128, 32, 640), (384, 128, 1024), (768, 128, 640), (1024, 256, 768))
_LEAST_LONG, _MANY_LONG = 65, 2**15  # vectors, and threads of all rows
_LONG_THREADS, _LONG_BYTES = 128, 4  # threads of a CTA, and bytes of a value
_ENOUGH_THREADS = 2**17  # of a device, for these rows
_LINE, _SHORT_LINE = 128, 64  # bytes that one access of a warp should fill; the second if threads have much data
_SECTOR = 32  # bytes of a memory sector
_ROW_BYTES = 16  # bytes of a thread's factors, for each row and statistic
_BLOCKS_PER_SM = 8
# Strided rows with few threads for each: least number of vectors; threads of a row and of a CTA, CTAs of a
# multiprocessor, bytes of values; vectors of a thread. The fastest candidates on an H200 (150 to 1000 channels).
_LEAST_TALL, _MOST_TALL = 128, 16
_TALL = ((16, 128, 5, 160), (32, 256, 2, _MOST_HELD), (64, 256, 2, _MOST_HELD))
_NOT_TALL = 256  # vectors up to which other tiles are as fast if the first candidate does not fit
_MANY_THREADS, _SOME_THREADS = 1280, 768  # of an SM, if a thread has little or much data: 48 and 80 registers


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in an index space whose first ``row_axes`` axes count them."""

    space: IndexSpace
    row_axes: int
    along: bool  # contiguous elements belong to one row
    width: int  # vector width of a thread
    main_bytes: int  # of an element of the largest operand

    @property
    def count(self) -> int:
        return prod(self.space.sizes[: self.row_axes])

    @property
    def length(self) -> int:
        return prod(self.space.sizes[self.row_axes :])

    @property
    def rows_per_thread(self) -> int:
        """Rows of a thread."""
        return 1 if self.along else self.width

    @property
    def vector_axis(self) -> int:
        return (self.space.rank if self.along else self.row_axes) - 1

    @property
    def row_vecs(self) -> int:
        """Vectors of rows; rows, if a vector lies along a row."""
        return self.count // self.rows_per_thread

    @property
    def vecs_per_row(self) -> int:
        """Vectors of a row; elements, if a vector spans several rows."""
        return self.length // self.width if self.along else self.length

    def is_of_row(self, spec: TensorSpec) -> bool:
        """Whether a row has one element of the tensor."""
        return not any(self.space.strides(spec)[self.row_axes :])

    def axis_of_images(self, main: TensorSpec) -> int | None:
        """The axis with the longest strides of ``main`` along its first axis; None if that axis is not the first one of
        the outer axes or of the row axes.
        """
        images, strides = main.dims[0], self.space.strides(main)
        for axis in (0, min(self.row_axes, self.space.rank - 1)):
            steps, rest = divmod(self.space.sizes[axis], images)
            if images > 1 and not rest and strides[axis] * steps == main.strides[0]:
                return axis
        return None

    def longer(self, axis: int, extents: tuple[int, ...]) -> Rows:
        """The same rows in a tensor whose extents differ along one axis of the space."""
        axes = self.space.axes
        others = prod([a.size for i, a in enumerate(axes) if i != axis])
        longer = Axis(prod(extents) // others, axes[axis].logical, axes[axis].multiplier)
        space = IndexSpace(extents, (*axes[:axis], longer, *axes[axis + 1 :]))
        return Rows(space, self.row_axes, self.along, self.width, self.main_bytes)

    def narrowed(self, width: int) -> Rows:
        return Rows(self.space, self.row_axes, self.along, min(width, self.width), self.main_bytes)

    def text(self) -> str:
        return f"{'rows' if self.along else 'columns'}_v{self.width}"

    def constants(self) -> Mapping[str, int | bool | str]:
        wide = max(self.row_vecs, self.vecs_per_row) > INT_MAX
        return {
            "ALONG": self.along,
            "VEC_WIDTH": self.width,
            "ROW_AXES": self.row_axes,
            "RANK": self.space.rank,
            "Count": "unsigned long long" if wide else "unsigned int",
        }

    def parameters(self, parameters: Parameters) -> None:
        sizes = self.space.sizes
        vecs = (s // self.width if axis == self.vector_axis else s for axis, s in enumerate(sizes))
        parameters.integers("size", sizes)
        parameters.integers("magic", [magic(count) for count in vecs])
        parameters.integer("rows", self.row_vecs)
        parameters.integer("count", self.vecs_per_row)
        parameters.integer("elements", self.length)


def rows_text() -> list[str]:
    """The first files of kernels over rows."""
    return [include("row_threads.cuh")]


def rows_of(
    extents: Sequence[int],
    axes: Sequence[int],
    main: TensorSpec,
    packed: Sequence[TensorSpec],
    single: Sequence[TensorSpec],
    asked: frozenset[int],
) -> Rows:
    """``axes``: of a row. ``main``: the tensor whose layout counts. ``packed``: tensors accessed in vectors;
    ``single``: tensors accessed element by element.
    """
    statistic = [1 if a in axes else extent for a, extent in enumerate(extents)]
    stored = _stored(packed)
    found = reduced_axes(extents, statistic, main, [*stored, *_stored(single)], (), asked)
    space, kept = found.x, found.y.rank
    strides = space.strides(main)
    across, along = strides[kept - 1], strides[-1]
    is_along = along != 0 and (across == 0 or along < across)
    main_bytes = ELEMENTS[main.data_type].bytes
    largest = max((ELEMENTS[t.data_type].bytes for t in stored), default=main_bytes)
    axis = (space.rank if is_along else kept) - 1
    width = width_for(space, stored, axis, _VEC_BYTES * largest // main_bytes)
    return Rows(space, kept, is_along, min(width, max(1, _VEC_BYTES // main_bytes)), main_bytes)


def _stored(tensors: Sequence[TensorSpec]) -> list[TensorSpec]:
    return [t for t in tensors if not (t.is_by_value or t.is_constant)]


@dataclass(frozen=True, slots=True)
class Tile:
    """The rows of a CTA: ``threads_per_row`` threads for each row, ``steps`` vectors of a thread at a time."""

    threads_per_row: int
    columns: int
    steps: int
    blocks: int = 1  # the least CTAs of an SM, which bounds the registers of a thread

    @property
    def threads(self) -> int:
        return self.threads_per_row * self.columns

    def text(self) -> str:
        return f"{self.threads_per_row}x{self.columns}x{self.steps}"

    def constants(self) -> Mapping[str, int | bool | str]:
        return {
            "THREADS_PER_ROW": self.threads_per_row,
            "COLUMNS": self.columns,
            "STEPS": self.steps,
            "THREADS": self.threads,
        }

    def bounds(self) -> Mapping[str, int]:
        return {"BLOCKS": self.blocks}


def held(rows: Rows, value_bytes: int, *, is_deep: bool = False) -> tuple[Rows, Tile] | None:
    """A CTA that has its rows in registers, ``value_bytes`` for each element; None if a row is too long.

    ``is_deep``: threads may fill their registers, if enough threads remain.
    """
    if rows.along:
        long = _held_long(rows, value_bytes) if is_deep else None
        if long is not None:
            return rows, long
        candidate = _held_along(rows, value_bytes)
    else:
        rows = rows.narrowed(max(1, _ACROSS_BYTES // rows.main_bytes))
        deep = _held_deep(rows, value_bytes) if is_deep else None
        if deep is not None:
            return rows, deep
        candidate = _held_across(rows, value_bytes)
    if candidate is None:
        return None
    rows, tile = candidate
    threads = _SOME_THREADS if tile.steps * rows.width * value_bytes > _HELD else _MANY_THREADS
    return rows, replace(tile, blocks=max(1, threads * 4 // value_bytes // tile.threads))


def _held_along(rows: Rows, value_bytes: int) -> tuple[Rows, Tile] | None:
    for budget in (_HELD, 2 * _HELD):
        steps = max(1, budget // value_bytes // rows.width)
        threads_per_row = power_above(-(-rows.vecs_per_row // steps))
        if threads_per_row <= _MOST_THREADS:
            threads_per_row = _fewer_threads(rows, threads_per_row, value_bytes)
            columns = max(1, _THREADS // threads_per_row)
            return rows, Tile(threads_per_row, columns, -(-rows.vecs_per_row // threads_per_row))
    return None


def _held_long(rows: Rows, value_bytes: int) -> Tile | None:
    """Few threads for each of many long rows, with enough vectors that each thread has several loads in flight."""
    threads_per_row, threads = next(
        ((per_row, n) for most, per_row, n in _LONG if _LEAST_LONG <= rows.vecs_per_row <= most), (0, 0)
    )
    is_many = rows.row_vecs * threads_per_row >= _MANY_LONG and rows.width * rows.main_bytes == _VEC_BYTES
    if not is_many or value_bytes > _LONG_BYTES:
        return None
    tile = Tile(threads_per_row, max(1, _LONG_THREADS // threads_per_row), -(-rows.vecs_per_row // threads_per_row))
    return replace(tile, blocks=threads // tile.threads)


def _fewer_threads(rows: Rows, threads_per_row: int, value_bytes: int) -> int:
    """Half of the largest CTA, if fewer of its threads are idle and two CTAs share the registers."""
    fewer = threads_per_row // 2
    steps, fewer_steps = (-(-rows.vecs_per_row // n) for n in (threads_per_row, fewer or 1))
    fits = fewer_steps * rows.width * value_bytes <= 2 * _HELD
    is_busier = fewer * fewer_steps < _MOSTLY * threads_per_row * steps
    return fewer if threads_per_row == _MOST_THREADS and fits and is_busier else threads_per_row


def _held_across(rows: Rows, value_bytes: int) -> tuple[Rows, Tile] | None:
    most = 2 * _HELD // value_bytes // rows.width  # vectors of a thread
    vec_bytes = rows.width * rows.main_bytes
    everything = power_above(rows.row_vecs)
    columns = min(32, max(1, _LINE // vec_bytes), everything)
    while columns * vec_bytes >= _SECTOR or columns == everything:
        target_threads = min(
            _THREADS // columns, _power_below(rows.vecs_per_row // 4)
        )  # each thread should have a few vectors
        threads_per_row = max(power_above(-(-rows.vecs_per_row // most)), target_threads)
        if threads_per_row * columns <= _MOST_THREADS:
            steps = -(-rows.vecs_per_row // threads_per_row)
            columns = max(columns, min(_THREADS // threads_per_row, everything), 32 // threads_per_row)
            if steps * rows.width * value_bytes > _HELD and columns * vec_bytes > _SHORT_LINE:
                columns = max(columns // 2, 32 // threads_per_row)  # smaller barriers
            return rows, Tile(threads_per_row, columns, steps)
        columns //= 2
    return None


def _held_deep(rows: Rows, value_bytes: int) -> Tile | None:
    """Few threads for each of many short rows."""
    most = min(_IN_FLIGHT // rows.main_bytes, _MOST_HELD // value_bytes) // rows.width
    threads_per_row = power_above(-(-rows.vecs_per_row // most))
    if threads_per_row > 8 or rows.row_vecs * threads_per_row < _ENOUGH_THREADS:
        return None
    steps = -(-rows.vecs_per_row // threads_per_row)
    columns = _THREADS // 2 // threads_per_row
    return Tile(threads_per_row, columns, steps, blocks=4)


def held_tall(rows: Rows, value_bytes: int) -> tuple[Rows, Tile] | None:
    """A CTA that has strided rows of many vectors in registers, with few threads for each. Few threads exchange little,
    and one small CTA loads while another stores. None if other tiles were as fast.
    """
    rows = rows.narrowed(max(1, _ACROSS_BYTES // rows.main_bytes))
    if rows.along or rows.width * rows.main_bytes != _ACROSS_BYTES or rows.vecs_per_row <= _LEAST_TALL:
        return None
    for threads_per_row, threads, blocks, most in _TALL:
        steps = -(-rows.vecs_per_row // threads_per_row)
        values = steps * rows.width * value_bytes
        if steps <= _MOST_TALL and values <= most:
            is_tall = threads_per_row == _TALL[0][0] or rows.vecs_per_row > _NOT_TALL
            is_many = rows.row_vecs * threads_per_row >= _ENOUGH_THREADS and is_tall
            return (rows, Tile(threads_per_row, threads // threads_per_row, steps, blocks)) if is_many else None
    return None


def passed(rows: Rows) -> Tile:
    """A CTA that reads its rows several times."""
    if rows.along:
        return Tile(_MOST_THREADS, 1, 1)
    columns = min(32, power_above(rows.row_vecs))
    return Tile(_MOST_THREADS // 2 // columns, columns, 1)


@dataclass(frozen=True, slots=True)
class Division:
    """Rows split among CTAs: ``splits`` parts of ``per_split`` vectors."""

    tile: Tile
    tiles: int
    splits: int
    per_split: int

    def parameters(self, parameters: Parameters) -> None:
        parameters.integer("per_split", self.per_split)
        parameters.integer("splits", self.splits)


def divided(rows: Rows, compute_bytes: int, values: int, device: DeviceSpec) -> tuple[Rows, Division]:
    """Enough CTAs to fill the device, each with whole loop turns; ``values``: values of a thread for an element."""
    if not rows.along:
        rows = rows.narrowed(_ROW_BYTES // compute_bytes)
    value_bytes = compute_bytes * values
    steps = max(1, min(4, _HELD // value_bytes // rows.width))
    blocks = _MOST_THREADS * 4 // compute_bytes // _THREADS
    if rows.along:
        threads_per_row = min(_THREADS, power_above(rows.vecs_per_row))
        tile = Tile(threads_per_row, _THREADS // threads_per_row, steps, blocks)
    else:
        columns = min(32, power_above(rows.row_vecs))
        tile = Tile(_THREADS // columns, columns, steps, blocks)
    tiles = -(-rows.row_vecs // tile.columns)
    turn = tile.threads_per_row * steps
    target_splits = -(-_BLOCKS_PER_SM * device.sm_count // tiles)
    splits = max(1, min(target_splits, rows.vecs_per_row // turn))
    per_split = -(-rows.vecs_per_row // splits)
    if splits > 1:
        per_split = -(-per_split // turn) * turn
    return rows, Division(tile, tiles, -(-rows.vecs_per_row // per_split), per_split)


def power_above(count: int) -> int:
    """The smallest power of two that is at least ``count``."""
    return 1 << (max(1, count) - 1).bit_length()


def _power_below(count: int) -> int:
    return 1 << (max(1, count).bit_length() - 1)
