"""Tiles of direct convolutions whose rows pass through a ring in shared memory, and their resources."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.engines.cuda.direct.direct_shape import Shape

STAGES = 4  # default stages of the ring
LONG = 11  # taps along an axis above which a thread's multiply-adds are limited and a register margin is kept
_REGISTERS = 40  # registers of a thread beside accumulators and filter: addresses, counters, the epilogue
MOST_REGISTERS = 255  # the most registers of a thread
_WEIGHTS = 100  # filter elements that a thread keeps in registers


@dataclass(frozen=True, slots=True)
class Tile:
    """The tiles of a thread and of a CTA, and the work partition."""

    v: int  # channels of a thread
    tw: int  # columns of a thread
    lanes: int  # threads of a CTA along the channels
    tiles: int  # threads of a CTA along the columns
    rows: int  # rows of a CTA's segment
    stages: int  # stages of the ring, a step each
    blocks: int  # CTAs of an SM that the register limit allows

    @property
    def threads(self) -> int:
        return -(-self.lanes * self.tiles // 32) * 32


@dataclass(frozen=True, slots=True)
class Wishes:
    """Knob values; 0 leaves the value to the cost model."""

    v: int
    tw: int
    rows: int
    lanes: int
    threads: int
    stages: int
    blocks: int

    @property
    def asks(self) -> bool:
        """Whether a knob sets any extent of the tile."""
        return any((self.v, self.tw, self.rows, self.lanes, self.threads, self.blocks))


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    seconds: float  # predicted time without the launch


def in_registers(shape: Shape, v: int) -> bool:
    """Whether a thread keeps its filters in registers; otherwise it reads them from shared memory."""
    return shape.is_wgrad or shape.problem.taps * shape.group_in * v <= _WEIGHTS


def registers(shape: Shape, v: int, tw: int) -> int:
    """Estimated registers of a thread."""
    taps, wide, inputs = shape.problem.taps, shape.wide(tw), shape.inputs(v)
    window = shape.window * tw * v
    if shape.is_wgrad:
        return window + taps * shape.group_in * v + wide * inputs + _REGISTERS + 14
    if not in_registers(shape, v):
        return window + wide * inputs + 2 * v + _REGISTERS
    own = taps * shape.group_in * v
    return window + own + (2 * v if shape.group_in == 1 else wide * inputs) + _REGISTERS


def shared_bytes(shape: Shape, v: int, tw: int, lanes: int, tiles: int, stages: int) -> int:
    """Bytes of shared memory of a CTA."""
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
    """Splits of wgrad: CTAs that share the work items of the same channels, one wave of them."""
    return min(items, max(1, sm_count * resident // channel_blocks))
