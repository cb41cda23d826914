"""Depthwise fprop and dgrad with unit stride by a sliding window in registers: work partition and launch.

The kernel is depthwise_sliding.cu. Most of its instructions are multiply-adds. The kernel has few warps, so the cost
model distributes the warps evenly over the SMs, and the warps prefetch early.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.direct.depthwise import depthwise_registers
from graphdnn.engines.cuda.direct.direct_operands import Operands
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import TileRequest
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import overlapped
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp

_VEC_BYTES = 4  # bytes of a vector of channels
_WIDTHS = (8, 7)  # columns of a thread
_MIN_ROWS = 14  # the fewest rows of a thread unless a knob sets them: a thread reads R - 1 more rows than it writes
_THREADS, _FEWER_THREADS = 256, 128  # threads of a CTA; fewer if the device has more SMs than CTAs
_PREFETCH_ROWS, _L2_PREFETCH_ROWS = 2, 4  # rows of prefetch distance: into registers, and into L2
_MAX_REGISTERS = 255  # the most registers of a thread
_SM_REGISTERS = 65536  # registers of an SM
_OTHER_INSTRUCTIONS = 15  # instructions of a thread for a row, except for loads, multiply-adds and stores
_STALL_FACTOR = 1.3  # time over the issue slots of all instructions
_ROW_LATENCY = 500  # issue slots of the latency of a row that few warps do not hide
_PROLOGUE_SECONDS = 0.2e-6  # seconds until the first rows arrive
_EXPOSED = 0.1  # the fraction of the shorter of arithmetic and memory time that does not overlap
_BANDWIDTH_EFFICIENCY = 0.85  # the fraction of the data sheet's bandwidth that a copy reaches


@dataclass(frozen=True, slots=True)
class SlidingTile:
    """A work partition of depthwise_sliding.cu."""

    v: int  # channels of a thread
    tw: int  # columns of a thread
    rows: int  # rows of a thread
    threads: int  # threads of a CTA
    ctas_per_sm: int  # CTAs of an SM for which the registers are limited
    prefetch_rows: int  # rows in flight


def choose(shape: Shape, device: DeviceSpec, request: TileRequest) -> SlidingTile:
    """The work partition with the least predicted time. The knobs NUM_C_PER_BLOCK and STAGES have no effect."""
    p, widest = shape.problem, max(1, min(_VEC_BYTES, shape.in_copy_bytes) // shape.in_bytes)
    fitting = [v for v in (8, 4, 2, 1) if p.groups % v == 0 and v * shape.in_bytes <= shape.in_copy_bytes]
    v = request.v if request.v in fitting else next(v for v in fitting if v <= widest)
    tw = min(request.tw or next((tw for tw in _WIDTHS if shape.columns % tw == 0), _WIDTHS[0]), shape.columns)
    while tw > 1 and _registers(shape, v, tw) > _MAX_REGISTERS:
        tw -= 1
    heights = {min(request.rows, shape.rows)} if request.rows else _heights(shape.rows)
    found = [_tile(shape, device, request, v, tw, rows) for rows in sorted(heights, reverse=True)]
    return min(found, key=lambda tile: seconds(shape, tile, device))


def _tile(shape: Shape, device: DeviceSpec, request: TileRequest, v: int, tw: int, rows: int) -> SlidingTile:
    few = _threads(shape, v, tw, rows) < 0.9 * _THREADS * device.sm_count
    threads = request.threads or (_FEWER_THREADS if few else _THREADS)
    ctas_per_sm = request.ctas_per_sm or max(1, _SM_REGISTERS // (_MAX_REGISTERS * threads))
    return SlidingTile(v, tw, rows, threads, min(ctas_per_sm, device.warps * 32 // threads), _PREFETCH_ROWS)


def _threads(shape: Shape, v: int, tw: int, rows: int) -> int:
    """Threads with output pixels."""
    p = shape.problem
    return p.n * -(-shape.rows // rows) * -(-shape.columns // tw) * (p.groups // v)


def _heights(rows: int) -> set[int]:
    """Candidates for the rows of a thread: all rows of an image, or an even part."""
    return {rows, *(height for parts in range(2, 9) if (height := -(-rows // parts)) >= _MIN_ROWS)}


def _registers(shape: Shape, v: int, tw: int) -> int:
    """Estimated registers of a thread."""
    p = shape.problem
    image_row = shape.image_columns(tw) * max(1, v * shape.in_bytes // 4)
    return v * p.taps + p.filter[0] * tw * v + _PREFETCH_ROWS * image_row + 45


def seconds(shape: Shape, tile: SlidingTile, device: DeviceSpec) -> float:
    """Predicted seconds without the launch: the rows of the busiest SM overlap with the memory traffic."""
    p, v = shape.problem, tile.v
    loads_and_stores = shape.image_columns(tile.tw) * (v + 1) + tile.tw * (2 * v + 1)
    instructions = tile.tw * v * p.taps + loads_and_stores + _OTHER_INSTRUCTIONS
    resident = tile.ctas_per_sm * tile.threads / 32  # warps of an SM
    warps_per_sm = _threads(shape, v, tile.tw, tile.rows) / 32 / device.sm_count
    waves, resident_warps = max(1, ceil(warps_per_sm / resident)), min(resident, 4 * ceil(warps_per_sm / 4))
    halo_rows = 0.0 if tile.rows >= shape.rows else 0.5 * (p.filter[0] - 1)  # rows that two threads read
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of an SM
    row = max(resident_warps * instructions * _STALL_FACTOR, 4 * (instructions + _ROW_LATENCY)) / issue
    elements = float(p.n * p.groups * shape.rows * shape.columns)
    moved = elements * (shape.in_bytes * (1 + halo_rows / tile.rows / 2) + shape.out_bytes) + shape.other_bytes
    memory = moved / (device.bandwidth * _BANDWIDTH_EFFICIENCY)
    return overlapped(_PROLOGUE_SECONDS + waves * (tile.rows + halo_rows) * row, memory, _EXPOSED)


def generate(op: FusedOp, operands: Operands, steps: LaunchSequence, tile: SlidingTile) -> DeviceKernel:
    """The launch of depthwise_sliding.cu with the work partition ``tile``."""
    constants = {"PREFETCH_ROWS": tile.prefetch_rows, "L2_PREFETCH_ROWS": _L2_PREFETCH_ROWS}
    return depthwise_registers.generate(op, operands, steps, tile, "sliding", constants, {"segment_rows": tile.rows})
