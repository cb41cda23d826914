"""Tiles of the SIMT implicit GEMM, and the choice of a tile by a model of waves of CTAs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf
from typing import NamedTuple

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, Residue
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import DataType, KnobType


@dataclass(frozen=True)
class Tile:
    """The tile of a CTA and of a thread."""

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int

    @cached_property
    def threads(self) -> int:
        return self.bm // self.tm * (self.bn // self.tn)

    @property
    def name(self) -> str:
        return f"{self.bm}x{self.bn}x{self.bk}"

    @cached_property
    def loads(self) -> float:
        """Elements of operands that a thread loads for a k index."""
        return (self.bm + self.bn) / self.threads

    @cached_property
    def resident(self) -> int:
        """Resident CTAs of an SM, which bound the registers of a thread."""
        if self.tm * self.tn < 64:
            return max(1, 512 // self.threads)
        if self.tm * self.tn > 64:
            return max(1, 256 // self.threads)
        return 384 // self.threads + (self.threads == 256 and self.tm * self.tn == 64)

    @cached_property
    def share(self) -> float:
        """The part of the device's peak that a tile reaches: an element read from shared memory serves tm or tn
        multiply-adds.
        """
        return 0.8 / (1 + 1 / self.tm + 1 / self.tn)


# Largest first; the last tiles are for problems with few rows and columns per group.
TILES: tuple[Tile, ...] = (
    Tile(256, 128, 8, 16, 8),
    Tile(128, 128, 8, 8, 8),
    Tile(128, 64, 8, 8, 8),
    Tile(64, 128, 8, 8, 8),
    Tile(64, 64, 16, 4, 4),
    Tile(128, 32, 16, 4, 4),
    Tile(32, 256, 8, 4, 8),
    Tile(32, 128, 16, 4, 4),
    Tile(32, 64, 16, 4, 4),
    Tile(32, 32, 32, 2, 2),
    Tile(64, 8, 32, 2, 1),
    Tile(8, 64, 32, 1, 2),
)
LARGEST_SHARE = max(tile.share for tile in TILES)
_WIDE_TILES = (4, 5, 7, 8, 9, 10, 11)  # with 8-byte operands

TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, largest first")
SPLIT = Knob(
    KnobType.SPLIT_K,
    0,
    7,
    1,
    0,
    "0: chosen by the shape; else the sum is computed in up to 2 to the power n-1 parts of whole tiles, side by side",
)
SPLITS = (1, 2, 4, 8, 16, 32, 64)
_MOST_SPLITS = 128  # the most splits that the model chooses
_LEAST_DEPTH = 8  # the fewest K tiles of a split
_MANY = 64  # CTAs for each SM above which further splits only add partial sums
_IDLE_SM_RATE = 0.3  # throughput of an SM with few warps over its full throughput
LOAD = 95e-9  # the least seconds of a CTA for each element that a thread loads: its latency is hardly hidden
# The part of the memory bandwidth at which a CTA stores results after its main loop, from the additional time of short
# sums over their products on an H200 (c2_1x1b of bytes 130 us for 103 MB, the first layer in fp32 176 us for 205 MB).
_EPILOGUE_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Shape:
    """A tile, the number of splits, and the predicted time."""

    tile: Tile
    splits: int
    seconds: float


def choose(product: GemmProblem, device: DeviceSpec, compute: DataType, knobs: Knobs) -> Shape:
    """The fastest of the allowed tiles and splits by a model of waves of CTAs."""
    sizes = tuple((product.rows(r), product.columns(r), product.depth(r)) for r in product.residues)
    operand_bytes = 8 if COMPUTE_TYPE[compute] in ("double", "long long") else 4
    machine = _Machine(device.sm_count, device.compute_rate(compute) / device.sm_count, device.bandwidth, device.launch)
    groups, results = product.roles.problem.groups, product.results * operand_bytes
    return _fastest(machine, sizes, groups, results, operand_bytes, knobs[TILE.type], knobs[SPLIT.type])


class _Machine(NamedTuple):
    sms: int
    rate: float  # operations per second of one SM
    bandwidth: float
    launch: float


@lru_cache(maxsize=1024)  # called for the prediction and again for the kernel
def _fastest(
    machine: _Machine,
    sizes: tuple[tuple[int, int, int], ...],
    groups: int,
    results: int,
    operand_bytes: int,
    number: int,
    power: int,
) -> Shape:
    """``sizes``: rows, columns and depth of each product. ``results``: bytes of all of them."""
    sms = machine.sms
    tiles = (number - 1,) if number else range(len(TILES)) if operand_bytes == 4 else _WIDE_TILES
    deepest = max(depth for *_, depth in sizes)
    best = inf, TILES[tiles[0]], 1  # seconds, tile, parts
    epilogue_seconds = results / (_EPILOGUE_SHARE * machine.bandwidth)
    for tile in (TILES[i] for i in tiles):
        counted = [(-(-rows // tile.bm) * -(-columns // tile.bn) * groups, depth) for rows, columns, depth in sizes]
        blocks, area = sum([count for count, _ in counted]), 2.0 * tile.bm * tile.bn
        resident, rate = tile.resident, machine.rate * tile.share
        if area * sum([count * depth for count, depth in counted]) >= best[0] * sms * rate:
            continue  # slower even at full occupancy
        for splits in (SPLITS[power - 1],) if power else _candidates(resident * sms, blocks):
            if (
                not power
                and splits > 1
                and (splits * _LEAST_DEPTH * tile.bk > deepest or splits * blocks > _MANY * sms)
            ):
                break
            # Mean time of a CTA.
            work = area * sum([count * -(-depth // splits) for count, depth in counted]) / blocks
            full, rest = divmod(blocks * splits, resident * sms)
            last = -(-rest // sms)  # CTAs of an SM in the last wave; an SM with free slots is less efficient
            filled = _IDLE_SM_RATE + (1 - _IDLE_SM_RATE) * (last / resident)
            seconds = (full * resident + last / filled) * work / rate
            seconds = max(seconds, (full + (rest > 0)) * work / area * tile.loads * LOAD)
            if splits > 1:  # partial sums are written, read and added
                seconds += 2 * results * splits / machine.bandwidth + machine.launch
            if seconds < best[0]:
                best = seconds, tile, splits
    return Shape(best[1], best[2], best[0] + epilogue_seconds)


def _candidates(places: int, blocks: int) -> list[int]:
    """Numbers of splits: powers of two, and the numbers that fill the device with one or two waves of CTAs."""
    full = (waves * places // blocks for waves in (1, 2))
    return sorted({*SPLITS, *(splits for splits in full if 1 < splits <= _MOST_SPLITS)})


def blocks_of(product: GemmProblem, residue: Residue, tile: Tile) -> int:
    groups = product.roles.problem.groups
    return -(-product.rows(residue) // tile.bm) * -(-product.columns(residue) // tile.bn) * groups


def has_one_tap(product: GemmProblem, tile: Tile) -> bool:
    return not product.is_wgrad and product.channels % tile.bk == 0
