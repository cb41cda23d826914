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

_PIECE = 4  # bytes of a vector of channels
_WIDTHS = (8, 7)  # columns of a thread
_ROWS = 14  # the fewest rows of a thread, unless a knob asks for fewer: it reads R - 1 more rows than it writes
_THREADS, _FEWER = 256, 128  # threads of a CTA; the second where there are fewer CTAs than SMs
_AHEAD, _ASKED = 2, 4  # rows in flight to registers, and rows ahead that are prefetched into L2
_REGISTERS = 255  # the most registers of a thread
_RESIDENT = 65536  # registers of an SM
_AROUND = 15  # instructions of a thread for a row, beside loads, multiply-adds and stores
_WAITING = 1.3  # time over the issue slots of its instructions
_ALONE = 500  # issue slots of latency for each row that too few warps hide
_STARTING = 0.2e-6  # seconds until the first rows arrive
_NOT_HIDDEN = 0.1  # the part of the shorter of arithmetic and memory time that is not hidden
_COPY_SHARE = 0.85  # the part of the data sheet's bandwidth that a copy reaches


@dataclass(frozen=True, slots=True)
class Strips:
    """A work partition, which the engine's cost model ranks."""

    v: int  # channels of a thread
    tw: int  # columns
    rows: int  # rows of a thread
    threads: int  # threads of a CTA
    blocks: int  # CTAs of an SM that the register limit allows
    ahead: int  # rows in flight


def choose(shape: Shape, device: DeviceSpec, wishes: Wishes) -> Strips:
    """The work partition with the least predicted time; knobs fix the values that they set, except NUM_C_PER_BLOCK."""
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
    """The threads that have work."""
    p = shape.problem
    return p.n * -(-shape.rows // rows) * -(-shape.columns // tw) * (p.groups // v)


def _heights(rows: int) -> set[int]:
    """Numbers of rows of a thread: all rows of an image, or an even part of them."""
    return {rows, *(height for parts in range(2, 9) if (height := -(-rows // parts)) >= _ROWS)}


def _registers(shape: Shape, v: int, tw: int) -> int:
    """Estimated registers of a thread."""
    p = shape.problem
    return v * p.taps + p.filter[0] * tw * v + _AHEAD * shape.wide(tw) * max(1, v * shape.in_bytes // 4) + 45


def seconds(shape: Shape, tile: Strips, device: DeviceSpec) -> float:
    """Predicted seconds without the launch: the longer of the busiest SM's rows and the memory traffic."""
    p, v = shape.problem, tile.v
    instructions = tile.tw * v * p.taps + shape.wide(tile.tw) * (v + 1) + tile.tw * (2 * v + 1) + _AROUND
    resident = tile.blocks * tile.threads / 32  # warps of an SM
    each = _threads(shape, v, tile.tw, tile.rows) / 32 / device.sm_count
    rounds, together = max(1, ceil(each / resident)), min(resident, 4 * ceil(each / 4))
    above = 0.0 if tile.rows >= shape.rows else 0.5 * (p.filter[0] - 1)  # rows that two threads read
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of an SM
    row = max(together * instructions * _WAITING, 4 * (instructions + _ALONE)) / issue
    elements = float(p.n * p.groups * shape.rows * shape.columns)
    moved = elements * (shape.in_bytes * (1 + above / tile.rows / 2) + shape.out_bytes) + shape.others
    memory = moved / (device.bandwidth * _COPY_SHARE)
    return overlapped(_STARTING + rounds * (tile.rows + above) * row, memory, _NOT_HIDDEN)


def generate(op: FusedOp, sides: Sides, steps: LaunchSequence, tile: Strips) -> DeviceKernel:
    constants, fields = {"PREFETCH_ROWS": tile.ahead, "L2_PREFETCH_ROWS": _ASKED}, {"segment_rows": tile.rows}
    return depthwise_registers.generate(op, sides, steps, tile, "strips", constants, fields)
