"""Depthwise fprop and dgrad by a sliding window in registers: the supported convolutions and the work partition.

The kernel is depthwise_strips.cu. It issues little besides multiply-adds. It has few warps, so the warps have to fill
the device evenly and prefetch early.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.direct.depthwise import depthwise_registers
from graphdnn.engines.cuda.direct.direct_operands import Sides
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import Wishes
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import overlapped
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp

_PIECE = 4  # bytes of channels that one access reads
_WIDTHS = (8, 7)  # columns of a thread
_ROWS = 14  # of a thread at least, unless they are asked for: it reads four more
_THREADS, _FEWER = 256, 128  # of a block, and where multiprocessors have fewer than one such block
_AHEAD, _ASKED = 2, 4  # rows under way, and asked for, while one is added
_REGISTERS = 255  # of a thread at most
_RESIDENT = 65536  # registers of a multiprocessor
_AROUND = 15  # instructions of a thread for a row beside its loads, products and results
_WAITING = 1.3  # of the issue slots that its instructions take
_ALONE = 500  # issue slots besides, of a row, where too few warps hide that it is on its way
_STARTING = 0.2e-6  # seconds until the first rows are there
_NOT_HIDDEN = 0.1  # of the shorter of arithmetic and memory
_COPY_SHARE = 0.85  # of the data sheet's bandwidth that a copy reaches


@dataclass(frozen=True, slots=True)
class Strips:
    """A division of the work."""

    v: int  # channels of a thread
    tw: int  # columns
    rows: int  # that a thread walks down
    threads: int  # of a block
    blocks: int  # of a multiprocessor, which registers are limited for
    ahead: int  # rows under way


def choose(shape: Shape, device: DeviceSpec, wishes: Wishes) -> Strips:
    """The division, as far as knobs leave it open. Of those, NUM_C_PER_BLOCK has no part in it."""
    p, widest = shape.problem, max(1, min(_PIECE, shape.in_piece) // shape.in_bytes)
    fitting = [v for v in (8, 4, 2, 1) if p.groups % v == 0 and v * shape.in_bytes <= shape.in_piece]
    v = wishes.v if wishes.v in fitting else next(v for v in fitting if v <= widest)
    tw = min(wishes.tw or next((tw for tw in _WIDTHS if shape.columns % tw == 0), _WIDTHS[0]), shape.columns)
    while tw > 1 and _registers(shape, v, tw) > _REGISTERS:
        tw -= 1
    heights = {min(wishes.rows, shape.rows)} if wishes.rows else _heights(shape.rows)
    found = [_tile(shape, device, wishes, v, tw, rows) for rows in sorted(heights, reverse=True)]
    return min(found, key=lambda tile: seconds(shape, tile, device))


def _tile(shape: Shape, device: DeviceSpec, wishes: Wishes, v: int, tw: int, rows: int) -> Strips:
    few = _threads(shape, v, tw, rows) < 0.9 * _THREADS * device.sm_count
    threads = wishes.threads or (_FEWER if few else _THREADS)
    blocks = min(wishes.blocks or max(1, _RESIDENT // (_REGISTERS * threads)), device.warps * 32 // threads)
    return Strips(v, tw, rows, threads, blocks, _AHEAD)


def _threads(shape: Shape, v: int, tw: int, rows: int) -> int:
    """That have something to do."""
    p = shape.problem
    return p.n * -(-shape.rows // rows) * -(-shape.columns // tw) * (p.groups // v)


def _heights(rows: int) -> set[int]:
    """Rows of a thread: an image's, or of parts of it."""
    return {rows, *(height for parts in range(2, 9) if (height := -(-rows // parts)) >= _ROWS)}


def _registers(shape: Shape, v: int, tw: int) -> int:
    """Of a thread, about."""
    p = shape.problem
    return v * p.taps + p.filter[0] * tw * v + _AHEAD * shape.wide(tw) * max(1, v * shape.in_bytes // 4) + 45


def seconds(shape: Shape, tile: Strips, device: DeviceSpec) -> float:
    """Without the launch: rows of the busiest multiprocessor one after the other, or memory's time."""
    p, v = shape.problem, tile.v
    instructions = tile.tw * v * p.taps + shape.wide(tile.tw) * (v + 1) + tile.tw * (2 * v + 1) + _AROUND
    resident = tile.blocks * tile.threads / 32  # warps of a multiprocessor
    each = _threads(shape, v, tile.tw, tile.rows) / 32 / device.sm_count
    rounds, together = max(1, ceil(each / resident)), min(resident, 4 * ceil(each / 4))
    above = 0.0 if tile.rows >= shape.rows else 0.5 * (p.filter[0] - 1)  # rows of two threads
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of a multiprocessor
    row = max(together * instructions * _WAITING, 4 * (instructions + _ALONE)) / issue
    elements = float(p.n * p.groups * shape.rows * shape.columns)
    moved = elements * (shape.in_bytes * (1 + above / tile.rows / 2) + shape.out_bytes) + shape.others
    memory = moved / (device.bandwidth * _COPY_SHARE)
    return overlapped(_STARTING + rounds * (tile.rows + above) * row, memory, _NOT_HIDDEN)


def generate(op: FusedOp, sides: Sides, steps: LaunchSequence, tile: Strips) -> DeviceKernel:
    constants, fields = {"PREFETCH_ROWS": tile.ahead, "L2_PREFETCH_ROWS": _ASKED}, {"segment_rows": tile.rows}
    return depthwise_registers.generate(op, sides, steps, tile, "strips", constants, fields)
