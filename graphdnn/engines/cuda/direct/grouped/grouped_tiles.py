"""Tiles of ``cuda_grouped``, and their choice by a cost model of an SM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from graphdnn.device.multiprocessor import RESERVED, WARP
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.direct.grouped.grouped_shape import (
    CHUNK_CHANNELS,
    MachineLimits,
    Pixels,
    Shape,
    machine_limits,
    side_candidates,
)
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_MMA_M = 16  # pixels of an MMA
_PIXEL_SLOT_BYTES = 8  # bytes of an entry of the pixel table (PixelSlot)
_STORE_CHANNELS = 32  # the most channels of a warp tile, which its epilogue stores contiguously
_MAX_PIXELS = 512  # the most pixels of a tile
_MIN_CHANNELS, _MAX_CHANNELS = 48, 128  # channels of a CTA
# Registers of an SM, the most of a thread, and those of a thread except accumulators and operands.
_REGISTERS, _MAX_REGISTERS, _OTHER_REGISTERS = 65536, 255, 72
_MAX_CTAS_PER_SM = 8

GROUPS = Knob(KnobType.NUM_C_PER_BLOCK, 0, 16, 1, 0, "groups of a CTA; 0: chosen by the shape")
TILE_H = Knob(KnobType.TILE_ROWS, 0, 64, 1, 0, "rows of a tile; 0: chosen by the shape")
TILE_W = Knob(KnobType.TILE_COLS, 0, 64, 1, 0, "columns of a tile; 0: chosen by the shape")
IMAGES = Knob(KnobType.TILE_CGA, 0, 8, 1, 0, "images of a tile, if it covers whole images; 0: chosen by the shape")
MMA_TILES = Knob(KnobType.TILE_M, 0, 4, 1, 0, "MMA tiles of 16 pixels of a warp tile, 1, 2 or 4; 0: chosen")
STAGES = Knob(KnobType.STAGES, 0, 2, 1, 0, "halo tiles in shared memory; 0: chosen by the shape")
KNOBS = (GROUPS, TILE_H, TILE_W, IMAGES, MMA_TILES, STAGES)
THREADS = 256  # threads of a CTA; 128 and 512 were slower


@dataclass(frozen=True, slots=True)
class Tile(Pixels):
    """The tile of a CTA. A warp tile has ``mma_tiles`` MMA tiles of 16 pixels."""

    mma_tiles: int
    stages: int  # halo tiles in shared memory

    @property
    def pixel_slots(self) -> int:
        """Entries of the pixel table."""
        return -(-self.pixels // (_MMA_M * self.mma_tiles)) * _MMA_M * self.mma_tiles

    @property
    def table_bytes(self) -> int:
        """Bytes of the pixel table."""
        return self.pixel_slots * _PIXEL_SLOT_BYTES

    def halo_bytes(self, shape: Shape) -> int:
        """Bytes of a halo tile."""
        h, w = shape.halo_tile(self.height, self.width)
        pixels = self.images * h * -(-w // shape.stride[1]) * shape.stride[1]
        return pixels * (self.groups * shape.channels_in // CHUNK_CHANNELS | 1) * 16

    def shared(self, shape: Shape) -> int:
        """Bytes of shared memory of a CTA: filters, epilogue buffers, pixel table and halo tiles."""
        filters = self.groups * shape.channels_out * (shape.chunks | 1) * 16 + 16
        channels = self.groups_per_warp_tile(shape) * shape.channels_out  # of a warp tile
        staging = THREADS // WARP * _MMA_M * (channels + (0 if channels % 16 else 8)) * 4
        return filters + staging + self.table_bytes + self.stages * self.halo_bytes(shape)

    def groups_per_warp_tile(self, shape: Shape) -> int:
        """Groups of a warp tile: more groups have longer contiguous stores."""
        limit = max(1, _STORE_CHANNELS // shape.channels_out)
        return next(n for n in (4, 2, 1) if self.groups % n == 0 and n <= limit)

    def registers(self, shape: Shape) -> int:
        """Estimated registers of a thread: accumulators, operands and other registers."""
        accumulators = self.mma_tiles * self.groups_per_warp_tile(shape) * shape.channels_out // 2
        return accumulators + 4 * self.mma_tiles + _OTHER_REGISTERS

    def ctas_per_group_block(self, shape: Shape, resident: int, sms: int) -> int:
        """CTAs with the same groups: one wave of CTAs, with equal numbers of tiles."""
        tiles = prod(self.tiles(shape))
        resident_per_group_block = max(1, resident * sms // (shape.groups // self.groups))
        return -(-tiles // -(-tiles // min(resident_per_group_block, tiles)))


def effective_knobs(tile: Tile) -> Knobs:
    """The knob values of a tile."""
    values = tile.groups, tile.height, tile.width, tile.images, tile.mma_tiles, tile.stages
    return {knob.type: value for knob, value in zip(KNOBS, values, strict=True)}


@dataclass(frozen=True, slots=True)
class Choice:
    """A tile with its occupancy and its predicted time."""

    tile: Tile
    resident: int  # CTAs of an SM
    seconds: float
    ctas: int  # of the grid


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest tile that fits, or None. Knob values that no tile can have are ignored."""
    machine = machine_limits(device)
    requested = tuple(knobs[knob.type] for knob in KNOBS)
    return _fastest(shape, machine, requested) or _fastest(shape, machine, (0,) * len(KNOBS))


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: MachineLimits, requested: tuple[int, ...]) -> Choice | None:
    predicted = (_predicted(shape, machine, tile) for tile in _candidates(shape, requested))
    return min(filter(None, predicted), key=lambda choice: choice.seconds, default=None)


