"""Depthwise fprop and dgrad by short CTAs without shared memory: supported convolutions, work partition, kernel.

The kernel is depthwise_rows.cu. Its CTAs start and finish sooner than CTAs that slide down an image, and concurrent
CTAs read neighbouring memory. A thread's filters have to fit into registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.direct.depthwise import depthwise_registers
from graphdnn.engines.cuda.direct.depthwise.depthwise_registers import pitch
from graphdnn.engines.cuda.direct.direct_access import apart
from graphdnn.engines.cuda.direct.direct_operands import Sides, safe_places
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import STAGES, Wishes
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import overlapped
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp

_PIECE = 8  # bytes of a vector of channels
_WEIGHTS = 100  # filter elements of a thread
_MOST = 232  # the most estimated registers of a thread
_PRODUCTS = 3000  # the most multiply-adds of a thread, as the loops are fully unrolled
_WIDTHS = (4, 7)  # columns of a thread
_MOST_ROWS = 7
_THREADS = 256  # threads of a CTA
# Threads of a CTA with wide tiles of several rows: their registers allow an odd number of such CTAs on an SM.
_FEWER = 128
_AROUND = 130  # instructions of a thread beside its filters, loads and sums
_FREE_TAPS, _CROWDED = 9, 50.0  # taps that cause no register spills, and further taps that double the instructions
_STARTING = 0.5e-6  # seconds until the first loads complete
_ALONE = 3.0  # time over issue slots of a warp that runs alone, so that nothing hides its latency
_THREADS_BUSY = 768  # threads of an SM that saturate memory bandwidth
_COPY_SHARE = 0.85  # the part of the data sheet's bandwidth that a copy reaches
_MEASURED = 0.9  # measured time over the model's; fitted with the constants above to 27 times of 14 layers on an H200
START = 1.5e-6  # seconds of a launch; short CTAs end soon, so the next launch overlaps the last ones
_LEAST = 0.5e-6
_RESIDENT = 65536  # registers of an SM
_WHOLE_PIECE = 16  # bytes; the box of a TMA copy is a multiple of them


@dataclass(frozen=True, slots=True)
class Rows:
    """A work partition, which the engine's cost model ranks."""

    v: int  # channels of a thread
    tw: int  # columns of a thread
    rows: int
    threads: int
    blocks: int  # CTAs of an SM that the register limit allows
    ahead: int  # rows in flight during the multiply-adds of a row


def _registers(shape: Shape, v: int, tw: int) -> int:
    """Estimated registers of a thread."""
    r = shape.problem.filter[0]
    return v * shape.problem.taps + r * tw * v + shape.wide(tw) * max(1, v * shape.in_bytes // 4) + 32


def _widths(shape: Shape) -> list[int]:
    """Numbers of columns of a thread that divide the image's columns."""
    return [tw for tw in _WIDTHS if shape.columns % tw == 0]


def choose(shape: Shape, device: DeviceSpec, wishes: Wishes) -> Rows:
    """The work partition with the least predicted time; knobs fix the values that they set, except NUM_C_PER_BLOCK."""
    p = shape.problem
    widest = max(1, min(_PIECE, shape.in_piece) // shape.in_bytes)
    fitting = [v for v in (8, 4, 2, 1) if p.groups % v == 0 and v * shape.in_bytes <= shape.in_piece]
    v = wishes.v if wishes.v in fitting else next(v for v in fitting if v <= min(2, widest))
    if wishes.tw or not _widths(shape):
        widths = [min(wishes.tw or _WIDTHS[0], max(1, shape.columns))]
    else:
        widths = _widths(shape)
    found = [_tile(shape, device, wishes, v, tw, rows) for tw in widths for rows in _heights(shape, wishes)]
    return min(found, key=lambda tile: seconds(shape, tile, device))


def _heights(shape: Shape, wishes: Wishes) -> list[int]:
    """Numbers of rows of a thread. They divide the image's rows, as any other number needs a branch."""
    if wishes.rows:
        return [min(wishes.rows, shape.rows)]
    return [rows for rows in range(1, _MOST_ROWS + 1) if shape.rows % rows == 0]


def _tile(shape: Shape, device: DeviceSpec, wishes: Wishes, v: int, tw: int, rows: int) -> Rows:
    while tw > 1 and _registers(shape, v, tw) > _MOST:
        tw -= 1
    rows = min(rows, max(1, _PRODUCTS // (shape.problem.taps * v * tw)))
    taken = -(-min(255, _registers(shape, v, tw)) // 8) * 8
    threads = wishes.threads or (_FEWER if tw > _WIDTHS[0] and rows > 1 else _THREADS)
    most = device.warps * 32 // threads
    blocks = min(wishes.blocks or max(1, _RESIDENT // (taken * threads)), most)
    return Rows(v, tw, rows, threads, blocks, 1 if wishes.stages == STAGES else wishes.stages - 1)


def seconds(shape: Shape, tile: Rows, device: DeviceSpec) -> float:
    """Predicted seconds without the launch: the longer of the waves of CTAs, by their instructions, and the memory
    traffic.
    """
    p, v = shape.problem, tile.v
    wide = shape.wide(tile.tw)
    loads = (tile.rows + p.filter[0] - 1) * wide * (v + 5)
    instructions = _AROUND + 20 * v + loads + tile.rows * tile.tw * (v * (p.taps + 3.5) + 3)
    instructions *= 1 + max(0, p.taps - _FREE_TAPS) / _CROWDED
    resident = tile.blocks * tile.threads
    count = p.n * -(-shape.rows // tile.rows) * -(-shape.columns // tile.tw) * (p.groups // v)
    rounds = count / (device.sm_count * resident)
    together = rounds + 0.3 * (ceil(rounds) - rounds) if rounds > 1 else rounds
    issue = device.rate(DataType.FLOAT) / 64 / device.sm_count  # warp instructions per second of an SM
    arithmetic = _STARTING + _ALONE * instructions / issue * 4 + together * resident / 32 * instructions / issue
    elements = float(p.n * p.groups * shape.rows * shape.columns)
    again = (
        1 + 0.16 * (p.filter[0] - 1) / tile.rows / 2
    )  # traffic over the image's bytes: neighbouring CTAs read some rows twice
    moved = elements * (shape.in_bytes * again + shape.out_bytes) + shape.others
    few = float(max(1.0, _THREADS_BUSY / resident) ** 0.1)
    memory = moved / (device.bandwidth * _COPY_SHARE) * few
    measured = _MEASURED * overlapped(arithmetic, memory, 0.25)
    return max(_LEAST, measured - START)


def generate(op: FusedOp, sides: Sides, steps: LaunchSequence, tile: Rows) -> DeviceKernel:
    shape, p = sides.shape, sides.roles.problem
    distances, lanes = apart(p), p.groups // tile.v
    safe = safe_places(sides, 0, tile.rows)
    out_h = (p.input if shape.is_dgrad else p.output)[0]
    constants = {
        "ROWS": tile.rows, "PREFETCH_ROWS": tile.ahead, "SAFE_ROW_FROM": safe[0], "SAFE_ROW_TO": safe[1],
        "WHOLE_ROWS": out_h % (tile.rows * distances[0]) == 0,
        "PREFETCHES_L2": set(distances) == {1} and shape.in_piece == _WHOLE_PIECE and pitch(sides) == p.groups,
        "L2_PREFETCH_COLUMNS": -(-tile.threads // lanes) * tile.tw + p.filter[1] - 1,
    }  # fmt: skip
    fields = {"first_blocks": steps.device.sm_count * tile.blocks}
    return depthwise_registers.generate(op, sides, steps, tile, "rows", constants, fields)
