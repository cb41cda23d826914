"""Depthwise fprop and dgrad with unit stride by short CTAs without shared memory: work partition and launch.

The kernel is depthwise_rows.cu. Its CTAs start and finish sooner than CTAs that slide down an image, and concurrent
CTAs read adjacent memory. The filters of a thread must fit into registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.direct.depthwise import depthwise_registers
from graphdnn.engines.cuda.direct.depthwise.depthwise_registers import pixel_pitch
from graphdnn.engines.cuda.direct.direct_access import effective_dilation
from graphdnn.engines.cuda.direct.direct_operands import Operands, interior_offsets
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import STAGES, TileRequest
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import overlapped
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp

_VEC_BYTES = 8  # bytes of a vector of channels
_MAX_REGISTERS = 232  # the most registers of a thread, by estimate
_MAX_MULTIPLY_ADDS = 3000  # the most multiply-adds of a thread, whose loops are fully unrolled
_WIDTHS = (4, 7)  # columns of a thread
_MAX_ROWS = 7
_THREADS = 256  # threads of a CTA
# Threads of a CTA with wide tiles of several rows: smaller CTAs use more of an SM's registers.
_FEWER_THREADS = 128
_OTHER_INSTRUCTIONS = 130  # instructions of a thread except for filters, loads and multiply-adds
_FREE_TAPS, _TAPS_TO_DOUBLE = 9, 50.0  # taps without register spills; further taps that double the instructions
_PROLOGUE_SECONDS = 0.5e-6  # seconds until the first loads complete
_SINGLE_WARP_FACTOR = 3.0  # time over issue slots of a single warp, whose latency no other warp hides
_SATURATING_THREADS = 768  # threads of an SM that saturate memory bandwidth
_BANDWIDTH_EFFICIENCY = 0.85  # the fraction of the data sheet's bandwidth that a copy reaches
# Measured time over the model's, fitted with the constants above to 27 times of 14 layers on an H200.
_CALIBRATION = 0.9
START = 1.5e-6  # seconds of a launch: the next launch overlaps with the last CTAs, which end soon
_MIN_SECONDS = 0.5e-6  # the least predicted time without the launch
_SM_REGISTERS = 65536  # registers of an SM
_BULK_COPY_BYTES = 16  # the unit of a bulk prefetch


@dataclass(frozen=True, slots=True)
class RowTile:
    """A work partition of depthwise_rows.cu."""

    v: int  # channels of a thread
    tw: int  # columns of a thread
    rows: int
    threads: int
    ctas_per_sm: int  # CTAs of an SM for which the registers are limited
    prefetch_rows: int  # rows in flight during the multiply-adds of a row


def _registers(shape: Shape, v: int, tw: int) -> int:
    """Estimated registers of a thread."""
    r = shape.problem.filter[0]
    return v * shape.problem.taps + r * tw * v + shape.image_columns(tw) * max(1, v * shape.in_bytes // 4) + 32


def _widths(shape: Shape) -> list[int]:
    """Numbers of columns of a thread that divide the image's columns."""
    return [tw for tw in _WIDTHS if shape.columns % tw == 0]