def _candidates(shape: Shape, requested: tuple[int, ...]) -> Iterator[Tile]:
    groups, height, width, images, mma_tiles, stages = requested
    most = max(shape.channels_in, shape.channels_out)
    fitting = [n for n in range(1, 17) if shape.groups % n == 0 and n * most <= _MAX_CHANNELS] or [1]
    # With a filter of many taps, only one group may fit into shared memory.
    chosen = sorted({1, *(n for n in fitting if n * most >= _MIN_CHANNELS)})
    for n in [groups] if groups in fitting else chosen:
        for h in [min(height, shape.output[0])] if height else side_candidates(shape.output[0]):
            for w in [min(width, shape.output[1])] if width else side_candidates(shape.output[1]):
                is_whole = (h, w) == shape.output
                for i in [images] if images and is_whole else (1, 2, 4, 8) if is_whole else (1,):
                    if i * h * w > _MAX_PIXELS or i > shape.images:
                        continue
                    for m in [mma_tiles] if mma_tiles in (1, 2, 4) else (2, 4):
                        for s in [stages] if stages else (1, 2):
                            yield Tile(n, i, h, w, m, s)


# The constants of the cost model, in clocks: first costs in throughput of an SM, then latencies of a warp. They are
# fitted to 207 tiles of 18 layers on an H200. Predictions differ by 10 % from measured times, and the chosen tile is
# 3 % slower than the fastest tile.
_LOAD, _MMA, _EPILOGUE, _COPY_ROW, _COPY_CHUNK = 3.5, 0.2, 27.6, 12.8, 12.1
_WARP_TILE_LATENCY, _MMA_LATENCY, _COPY_ROW_LATENCY = 2270.0, 7.0, 315.0
_EXPOSED_LOAD = 759.0  # clocks to load a halo tile while no warp multiplies
_STRIDED = 1.8  # time of loads of strided pixels over time of other loads
_FILTER_BYTES_PER_CLOCK = 19.2  # bytes of filters per clock
_NORM = 2.7
START = 2.0e-6  # seconds of a launch
IDLE = 0.27  # the fraction of a launch's time that a grid saves if nearly all SMs are idle


def _predicted(shape: Shape, machine: MachineLimits, tile: Tile) -> Choice | None:
    shared = tile.shared(shape)
    by_memory = machine.shared_memory // (shared + RESERVED)
    by_registers = _REGISTERS // (min(_MAX_REGISTERS, -(-tile.registers(shape) // 8) * 8) * THREADS)
    resident = min(by_memory, by_registers, _MAX_CTAS_PER_SM)
    if resident < 1 or tile.registers(shape) > _MAX_REGISTERS:
        return None
    tiles, group_blocks = prod(tile.tiles(shape)), shape.groups // tile.groups
    warps, m, chunks = THREADS // WARP, tile.mma_tiles, shape.channels_out // CHUNK_CHANNELS
    groups = tile.groups_per_warp_tile(shape)
    warp_tiles, steps = -(-tile.pixels // (_MMA_M * m)) * tile.groups // groups, groups * shape.steps
    ctas_per_group_block = tile.ctas_per_group_block(shape, resident, machine.sms)
    ctas = group_blocks * ctas_per_group_block
    tiles_per_cta, resident_ctas = -(-tiles // ctas_per_group_block), -(-ctas // machine.sms)
    height, width = shape.halo_tile(tile.height, tile.width)
    rows, copies = tile.images * height, width * tile.groups * shape.channels_in / CHUNK_CHANNELS / WARP
    loads = _LOAD * (m + -(-chunks // 2)) * (_STRIDED if shape.stride[1] > 1 else 1.0)
    throughput = warp_tiles * (steps * (loads + _MMA * m * chunks) + m * (groups * chunks + 1) * _EPILOGUE)
    throughput += rows * (_COPY_ROW + _COPY_CHUNK * copies)
    latency = -(-warp_tiles // warps) * (_WARP_TILE_LATENCY + steps * _MMA_LATENCY * m * chunks)
    latency += rows / warps * _COPY_ROW_LATENCY + (_EXPOSED_LOAD if tile.stages == 1 else 0.0)
    filters = tile.groups * shape.channels_out * shape.chunks * 16
    tile_clocks = ((resident_ctas * throughput) ** _NORM + latency**_NORM) ** (1 / _NORM)
    clocks = tiles_per_cta * tile_clocks + resident_ctas * filters / _FILTER_BYTES_PER_CLOCK
    arithmetic, memory = clocks / machine.clock, shape.traffic / machine.bandwidth
    return Choice(tile, resident, (arithmetic**4 + memory**4) ** 0.25 + START, ctas)
