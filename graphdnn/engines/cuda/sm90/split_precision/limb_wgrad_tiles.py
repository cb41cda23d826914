"""Tiles of split-precision filter gradients, and the choice of one.

Fitted constants of the cost model are in fitted_h200.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.fitted_constants import LIMBS_WGRAD as FITTED
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.gemm_time import reduction_seconds
from graphdnn.engines.cuda.sm90.split_precision.limb_tile import LimbTile
from graphdnn.engines.cuda.sm90.split_precision.limb_wgrad_schemes import Scheme
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_RESERVED = RESERVED + 256  # bytes of shared memory that stages cannot use
_MAX_STAGES = 8


@dataclass(frozen=True, slots=True)
class Tile(LimbTile):
    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a consumer thread and of a producer thread."""
        return {1: (240, 56), 2: (232, 40)}[self.consumers]

    def fits_registers(self, scheme: Scheme) -> bool:
        """Whether the accumulators fit into registers."""
        return scheme.registers_per_result * self.bn // 2 <= 192

    def stage_bytes(self, limbs: int, stage_k: int) -> int:
        return limbs * (self.bm + self.bn) // SLAB_ROWS * stage_k * SWIZZLE_BYTES

    def stages(self, limbs: int, stage_k: int, shared_memory: int) -> int:
        return min(_MAX_STAGES, (shared_memory - _RESERVED) // (self.stage_bytes(limbs, stage_k) + 16))

    def stage_k(self, limbs: int, shared_memory: int) -> int:
        """Pixels of a stage: fewer if only two stages of more pixels would fit."""
        return SLAB_ROWS if self.stages(limbs, SLAB_ROWS, shared_memory) > 2 else SLAB_ROWS // 2


TILES = tuple(Tile(bm, bn) for bm in (128, 64) for bn in (192, 128, 64))
TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, if it serves")
SPLITS = Knob(KnobType.SPLIT_K, 0, 128, 1, 0, "splits of the sum, computed side by side; 0: chosen by the shape")


class Choice(NamedTuple):
    tile: Tile
    stage_k: int
    stages: int
    splits: int
    seconds: float


def choose(scheme: Scheme, sizes: GemmShape, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The fastest of the allowed tiles and splits. The fastest one replaces a tile that does not fit."""
    machine = Machine.of(device)
    requested = knobs[TILE.type], knobs[SPLITS.type]
    choice = _fastest(scheme, sizes, machine, *requested) or _fastest(scheme, sizes, machine, 0, requested[1])
    assert choice is not None, "the smallest tile fits every device that has the instructions"
    return choice


@lru_cache(maxsize=256)
def _fastest(scheme: Scheme, sizes: GemmShape, machine: Machine, number: int, splits: int) -> Choice | None:
    candidates = []
    fewest_splits = (
        -(-sizes.gemms[0][1] * SLAB_ROWS // scheme.max_products) if scheme.max_products else 1
    )  # so that no split's sums overflow
    for tile in (TILES[number - 1],) if number else TILES:
        stage_k = tile.stage_k(scheme.limbs, machine.shared_memory)
        stages = tile.stages(scheme.limbs, stage_k, machine.shared_memory)
        if tile.fits_registers(scheme):
            counts = (splits,) if splits else _split_counts(sizes, tile, machine)
            for count in sorted({max(fewest_splits, n) for n in counts}):
                candidates.append(Choice(tile, stage_k, stages, count, _seconds(scheme, sizes, tile, count, machine)))
    return min(candidates, key=lambda choice: choice.seconds, default=None)


def _tiles(sizes: GemmShape, tile: Tile) -> int:
    ((rows, _),) = sizes.gemms
    return -(-rows // tile.bm) * -(-sizes.columns // tile.bn) * sizes.groups


def _split_counts(sizes: GemmShape, tile: Tile, machine: Machine) -> Iterator[int]:
    yield 1
    tiles, k_tiles = _tiles(sizes, tile), sizes.gemms[0][1]
    for waves in (1, 2, 3):
        splits = min(waves * machine.sms // tiles, k_tiles, SPLITS.maximum)
        if splits > 1 and k_tiles >= 2 * splits:
            yield splits


def _seconds(scheme: Scheme, sizes: GemmShape, tile: Tile, splits: int, machine: Machine) -> float:
    """The model of limb_tiles.py."""
    mma = scheme.relative_clocks * scheme.products * 4 * tile.bn / 2 * tile.consumers
    loading = tile.stage_bytes(scheme.limbs, SLAB_ROWS) / FITTED.tma_bytes_per_cycle
    k_tile_clocks = max(mma, loading) + FITTED.k_tile_overhead_cycles
    tiles, k_tiles = _tiles(sizes, tile), sizes.gemms[0][1]
    waves = -(-tiles * splits // machine.sms)
    partial_bytes = ELEMENTS[scheme.compute].bytes
    stored = tile.bm * tile.bn * (partial_bytes if splits > 1 else sizes.result_bytes)
    epilogue = stored / FITTED.epilogue_store_bytes_per_cycle
    mainloop = -(-k_tiles // splits) * k_tile_clocks + FITTED.tile_overhead_cycles
    clocks = waves * max(mainloop + epilogue / FITTED.exposed_epilogue_divisor, epilogue) + FITTED.launch_cycles
    seconds = clocks / machine.clock
    if splits > 1:
        seconds += reduction_seconds(
            float(partial_bytes) * tiles * tile.bm * tile.bn * splits, machine.launch, machine.bandwidth
        )
    return seconds
