"""The cost model of the row ring: the time of an SM for a step of the sliding window.

The kernel is issue-bound or memory-bound. The model counts the instructions of a step, the resident warps that hide
latency, and the CTAs of the busiest SM.
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
    LONG_FILTER,
    MAX_REGISTERS,
    Choice,
    Tile,
    TileRequest,
    in_registers,
    registers,
    shared_bytes,
    splits_of,
)

_MAX_COPY_PASSES = 32  # the most vectors that a thread copies for a step
_LONG_TAPS = 1024  # the most taps of a long filter
_LONG_PRODUCTS = 4096  # the most multiply-adds of a thread for a row of a long filter, whose loops are unrolled
_LONG_MARGIN = 24  # registers that are kept free for long filters
_SATURATING_BYTES = 20_000  # bytes in flight to an SM that saturate memory bandwidth
_SECTOR = 32  # bytes of a memory sector
BANDWIDTH_EFFICIENCY = 0.88  # the fraction of the data sheet's bandwidth that a copy reaches
_MAX_CTAS_PER_SM = 16
_SPILL_FACTOR = 4.0  # time with register spills over time without


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """The properties of a device that the model reads, as a dictionary key.

    Args:
        sm_count: Number of SMs.
        shared_memory: Bytes of shared memory of an SM.
        bandwidth: Bytes per second of a copy.
        rate: Multiply-adds per second of all SMs.
        warps: The most resident warps of an SM.
    """

    sm_count: int
    shared_memory: int
    bandwidth: float
    rate: float
    warps: int

    @classmethod
    def of(cls, device: DeviceSpec, rate: float) -> DeviceLimits:
        """``rate``: operations per second of the compute type, two for each multiply-add."""
        bandwidth = device.bandwidth * BANDWIDTH_EFFICIENCY
        return cls(device.sm_count, device.shared_memory, bandwidth, rate / 2, device.warps)


def predict(
    shape: Shape, device: DeviceLimits, request: TileRequest, v: int, tw: int, channel_threads: int, tiles: int
) -> Choice:
    """The tile with the number of rows that has the least predicted time."""
    tile = Tile(v, tw, channel_threads, tiles, 1, request.stages, 1)
    step = _Step.of(shape, tile)
    occupancy = _Occupancy.of(shape, device, tile, step)
    if occupancy is None:
        return Choice(tile, inf)
    seconds = partial(_wgrad_seconds if shape.is_wgrad else _forward_seconds, shape, device, tile, step, occupancy)
    if request.rows:
        rows = min(request.rows, shape.rows)
    else:
        sizes = sorted({-(-shape.rows // segments) for segments in (1, 2, 3, 4, 6, 8, 16)}, reverse=True)
        rows = min(sizes, key=seconds)
    ctas_per_sm = min(request.ctas_per_sm or occupancy.ctas_per_sm, device.warps // (tile.threads // WARP))
    return Choice(replace(tile, rows=rows, ctas_per_sm=ctas_per_sm), seconds(rows))


def issue_utilization(resident_warps: int, cta_warps: int) -> float:
    """The fraction of an SM's issue slots that resident warps use, with ``cta_warps`` warps in a CTA.

    More warps hide more latency; the warps of a CTA also wait for each other at barriers.
    """
    balance = resident_warps / (-(-resident_warps // 4) * 4)
    return balance * resident_warps / (resident_warps + 2.5) * (1 - 0.1 * cta_warps / resident_warps)


def sector_overhead(width: int) -> float:
    """Bytes read over bytes used, for pixels of ``width`` bytes: a memory transaction reads sectors of 32 bytes."""
    return -(-width // _SECTOR) * _SECTOR / width


def overlapped(arithmetic: float, memory: float, exposed: float = 0.2) -> float:
    """The longer time, plus the exposed fraction of the shorter time, which does not overlap with the longer time."""
    return max(arithmetic, memory) + exposed * min(arithmetic, memory)


class _Step(NamedTuple):
    """The work of a CTA for one step of the sliding window."""

    columns: int  # image columns that the CTA reads
    row_bytes: int  # bytes of the CTA's channels of an image pixel
    copy_passes: int  # the most vectors of one operand that a thread copies
    copies: int  # vectors of both operands that a thread copies
    products: float  # multiply-adds of a thread
    instructions: float  # instructions of a warp

    @classmethod
    def of(cls, shape: Shape, tile: Tile) -> _Step:
        p, v, tw = shape.problem, tile.v, tile.tw
        image_columns, inputs, out_rows = shape.image_columns(tw), shape.input_channels(v), shape.out_rows
        products = v * tw * p.taps * shape.group_in / (p.stride[1] if shape.is_dgrad else 1)
        moved = shape.in_rows * image_columns * (inputs + max(1, inputs // 4))
        row_bytes = tile.channel_threads * v // shape.group_out * shape.group_in * shape.in_bytes
        columns = shape.in_rows * ((tile.tiles - 1) * shape.step_w(tw) + image_columns)
        copy_passes = -(-columns * row_bytes // min(shape.in_copy_bytes, row_bytes & -row_bytes) // tile.threads)
        copies = copy_passes
        if shape.is_wgrad:
            out_bytes = tile.channel_threads * v * shape.out_bytes
            dy_copy_bytes = min(shape.out_copy_bytes, out_bytes & -out_bytes)
            dy_copy_passes = -(-tile.tiles * tw * out_bytes // dy_copy_bytes // tile.threads)
            copy_passes, copies = max(copy_passes, dy_copy_passes), copy_passes + dy_copy_passes
        instructions = products + moved + 8 * copies + 50
        if shape.is_wgrad:
            instructions += v * tw * (1.5 + shape.window)
        else:
            instructions += out_rows * tw * (5 * v + 3) + out_rows * 16
        if not in_registers(shape, v):
            instructions += products / tw / v * 4  # a 16-byte load of a warp takes four wavefronts
        return cls(columns, row_bytes, copy_passes, copies, products, instructions)


class _Occupancy(NamedTuple):
    """The CTAs that are resident on an SM, and how well they hide latency."""

    ctas_per_sm: int
    warps: int  # warps of a CTA
    spills: bool
    latency_factor: float  # factor of the memory time; 1 if enough bytes are in flight
    sector_factor: float  # factor of the memory time; 1 if a pixel's channels are whole sectors

    @classmethod
    def of(cls, shape: Shape, device: DeviceLimits, tile: Tile, step: _Step) -> _Occupancy | None:
        """The resident CTAs, or None if a CTA does not fit or its unrolled code would be too long."""
        is_long = max(shape.problem.filter) > LONG_FILTER
        margin = _LONG_MARGIN if is_long and not shape.is_wgrad else 0
        needed = registers(shape, tile.v, tile.tw) + step.copies + margin
        is_too_large = needed > MAX_REGISTERS or shape.problem.taps > _LONG_TAPS or step.products > _LONG_PRODUCTS
        shared = shared_bytes(shape, tile.v, tile.tw, tile.channel_threads, tile.tiles, tile.stages)
        by_registers = 65536 // (tile.threads * (-(-min(needed, MAX_REGISTERS) // 8) * 8))
        by_memory = (device.shared_memory - RESERVED) // (shared + RESERVED)
        if by_memory < 1 or step.copy_passes > _MAX_COPY_PASSES or (is_long and is_too_large):
            return None
        warps = tile.threads // WARP
        ctas_per_sm = max(1, min(by_registers, by_memory, device.warps // warps, _MAX_CTAS_PER_SM))
        is_whole = tile.channel_threads * tile.v >= shape.channels_out
        # A CTA with few channels reads sectors that other CTAs read as well.
        sector_factor = 1.0 if step.row_bytes >= 128 or is_whole else 1.1 if step.row_bytes >= 64 else 1.4
        in_flight = ctas_per_sm * (tile.stages - 1) * shared / tile.stages
        spills = needed > MAX_REGISTERS or by_registers < 1
        return cls(ctas_per_sm, warps, spills, max(1.0, _SATURATING_BYTES / in_flight), sector_factor)

    def utilization(self, resident_warps: int) -> float:
        return issue_utilization(resident_warps, self.warps)

    def seconds(self, arithmetic: float, memory: float) -> float:
        return overlapped(arithmetic, memory) * (_SPILL_FACTOR if self.spills else 1.0)


def _blocks(shape: Shape, tile: Tile) -> tuple[int, int]:
    """CTAs along the channels and the columns."""
    return -(-shape.channels_out // (tile.channel_threads * tile.v)), -(-shape.columns // (tile.tw * tile.tiles))


def _issue(device: DeviceLimits) -> float:
    """Warp instructions per second of an SM."""
    return device.rate / WARP / device.sm_count


def _wgrad_seconds(
    shape: Shape, device: DeviceLimits, tile: Tile, step: _Step, occupancy: _Occupancy, rows: int
) -> float:
    """Predicted seconds of wgrad."""
    p, channels = shape.problem, shape.channels_out
    channel_blocks, column_blocks = _blocks(shape, tile)
    items = p.n * column_blocks * -(-shape.rows // rows)
    splits = splits_of(items, channel_blocks, occupancy.ctas_per_sm, device.sm_count)
    resident_warps = -(-splits * channel_blocks // device.sm_count) * occupancy.warps
    utilization = occupancy.utilization(resident_warps)
    # The first and the last steps have fewer multiply-adds.
    steps = rows + 0.6 * shape.warmup_steps + 1
    arithmetic = resident_warps * step.instructions * -(-items // splits) * steps / (_issue(device) * utilization)
    read = channels * p.n * column_blocks * tile.tiles * tile.tw * (shape.rows + shape.warmup_steps * shape.rows / rows)
    image = read / shape.group_out * shape.group_in * shape.in_rows * p.stride[1] * shape.in_bytes
    partial = 8.0 * splits * p.taps * shape.group_in * channels
    moved = (image + read * shape.out_bytes + partial) / device.bandwidth
    return occupancy.seconds(arithmetic, moved * (occupancy.sector_factor * occupancy.latency_factor))


def _forward_seconds(
    shape: Shape, device: DeviceLimits, tile: Tile, step: _Step, occupancy: _Occupancy, rows: int
) -> float:
    """Predicted seconds of fprop and dgrad."""
    p, channels = shape.problem, shape.channels_out
    channel_blocks, column_blocks = _blocks(shape, tile)
    segments = -(-shape.rows // rows)
    ctas = p.n * channel_blocks * column_blocks * segments
    per_sm = -(-ctas // device.sm_count)
    utilization = occupancy.utilization(min(occupancy.ctas_per_sm, per_sm) * occupancy.warps)
    read = rows + shape.warmup_steps * min(1.0, shape.rows / rows - 0.5)
    arithmetic = per_sm * occupancy.warps * step.instructions * read / (_issue(device) * utilization)
    step_w = shape.step_w(tile.tw)
    elements = channels * segments * column_blocks * tile.tiles * tile.tw * p.n
    image_in = elements / shape.group_out * shape.group_in * read * shape.in_rows * step_w / tile.tw
    halo = step.columns / (shape.in_rows * tile.tiles * step_w) - 1  # columns that adjacent CTAs also read, from L2
    moved = image_in * shape.in_bytes * (1 + 0.3 * halo) + elements * rows * shape.out_rows * shape.out_bytes
    imbalance = per_sm * device.sm_count / ctas  # the last wave leaves SMs idle
    memory = (moved + shape.other_bytes) / device.bandwidth * (1 + 0.5 * (min(imbalance, 3.0) - 1))
    return occupancy.seconds(arithmetic, memory * occupancy.latency_factor * occupancy.sector_factor)
