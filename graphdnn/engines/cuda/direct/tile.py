"""Tiles of the direct convolutions: the candidates, what each takes, and the model that chooses among them.

The kernel is issue-bound or memory-bound. The model counts instructions of a step, the registers that limit how
many warps hide each other's waits, and how blocks divide among the multiprocessors; the least time wins. The same
number is the engine's cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, isfinite

from graphdnn.convolution import ConvProblem
from graphdnn.device import DeviceSpec
from graphdnn.multiprocessor import RESERVED

MAX_COLUMNS = 16  # of a thread
_REGISTERS = 40  # of a thread beside its sums and filter: addresses, counters, the epilogue
_WEIGHTS = 100  # filter elements that a thread keeps in registers
_MOST = 255  # registers
_MOST_TURNS = 32  # pieces of a step that a thread copies
LONG = 11  # taps along an axis: beyond, a thread's products are limited, and registers are counted with care
_LONG_TAPS = 1024
_LONG_PRODUCTS = 4096  # of a thread for a row, each an instruction of the text
_LONG_MARGIN = 24  # registers
_IN_FLIGHT = 20_000  # bytes under way to a multiprocessor that keep memory busy
_COPY_SHARE = 0.88  # of the data sheet's bandwidth that a copy reaches


@dataclass(frozen=True, slots=True)
class Shape:
    """A direct convolution without its addresses. ``out`` is the side whose channels belong to threads."""

    problem: ConvProblem
    is_dgrad: bool
    is_wgrad: bool
    in_bytes: int  # of an element
    out_bytes: int
    filter_bytes: int
    others: int  # bytes that the epilogue reads
    in_piece: int  # bytes of a copy that the layout allows
    out_piece: int = 16  # and of dy, for wgrad

    @property
    def direction(self) -> str:
        return "dgrad" if self.is_dgrad else "wgrad" if self.is_wgrad else "fprop"

    @property
    def group_in(self) -> int:
        return self.problem.k if self.is_dgrad else self.problem.c

    @property
    def group_out(self) -> int:
        return self.problem.c if self.is_dgrad else self.problem.k

    @property
    def channels_out(self) -> int:
        return self.problem.groups * self.group_out

    @property
    def columns(self) -> int:
        """Columns that tiles count: of the output, and for dgrad those before it down to a multiple of the stride."""
        p = self.problem
        return p.input[1] + p.pre_padding[1] % p.stride[1] if self.is_dgrad else p.output[1]

    @property
    def rows(self) -> int:
        """Steps that a whole image's output rows take."""
        p = self.problem
        if self.is_dgrad:
            return -(-(p.input[0] + p.pre_padding[0] % p.stride[0]) // p.stride[0])
        return p.output[0]

    @property
    def window(self) -> int:
        p = self.problem
        return max(p.filter[0], p.stride[0]) if self.is_dgrad else -(-p.filter[0] // p.stride[0])

    @property
    def extra(self) -> int:
        """Steps before the first row is complete."""
        return (self.problem.filter[0] - 1) // self.problem.stride[0]

    @property
    def in_rows(self) -> int:
        return 1 if self.is_dgrad else self.problem.stride[0]

    @property
    def out_rows(self) -> int:
        return self.problem.stride[0] if self.is_dgrad else 1

    def wide(self, tw: int) -> int:
        """Gathered columns of a thread."""
        s, stride = self.problem.filter[1], self.problem.stride[1]
        return (tw - 1) // stride + (s - 1) // stride + 1 if self.is_dgrad else (tw - 1) * stride + s

    def step_w(self, tw: int) -> int:
        return tw // self.problem.stride[1] if self.is_dgrad else tw * self.problem.stride[1]

    def inputs(self, v: int) -> int:
        """Input channels of a thread with ``v`` output channels."""
        return self.group_in if v <= self.group_out else v // self.group_out * self.group_in


@dataclass(frozen=True, slots=True)
class Tile:
    """What a thread and a block compute, and how blocks divide the work."""

    v: int  # channels of a thread
    tw: int  # columns of a thread
    lanes: int  # threads of a block along the channels
    tiles: int  # and along the columns
    rows: int  # that a block walks down
    stages: int  # steps in the ring
    blocks: int  # of a multiprocessor, which registers are limited for

    @property
    def threads(self) -> int:
        return -(-self.lanes * self.tiles // 32) * 32


@dataclass(frozen=True, slots=True)
class Wishes:
    """Knob values; 0 leaves a choice to the model."""

    v: int
    tw: int
    rows: int
    lanes: int
    threads: int
    stages: int
    blocks: int

    @property
    def asks(self) -> bool:
        """Whether any shape of the tile is wished for."""
        return any((self.v, self.tw, self.rows, self.lanes, self.threads, self.blocks))


def in_registers(shape: Shape, v: int) -> bool:
    """True when a thread keeps its filters in registers; else they are read from shared memory."""
    return shape.is_wgrad or shape.problem.taps * shape.group_in * v <= _WEIGHTS


def registers(shape: Shape, v: int, tw: int) -> int:
    """Registers of a thread, about."""
    taps, wide, inputs = shape.problem.taps, shape.wide(tw), shape.inputs(v)
    window = shape.window * tw * v
    if shape.is_wgrad:
        return window + taps * shape.group_in * v + wide * inputs + _REGISTERS + 14
    if not in_registers(shape, v):
        return window + wide * inputs + 2 * v + _REGISTERS
    own = taps * shape.group_in * v
    return window + own + (2 * v if shape.group_in == 1 else wide * inputs) + _REGISTERS


def shared_bytes(shape: Shape, v: int, tw: int, lanes: int, tiles: int, stages: int) -> int:
    """Shared memory of a block."""
    channels_out = lanes * v
    channels_in = channels_out // shape.group_out * shape.group_in
    columns = (tiles - 1) * shape.step_w(tw) + shape.wide(tw)
    size = padded_bytes(stages * shape.in_rows * columns * channels_in * shape.in_bytes)
    if shape.is_wgrad:
        ring = size + padded_bytes(stages * tiles * tw * channels_out * shape.out_bytes)
        return max(ring, tiles * shape.problem.filter[1] * shape.group_in * channels_out * 4)
    filters = channels_out * shape.group_in * shape.problem.taps
    size += padded_bytes(filters * shape.filter_bytes)
    return size if in_registers(shape, v) else size + 4 * filters


def padded_bytes(size: int) -> int:
    return -(-size // 16) * 16


def parts_of(items: int, channel_blocks: int, resident: int, sm_count: int) -> int:
    """Blocks of wgrad that share the items of one range of channels: as many as the device holds at once."""
    return min(items, max(1, sm_count * resident // channel_blocks))


def _lanes(shape: Shape, v: int) -> list[int]:
    """Threads along the channels: whole groups, all channels where few, else about 32, little left over."""
    unit = max(1, shape.group_out // v)
    total = -(-shape.channels_out // v // unit) * unit
    if total <= 32:
        return [total]
    found = {max(unit, 32 // unit * unit), max(unit, 64 // unit * unit)} | ({unit, 2 * unit} if unit > 2 else set())
    divisors = [lanes for lanes in range(unit, 97, unit) if total % lanes == 0 and lanes >= 16]
    if divisors:
        found |= {divisors[0], divisors[-1], min(divisors, key=lambda lanes: abs(lanes - 36))}
    return sorted(found)


def _candidates(shape: Shape, wishes: Wishes) -> Iterator[tuple[int, int, int, int]]:
    """(v, tw, lanes, tiles)."""
    group, step = shape.group_out, shape.problem.stride[1] if shape.is_dgrad else 1
    legal = [v for v in (1, 2, 4, 8) if v % group == 0 or group % v == 0]
    fitting = [v for v in legal if shape.channels_out % v == 0] or legal[:1]
    chosen = [wishes.v] if wishes.v in fitting else [v for v in fitting if v <= 4] or fitting[:1]
    for v in chosen:
        widths = [wishes.tw] if wishes.tw else [1, 2, 4, 6, 7, 8, 14]
        for tw in sorted({-(-min(w, MAX_COLUMNS) // step) * step for w in widths}):
            too_wide = -(-shape.columns // tw) * tw > max(1.3 * shape.columns, shape.columns + step)
            if not wishes.tw and (too_wide or registers(shape, v, tw) > _MOST) and tw > step:
                continue
            count = -(-shape.columns // tw)
            unit = max(1, group // v)
            for lanes in [max(unit, wishes.lanes // unit * unit)] if wishes.lanes else _lanes(shape, v):
                for threads in [wishes.threads] if wishes.threads else [128, 256, 384]:
                    most = max(1, threads // lanes)
                    yield v, tw, lanes, -(-count // -(-count // most))


STAGES = 4  # steps in the ring, where nothing else is known

# (direction, filter, stride) -> v, columns of a thread, lanes, threads, rows of a block, steps in the ring (or 0):
# depthwise tiles that were the fastest of those tried on an H200 (64 images of 56 x 56, 144 and 192 channels, fp16).
MEASURED: dict[tuple[str, tuple[int, ...], tuple[int, ...]], tuple[int, int, int, int, int, int]] = {
    ("fprop", (3, 3), (1, 1)): (4, 8, 36, 0, 0, 0),
    ("fprop", (3, 3), (2, 2)): (4, 2, 36, 256, 14, 3),
    ("fprop", (5, 5), (1, 1)): (4, 4, 18, 128, 0, 5),
    ("fprop", (7, 7), (1, 1)): (1, 14, 32, 128, 28, 0),
    ("dgrad", (3, 3), (1, 1)): (4, 8, 36, 0, 0, 0),
    ("dgrad", (5, 5), (1, 1)): (4, 4, 18, 128, 0, 6),
    ("dgrad", (7, 7), (1, 1)): (2, 7, 16, 128, 28, 0),
    ("wgrad", (3, 3), (1, 1)): (2, 4, 72, 512, 0, 0),
    ("wgrad", (3, 3), (2, 2)): (4, 2, 36, 0, 0, 0),
    ("wgrad", (7, 7), (1, 1)): (1, 14, 0, 0, 0, 0),
}


# Of the model's time that such a tile takes, where that was measured.
_SHARES: dict[tuple[str, tuple[int, ...]], float] = {("fprop", (5, 5)): 0.71, ("dgrad", (5, 5)): 0.71}

# (filter gradient or not, filter, columns) -> v, columns of a thread, lanes at most, steps in the ring, and the share
# of the model's time that it takes: small images (32, of 240 to 672 channels, fp16), for down to half the columns.
SMALL: dict[tuple[bool, tuple[int, ...], int], tuple[int, int, int, int, float]] = {
    (False, (5, 5), 28): (2, 7, 60, 6, 0.7),
    (False, (5, 5), 14): (2, 4, 42, 6, 0.7),
    (False, (7, 7), 14): (2, 2, 48, 4, 0.5),
    (True, (7, 7), 14): (1, 7, 32, 4, 0.95),
}
_SMALL_THREADS, _SMALL_ROWS = 256, 14


def _measured(shape: Shape, wishes: Wishes) -> tuple[Wishes, float] | None:
    """What was measured to be the best for such a filter, where it divides the channels; its share of the time."""
    p = shape.problem
    for (is_wgrad, taps, columns), (v, tw, most, stages, share) in SMALL.items():
        is_it = is_wgrad == shape.is_wgrad and taps == p.filter and set(p.stride) == {1}
        if is_it and columns // 2 < shape.columns <= columns:
            lanes = next(n for n in range(most, 0, -1) if shape.channels_out // v % n == 0)
            if shape.channels_out % v == 0 and 2 * lanes >= most:
                tile = replace(wishes, v=v, tw=tw, lanes=lanes, threads=_SMALL_THREADS, rows=_SMALL_ROWS, stages=stages)
                return tile, share
    known = MEASURED.get((shape.direction, p.filter, p.stride))
    if known is None:
        return None
    v, tw, lanes, threads, rows, stages = known
    if shape.channels_out % (v * (lanes or 1)) or shape.rows < 2 * rows or shape.columns < 2 * tw:
        return None
    tile = replace(wishes, v=v, tw=tw, lanes=lanes, threads=threads, rows=rows, stages=stages or wishes.stages)
    return tile, _SHARES.get((shape.direction, p.filter), 1.0)


@dataclass(frozen=True, slots=True)
class DeviceOf:
    """The numbers of a device that the model reads; unlike a DeviceSpec it can be a key."""

    sm_count: int
    shared_memory: int
    bandwidth: float
    rate: float  # multiply-adds per second
    warps: int  # of a multiprocessor

    @classmethod
    def of(cls, device: DeviceSpec, rate: float) -> DeviceOf:
        return cls(device.sm_count, device.shared_memory, device.bandwidth * _COPY_SHARE, rate / 2, device.warps)


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    seconds: float  # without the launch


@lru_cache(maxsize=256)
def choose(shape: Shape, device: DeviceOf, wishes: Wishes) -> Choice:
    """The tile with the least predicted time; wishes that no tile can meet are dropped.

    Where nothing is wished and a tile was measured to be the best for this filter, that one is taken if it fits.
    """
    if shape.group_out == shape.group_in == 1 and not wishes.asks:
        measured = _measured(shape, wishes)
        if measured is not None:
            tile, share = measured
            found = choose(shape, device, tile if wishes.stages == STAGES else replace(tile, stages=wishes.stages))
            if isfinite(found.seconds):
                return replace(found, seconds=share * found.seconds)
    best: Choice | None = None
    for v, tw, lanes, tiles in dict.fromkeys(_candidates(shape, wishes)):
        choice = _predict(shape, device, wishes, v, tw, lanes, tiles)
        if best is None or choice.seconds < best.seconds:
            best = choice
    assert best is not None
    free = replace(wishes, v=0, tw=0, lanes=0, threads=0, stages=2)
    return best if isfinite(best.seconds) or wishes == free else choose(shape, device, free)


def _predict(shape: Shape, device: DeviceOf, wishes: Wishes, v: int, tw: int, lanes: int, tiles: int) -> Choice:
    p = shape.problem
    threads = -(-lanes * tiles // 32) * 32
    warps = threads // 32
    shared = shared_bytes(shape, v, tw, lanes, tiles, wishes.stages)
    # Instructions of a warp for one step.
    wide, inputs, out_rows = shape.wide(tw), shape.inputs(v), shape.out_rows
    products = v * tw * p.taps * shape.group_in / (p.stride[1] if shape.is_dgrad else 1)
    moved = shape.in_rows * wide * (inputs + max(1, inputs // 4))
    row_bytes = lanes * v // shape.group_out * shape.group_in * shape.in_bytes
    columns = shape.in_rows * ((tiles - 1) * shape.step_w(tw) + wide)
    turns = -(-columns * row_bytes // min(shape.in_piece, row_bytes & -row_bytes) // threads)
    copies = turns
    if shape.is_wgrad:
        out_bytes = lanes * v * shape.out_bytes
        out_turns = -(-tiles * tw * out_bytes // min(shape.out_piece, out_bytes & -out_bytes) // threads)
        turns, copies = max(turns, out_turns), turns + out_turns
    instructions = products + moved + 8 * copies + 50
    if shape.is_wgrad:
        instructions += v * tw * (1.5 + shape.window)
    else:
        instructions += out_rows * tw * (5 * v + 3) + out_rows * 16
    if not in_registers(shape, v):
        instructions += products / tw / v * 4  # shared memory gives a warp's 16 bytes a thread in four turns

    is_long = max(p.filter) > LONG
    needed = registers(shape, v, tw) + copies + (_LONG_MARGIN if is_long and not shape.is_wgrad else 0)
    too_long = is_long and (needed > _MOST or p.taps > _LONG_TAPS or products > _LONG_PRODUCTS)
    by_registers = 65536 // (threads * (-(-min(needed, _MOST) // 8) * 8))
    by_memory = (device.shared_memory - RESERVED) // (shared + RESERVED)
    if by_memory < 1 or turns > _MOST_TURNS or too_long:
        return Choice(Tile(v, tw, lanes, tiles, 1, wishes.stages, 1), inf)
    spills = needed > _MOST or by_registers < 1
    by_warps = device.warps // warps
    resident = max(1, min(by_registers, by_memory, by_warps, 16))
    limit = min(wishes.blocks or resident, by_warps)
    channel_blocks = -(-shape.channels_out // (lanes * v))
    # Pieces of pixels shorter than the memory's own bring their neighbours along.
    scattered = 1.0 if row_bytes >= 128 or channel_blocks == 1 else 1.1 if row_bytes >= 64 else 1.4
    in_flight = resident * (wishes.stages - 1) * shared / wishes.stages
    slower = scattered * max(1.0, _IN_FLIGHT / in_flight)

    column_blocks = -(-shape.columns // (tw * tiles))
    strips = p.n * channel_blocks * column_blocks
    all_rows, extra, channels = shape.rows, shape.extra, shape.channels_out
    issue = device.rate / 32 / device.sm_count  # warp instructions per second of a multiprocessor

    def wgrad_seconds(rows: int) -> float:
        items = p.n * column_blocks * -(-all_rows // rows)
        parts = parts_of(items, channel_blocks, resident, device.sm_count)
        per_sm = -(-parts * channel_blocks // device.sm_count)
        together = per_sm * warps
        pace = together / (-(-together // 4) * 4) * together / (together + 2.5) * (1 - 0.1 * warps / together)
        # Steps at either end have fewer products.
        arithmetic = together * instructions * -(-items // parts) * (rows + 0.6 * extra + 1) / (issue * pace)
        read = channels * p.n * column_blocks * tiles * tw * (all_rows + extra * all_rows / rows)
        image = read / shape.group_out * shape.group_in * shape.in_rows * p.stride[1] * shape.in_bytes
        partial = 8.0 * parts * p.taps * shape.group_in * channels
        memory = (image + read * shape.out_bytes + partial) / device.bandwidth * slower
        return (max(arithmetic, memory) + 0.2 * min(arithmetic, memory)) * (4.0 if spills else 1.0)

    def forward_seconds(rows: int) -> float:
        blocks = strips * -(-all_rows // rows)
        per_sm = -(-blocks // device.sm_count)
        together = min(resident, per_sm) * warps
        balance = together / (-(-together // 4) * 4)
        # Warps hide each other's waits; those of one block also wait for each other.
        pace = balance * together / (together + 2.5) * (1 - 0.1 * warps / together)
        read = rows + extra * min(1.0, all_rows / rows - 0.5)
        arithmetic = per_sm * warps * instructions * read / (issue * pace)
        elements = channels * -(-all_rows // rows) * column_blocks * tiles * tw * p.n
        image_in = elements / shape.group_out * shape.group_in * read * shape.in_rows * shape.step_w(tw) / tw
        halo = (
            columns / (shape.in_rows * tiles * shape.step_w(tw)) - 1
        )  # columns that neighbours read too: from the cache
        bytes_moved = (
            image_in * shape.in_bytes * (1 + 0.3 * halo) + elements * rows * out_rows * shape.out_bytes + shape.others
        )
        idle = per_sm * device.sm_count / blocks  # the last round
        memory = (
            bytes_moved
            / device.bandwidth
            * (1 + 0.5 * (min(idle, 3.0) - 1))
            * max(1.0, _IN_FLIGHT / in_flight)
            * scattered
        )
        return (max(arithmetic, memory) + 0.2 * min(arithmetic, memory)) * (4.0 if spills else 1.0)

    seconds = wgrad_seconds if shape.is_wgrad else forward_seconds
    if wishes.rows:
        rows = min(wishes.rows, all_rows)
    else:
        sizes = sorted({-(-all_rows // parts) for parts in (1, 2, 3, 4, 6, 8, 16)}, reverse=True)
        rows = min(sizes, key=seconds)
    return Choice(Tile(v, tw, lanes, tiles, rows, wishes.stages, limit), seconds(rows))
