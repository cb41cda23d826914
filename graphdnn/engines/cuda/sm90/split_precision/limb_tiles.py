"""Tiles of split-precision fprop and dgrad, and the choice of one.

Fitted constants of the cost model are in fitted_h200.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.fitted_constants import LIMBS as FITTED
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.gemm_time import reduction_seconds
from graphdnn.engines.cuda.sm90.split_precision.limb_schemes import LimbScheme
from graphdnn.engines.cuda.sm90.split_precision.limb_tile import LimbTile
from graphdnn.engines.cuda.sm90.tile import MIN_STAGES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import DataType, KnobType

_RESERVED = RESERVED + 256  # bytes of shared memory that stages cannot use
_BARRIERS = 16  # bytes for each stage
_MAX_STAGES = 8
_BOX_BYTES = 128  # bytes of a row of a TMA box
_ROUNDING = 1 + 1e-9  # a bound may exceed its exact value by rounding
_OTHER_REGISTERS = (24, 24, 32)  # besides accumulators and limbs, for 1, 2 and 3 consumer warpgroups
_PROMOTION_STAGES = 4  # stages between promotions of floats: 128 channels
_SPLITTING = {  # cycles of a consumer, to split a K step into limbs
    DataType.FLOAT: FITTED.split_float_cycles,
    DataType.INT32: FITTED.split_int32_cycles,
    DataType.INT16: FITTED.split_int16_cycles,
    DataType.INT8: FITTED.split_byte_cycles,
    DataType.UINT8: FITTED.split_byte_cycles,
}


@dataclass(frozen=True, slots=True)
class Tile(LimbTile):
    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a consumer and a producer thread. The total is at most the register file of the launch."""
        return {1: (240, 56), 2: (240, 24), 3: (160, 32)}[self.consumers]

    def stage_bytes(self, scheme: LimbScheme) -> int:
        return self.bm * scheme.boxes * _BOX_BYTES + self.bn * scheme.filter_row_bytes

    def stages(self, scheme: LimbScheme, shared_memory: int) -> int:
        return min(_MAX_STAGES, (shared_memory - _RESERVED) // (self.stage_bytes(scheme) + _BARRIERS))

    def fits(self, scheme: LimbScheme) -> bool:
        """Whether accumulators, promoted sums of floats, and the limbs of two MMA K steps fit into registers."""
        fragments = 2 * 4 * len(scheme.limbs[0])
        others = 16 if scheme.is_packed else _OTHER_REGISTERS[self.consumers - 1]
        used = scheme.registers_per_result * self.bn // 2 + fragments
        return used <= self.registers[0] - others


TILES = tuple(Tile(bm, bn) for bm in (128, 192, 64) for bn in (192, 128, 96, 64, 32))

TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, if it serves")
STAGES = Knob(
    KnobType.STAGES,
    0,
    _MAX_STAGES,
    1,
    0,
    "stages of the pipeline in shared memory, 2 at least, if they fit; 0: as many as fit",
)
SPLITS = Knob(
    KnobType.SPLIT_K, 0, 128, 1, 0, "splits of the sum, computed in parallel; more splits if sums would overflow"
)


def promotion_interval(scheme: LimbScheme) -> int:
    """Stages between promotions of the accumulators; 0: no promotion."""
    return _PROMOTION_STAGES if scheme.is_float else 0


class Choice(NamedTuple):
    tile: Tile
    stages: int
    splits: int
    seconds: float


def choose(scheme: LimbScheme, sizes: GemmShape, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The fastest of the allowed tiles and splits. The fastest one replaces a tile that does not fit."""
    machine = Machine.of(device)
    requested = knobs[TILE.type], knobs[STAGES.type], knobs[SPLITS.type]
    choice = _fastest(scheme, sizes, machine, *requested) or _fastest(scheme, sizes, machine, 0, 0, requested[2])
    assert choice is not None, "the smallest tile fits every device that has the instructions"
    return choice


@lru_cache(maxsize=1024)
def _fastest(
    scheme: LimbScheme, sizes: GemmShape, machine: Machine, number: int, stages: int, splits: int
) -> Choice | None:
    best: tuple[float, _Candidate, int] | None = None
    fewest, partial_bytes = fewest_splits(scheme, sizes), 8 if scheme.compute is DataType.INT64 else 4
    for candidate in _candidates(scheme, machine.shared_memory, number):
        if candidate.stages < max(stages, MIN_STAGES):
            continue
        tiles = tile_count(sizes, candidate.tile)
        k_tiles = _mean_k_tiles(sizes, candidate.tile, tiles)
        least_clocks = tiles * k_tiles * candidate.k_tile_clocks
        if best is not None and least_clocks > best[0] * _ROUNDING * machine.sms * machine.clock:
            continue  # slower even if every wave were full
        for count in sorted({max(fewest, n) for n in ((splits,) if splits else _split_counts(sizes, tiles, machine))}):
            seconds = _seconds(candidate, tiles, k_tiles, count, partial_bytes, sizes.result_bytes, machine)
            if best is None or seconds < best[0]:
                best = seconds, candidate, count
    if best is None:
        return None
    seconds, candidate, count = best
    return Choice(candidate.tile, max(stages, MIN_STAGES) if stages else candidate.stages, count, seconds)


class _Candidate(NamedTuple):
    """A tile that fits, with its values that do not depend on extents."""

    tile: Tile
    stages: int  # as many as fit
    k_tile_clocks: float


@lru_cache(maxsize=128)
def _candidates(scheme: LimbScheme, shared_memory: int, number: int) -> tuple[_Candidate, ...]:
    tiles = [tile for tile in ((TILES[number - 1],) if number else TILES) if tile.fits(scheme)]
    return tuple(_Candidate(tile, tile.stages(scheme, shared_memory), _k_tile_clocks(scheme, tile)) for tile in tiles)


def fewest_splits(scheme: LimbScheme, sizes: GemmShape) -> int:
    """The fewest splits of K with which no accumulator overflows 32 bits."""
    if not scheme.max_products:
        return 1
    most_k_tiles = scheme.max_products // scheme.channels
    return max(1, *(-(-k_tiles // most_k_tiles) for _, k_tiles in sizes.gemms))


def tile_count(sizes: GemmShape, tile: Tile) -> int:
    tiles_n = -(-sizes.columns // tile.bn)
    return sum([-(-rows // tile.bm) for rows, _ in sizes.gemms]) * tiles_n * sizes.groups


def _mean_k_tiles(sizes: GemmShape, tile: Tile, tiles: int) -> float:
    """K tiles of a tile, in the mean over the GEMMs of all residues."""
    if len(sizes.gemms) == 1:
        return sizes.gemms[0][1]
    tiles_n = -(-sizes.columns // tile.bn) * sizes.groups
    return sum([-(-rows // tile.bm) * tiles_n * k_tiles for rows, k_tiles in sizes.gemms]) / tiles


def _split_counts(sizes: GemmShape, tiles: int, machine: Machine) -> Iterator[int]:
    yield 1
    if len(sizes.gemms) > 1:
        return
    k_tiles = sizes.gemms[0][1]
    for waves in range(1, 6):
        splits = min(waves * machine.sms // tiles, k_tiles, SPLITS.maximum)
        if splits > 1 and k_tiles >= 2 * splits:
            yield splits


def _k_tile_clocks(scheme: LimbScheme, tile: Tile) -> float:
    """Clocks of a K tile.

    The splitting of K steps and the promotion of floats are partly hidden behind wgmma; the permutation of packed
    accumulators is not.
    """
    if scheme.is_packed:
        gemm = FITTED.packed_mma_factor * (tile.bn / 2 + FITTED.packed_mma_overhead_cycles)
    else:
        gemm = FITTED.mma_factor * tile.bn / 2
    mma = gemm * len(scheme.products) * scheme.mma_k_steps * tile.consumers
    splitting = scheme.mma_k_steps * tile.consumers * _SPLITTING[scheme.a] + (
        tile.bn * tile.consumers * FITTED.promotion_cycles_per_column if scheme.is_float else 0
    )
    loading = tile.stage_bytes(scheme) / FITTED.tma_bytes_per_cycle
    return max(mma + splitting, loading) + FITTED.k_tile_overhead_cycles


def _seconds(
    candidate: _Candidate,
    tiles: int,
    k_tiles: float,
    splits: int,
    partial_bytes: int,
    result_bytes: int,
    machine: Machine,
) -> float:
    """``partial_bytes``: of one partial sum, if K is split."""
    waves, size = -(-tiles * splits // machine.sms), candidate.tile.bm * candidate.tile.bn
    epilogue = size * (partial_bytes if splits > 1 else result_bytes) / FITTED.epilogue_store_bytes_per_cycle
    mainloop = -(-k_tiles // splits) * candidate.k_tile_clocks + FITTED.tile_overhead_cycles
    clocks = waves * max(mainloop + epilogue / FITTED.exposed_epilogue_divisor, epilogue)
    seconds = clocks / machine.clock
    if splits > 1:
        seconds += reduction_seconds(partial_bytes * tiles * size * splits, machine.launch, machine.bandwidth)
    return seconds