def choose(shape: Shape, device: DeviceSpec, request: TileRequest) -> RowTile:
    """The work partition with the least predicted time. The knob NUM_C_PER_BLOCK has no effect."""
    p = shape.problem
    widest = max(1, min(_VEC_BYTES, shape.in_copy_bytes) // shape.in_bytes)
    fitting = [v for v in (8, 4, 2, 1) if p.groups % v == 0 and v * shape.in_bytes <= shape.in_copy_bytes]
    v = request.v if request.v in fitting else next(v for v in fitting if v <= min(2, widest))
    if request.tw or not _widths(shape):
        widths = [min(request.tw or _WIDTHS[0], max(1, shape.columns))]
    else:
        widths = _widths(shape)
    found = [_tile(shape, device, request, v, tw, rows) for tw in widths for rows in _heights(shape, request)]
    return min(found, key=lambda tile: seconds(shape, tile, device))


def _heights(shape: Shape, request: TileRequest) -> list[int]:
    """Numbers of rows of a thread. They divide the image's rows, as any other number needs a branch."""
    if request.rows:
        return [min(request.rows, shape.rows)]
    return [rows for rows in range(1, _MAX_ROWS + 1) if shape.rows % rows == 0]


def _tile(shape: Shape, device: DeviceSpec, request: TileRequest, v: int, tw: int, rows: int) -> RowTile:
    while tw > 1 and _registers(shape, v, tw) > _MAX_REGISTERS:
        tw -= 1
    rows = min(rows, max(1, _MAX_MULTIPLY_ADDS // (shape.problem.taps * v * tw)))
    registers = -(-min(255, _registers(shape, v, tw)) // 8) * 8
    threads = request.threads or (_FEWER_THREADS if tw > _WIDTHS[0] and rows > 1 else _THREADS)
    ctas_per_sm = request.ctas_per_sm or max(1, _SM_REGISTERS // (registers * threads))
    ctas_per_sm = min(ctas_per_sm, device.warps * 32 // threads)
    return RowTile(v, tw, rows, threads, ctas_per_sm, 1 if request.stages == STAGES else request.stages - 1)


def seconds(shape: Shape, tile: RowTile, device: DeviceSpec) -> float:
    """Predicted seconds without the launch: the issue slots of all waves of CTAs overlap with the memory traffic."""
    p, v = shape.problem, tile.v
    loads = (tile.rows + p.filter[0] - 1) * shape.image_columns(tile.tw) * (v + 5)
    instructions = _OTHER_INSTRUCTIONS + 20 * v + loads + tile.rows * tile.tw * (v * (p.taps + 3.5) + 3)
    instructions *= 1 + max(0, p.taps - _FREE_TAPS) / _TAPS_TO_DOUBLE
    resident = tile.ctas_per_sm * tile.threads
    count = p.n * -(-shape.rows // tile.rows) * -(-shape.columns // tile.tw) * (p.groups // v)
    waves = count / (device.sm_count * resident)
    rounded_waves = waves + 0.3 * (ceil(waves) - waves) if waves > 1 else waves
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of an SM
    first_warp = _SINGLE_WARP_FACTOR * instructions / issue * 4
    arithmetic = _PROLOGUE_SECONDS + first_warp + rounded_waves * resident / 32 * instructions / issue
    elements = float(p.n * p.groups * shape.rows * shape.columns)
    # Traffic over the image's bytes: two CTAs read the rows of a halo.
    halo_factor = 1 + 0.16 * (p.filter[0] - 1) / tile.rows / 2
    moved = elements * (shape.in_bytes * halo_factor + shape.out_bytes) + shape.other_bytes
    latency_factor = float(max(1.0, _SATURATING_THREADS / resident) ** 0.1)
    memory = moved / (device.bandwidth * _BANDWIDTH_EFFICIENCY) * latency_factor
    measured = _CALIBRATION * overlapped(arithmetic, memory, 0.25)
    return max(_MIN_SECONDS, measured - START)


def generate(op: FusedOp, operands: Operands, steps: LaunchSequence, tile: RowTile) -> DeviceKernel:
    """The launch of depthwise_rows.cu with the work partition ``tile``."""
    shape, p = operands.shape, operands.roles.problem
    dilation, channel_threads = effective_dilation(p), p.groups // tile.v
    interior = interior_offsets(operands, 0, tile.rows)
    is_bulk_aligned = shape.in_copy_bytes == _BULK_COPY_BYTES
    out_h = (p.input if shape.is_dgrad else p.output)[0]
    constants = {
        "ROWS": tile.rows, "PREFETCH_ROWS": tile.prefetch_rows,
        "INTERIOR_ROW_BEGIN": interior[0], "INTERIOR_ROW_END": interior[1],
        "WHOLE_ROWS": out_h % (tile.rows * dilation[0]) == 0,
        "PREFETCHES_L2": is_bulk_aligned and set(dilation) == {1} and pixel_pitch(operands) == p.groups,
        "L2_PREFETCH_COLUMNS": -(-tile.threads // channel_threads) * tile.tw + p.filter[1] - 1,
    }  # fmt: skip
    fields = {"first_blocks": steps.device.sm_count * tile.ctas_per_sm}
    return depthwise_registers.generate(op, operands, steps, tile, "rows", constants, fields)
