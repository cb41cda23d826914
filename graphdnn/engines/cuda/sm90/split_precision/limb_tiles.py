"""Tiles of products of planes on compute capability 9.0, and the choice of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.gemm_shape import Sizes
from graphdnn.engines.cuda.sm90.gemm_time import summing_seconds
from graphdnn.engines.cuda.sm90.split_precision.limb_schemes import Kind
from graphdnn.engines.cuda.sm90.split_precision.limb_tile import RowsTile
from graphdnn.engines.cuda.sm90.tile import SMALLEST_RING
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import DataType, KnobType

_KEPT = RESERVED + 256  # bytes of shared memory
_BARRIERS = 16  # bytes for each stage
_MOST_STAGES = 8
_ROW = 128
_ROUNDING = 1 + 1e-9  # a bound may be as high as what it bounds
_OTHER_REGISTERS = (24, 24, 32)  # than those of sums and planes, for 1, 2 and 3 warpgroups
_PROMOTED = 4  # stages whose products of floats are added by the tensor cores: 128 channels
_SPLITTING = {DataType.FLOAT: 35, DataType.INT32: 16, DataType.INT16: 8, DataType.INT8: 2, DataType.UINT8: 2}  # clocks


@dataclass(frozen=True, slots=True)
class Tile(RowsTile):
    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies and of one that copies: no more than all began with, 240, 168 or 128 each."""
        return {1: (240, 56), 2: (240, 24), 3: (160, 32)}[self.consumers]

    def stage_bytes(self, kind: Kind) -> int:
        return self.bm * kind.boxes * _ROW + self.bn * kind.filter_row

    def stages(self, kind: Kind, shared_memory: int) -> int:
        return min(_MOST_STAGES, (shared_memory - _KEPT) // (self.stage_bytes(kind) + _BARRIERS))

    def fits(self, kind: Kind) -> bool:
        """Its sums fit into registers, with what was added of those of floats, and the planes of two blocks of k."""
        parts = 2 * 4 * len(kind.planes[0])
        others = 16 if kind.is_turned else _OTHER_REGISTERS[self.consumers - 1]
        held = kind.sets_of_sums * self.bn // 2 + parts
        return held <= self.registers[0] - others


TILES = tuple(Tile(bm, bn) for bm in (128, 192, 64) for bn in (192, 128, 96, 64, 32))

TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a tile, if it serves")
STAGES = Knob(
    KnobType.STAGES,
    0,
    _MOST_STAGES,
    1,
    0,
    "stages of the ring in shared memory, 2 at least, if they fit; 0: as many as fit",
)
PARTS = Knob(
    KnobType.SPLIT_K, 0, 128, 1, 0, "parts of the sum, computed side by side, or more where sums would not fit"
)


def promoted(kind: Kind) -> int:
    """Stages after which sums are joined and added apart; 0: never."""
    return _PROMOTED if kind.is_float else 0


class Choice(NamedTuple):
    tile: Tile
    stages: int
    parts: int
    seconds: float


def choose(kind: Kind, sizes: Sizes, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The fastest of the allowed tiles and parts. What does not fit gives way to what is chosen by the shape."""
    machine = Machine.of(device)
    asked = knobs[TILE.type], knobs[STAGES.type], knobs[PARTS.type]
    found = _fastest(kind, sizes, machine, *asked) or _fastest(kind, sizes, machine, 0, 0, asked[2])
    assert found is not None, "the smallest tile fits every device that has the instructions"
    return found


@lru_cache(maxsize=1024)
def _fastest(kind: Kind, sizes: Sizes, machine: Machine, number: int, stages: int, parts: int) -> Choice | None:
    best: tuple[float, _Fitting, int] | None = None
    least, wide = least_parts(kind, sizes), 8 if kind.compute is DataType.INT64 else 4
    for one in _fitting(kind, machine.shared_memory, number):
        if one.stages < max(stages, SMALLEST_RING):
            continue
        tiles = tiles_of(sizes, one.tile)
        steps = _steps(sizes, one.tile, tiles)
        if best is not None and tiles * steps * one.step > best[0] * _ROUNDING * machine.sms * machine.clock:
            continue  # slower even if they filled the device all the time
        for count in sorted({max(least, n) for n in ((parts,) if parts else _parts(sizes, tiles, machine))}):
            seconds = _seconds(one, tiles, steps, count, wide, sizes.result_bytes, machine)
            if best is None or seconds < best[0]:
                best = seconds, one, count
    if best is None:
        return None
    seconds, one, count = best
    return Choice(one.tile, max(stages, SMALLEST_RING) if stages else one.stages, count, seconds)


class _Fitting(NamedTuple):
    """A tile that fits, with what extents do not change."""

    tile: Tile
    stages: int  # that there is room for
    step: float  # clocks


@lru_cache(maxsize=128)
def _fitting(kind: Kind, shared_memory: int, number: int) -> tuple[_Fitting, ...]:
    tiles = [tile for tile in ((TILES[number - 1],) if number else TILES) if tile.fits(kind)]
    return tuple(_Fitting(tile, tile.stages(kind, shared_memory), _step(kind, tile)) for tile in tiles)


def least_parts(kind: Kind, sizes: Sizes) -> int:
    """So that no part's sums leave 32 bits."""
    if not kind.longest:
        return 1
    longest = kind.longest // kind.channels  # steps
    return max(1, *(-(-depth // longest) for _, depth in sizes.products))


def tiles_of(sizes: Sizes, tile: Tile) -> int:
    across = -(-sizes.columns // tile.bn)
    return sum([-(-rows // tile.bm) for rows, _ in sizes.products]) * across * sizes.groups


def _steps(sizes: Sizes, tile: Tile, tiles: int) -> float:
    """Of a tile, in the mean."""
    if len(sizes.products) == 1:
        return sizes.products[0][1]
    across = -(-sizes.columns // tile.bn) * sizes.groups
    return sum([-(-rows // tile.bm) * across * depth for rows, depth in sizes.products]) / tiles


def _parts(sizes: Sizes, tiles: int, machine: Machine) -> Iterator[int]:
    yield 1
    if len(sizes.products) > 1:
        return
    depth = sizes.products[0][1]
    for waves in range(1, 6):
        parts = min(waves * machine.sms // tiles, depth, PARTS.maximum)
        if parts > 1 and depth >= 2 * parts:
            yield parts


def _step(kind: Kind, tile: Tile) -> float:
    """Clocks that were fitted to measured tiles (70 of fp32 within 5 %), as those of ``_seconds``: a stage is copied at
    32.5 bytes a clock, results leave at 17; splitting blocks of k and adding sums of floats are partly hidden, waiting
    for sums that are turned is not.
    """
    of_product = 0.76 * (tile.bn / 2 + 25) if kind.is_turned else 1.04 * tile.bn / 2
    products = of_product * len(kind.products) * kind.blocks * tile.consumers
    splitting = kind.blocks * tile.consumers * _SPLITTING[kind.a] + (
        tile.bn * tile.consumers / 2 if kind.is_float else 0
    )
    return max(products + splitting, tile.stage_bytes(kind) / 32.5) + 54


def _seconds(
    one: _Fitting, tiles: int, steps: float, parts: int, wide: int, result_bytes: int, machine: Machine
) -> float:
    """``wide``: bytes of a partial sum."""
    rounds, size = -(-tiles * parts // machine.sms), one.tile.bm * one.tile.bn
    leaving = size * (wide if parts > 1 else result_bytes) / 17
    clocks = rounds * max(-(-steps // parts) * one.step + 1500 + leaving / 3, leaving)
    seconds = clocks / machine.clock
    if parts > 1:
        seconds += summing_seconds(wide * tiles * size * parts, machine.launch, machine.bandwidth)
    return seconds
