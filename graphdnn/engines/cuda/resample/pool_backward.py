"""The gradient of pooling with a small window as one kernel: the work of a thread of resample_pool_backward.cu.

A thread has elements of dx and evaluates all windows that contain them. It computes each window's maximum again, so no
index passes through memory. Two threads evaluate a window that overlaps the elements of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import COMPUTE, ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import IndexSpace
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program, gen_index_axes
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.resample import pool_constants
from graphdnn.engines.cuda.resample.pool import Moving, Pool, has_windows, pool_in
from graphdnn.engines.cuda.resample.resample_axes import reads_edges
from graphdnn.engines.cuda.resample.resample_forward import read
from graphdnn.enums import PaddingMode, ResampleMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ResampleBackward
from graphdnn.tensors import TensorSpec

_SHORT = 2  # bytes
# The most turns of a thread: with stride 1; with larger strides, in 16 bits; with larger strides and wide types.
_MOST_TURNS, _SOME_TURNS, _FEW_TURNS = 15, 9, 3
_THREADS_PER_SM = 640  # with fewer threads, smaller tiles are better than shared rows
_REGISTERS_PER_SM, _MOST_REGISTERS, _OTHER_REGISTERS, _MOST_BLOCKS = 65536, 255, 40, 6
_BEGINS = 1  # turns that compute a thread's first rows


@dataclass(frozen=True, slots=True)
class Tile:
    """The work of a thread: the elements of dx under ``turns`` x ``columns`` strides, each a vector of ``vec_width``
    elements.

    ``x_vec_width``, ``halo``, ``dy_vec_width``, ``dx_vec_width``: elements of an access if columns are contiguous. The
    L1 cache delivers the neighbouring elements of a thread sooner than shuffles do. ``blocks``: CTAs of an SM.
    """

    vec_width: int = 1
    columns: int = 1
    turns: int = 1
    x_vec_width: int = 1
    halo: int = 1
    dy_vec_width: int = 1
    dx_vec_width: int = 1
    blocks: int = 4


@dataclass(frozen=True, slots=True)
class PoolBackward:
    pool: Pool
    tile: Tile

    @property
    def before(self) -> int:
        """Windows that overlap a thread's columns and begin before them."""
        return _reaching(self.pool.column)[0]

    @property
    def behind(self) -> int:
        return _reaching(self.pool.column)[1]

    @property
    def left(self) -> int:
        """Elements of x before a thread's columns that its windows read."""
        return self.pool.column.before + self.before * self.pool.column.stride

    @property
    def middle(self) -> int:
        return self.tile.columns * self.pool.column.stride

    @property
    def span(self) -> int:
        column = self.pool.column
        return (self.tile.columns + self.before + self.behind - 1) * column.stride + column.window

    def registers(self, words: int) -> int:
        """An estimate of a thread's registers: rows, in values of this number of words, and everything else."""
        row, windows = self.pool.row, self.tile.columns + self.before + self.behind
        rows = max(row.window - row.stride, 0) + 1
        held = rows * (self.span + 2 * windows) + row.stride * self.span + windows
        return held * self.tile.vec_width * words + _OTHER_REGISTERS

    @property
    def strides(self) -> int:
        """Rows of x in strides of the windows; the first stride begins ``before`` x."""
        row = self.pool.row
        return (row.x.size - 1 + row.before) // row.stride + 1

    @property
    def back(self) -> int:
        """Rows of windows that overlap a row of x and begin before the last such row."""
        return (self.pool.row.window - 1) // self.pool.row.stride

    @property
    def checks_rows(self) -> bool:
        row, turns = self.pool.row, self.tile.turns
        last = (-(-self.strides // turns) * turns - 1) * row.stride - row.before + max(row.window, row.stride)
        return row.before > 0 or self.back > 0 or last > row.x.size

    @property
    def steps(self) -> tuple[int, ...]:
        """Threads along each coordinate."""
        pool, tile = self.pool, self.tile
        sizes = [a.x.size if isinstance(a, Moving) else a.size for a in pool.axes]
        sizes[pool.place(pool.row)] = -(-self.strides // tile.turns)
        sizes[pool.place(pool.column)] = -(-pool.column.x.size // self.middle)
        sizes[-1] //= tile.vec_width
        return tuple(sizes)

    @property
    def ends_whole(self) -> bool:
        """Whether the last thread's columns end at the end of x."""
        return self.pool.column.x.size % self.middle == 0

    @property
    def checked_from(self) -> int:
        """The first element of a span that may lie beyond the end of x: the first, the first of the halo, or none."""
        size = self.pool.column.x.size
        beyond = size + self.left - (-(-size // self.middle) - 1) * self.middle
        return self.span if beyond >= self.span else self.left + self.middle if beyond >= self.left + self.middle else 0


def is_supported(anchor: ResampleBackward) -> bool:
    """False if windows are large or move along three axes, or if averages read clamped edges."""
    is_plain = _is_maximum(anchor) or not reads_edges(anchor.spec)
    return is_plain and has_windows(anchor.spec, anchor.dx.extents, anchor.dy.extents)


def _is_maximum(anchor: ResampleBackward) -> bool:
    return anchor.spec.mode is ResampleMode.MAXPOOL


def _source(anchor: ResampleBackward) -> list[TensorSpec]:
    """The tensor in which the maxima of windows are computed again."""
    return [anchor.x] if _is_maximum(anchor) and anchor.x is not None else []


def _reaching(axis: Moving) -> tuple[int, int]:
    return (axis.window - 1 - axis.before) // axis.stride, (axis.stride - 1 + axis.before) // axis.stride


def pool_backward_of(op: FusedOp, written: Sequence[TensorSpec], device: DeviceSpec) -> PoolBackward | None:
    """None if windows are large or move along three axes, or if the order of their elements is not the memory order."""
    anchor = op.anchor
    assert isinstance(anchor, ResampleBackward)
    if anchor.index is not None or not is_supported(anchor):
        return None
    dx, dy, is_maximum = anchor.dx, anchor.dy, _is_maximum(anchor)
    main = next((t for t in (dx, *reversed(written)) if not t.is_virtual and t.extents == dx.extents), dx)
    operands = [*_source(anchor), *read(op, dy), *written]
    asked = gen_index_axes((*op.prologue, *op.epilogue))
    pool = pool_in(anchor.spec, dx.extents, dy.extents, main, operands, asked, places=is_maximum)
    return None if pool is None else PoolBackward(pool, _tile(op, pool, written, device))


def _tile(op: FusedOp, pool: Pool, written: Sequence[TensorSpec], device: DeviceSpec) -> Tile:
    anchor, row, column = op.anchor, pool.row, pool.column
    assert isinstance(anchor, ResampleBackward)
    x_space, y_space = _spaces(anchor, pool)
    source = _source(anchor)
    dx_vec_width, dy_vec_width = width_for(x_space, written), width_for(y_space, read(op, anchor.dy))
    x_vec_width = width_for(x_space, source) if source else dx_vec_width
    overlaps = row.window > row.stride or column.window > column.stride
    is_short, by_one = ELEMENTS[anchor.dx.data_type].bytes <= _SHORT, column.stride == 1
    words = COMPUTE[anchor.compute_type].itemsize // 4
    most = _MOST_TURNS if by_one else _SOME_TURNS if is_short else _FEW_TURNS
    if not pool.along:  # the fastest of a few on an H200, like the other numbers here
        vec_width = min(x_vec_width, dx_vec_width, dy_vec_width)
        if not overlaps:
            return Tile(vec_width=vec_width)
        if not source:
            return Tile(vec_width=vec_width, columns=2)
        vec_width, columns = min(vec_width, 2 if is_short or not by_one else 1), 4 if by_one else 2
        if PoolBackward(pool, Tile(vec_width=vec_width, columns=columns)).registers(words) > _MOST_REGISTERS:
            vec_width = 1  # fewer columns would compute the windows between them twice
        return _with_turns(
            _fitting(PoolBackward(pool, Tile(vec_width=vec_width, columns=columns)), words), most, device
        )
    columns = min(max(2, x_vec_width // column.stride), 8 if overlaps and source and by_one else 4)
    plain = PoolBackward(pool, Tile(columns=columns, blocks=8))
    if overlaps and source:
        plain = _fitting(plain, words)
        columns = plain.tile.columns
    while plain.middle % x_vec_width:
        x_vec_width //= 2
    while plain.middle % dx_vec_width:
        dx_vec_width //= 2
    while columns % dy_vec_width:
        dy_vec_width //= 2
    beside = max(plain.left, plain.span - plain.left - plain.middle, 1)
    halo = min(x_vec_width, 1 << (beside - 1).bit_length())
    tile = replace(plain.tile, x_vec_width=x_vec_width, halo=halo, dy_vec_width=dy_vec_width, dx_vec_width=dx_vec_width)
    return _with_turns(PoolBackward(pool, tile), most, device) if overlaps and source else tile


def _fitting(windows: PoolBackward, words: int) -> PoolBackward:
    """As many columns and CTAs as the registers allow."""
    while windows.tile.columns > 1 and windows.registers(words) > _MOST_REGISTERS:
        windows = PoolBackward(windows.pool, replace(windows.tile, columns=windows.tile.columns // 2))
    blocks = max(1, _REGISTERS_PER_SM // (pool_constants.THREADS * windows.registers(words)))
    return PoolBackward(windows.pool, replace(windows.tile, blocks=min(blocks, _MOST_BLOCKS)))


def _with_turns(windows: PoolBackward, most: int, device: DeviceSpec) -> Tile:
    """Turns for overlapping maxima: many, because each thread repeats the first rows of another one, but at most
    ``most``. Registers rotate through the rows with a period of ``back`` + 1 turns, so turns are a multiple of it.
    """
    round_ = windows.back + 1
    of_rounds = range(2 * round_ - windows.back, most + 1, round_)
    by_turns = (PoolBackward(windows.pool, replace(windows.tile, turns=turns)) for turns in of_rounds)
    fitting = (one for one in by_turns if prod(one.steps) >= _THREADS_PER_SM * device.sm_count)

    def rows(one: PoolBackward) -> int:
        return -(-one.strides // one.tile.turns) * (one.tile.turns + one.back + _BEGINS)

    best = min(fitting, key=rows, default=None)
    return replace(windows.tile, turns=1) if best is None else best.tile


def _spaces(anchor: ResampleBackward, pool: Pool) -> tuple[IndexSpace, IndexSpace]:
    return pool.space(anchor.dx.extents, is_input=True), pool.space(anchor.dy.extents, is_input=False)


def generate_pool_backward(op: FusedOp, steps: LaunchSequence, windows: PoolBackward) -> DeviceKernel:
    anchor, pool, tile = op.anchor, windows.pool, windows.tile
    assert isinstance(anchor, ResampleBackward)
    row, column = pool.row, pool.column
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[anchor.compute_type]
    x_space, y_space = _spaces(anchor, pool)
    x_widths = [tile.x_vec_width, tile.halo] if pool.along else [tile.vec_width]
    y_widths = [tile.dy_vec_width, 1] if pool.along else [tile.vec_width]
    functions = []
    for source in _source(anchor):
        for name, prefix, width in zip(("prologue", "prologue_halo"), "xs", dict.fromkeys(x_widths), strict=False):
            program = Program(op, parameters, x_space, prefix, width=width)
            program.copy_widened_to("value", source, compute)
            functions.append(program.function(name, f"{compute} (&value)[{width}]"))
    for name, prefix, width in zip(("gradient", "gradient_beside"), "yz", dict.fromkeys(y_widths), strict=False):
        program = Program(op, parameters, y_space, prefix, width=width)
        program.apply(op.prologue)
        program.copy_widened_to("value", anchor.dy, compute)
        functions.append(program.function(name, f"{compute} (&value)[{width}]"))
    written = tile.dx_vec_width if pool.along else tile.vec_width
    body = Program(op, parameters, x_space, "d", width=written)
    steps.write_epilogue(body, "acc", compute)
    functions.append(body.function("epilogue", f"const {compute} (&acc)[{written}]"))
    pool_constants.add_sizes(parameters, pool, windows.steps)
    window = f"{row.window}x{column.window}_v{tile.vec_width}_{tile.turns}x{tile.columns}"
    name = f"resample_{anchor.spec.mode.name.lower()}_bwd__pool_{window}__{op.name}"
    text = kernel_text(
        name,
        ["resample_pool_backward.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            **pool_constants.constants(anchor.spec, pool, tile, windows.steps, anchor.compute_type),
            "LEFT": windows.left,
            "BEFORE_OWN": windows.before,
            "BESIDE": windows.before + windows.behind,
            "BACK": windows.back,
            "CHECKED_FROM": windows.checked_from,
            "X_WHOLE": windows.ends_whole,
            "Y_WHOLE": windows.ends_whole and column.x.size == column.y.size * column.stride,
            "ZEROS": anchor.spec.padding_mode is PaddingMode.ZERO_PAD,
            "CHECK_ROWS": windows.checks_rows,
            "SHARE": False,
            "EXACT": ELEMENTS[anchor.dx.data_type].kind != "float",
            "TURNS": tile.turns,
            "DY_VEC_WIDTH": tile.dy_vec_width,
            "DX_VEC_WIDTH": tile.dx_vec_width,
        },
    )
    blocks = -(-prod(windows.steps) // pool_constants.THREADS)
    steps.add_early(Launch(text, "resample_pool_backward", (blocks, 1, 1), pool_constants.THREADS, parameters.pack()))
    return steps.kernel(name)
