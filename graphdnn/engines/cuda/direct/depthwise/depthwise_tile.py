"""Tiles of ``cuda_depthwise``, and their resources and predicted time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import DeviceLimits
from graphdnn.operations.conv_problem import ConvProblem

_THREADS = 256  # threads of a CTA, approximately
_MAX_FILTER_BYTES = 40 * 1024  # the most bytes of filters that a CTA keeps in shared memory
_MAX_ACCUMULATORS = 32  # the most accumulators of a thread
_MAX_ROW_ELEMENTS = 80  # the most elements of a row in a thread's registers
_MAX_HALO_BYTES = 48 * 1024  # the most bytes of a CTA's halo tile
_L1_FILTER_TAPS = 25  # the most taps of a filter that threads read through the L1 cache
_MAX_UNROLLED_TAPS = 11  # the most taps of a row that are fully unrolled
_UNROLLED_TAPS = 8  # unrolled taps of a longer row
_OTHER_INSTRUCTIONS = 40  # instructions of a thread except for rows of taps: addresses and epilogue
_LOAD_COST = 6.0  # cost of a load, in instructions
_ROW_INSTRUCTIONS = 14  # instructions of a thread for each row that it reads
_PEAK_FRACTION = 0.5  # the fraction of the peak rate of multiply-adds that the kernel reaches
_L2_BANDWIDTH_RATIO = 1.25  # L2 bandwidth over copy bandwidth of memory
_SATURATING_WARPS = 24  # resident warps that hide latency
_STRIDED_DGRAD_FACTOR = 2.1  # all instructions of a strided dgrad over useful ones: 1.9 to 2.6 for 3 layers on an H200
# Seconds of load latency for each tap of a thread beyond _HIDDEN_TAPS taps.
_TAP, _HIDDEN_TAPS = 0.16e-6, 9
_MAX_CTAS_PER_SM = 16
_SMEM_FRACTION = 0.7  # the fraction of an SM's memory that is shared memory; the L1 cache has the other part
_STALL_FACTOR = 1.7  # time over issue slots if a thread loads each row after using the previous row


@dataclass(frozen=True, slots=True)
class Shape:
    """A depthwise convolution without its addresses. The image is x, or dy in dgrad."""

    problem: ConvProblem
    is_dgrad: bool
    columns_contiguous: bool  # columns are contiguous, instead of channels
    load_elements: int  # elements of the widest load
    max_copy_elements: int  # elements of the widest copy to shared memory
    element_bytes: int

    @property
    def stride(self) -> int:
        return self.problem.stride[-1]

    @property
    def out(self) -> tuple[int, ...]:
        """Extents of the output, outermost first."""
        return self.problem.input if self.is_dgrad else self.problem.output


@dataclass(frozen=True, slots=True)
class Tile:
    """The extents of a thread, ``v`` channels of ``tw`` columns, and of a CTA."""

    v: int
    tw: int
    tap_unroll: int  # taps of a row that are unrolled
    column_vec: int  # columns of a load
    channel_threads: int  # threads of a CTA along channels, columns and rows
    tiles: int
    rows: int
    filter_in_smem: bool  # whether the filters of a CTA are in shared memory
    halo_rows: int  # rows of the halo tile in shared memory; 0: the CTA has none

    @property
    def threads(self) -> int:
        return -(-self.channel_threads * self.tiles * self.rows // 32) * 32

    @property
    def name(self) -> str:
        return f"v{self.v}w{self.tw}u{self.tap_unroll}c{self.channel_threads * self.v}x{self.tiles}x{self.rows}"


def balanced_size(count: int, limit: int) -> int:
    """The size of the fewest equal parts of ``count`` items that have at most ``limit`` items each."""
    return -(-count // -(-count // limit))


def _tap_unroll(shape: Shape) -> int:
    p = shape.problem
    s, dilation = p.filter[-1], p.dilation[-1]
    if s == 1:
        return 1
    # Unrolled taps of a dilated row occupy registers with unused elements.
    tap_unroll = s if s <= _MAX_UNROLLED_TAPS and (s - 1) * dilation <= 24 else _UNROLLED_TAPS if dilation == 1 else 1
    if shape.is_dgrad and tap_unroll < s:
        # Every group of taps begins at the same residue modulo the stride.
        period = shape.stride // gcd(shape.stride, dilation)
        tap_unroll = -(-tap_unroll // period) * period
    return min(tap_unroll, s)


def _column_vec(shape: Shape, tw: int, tap_unroll: int) -> int:
    """Columns of a load: a divisor of the first column of every tile and of every group of taps."""
    if not shape.columns_contiguous:
        return 1
    p = shape.problem
    offsets = [tw // shape.stride if shape.is_dgrad else tw * shape.stride]
    if tap_unroll < p.filter[-1]:
        advance = tap_unroll * p.dilation[-1]
        offsets.append(advance // shape.stride if shape.is_dgrad else advance)
    return gcd(shape.load_elements, *offsets)


def _candidates(shape: Shape) -> Iterator[Tile]:
    p, columns = shape.problem, shape.out[-1]
    tap_unroll = _tap_unroll(shape)
    group = shape.stride if shape.is_dgrad else 1
    v = 1 if shape.columns_contiguous else min(4, shape.load_elements)
    for requested in (1, 2, 4, 7, 8, 14, 16):
        tw = -(-min(requested, columns) // group) * group
        reach = (tw - 1) * (1 if shape.is_dgrad else shape.stride) + (tap_unroll - 1) * p.dilation[-1] + 1
        if tw > group and (v * tw > _MAX_ACCUMULATORS or v * min(reach, tw * tap_unroll) > _MAX_ROW_ELEMENTS):
            continue
        count, height = -(-columns // tw), shape.out[-2] if p.spatial > 1 else 1
        filter_in_l1 = shape.columns_contiguous and p.taps <= _L1_FILTER_TAPS
        for channel_threads, tiles, rows in _cta_threads(shape, v, count, height):
            filter_in_smem = channel_threads * v * p.taps * 4 <= _MAX_FILTER_BYTES and not filter_in_l1
            column_vec = _column_vec(shape, tw, tap_unroll)
            tile = Tile(v, tw, tap_unroll, column_vec, channel_threads, tiles, rows, filter_in_smem, 0)
            if p.spatial < 3 and copy_elements(shape, tile) * shape.element_bytes >= 4 and not filter_in_l1:
                staged = replace(tile, halo_rows=_halo_rows(shape, rows))
                if halo_bytes(shape, staged) <= _MAX_HALO_BYTES:
                    yield staged
                    continue
            yield tile


def _cta_threads(shape: Shape, v: int, count: int, height: int) -> Iterator[tuple[int, int, int]]:
    """Candidates for the threads of a CTA along channels, tiles and rows."""
    groups = shape.problem.groups
    if shape.columns_contiguous:
        tiles = balanced_size(count, 32)
        rows = balanced_size(height, max(1, _THREADS // tiles))
        limit = max(1, _MAX_FILTER_BYTES // (4 * shape.problem.taps))  # channels whose filters fit into shared memory
        yield min(groups, limit, max(1, _THREADS // (tiles * rows))), tiles, rows
        return
    for most in (8, 16, 32):
        channel_threads = balanced_size(-(-groups // v), most)
        for wide in (1, 2, 4, 8):
            tiles = balanced_size(count, wide)
            yield channel_threads, tiles, balanced_size(height, max(1, _THREADS // (channel_threads * tiles)))


def copy_elements(shape: Shape, tile: Tile) -> int:
    """Elements of a copy to shared memory."""
    return tile.column_vec if shape.columns_contiguous else gcd(shape.max_copy_elements, tile.channel_threads * tile.v)


def halo_columns(shape: Shape, tile: Tile) -> int:
    """Columns of a CTA's halo tile (HALO_COLUMNS of direct_depthwise.cu)."""
    p = shape.problem
    reach, pad, stride = (p.filter[-1] - 1) * p.dilation[-1], p.pre_padding[-1], p.stride[-1]
    if shape.is_dgrad:
        first, last, step = (pad - reach) // stride, (tile.tw - 1 + pad) // stride, tile.tw // stride
    else:
        first, last, step = -pad, (tile.tw - 1) * stride + reach - pad, tile.tw * stride
    vec = tile.column_vec
    return -(-((tile.tiles - 1) * step + last + 1 - first // vec * vec) // vec) * vec


def halo_bytes(shape: Shape, tile: Tile) -> int:
    """Bytes of a CTA's halo tile."""
    return tile.channel_threads * tile.v * tile.halo_rows * halo_columns(shape, tile) * shape.element_bytes


def _halo_rows(shape: Shape, rows: int) -> int:
    """Rows of the image that ``rows`` rows of the output read."""
    p = shape.problem
    if p.spatial < 2:
        return 1
    size = p.output[-2] if shape.is_dgrad else p.input[-2]
    reach = (p.filter[-2] - 1) * p.dilation[-2]
    count = (rows - 1 + reach) // p.stride[-2] + 2 if shape.is_dgrad else (rows - 1) * p.stride[-2] + reach + 1
    return min(count, size)


def _instructions(shape: Shape, tile: Tile) -> float:
    """Instructions of all launched threads."""
    p = shape.problem
    s, tap_rows = p.filter[-1], p.taps // p.filter[-1]
    reach = (tile.tw - 1) * (1 if shape.is_dgrad else shape.stride) + (tile.tap_unroll - 1) * p.dilation[-1] + 1
    window = min(reach, tile.tw * tile.tap_unroll) / (shape.stride if shape.is_dgrad else 1)
    groups = -(-s // tile.tap_unroll)
    products = tile.tw * s * tile.v / (shape.stride if shape.is_dgrad else 1)
    loads = groups * window * (_LOAD_COST / tile.column_vec + tile.v) + s * (1 + (0 if tile.filter_in_smem else tile.v))
    read_rows = 1.0  # the fraction of the rows of taps that a strided data gradient reads
    for stride in p.stride[:-1] if shape.is_dgrad else ():
        read_rows /= stride
    if read_rows < 1.0:
        read_rows *= _STRIDED_DGRAD_FACTOR
    per_row = read_rows * (products + loads) + _ROW_INSTRUCTIONS
    per_thread = tap_rows * per_row + tile.tw * (4 + 3 * tile.v) + _OTHER_INSTRUCTIONS
    return per_thread * launched_threads(shape, tile)


def ctas_along(shape: Shape, tile: Tile) -> tuple[int, int, int]:
    """CTAs along columns, rows and channels."""
    out = shape.out
    height = out[-2] if len(out) > 1 else 1
    channels = -(-shape.problem.groups // (tile.channel_threads * tile.v))
    return -(-out[-1] // (tile.tw * tile.tiles)), -(-height // tile.rows), channels


def launched_threads(shape: Shape, tile: Tile) -> float:
    """Threads of all CTAs."""
    columns, rows, channels = ctas_along(shape, tile)
    depth = shape.out[-3] if len(shape.out) > 2 else 1
    return float(shape.problem.n * depth * columns * rows * channels * tile.threads)


def _loaded_bytes(shape: Shape, tile: Tile) -> float:
    """Bytes that all SMs read from L2 or memory."""
    columns, rows, channels = ctas_along(shape, tile)
    p, halo_rows = shape.problem, tile.halo_rows or _halo_rows(shape, tile.rows)
    depth = (shape.out[-3] if len(shape.out) > 2 else 1) * (p.filter[-3] if p.spatial > 2 else 1)
    return float(p.n * depth * columns * rows * channels * halo_bytes(shape, replace(tile, halo_rows=halo_rows)))


def _warps(shape: Shape, tile: Tile, device: DeviceLimits) -> float:
    """Resident warps of an SM."""
    filter_bytes = 4 * tile.filter_in_smem * tile.channel_threads * tile.v * shape.problem.taps
    shared = RESERVED + halo_bytes(shape, tile) + filter_bytes
    ctas_per_sm = min(_MAX_CTAS_PER_SM, int(_SMEM_FRACTION * device.shared_memory) // shared)
    return min(device.warps, ctas_per_sm * tile.threads / 32)


def _seconds(shape: Shape, tile: Tile, device: DeviceLimits) -> float:
    """Predicted seconds without the launch: the longer of instructions and loads, times the slowdown by latency."""
    stalls = 1.0 if tile.halo_rows or shape.columns_contiguous else _STALL_FACTOR
    slowdown = stalls * max(1.0, _SATURATING_WARPS / max(1.0, _warps(shape, tile, device)))
    load_latency = _TAP * (shape.problem.taps - _HIDDEN_TAPS)
    arithmetic = max(_instructions(shape, tile) / (device.rate * _PEAK_FRACTION), load_latency)
    return slowdown * max(arithmetic, _loaded_bytes(shape, tile) / (device.bandwidth * _L2_BANDWIDTH_RATIO))


@lru_cache(maxsize=256)
def choose(shape: Shape, device: DeviceLimits, columns: int = 0) -> tuple[Tile, float]:
    """The tile with the least predicted time, and that time in seconds.

    ``columns``: columns of a thread; 0 or an impossible number leaves the choice to the cost model.
    """
    tiles = list(_candidates(shape))
    requested = [tile for tile in tiles if tile.tw == columns]
    found = [(_seconds(shape, tile, device), tile) for tile in requested or tiles]
    seconds, tile = min(found, key=lambda pair: pair[0])
    return tile, seconds
