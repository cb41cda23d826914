"""Tiles of ``cuda_grouped_wgrad``, and their choice by a cost model of an SM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED, WARP
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.direct.grouped.grouped_shape import CHUNK_CHANNELS, Pixels, Shape, side_candidates
from graphdnn.engines.cuda.direct.grouped.grouped_shape import machine_limits as general_machine_limits
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_MMA_K = 16  # pixels of an MMA
_MAX_PIXELS = 256  # the most pixels of a tile
_MIN_CHANNELS, _MAX_CHANNELS = 24, 128  # channels of a CTA
_MAX_WARPS = 16
_WARPS_M, _WARPS_K, _IMAGES = (1, 2, 3, 4, 5, 6, 8, 9), (1, 2, 4), (1, 2, 4, 8)  # candidates
_MIN_STAGES, _MAX_STAGES = 2, 4
_BY_PIXELS, _BY_LINES = 1, 2  # values of TRAVERSAL
_MAX_ACCUMULATORS = 160  # the most accumulator registers of a thread
_REGISTERS, _OTHER_REGISTERS, _MAX_REGISTERS = 65536, 48, 255
_MAX_CTAS_PER_SM = 4
_SUB_PARTITIONS = 4  # sub-partitions of an SM, each with a tensor core and warps
_WARPGROUP_THREADS = 128  # threads of a warpgroup; registers are allocated for whole warpgroups
_SWIZZLES = (32, 64, 128)
_BOX_ALIGNMENT = 1024  # bytes to which a TMA box is aligned in shared memory
_STAGE_OVERHEAD = 48  # bytes of a stage's mbarriers and of its TileExtent
_MAX_SIDE = 256  # the longest side of a TMA box
_MAX_STRIDE = 2  # the largest column stride of tiles that TMA loads

GROUPS = Knob(KnobType.NUM_C_PER_BLOCK, 0, 16, 1, 0, "groups of a CTA; 0: chosen by the shape")
TILE_H = Knob(KnobType.TILE_ROWS, 0, 64, 1, 0, "rows of dy of a tile; 0: chosen by the shape")
TILE_W = Knob(KnobType.TILE_COLS, 0, 64, 1, 0, "columns of a tile; 0: chosen by the shape")
IMAGES = Knob(KnobType.TILE_CGA, 0, 8, 1, 0, "images of a tile, if it covers whole images; 0: chosen by the shape")
WARPS_M = Knob(KnobType.SPLIT_RS, 0, 9, 1, 0, "warps that divide a group's accumulators; 0: chosen by the shape")
WARPS_K = Knob(KnobType.SPLIT_P_SLC, 0, 4, 1, 0, "warps that divide the pixels of a tile; 0: chosen by the shape")
TRAVERSAL = Knob(KnobType.KERNEL_CFG, 0, 2, 1, 0, "1: pixels across rows; 2: sliding down rows; 0: chosen by the shape")
STAGES = Knob(KnobType.STAGES, 0, 4, 1, 0, "tiles in shared memory, at least 2; 0: chosen by the shape")
KNOBS = (GROUPS, TILE_H, TILE_W, IMAGES, WARPS_M, WARPS_K, STAGES, TRAVERSAL)


class Row(NamedTuple):
    """The layout of a row of pixels in shared memory."""

    pitch: int  # bytes between adjacent pixels
    slices: int  # TMA boxes along the channels, of at most 128 bytes each

    @classmethod
    def of(cls, chunks: int, *, is_loaded_by_tma: bool) -> Row:
        if not is_loaded_by_tma:  # an odd number of chunks, so that adjacent pixels start in different banks
            return cls((chunks | 1) * 16, 1)
        slices = chunks // CHUNK_CHANNELS if chunks % CHUNK_CHANNELS == 0 else 1
        return cls(chunks // slices * 16, slices)

    @property
    def swizzle_bytes(self) -> int:
        """Bytes of the TMA swizzle. 0: pixels of an odd number of chunks need no swizzle to avoid bank conflicts."""
        return self.pitch if self.pitch in _SWIZZLES else 0


class MachineLimits(NamedTuple):
    """The properties of a device that the cost model reads."""

    sms: int
    clock: float
    shared_memory: int
    bandwidth: float
    has_tma: bool  # whether TMA can load the tiles


@dataclass(frozen=True, slots=True)
class Tile(Pixels):
    """The tile of a CTA and its division among warps."""

    warps_m: int  # warps of a group along the accumulators
    warps_k: int  # warps of a group along the pixels
    stages: int  # tiles in shared memory
    is_loaded_by_tma: bool = False
    slides: bool = False  # whether warps slide down the rows of a tile

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.groups * self.warps_m * self.warps_k

    def warp_mma_tiles(self, shape: Shape) -> int:
        """MMA tiles of a warp along M (WARP_MMAS)."""
        return -(-shape.chunks // (2 * self.warps_m * self.sliding_rows(shape)))

    def sliding_rows(self, shape: Shape) -> int:
        """Rows of taps that share one loaded row of x (SLIDING_ROWS)."""
        return shape.filter[0] if self.slides else 1

    def accumulators(self, shape: Shape) -> int:
        """Accumulator registers of a thread."""
        return self.sliding_rows(shape) * self.warp_mma_tiles(shape) * shape.channels_out // CHUNK_CHANNELS * 4

    def registers(self, shape: Shape) -> int:
        """Estimated registers of a thread."""
        dy_operands = self.sliding_rows(shape) * (shape.channels_out // CHUNK_CHANNELS + 1) // 2 * 4
        return self.accumulators(shape) + self.warp_mma_tiles(shape) + dy_operands + _OTHER_REGISTERS

    def row(self, channels: int) -> Row:
        """The layout of pixels with ``channels`` channels of each group."""
        return Row.of(self.groups * channels // CHUNK_CHANNELS, is_loaded_by_tma=self.is_loaded_by_tma)

    def columns(self, shape: Shape) -> int:
        """Columns of the halo tile with one residue modulo the stride."""
        return -(-shape.halo_tile(self.height, self.width)[1] // shape.stride[1])

    def residue_bytes(self, shape: Shape) -> int:
        """Bytes of the halo tile's columns with one residue modulo the stride: a TMA box."""
        pixels = self.images * shape.halo_tile(self.height, self.width)[0] * self.columns(shape)
        return self._box(pixels * self.row(shape.channels_in).pitch)

    def dy_slice_bytes(self, shape: Shape) -> int:
        """Bytes of a channel slice of dy: a TMA box."""
        return self._box(self.pixels * self.row(shape.channels_out).pitch)

    def _box(self, size: int) -> int:
        return -(-size // _BOX_ALIGNMENT) * _BOX_ALIGNMENT if self.is_loaded_by_tma else size

    def x_slice_bytes(self, shape: Shape) -> int:
        """Bytes of a channel slice of the halo tile."""
        return shape.stride[1] * self.residue_bytes(shape)

    def halo_bytes(self, shape: Shape) -> int:
        """Bytes of the halo tile."""
        return self.row(shape.channels_in).slices * self.x_slice_bytes(shape)

    def stage_bytes(self, shape: Shape) -> int:
        """Bytes of a stage: the halo tile and a tile of dy."""
        return self.halo_bytes(shape) + self.row(shape.channels_out).slices * self.dy_slice_bytes(shape)

    def tx_bytes(self, shape: Shape) -> int:
        """Bytes that TMA loads for a stage, for mbarrier.expect_tx."""
        pixels = self.images * shape.halo_tile(self.height, self.width)[0] * self.columns(shape) * shape.stride[1]
        return 2 * self.groups * (pixels * shape.channels_in + self.pixels * shape.channels_out)

    def shared(self, shape: Shape) -> int:
        """Bytes of shared memory of a CTA: the stages, or afterwards the accumulators of the warps along K."""
        exchange = 0 if self.warps_k == 1 else self.groups * self.warps_m * WARP * self.accumulators(shape) * 4
        barriers = _STAGE_OVERHEAD * self.stages if self.is_loaded_by_tma else 0
        return max(self.stages * self.stage_bytes(shape) + 16 + barriers, exchange)


def effective_knobs(tile: Tile) -> Knobs:
    """The knob values of a tile."""
    traversal = _BY_LINES if tile.slides else _BY_PIXELS
    values = tile.groups, tile.height, tile.width, tile.images, tile.warps_m, tile.warps_k, tile.stages, traversal
    return {knob.type: value for knob, value in zip(KNOBS, values, strict=True)}


@dataclass(frozen=True, slots=True)
class Choice:
    """A tile with its occupancy, its splits and its predicted time."""

    tile: Tile
    resident: int  # CTAs of an SM
    splits: int  # CTAs that divide the tiles of the same groups
    seconds: float


def machine_limits(shape: Shape, device: DeviceSpec) -> MachineLimits:
    """The properties of ``device``. With a column stride of 2, the residues of columns are an axis of the TMA
    box, so the width must be even.
    """
    stride = shape.stride[1]
    has_tma = device.compute_capability >= (9, 0) and stride <= _MAX_STRIDE and shape.image_width % stride == 0
    return MachineLimits(*general_machine_limits(device), has_tma)


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest tile that fits, or None. Knob values that no tile can have are ignored."""
    machine = machine_limits(shape, device)
    requested = tuple(knobs[knob.type] for knob in KNOBS)
    return _fastest(shape, machine, requested) or _fastest(shape, machine, (0,) * len(KNOBS))


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: MachineLimits, requested: tuple[int, ...]) -> Choice | None:
    found = [
        choice
        for tile in _candidates(shape, machine, requested)
        if (choice := _predicted(shape, machine, tile)) is not None
    ]
    best = min(found, key=lambda choice: choice.seconds, default=None)
    return best if best is None or requested[KNOBS.index(STAGES)] else _with_most_stages(shape, machine, best)


def _with_most_stages(shape: Shape, machine: MachineLimits, choice: Choice) -> Choice:
    """The tile with the most stages that do not reduce the resident CTAs; the model cannot tell them stride_factor."""
    for stages in range(_MAX_STAGES, _MIN_STAGES, -1):
        deeper = _predicted(shape, machine, replace(choice.tile, stages=stages))
        if deeper is not None and deeper.resident == choice.resident:
            return deeper
    return choice


def _candidates(shape: Shape, machine: MachineLimits, requested: tuple[int, ...]) -> Iterator[Tile]:
    groups, height, width, images, warps_m, warps_k, stages, kernel = requested
    most = max(shape.channels_in, shape.channels_out)
    fitting = [n for n in range(1, _MAX_WARPS + 1) if shape.groups % n == 0 and n * most <= _MAX_CHANNELS] or [1]
    chosen = [n for n in fitting if n * most >= _MIN_CHANNELS] or fitting[-1:]
    can_slide = shape.filter[0] > 1 and shape.stride[0] == shape.dilation[0] == 1
    traversals = (False,) if not can_slide else (kernel == _BY_LINES,) if kernel else (False, True)
    divisions = list(
        product(
            [groups] if groups in fitting else chosen,
            [warps_m] if warps_m else _WARPS_M,
            [warps_k] if warps_k else _WARPS_K,
            [max(_MIN_STAGES, stages)],
            traversals,
        )
    )
    heights = [min(height, shape.output[0])] if height else side_candidates(shape.output[0])
    widths = [min(width, shape.output[1])] if width else side_candidates(shape.output[1])
    for h, w in product(heights, widths):
        is_whole = (h, w) == shape.output
        for i in [images] if images and is_whole else _IMAGES if is_whole else (1,):
            if i * h * w > _MAX_PIXELS or i > shape.images or max(shape.halo_tile(h, w)) > _MAX_SIDE:
                continue
            for n, m, t, s, slides in divisions:
                tile = Tile(n, i, h, w, m, t, s, machine.has_tma, slides)
                if tile.warps <= _MAX_WARPS and tile.accumulators(shape) <= _MAX_ACCUMULATORS:
                    yield tile


# The constants of the cost model, in clocks, fitted to 158 tiles of six layers on an H200. Predictions differ by 10 %
# from their times, and by 11 % from the times of 132 other tiles of 19 layers. Copies by threads have the constants of
# fprop.
_LOAD, _MMA, _K_STEP = 3.0, 0.58, 7.7  # clocks of an SM for a load, an MMA, a K step
_LOAD_LATENCY, _MMA_LATENCY = 51.0, 8.1  # latency of a warp for the loads of a K step, and for each MMA
_TILE_LATENCY, _COPY_LATENCY = 1580.0, 700.0  # clocks of a tile; additional clocks if threads copy it
_WARPS_K_SUM = 6.0  # clocks to add an accumulator of another warp along K
_TMA_PIXEL = 1.5  # clocks of TMA for a pixel of at most 128 bytes
_COPY_ROW, _COPY_CHUNK = 12.8, 12.1  # clocks of an SM for a row and for a chunk that threads copy
_ROW_END_CONFLICT = 0.27  # bank conflicts of a load of eight pixels for each row end among the pixels
_STRIDED = 1.8  # time of loads of strided pixels over time of other loads
_REDUCTION_BANDWIDTH = 5.2e12  # bytes per second of the second launch
_LAUNCH_SECONDS = 5.0e-6
_NORM = 2.16


def _predicted(shape: Shape, machine: MachineLimits, tile: Tile) -> Choice | None:
    registers, threads = tile.registers(shape), tile.warps * WARP
    if registers > _MAX_REGISTERS:
        return None
    by_memory = machine.shared_memory // (tile.shared(shape) + RESERVED)
    by_registers = _REGISTERS // (-(-registers // 8) * 8 * -(-threads // _WARPGROUP_THREADS) * _WARPGROUP_THREADS)
    resident = min(by_memory, by_registers, _MAX_CTAS_PER_SM)
    if resident < 1:
        return None
    tiles, group_blocks = prod(tile.tiles(shape)), shape.groups // tile.groups
    splits = min(tiles, max(1, resident * machine.sms // group_blocks))
    tiles_per_cta, resident_ctas = -(-tiles // splits), -(-group_blocks * splits // machine.sms)
    throughput, latency = _mma_clocks(shape, tile, resident_ctas)
    tma_clocks = 0.0
    copied = _copied_pixels(shape, tile)
    if tile.is_loaded_by_tma:
        tma_clocks = _TMA_PIXEL * sum(pixels * tile.row(channels).slices for pixels, _, channels in copied)
    else:
        chunks = tile.groups / CHUNK_CHANNELS / WARP
        throughput += sum(
            pixels * _COPY_CHUNK * chunks * channels + rows * _COPY_ROW for pixels, rows, channels in copied
        )
        latency += _COPY_LATENCY
    warps_k_sum = _WARPS_K_SUM * (tile.warps_k - 1) * tile.accumulators(shape)
    tile_norm = (resident_ctas * throughput) ** _NORM + latency**_NORM + (resident_ctas * tma_clocks) ** _NORM
    clocks = warps_k_sum + tiles_per_cta * tile_norm ** (1 / _NORM)
    reduction = 8.0 * splits * shape.groups * shape.channels_out * shape.chunks * CHUNK_CHANNELS / _REDUCTION_BANDWIDTH
    main_loop = ((clocks / machine.clock) ** 4 + (shape.traffic / machine.bandwidth) ** 4) ** 0.25
    seconds = main_loop + reduction + _LAUNCH_SECONDS
    return Choice(tile, resident, splits, seconds)


def _copied_pixels(shape: Shape, tile: Tile) -> tuple[tuple[int, int, int], ...]:
    """Pixels, rows and channels that threads copy for a group, of x and of dy."""
    height, width = shape.halo_tile(tile.height, tile.width)
    halo = tile.images * height * width, tile.images * height, shape.channels_in
    return halo, (tile.pixels, tile.images * tile.height, shape.channels_out)


def _mma_clocks(shape: Shape, tile: Tile, resident_ctas: int) -> tuple[float, float]:
    """Clocks of a tile's MMAs: the throughput of an SM with its resident CTAs, and the latency of a warp."""
    chunks, warp_mma_tiles = shape.channels_out // CHUNK_CHANNELS, tile.warp_mma_tiles(shape)
    runs, run_steps = -(-tile.pixels // _MMA_K), 1  # the warps along K alternate after a run of K steps
    if tile.slides:
        column_groups = -(-tile.width // CHUNK_CHANNELS) * tile.images
        runs, run_steps = -(-column_groups // 2), tile.height + tile.sliding_rows(shape) - 1
    products = warp_mma_tiles * tile.sliding_rows(shape) * chunks
    stride_factor = _STRIDED if shape.stride[1] > 1 and not tile.is_loaded_by_tma else 1.0
    conflicts = 0.0 if tile.slides else _ROW_END_CONFLICT * CHUNK_CHANNELS / tile.width
    loads = _LOAD * (1.0 + conflicts) * (warp_mma_tiles * stride_factor + -(-chunks // 2))
    warps = resident_ctas * tile.warps  # the sub-partitions of an SM differ by at most one warp
    imbalance = -(-warps // _SUB_PARTITIONS) * _SUB_PARTITIONS / warps
    throughput = runs * run_steps * tile.groups * tile.warps_m * (loads + imbalance * (_MMA * products + _K_STEP))
    return throughput, _TILE_LATENCY + -(-runs // tile.warps_k) * run_steps * (_LOAD_LATENCY + _MMA_LATENCY * products)
