"""The gradient of maxima over small windows as one kernel: what a thread of resample_maxima.cu computes.

A thread finds the maxima of all windows that reach its elements of dx again, so no index passes through memory; windows
that overlap those of its neighbours are looked at by both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import COMPUTE
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.generator.program import Program, asked_indices, width_for
from graphdnn.engines.cuda.generator.quotient import magic
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.space import Space
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.cuda.resampling.forward import POOL_THREADS, read
from graphdnn.engines.cuda.resampling.pool import Moving, Pool, pool_in
from graphdnn.enums import NanPropagation, PaddingMode, ResampleMode
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ResampleBackward
from graphdnn.tensors import TensorSpec

_REGISTER = 4  # bytes


@dataclass(frozen=True, slots=True)
class Tile:
    """What a thread computes: the elements of dx that ``turns`` x ``columns`` strides cover, each a pack of ``pack``.

    ``x_pack``, ``halo``, ``y_pack``, ``dx_pack``: elements of an access where columns are contiguous; ``shares``: what
    is beside a thread's columns comes from its neighbours in the warp; ``blocks``: that share an SM.
    """

    pack: int = 1
    columns: int = 1
    turns: int = 1
    x_pack: int = 1
    halo: int = 1
    y_pack: int = 1
    dx_pack: int = 1
    shares: bool = False
    blocks: int = 4


@dataclass(frozen=True, slots=True)
class Maxima:
    pool: Pool
    tile: Tile

    @property
    def before(self) -> int:
        """Windows that reach a thread's columns and begin before its own."""
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

    @property
    def strides(self) -> int:
        """Rows of x in strides of the windows, the first of which begins ``before`` x."""
        row = self.pool.row
        return (row.x.size - 1 + row.before) // row.stride + 1

    @property
    def back(self) -> int:
        """Rows of windows that reach a row of x and begin before the last that does."""
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
        sizes[-1] //= tile.pack
        return tuple(sizes)

    @property
    def checked_from(self) -> int:
        """The first element of a span, past those before x, that may lie behind it: all, those beside or none."""
        size = self.pool.column.x.size
        beyond = size + self.left - (-(-size // self.middle) - 1) * self.middle
        return self.span if beyond >= self.span else self.left + self.middle if beyond >= self.left + self.middle else 0


def _reaching(axis: Moving) -> tuple[int, int]:
    return (axis.window - 1 - axis.before) // axis.stride, (axis.stride - 1 + axis.before) // axis.stride


def maxima_of(op: FusedOp, written: Sequence[TensorSpec], device: DeviceSpec) -> Maxima | None:
    """None where windows are large or move along three axes, or their elements' order is not memory's."""
    anchor = op.anchor
    assert isinstance(anchor, ResampleBackward)
    if anchor.spec.mode is not ResampleMode.MAXPOOL or anchor.index is not None:
        return None
    assert anchor.x is not None
    dx, dy = anchor.dx, anchor.dy
    main = next((t for t in (dx, *reversed(written)) if not t.is_virtual and t.extents == dx.extents), dx)
    operands = [anchor.x, *read(op, dy), *written]
    asked = asked_indices((*op.prologue, *op.epilogue))
    pool = pool_in(anchor.spec, dx.extents, dy.extents, main, operands, asked, places=True)
    return None if pool is None else Maxima(pool, _tile(op, pool, written, device))


def _tile(op: FusedOp, pool: Pool, written: Sequence[TensorSpec], device: DeviceSpec) -> Tile:
    anchor, column = op.anchor, pool.column
    assert isinstance(anchor, ResampleBackward)
    assert anchor.x is not None
    x_space, y_space = _spaces(anchor, pool)
    x_width, dx_width = width_for(x_space, [anchor.x]), width_for(x_space, written)
    y_width = width_for(y_space, read(op, anchor.dy))
    if not pool.along:
        return Tile(
            pack=min(x_width, dx_width, y_width, 4), columns=2, turns=4 if pool.row.window > pool.row.stride else 1
        )
    stride = column.stride
    columns = max(2, 8 // stride) if x_width >= 4 else 2
    plain = Maxima(pool, Tile(columns=columns))
    x_pack, dx_pack, y_pack = x_width, dx_width, y_width
    while plain.middle % x_pack:
        x_pack //= 2
    while plain.middle % dx_pack:
        dx_pack //= 2
    while columns % y_pack:
        y_pack //= 2
    right = max(0, plain.span - plain.left - plain.middle)
    beside = max(plain.left, right, 1)
    halo = min(x_pack, 1 << (beside - 1).bit_length())
    is_whole = column.x.size % plain.middle == 0
    shares = is_whole and beside <= halo and plain.left + right > 0
    shares = shares and COMPUTE[anchor.compute_type].itemsize >= _REGISTER  # shuffles move 32 bits
    turns = 4 if pool.row.window > pool.row.stride else 1
    return Tile(columns=columns, turns=turns, x_pack=x_pack, halo=halo, y_pack=y_pack, dx_pack=dx_pack, shares=shares)


def _spaces(anchor: ResampleBackward, pool: Pool) -> tuple[Space, Space]:
    return pool.space(anchor.dx.extents, is_input=True), pool.space(anchor.dy.extents, is_input=False)


def generate_maxima(op: FusedOp, steps: Steps, maxima: Maxima) -> DeviceKernel:
    anchor, pool, tile = op.anchor, maxima.pool, maxima.tile
    assert isinstance(anchor, ResampleBackward)
    assert anchor.x is not None
    row, column = pool.row, pool.column
    parameters = Parameters(steps.places)
    compute = COMPUTE_TYPE[anchor.compute_type]
    x_space, y_space = _spaces(anchor, pool)
    x_widths = [tile.x_pack, tile.halo] if pool.along else [tile.pack]
    y_widths = [tile.y_pack, 1] if pool.along else [tile.pack]
    functions = []
    for name, prefix, width in zip(("prologue", "prologue_halo"), "xs", dict.fromkeys(x_widths), strict=False):
        program = Program(op, parameters, x_space, prefix, width=width)
        program.result("value", anchor.x, compute)
        functions.append(program.function(name, f"{compute} (&value)[{width}]") + program.fetching(f"fetch_{name}"))
    for name, prefix, width in zip(("gradient", "gradient_beside"), "yz", dict.fromkeys(y_widths), strict=False):
        program = Program(op, parameters, y_space, prefix, width=width)
        program.apply(op.prologue)
        program.result("value", anchor.dy, compute)
        functions.append(program.function(name, f"{compute} (&value)[{width}]"))
    written = tile.dx_pack if pool.along else tile.pack
    body = Program(op, parameters, x_space, "d", width=written)
    steps.finish(body, "acc", compute)
    functions.append(body.function("epilogue", f"const {compute} (&acc)[{written}]"))
    count = prod(maxima.steps)
    parameters.integer("count", count)
    parameters.integers("steps", maxima.steps)
    parameters.integers("magic", [magic(size) for size in maxima.steps])
    parameters.integers("image", (row.x.size, column.x.size))
    parameters.integers("outputs", (row.y.size, column.y.size))
    parameters.integer("top", row.before)
    name = (
        f"resample_maxpool_bwd__maxima_{row.window}x{column.window}_v{tile.pack}_{tile.turns}x{tile.columns}__{op.name}"
    )
    text = kernel_text(
        name,
        ["next_launch.cuh", "quotient.cuh", "resample_order.cuh", "resample_span.cuh", "resample_maxima.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            "RANK": len(pool.axes),
            "ROW": pool.place(row),
            "COL": pool.place(column),
            "ALONG": pool.along,
            "WINDOW_H": row.window,
            "WINDOW_W": column.window,
            "STRIDE_H": row.stride,
            "STRIDE_W": column.stride,
            "LEFT": maxima.left,
            "BEFORE_OWN": maxima.before,
            "BESIDE": maxima.before + maxima.behind,
            "BACK": maxima.back,
            "CHECKED_FROM": maxima.checked_from,
            "PROPAGATE": anchor.spec.nan_propagation is NanPropagation.PROPAGATE_NAN,
            "ZEROS": anchor.spec.padding_mode is PaddingMode.ZERO_PAD,
            "CHECK_ROWS": maxima.checks_rows,
            "SHARE": tile.shares,
            "PACK": tile.pack,
            "TURNS": tile.turns,
            "COLS": tile.columns,
            "X_PACK": tile.x_pack,
            "HALO": tile.halo,
            "Y_PACK": tile.y_pack,
            "DX_PACK": tile.dx_pack,
            "WHOLE_COLS": column.x.size % maxima.middle == 0,
            "THREADS": POOL_THREADS,
            "BLOCKS": tile.blocks,
            "Compute": compute,
            "Count": "unsigned int" if count < 2**31 else "unsigned long long",
        },
    )
    blocks = -(-count // POOL_THREADS)
    steps.add_early(Launch(text, "resample_maxima", (blocks, 1, 1), POOL_THREADS, parameters.pack()))
    return steps.kernel(name)
