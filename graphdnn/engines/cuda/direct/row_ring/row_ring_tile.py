"""Tiles of the row ring, and the registers and shared memory that a tile needs."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.engines.cuda.direct.direct_shape import Shape

STAGES = 4  # default stages of the ring buffer
LONG_FILTER = 11  # taps along an axis; longer filters have limited multiply-adds and free registers of a thread
_OTHER_REGISTERS = 40  # registers of a thread for addresses, counters and the epilogue
MAX_REGISTERS = 255  # the most registers of a thread
_MAX_REGISTER_FILTERS = 100  # the most filter elements that a thread keeps in registers


@dataclass(frozen=True, slots=True)
class Tile:
    """The work partition: the extents of a thread and of a CTA."""

    v: int  # channels of a thread
    tw: int  # columns of a thread
    channel_threads: int  # threads of a CTA along the channels
    tiles: int  # threads of a CTA along the columns
    rows: int  # rows of a CTA's segment
    stages: int  # stages of the ring buffer, one step each
    ctas_per_sm: int  # CTAs of an SM for which the registers are limited

    @property
    def threads(self) -> int:
        return -(-self.channel_threads * self.tiles // 32) * 32


@dataclass(frozen=True, slots=True)
class TileRequest:
    """The extents that knobs or a measured tile set; the cost model chooses extents that are 0."""

    v: int
    tw: int
    rows: int
    channel_threads: int
    threads: int
    stages: int
    ctas_per_sm: int

    @property
    def sets_tile(self) -> bool:
        """Whether any extent but the stages is set."""
        return any((self.v, self.tw, self.rows, self.channel_threads, self.threads, self.ctas_per_sm))


@dataclass(frozen=True, slots=True)
class Choice:
    """A tile with its predicted time."""

    tile: Tile
    seconds: float  # without the launch; infinite if the tile does not fit


def in_registers(shape: Shape, v: int) -> bool:
    """Whether a thread keeps its filters in registers; otherwise it reads them from shared memory."""
    return shape.is_wgrad or shape.problem.taps * shape.group_in * v <= _MAX_REGISTER_FILTERS


def registers(shape: Shape, v: int, tw: int) -> int:
    """Estimated registers of a thread."""
    window, filters = shape.window * tw * v, shape.problem.taps * shape.group_in * v
    image = shape.image_columns(tw) * shape.input_channels(v)
    if shape.is_wgrad:
        return window + filters + image + _OTHER_REGISTERS + 14
    if not in_registers(shape, v):
        return window + image + 2 * v + _OTHER_REGISTERS
    return window + filters + (2 * v if shape.group_in == 1 else image) + _OTHER_REGISTERS


def shared_bytes(shape: Shape, v: int, tw: int, channel_threads: int, tiles: int, stages: int) -> int:
    """Bytes of shared memory of a CTA."""
    channels_out = channel_threads * v
    channels_in = channels_out // shape.group_out * shape.group_in
    columns = (tiles - 1) * shape.step_w(tw) + shape.image_columns(tw)
    size = padded_bytes(stages * shape.in_rows * columns * channels_in * shape.in_bytes)
    if shape.is_wgrad:
        ring = size + padded_bytes(stages * tiles * tw * channels_out * shape.out_bytes)
        return max(ring, tiles * shape.problem.filter[1] * shape.group_in * channels_out * 4)
    filters = channels_out * shape.group_in * shape.problem.taps
    size += padded_bytes(filters * shape.filter_bytes)
    return size if in_registers(shape, v) else size + 4 * filters


def padded_bytes(size: int) -> int:
    """Bytes rounded up to a multiple of 16."""
    return -(-size // 16) * 16


def splits_of(items: int, channel_blocks: int, occupancy: int, sm_count: int) -> int:
    """Splits of wgrad: the CTAs of one wave that divide the work items of the same channels."""
    return min(items, max(1, sm_count * occupancy // channel_blocks))
