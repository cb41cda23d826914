"""The time of a direct convolution's tile: a model of what a multiprocessor does for a step of the sliding window.

The kernel is issue-bound or memory-bound. The model counts the instructions of a step, the registers that limit
latency hiding, and how CTAs divide among the multiprocessors.
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

_MOST_TURNS = 32  # pieces of a step that a thread copies
_LONG_TAPS = 1024
_LONG_PRODUCTS = 4096  # of a thread for a row, each an instruction of the text
_LONG_MARGIN = 24  # registers
_IN_FLIGHT = 20_000  # bytes under way to a multiprocessor that keep memory busy
_SECTOR = 32  # bytes
COPY_SHARE = 0.88  # of the data sheet's bandwidth that a copy reaches
_MOST_BLOCKS = 16  # of a multiprocessor
_SPILLING = 4.0  # times as long as where registers do


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
        return cls(device.sm_count, device.shared_memory, device.bandwidth * COPY_SHARE, rate / 2, device.warps)


def predict(shape: Shape, device: DeviceOf, wishes: Wishes, v: int, tw: int, lanes: int, tiles: int) -> Choice:
    """The tile with the rows that take least; infinite seconds where it does not fit."""
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
    """The share of issue slots that so many warps of a multiprocessor use, in blocks of ``of_block`` warps.

    Warps hide each other's waits; warps of one block also wait for each other.
    """
    balance = together / (-(-together // 4) * 4)
    return balance * together / (together + 2.5) * (1 - 0.1 * of_block / together)


def whole_sectors(width: int) -> float:
    """Bytes that are read for each byte of a pixel's ``width`` bytes: memory is read in sectors of 32 bytes."""
    return -(-width // _SECTOR) * _SECTOR / width


def overlapped(arithmetic: float, memory: float, not_hidden: float = 0.2) -> float:
    """The time of both: the longer one, and the share of the shorter one that the longer one does not hide."""
    return max(arithmetic, memory) + not_hidden * min(arithmetic, memory)


class _Step(NamedTuple):
    """What a block does for one step of its walk."""

    columns: int  # that it gathers
    row_bytes: int  # of the channels of an image pixel
    turns: int  # pieces that a thread copies, of the operand with more of them
    copies: int  # of both
    products: float  # of a thread
    instructions: float  # of a warp

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
            instructions += products / tw / v * 4  # shared memory gives a warp's 16 bytes a thread in four turns
        return cls(columns, row_bytes, turns, copies, products, instructions)


class _Residents(NamedTuple):
    """The blocks that share a multiprocessor."""

    blocks: int
    warps: int  # of each
    spills: bool
    waiting: float  # times as long as memory takes where enough is under way
    scattered: float  # times as long as where pixels' channels are whole pieces of memory

    @classmethod
    def of(cls, shape: Shape, device: DeviceOf, tile: Tile, step: _Step) -> _Residents | None:
        """None where a block does not fit, or its text would be too long."""
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
        # Pieces of pixels shorter than the memory's own bring their neighbours along.
        scattered = 1.0 if step.row_bytes >= 128 or is_whole else 1.1 if step.row_bytes >= 64 else 1.4
        in_flight = blocks * (tile.stages - 1) * shared / tile.stages
        spills = needed > MOST_REGISTERS or by_registers < 1
        return cls(blocks, warps, spills, max(1.0, _IN_FLIGHT / in_flight), scattered)

    def pace(self, together: int) -> float:
        return issue_share(together, self.warps)

    def seconds(self, arithmetic: float, memory: float) -> float:
        return overlapped(arithmetic, memory) * (_SPILLING if self.spills else 1.0)


def _blocks(shape: Shape, tile: Tile) -> tuple[int, int]:
    """Along the channels and the columns."""
    return -(-shape.channels_out // (tile.lanes * tile.v)), -(-shape.columns // (tile.tw * tile.tiles))


def _issue(device: DeviceOf) -> float:
    """Warp instructions per second of a multiprocessor."""
    return device.rate / WARP / device.sm_count


def _wgrad_seconds(shape: Shape, device: DeviceOf, tile: Tile, step: _Step, resident: _Residents, rows: int) -> float:
    p, channels = shape.problem, shape.channels_out
    channel_blocks, column_blocks = _blocks(shape, tile)
    items = p.n * column_blocks * -(-shape.rows // rows)
    parts = parts_of(items, channel_blocks, resident.blocks, device.sm_count)
    together = -(-parts * channel_blocks // device.sm_count) * resident.warps
    pace = resident.pace(together)
    # Steps at either end have fewer products.
    walked = rows + 0.6 * shape.extra + 1
    arithmetic = together * step.instructions * -(-items // parts) * walked / (_issue(device) * pace)
    read = channels * p.n * column_blocks * tile.tiles * tile.tw * (shape.rows + shape.extra * shape.rows / rows)
    image = read / shape.group_out * shape.group_in * shape.in_rows * p.stride[1] * shape.in_bytes
    partial = 8.0 * parts * p.taps * shape.group_in * channels
    moved = (image + read * shape.out_bytes + partial) / device.bandwidth
    return resident.seconds(arithmetic, moved * (resident.scattered * resident.waiting))


def _forward_seconds(shape: Shape, device: DeviceOf, tile: Tile, step: _Step, resident: _Residents, rows: int) -> float:
    """Of fprop and dgrad."""
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
    halo = step.columns / (shape.in_rows * tile.tiles * step_w) - 1  # columns that neighbours read too: from the cache
    moved = image_in * shape.in_bytes * (1 + 0.3 * halo) + elements * rows * shape.out_rows * shape.out_bytes
    idle = per_sm * device.sm_count / blocks  # the last round
    memory = (moved + shape.others) / device.bandwidth * (1 + 0.5 * (min(idle, 3.0) - 1))
    return resident.seconds(arithmetic, memory * resident.waiting * resident.scattered)
