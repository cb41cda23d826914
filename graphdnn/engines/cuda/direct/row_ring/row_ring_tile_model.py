"""The time of a direct convolution's tile: a model of an SM during a step of the sliding window.

The kernel is issue-bound or memory-bound. The model counts the instructions of a step, the registers that limit
latency hiding, and the distribution of CTAs over the SMs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED, WARP
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import (
    LONG,
    MOST_REGISTERS,
    Choice,
    Tile,
    Wishes,
    in_registers,
    parts_of,
    registers,
    shared_bytes,
)

_MOST_TURNS = 32  # the most vectors that a thread copies for a step
_LONG_TAPS = 1024
_LONG_PRODUCTS = 4096  # the most multiply-adds of a thread for a row, as the loops are fully unrolled
_LONG_MARGIN = 24  # registers that are kept free for long filters
_IN_FLIGHT = 20_000  # bytes in flight to an SM that saturate memory bandwidth
_SECTOR = 32  # bytes of a memory sector
COPY_SHARE = 0.88  # the part of the data sheet's bandwidth that a copy reaches
_MOST_BLOCKS = 16  # the most resident CTAs of an SM
_SPILLING = 4.0  # factor of time if registers spill


@dataclass(frozen=True, slots=True)
class DeviceOf:
    """The properties of a device that the model reads; unlike a DeviceSpec, the object can be a dictionary key."""

    sm_count: int
    shared_memory: int
    bandwidth: float
    rate: float  # multiply-adds per second
    warps: int  # of a multiprocessor

    @classmethod
    def of(cls, device: DeviceSpec, rate: float) -> DeviceOf:
        return cls(device.sm_count, device.shared_memory, device.bandwidth * COPY_SHARE, rate / 2, device.warps)


def predict(shape: Shape, device: DeviceOf, wishes: Wishes, v: int, tw: int, lanes: int, tiles: int) -> Choice:
    """The tile with the fastest number of rows; its seconds are infinite if it does not fit."""
    tile = Tile(v, tw, lanes, tiles, 1, wishes.stages, 1)
    step = _Step.of(shape, tile)
    resident = _Residents.of(shape, device, tile, step)
    if resident is None:
        return Choice(tile, inf)
    seconds = partial(_wgrad_seconds if shape.is_wgrad else _forward_seconds, shape, device, tile, step, resident)
    if wishes.rows:
        rows = min(wishes.rows, shape.rows)
    else:
        sizes = sorted({-(-shape.rows // parts) for parts in (1, 2, 3, 4, 6, 8, 16)}, reverse=True)
        rows = min(sizes, key=seconds)
    limit = min(wishes.blocks or resident.blocks, device.warps // (tile.threads // WARP))
    return Choice(replace(tile, rows=rows, blocks=limit), seconds(rows))


def issue_share(together: int, of_block: int) -> float:
    """The part of the issue slots that ``warps`` warps of an SM use, in CTAs of ``of_block`` warps.

    Warps hide each other's latency; warps of one CTA also wait for each other at barriers.
    """
    balance = together / (-(-together // 4) * 4)
    return balance * together / (together + 2.5) * (1 - 0.1 * of_block / together)


def whole_sectors(width: int) -> float:
    """Bytes read over bytes used, for pixels of ``width`` bytes: memory is read in sectors of 32 bytes."""
    return -(-width // _SECTOR) * _SECTOR / width


def overlapped(arithmetic: float, memory: float, not_hidden: float = 0.2) -> float:
    """The longer time, plus the part of the shorter one that does not overlap with it."""
    return max(arithmetic, memory) + not_hidden * min(arithmetic, memory)


class _Step(NamedTuple):
    """The work of a CTA for one step of the sliding window."""

    columns: int  # image columns that the CTA reads
    row_bytes: int  # bytes of the CTA's channels of an image pixel
    turns: int  # vectors that a thread copies, of the operand with more of them
    copies: int  # vectors of both operands
    products: float  # multiply-adds of a thread
    instructions: float  # instructions of a warp

    @classmethod
    def of(cls, shape: Shape, tile: Tile) -> _Step:
        p, v, tw = shape.problem, tile.v, tile.tw
        wide, inputs, out_rows = shape.wide(tw), shape.inputs(v), shape.out_rows
        products = v * tw * p.taps * shape.group_in / (p.stride[1] if shape.is_dgrad else 1)
        moved = shape.in_rows * wide * (inputs + max(1, inputs // 4))
        row_bytes = tile.lanes * v // shape.group_out * shape.group_in * shape.in_bytes
        columns = shape.in_rows * ((tile.tiles - 1) * shape.step_w(tw) + wide)
        turns = -(-columns * row_bytes // min(shape.in_piece, row_bytes & -row_bytes) // tile.threads)
        copies = turns
        if shape.is_wgrad:
            out_bytes = tile.lanes * v * shape.out_bytes
            piece = min(shape.out_piece, out_bytes & -out_bytes)
            out_turns = -(-tile.tiles * tw * out_bytes // piece // tile.threads)
            turns, copies = max(turns, out_turns), turns + out_turns
        instructions = products + moved + 8 * copies + 50
        if shape.is_wgrad:
            instructions += v * tw * (1.5 + shape.window)
        else:
            instructions += out_rows * tw * (5 * v + 3) + out_rows * 16
        if not in_registers(shape, v):
            instructions += products / tw / v * 4  # a load of 16 bytes for each lane takes four wavefronts
        return cls(columns, row_bytes, turns, copies, products, instructions)


class _Residents(NamedTuple):
    """The CTAs that are resident on an SM."""

    blocks: int
    warps: int  # warps of a CTA
    spills: bool
    waiting: float  # factor of memory time, 1 if enough bytes are in flight
    scattered: float  # factor of memory time, 1 if a pixel's channels are whole sectors

    @classmethod
    def of(cls, shape: Shape, device: DeviceOf, tile: Tile, step: _Step) -> _Residents | None:
        """The resident CTAs, or None if a CTA does not fit or its unrolled code would be too long."""
        is_long = max(shape.problem.filter) > LONG
        margin = _LONG_MARGIN if is_long and not shape.is_wgrad else 0
        needed = registers(shape, tile.v, tile.tw) + step.copies + margin
        too_much = needed > MOST_REGISTERS or shape.problem.taps > _LONG_TAPS or step.products > _LONG_PRODUCTS
        shared = shared_bytes(shape, tile.v, tile.tw, tile.lanes, tile.tiles, tile.stages)
        by_registers = 65536 // (tile.threads * (-(-min(needed, MOST_REGISTERS) // 8) * 8))
        by_memory = (device.shared_memory - RESERVED) // (shared + RESERVED)
        if by_memory < 1 or step.turns > _MOST_TURNS or (is_long and too_much):
            return None
        warps = tile.threads // WARP
        blocks = max(1, min(by_registers, by_memory, device.warps // warps, _MOST_BLOCKS))
        is_whole = tile.lanes * tile.v >= shape.channels_out
        # A pixel that is shorter than a sector reads the rest of the sector, too.
        scattered = 1.0 if step.row_bytes >= 128 or is_whole else 1.1 if step.row_bytes >= 64 else 1.4
        in_flight = blocks * (tile.stages - 1) * shared / tile.stages
        spills = needed > MOST_REGISTERS or by_registers < 1
        return cls(blocks, warps, spills, max(1.0, _IN_FLIGHT / in_flight), scattered)

    def pace(self, together: int) -> float:
        return issue_share(together, self.warps)

    def seconds(self, arithmetic: float, memory: float) -> float:
        return overlapped(arithmetic, memory) * (_SPILLING if self.spills else 1.0)


def _blocks(shape: Shape, tile: Tile) -> tuple[int, int]:
    """CTAs along the channels and the columns."""
    return -(-shape.channels_out // (tile.lanes * tile.v)), -(-shape.columns // (tile.tw * tile.tiles))


def _issue(device: DeviceOf) -> float:
    """Warp instructions per second of an SM."""
    return device.rate / WARP / device.sm_count


def _wgrad_seconds(shape: Shape, device: DeviceOf, tile: Tile, step: _Step, resident: _Residents, rows: int) -> float:
    p, channels = shape.problem, shape.channels_out
    channel_blocks, column_blocks = _blocks(shape, tile)
    items = p.n * column_blocks * -(-shape.rows // rows)
    parts = parts_of(items, channel_blocks, resident.blocks, device.sm_count)
    together = -(-parts * channel_blocks // device.sm_count) * resident.warps
    pace = resident.pace(together)
    # The first and the last steps have fewer multiply-adds.
    walked = rows + 0.6 * shape.extra + 1
    arithmetic = together * step.instructions * -(-items // parts) * walked / (_issue(device) * pace)
    read = channels * p.n * column_blocks * tile.tiles * tile.tw * (shape.rows + shape.extra * shape.rows / rows)
    image = read / shape.group_out * shape.group_in * shape.in_rows * p.stride[1] * shape.in_bytes
    partial = 8.0 * parts * p.taps * shape.group_in * channels
    moved = (image + read * shape.out_bytes + partial) / device.bandwidth
    return resident.seconds(arithmetic, moved * (resident.scattered * resident.waiting))


def _forward_seconds(shape: Shape, device: DeviceOf, tile: Tile, step: _Step, resident: _Residents, rows: int) -> float:
    """Predicted seconds of fprop and dgrad."""
    p, channels = shape.problem, shape.channels_out
    channel_blocks, column_blocks = _blocks(shape, tile)
    segments = -(-shape.rows // rows)
    blocks = p.n * channel_blocks * column_blocks * segments
    per_sm = -(-blocks // device.sm_count)
    pace = resident.pace(min(resident.blocks, per_sm) * resident.warps)
    read = rows + shape.extra * min(1.0, shape.rows / rows - 0.5)
    arithmetic = per_sm * resident.warps * step.instructions * read / (_issue(device) * pace)
    step_w = shape.step_w(tile.tw)
    elements = channels * segments * column_blocks * tile.tiles * tile.tw * p.n
    image_in = elements / shape.group_out * shape.group_in * read * shape.in_rows * step_w / tile.tw
    halo = step.columns / (shape.in_rows * tile.tiles * step_w) - 1  # columns that adjacent CTAs read as well, from L2
    moved = image_in * shape.in_bytes * (1 + 0.3 * halo) + elements * rows * shape.out_rows * shape.out_bytes
    idle = per_sm * device.sm_count / blocks  # the last wave of CTAs
    memory = (moved + shape.others) / device.bandwidth * (1 + 0.5 * (min(idle, 3.0) - 1))
    return resident.seconds(arithmetic, memory * resident.waiting * resident.scattered)
