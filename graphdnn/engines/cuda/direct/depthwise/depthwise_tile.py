"""Tiles of ``cuda_depthwise``: the work of a thread and of a CTA, and their resources and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import DeviceOf
from graphdnn.operations.conv_problem import ConvProblem

_THREADS = 256  # threads of a CTA, approximately
_TABLE = 40 * 1024  # the most bytes of filters that a CTA keeps in shared memory
_SUMS = 32  # the most accumulators of a thread
_WINDOW = 80  # the most elements of a row in a thread's registers
_BAND = 48 * 1024  # the most bytes of a CTA's halo tile
_FEW_TAPS = 25  # taps up to which threads of one channel read the filter through the L1 cache
_TAPS = 8  # taps of a row that are unrolled, where a row has more than MOST_TAPS
MOST_TAPS = 11
_AROUND = 40  # instructions of a thread beside its rows of taps: addresses and epilogue
_ACCESS = 6.0  # time of a load, in instructions
_ROW = 14  # instructions of a thread for each row that it reads
_SHARE = 0.5  # the part of the peak rate of multiply-adds that such a kernel reaches
_CACHE_SHARE = 1.25  # L2 bandwidth over the bandwidth of a copy through memory
_WARPS = 24  # warps that keep an SM busy
_BRANCHES = 2.1  # all instructions of a strided data gradient over its useful ones: 1.9 to 2.6 for 3 layers on an H200
# Seconds of a thread for each tap beyond the second number; load latency bounds them from below.
_TAP, _FEW_TAPS = 0.16e-6, 9
_MOST_BLOCKS = 16  # CTAs of an SM up to which no CTA waits
_SHARED = 0.7  # the part of an SM's memory for shared memory; the L1 cache has the other part
_WAITING = 1.7  # factor of time where the loads of a thread are not all in flight at once


@dataclass(frozen=True, slots=True)
class Shape:
    """A depthwise convolution without its addresses. The image is the tensor that the kernel reads."""

    problem: ConvProblem
    is_dgrad: bool
    along_columns: bool  # columns are contiguous, instead of channels
    widest: int  # elements of the widest load
    copied: int  # elements of the widest copy to shared memory
    element: int  # bytes of an element

    @property
    def stride(self) -> int:
        return self.problem.stride[-1]

    @property
    def out(self) -> tuple[int, ...]:
        """Extents of the output, outermost first."""
        return self.problem.input if self.is_dgrad else self.problem.output


@dataclass(frozen=True, slots=True)
class Tile:
    """``v`` channels and ``tw`` columns of a thread, and the threads of a CTA along channels, columns and rows."""

    v: int
    tw: int
    unit: int  # taps of a row that are unrolled
    vec: int  # columns of a load
    lanes: int
    tiles: int
    rows: int
    in_table: bool  # whether the CTA's filters are in shared memory
    band: int  # rows of the halo tile in shared memory; 0: there is none

    @property
    def threads(self) -> int:
        return -(-self.lanes * self.tiles * self.rows // 32) * 32

    @property
    def name(self) -> str:
        return f"v{self.v}w{self.tw}u{self.unit}c{self.lanes * self.v}x{self.tiles}x{self.rows}"


def whole(count: int, most: int) -> int:
    """The size of equal parts of ``count`` items, with the fewest parts of at most ``most`` items."""
    return -(-count // -(-count // most))


def _unit(shape: Shape) -> int:
    p = shape.problem
    s, dilation = p.filter[-1], p.dilation[-1]
    if s == 1:
        return 1
    # The elements between dilated taps occupy registers without use, or each tap needs a load of its own.
    unit = s if s <= MOST_TAPS and (s - 1) * dilation <= 24 else _TAPS if dilation == 1 else 1
    if shape.is_dgrad and unit < s:
        period = shape.stride // gcd(shape.stride, dilation)  # every group of taps begins at the same residue
        unit = -(-unit // period) * period
    return min(unit, s)


def _vec(shape: Shape, tw: int, unit: int) -> int:
    """Columns of a load; every tile and every group of taps begins at a multiple of them."""
    if not shape.along_columns:
        return 1
    p = shape.problem
    places = [tw // shape.stride if shape.is_dgrad else tw * shape.stride]
    if unit < p.filter[-1]:
        advance = unit * p.dilation[-1]
        places.append(advance // shape.stride if shape.is_dgrad else advance)
    return gcd(shape.widest, *places)


def _tiles(shape: Shape) -> Iterator[Tile]:
    p, columns = shape.problem, shape.out[-1]
    unit = _unit(shape)
    group = shape.stride if shape.is_dgrad else 1
    v = 1 if shape.along_columns else min(4, shape.widest)
    for wish in (1, 2, 4, 7, 8, 14, 16):
        tw = -(-min(wish, columns) // group) * group
        reach = (tw - 1) * (1 if shape.is_dgrad else shape.stride) + (unit - 1) * p.dilation[-1] + 1
        if tw > group and (v * tw > _SUMS or v * min(reach, tw * unit) > _WINDOW):
            continue
        count, height = -(-columns // tw), shape.out[-2] if p.spatial > 1 else 1
        is_read_directly = shape.along_columns and p.taps <= _FEW_TAPS  # the filter is read through the L1 cache
        for lanes, tiles, rows in _blocks(shape, v, count, height):
            in_table = lanes * v * p.taps * 4 <= _TABLE and not is_read_directly
            tile = Tile(v, tw, unit, _vec(shape, tw, unit), lanes, tiles, rows, in_table, 0)
            if p.spatial < 3 and chunk(shape, tile) * shape.element >= 4 and not is_read_directly:
                staged = replace(tile, band=_band(shape, rows))
                if band_bytes(shape, staged) <= _BAND:
                    yield staged
                    continue
            yield tile


def _blocks(shape: Shape, v: int, count: int, height: int) -> Iterator[tuple[int, int, int]]:
    """Threads of a CTA along channels, tiles and rows."""
    groups = shape.problem.groups
    if shape.along_columns:
        tiles = whole(count, 32)
        rows = whole(height, max(1, _THREADS // tiles))
        most = max(1, _TABLE // (4 * shape.problem.taps))  # channels whose filters fit into shared memory
        yield min(groups, most, max(1, _THREADS // (tiles * rows))), tiles, rows
        return
    for most in (8, 16, 32):
        lanes = whole(-(-groups // v), most)
        for wide in (1, 2, 4, 8):
            tiles = whole(count, wide)
            yield lanes, tiles, whole(height, max(1, _THREADS // (lanes * tiles)))


def chunk(shape: Shape, tile: Tile) -> int:
    """Elements of one copy to shared memory."""
    return tile.vec if shape.along_columns else gcd(shape.copied, tile.lanes * tile.v)


def band_columns(shape: Shape, tile: Tile) -> int:
    """Columns of a CTA's halo tile: HALO_COLUMNS of direct_depthwise.cu."""
    p = shape.problem
    reach, pad, stride = (p.filter[-1] - 1) * p.dilation[-1], p.pre_padding[-1], p.stride[-1]
    if shape.is_dgrad:
        first, last, step = (pad - reach) // stride, (tile.tw - 1 + pad) // stride, tile.tw // stride
    else:
        first, last, step = -pad, (tile.tw - 1) * stride + reach - pad, tile.tw * stride
    return -(-((tile.tiles - 1) * step + last + 1 - first // tile.vec * tile.vec) // tile.vec) * tile.vec


def band_bytes(shape: Shape, tile: Tile) -> int:
    return tile.lanes * tile.v * tile.band * band_columns(shape, tile) * shape.element


def _band(shape: Shape, rows: int) -> int:
    """Rows of the image that ``rows`` rows of the output read."""
    p = shape.problem
    if p.spatial < 2:
        return 1
    size = p.output[-2] if shape.is_dgrad else p.input[-2]
    reach = (p.filter[-2] - 1) * p.dilation[-2]
    many = (rows - 1 + reach) // p.stride[-2] + 2 if shape.is_dgrad else (rows - 1) * p.stride[-2] + reach + 1
    return min(many, size)


def _instructions(shape: Shape, tile: Tile) -> float:
    """Instructions of all threads; idle threads are counted as well."""
    p = shape.problem
    s, lines = p.filter[-1], p.taps // p.filter[-1]
    reach = (tile.tw - 1) * (1 if shape.is_dgrad else shape.stride) + (tile.unit - 1) * p.dilation[-1] + 1
    window = min(reach, tile.tw * tile.unit) / (shape.stride if shape.is_dgrad else 1)
    groups = -(-s // tile.unit)
    products = tile.tw * s * tile.v / (shape.stride if shape.is_dgrad else 1)
    loads = groups * window * (_ACCESS / tile.vec + tile.v) + s * (1 + (0 if tile.in_table else tile.v))
    skipped = 1.0  # the part of the rows that a strided data gradient reads; it skips the rows between them
    for stride in p.stride[:-1] if shape.is_dgrad else ():
        skipped /= stride
    if skipped < 1.0:
        skipped *= _BRANCHES
    each = lines * (skipped * (products + loads) + _ROW) + tile.tw * (4 + 3 * tile.v) + _AROUND
    return each * threads_of(shape, tile)


def blocks_of(shape: Shape, tile: Tile) -> tuple[int, int, int]:
    """CTAs along columns, rows and channels."""
    out = shape.out
    height = out[-2] if len(out) > 1 else 1
    channels = -(-shape.problem.groups // (tile.lanes * tile.v))
    return -(-out[-1] // (tile.tw * tile.tiles)), -(-height // tile.rows), channels


def threads_of(shape: Shape, tile: Tile) -> float:
    columns, rows, channels = blocks_of(shape, tile)
    depth = shape.out[-3] if len(shape.out) > 2 else 1
    return float(shape.problem.n * depth * columns * rows * channels * tile.threads)


def _read(shape: Shape, tile: Tile) -> float:
    """Bytes that all SMs read from L2 or memory."""
    columns, rows, channels = blocks_of(shape, tile)
    p, band = shape.problem, tile.band or _band(shape, tile.rows)
    depth = (shape.out[-3] if len(shape.out) > 2 else 1) * (p.filter[-3] if p.spatial > 2 else 1)
    return float(p.n * depth * columns * rows * channels * band_bytes(shape, replace(tile, band=band)))


def _warps(shape: Shape, tile: Tile, device: DeviceOf) -> float:
    """Resident warps of an SM."""
    shared = RESERVED + band_bytes(shape, tile) + 4 * tile.in_table * tile.lanes * tile.v * shape.problem.taps
    return min(device.warps, min(_MOST_BLOCKS, int(_SHARED * device.shared_memory) // shared) * tile.threads / 32)


def _seconds(shape: Shape, tile: Tile, device: DeviceOf) -> float:
    slower = (1.0 if tile.band or shape.along_columns else _WAITING) * max(
        1.0, _WARPS / max(1.0, _warps(shape, tile, device))
    )
    arithmetic = max(_instructions(shape, tile) / (device.rate * _SHARE), _TAP * (shape.problem.taps - _FEW_TAPS))
    return slower * max(arithmetic, _read(shape, tile) / (device.bandwidth * _CACHE_SHARE))


@lru_cache(maxsize=256)
def choose(shape: Shape, device: DeviceOf, columns: int = 0) -> tuple[Tile, float]:
    """The tile with the least predicted time, and that time as seconds of arithmetic and of loads.

    ``columns``: columns of a thread, where a knob sets them.
    """
    tiles = list(_tiles(shape))
    asked = [tile for tile in tiles if tile.tw == columns]
    found = [(_seconds(shape, tile, device), tile) for tile in asked or tiles]
    seconds, tile = min(found, key=lambda pair: pair[0])
    return tile, seconds
