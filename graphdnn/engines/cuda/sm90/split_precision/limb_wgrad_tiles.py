"""Tiles of filter gradients by planes of 16-bit floats, and the choice of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.gemm_shape import Sizes
from graphdnn.engines.cuda.sm90.gemm_time import summing_seconds
from graphdnn.engines.cuda.sm90.split_precision.limb_tile import RowsTile
from graphdnn.engines.cuda.sm90.split_precision.limb_wgrad_schemes import Scheme
from graphdnn.engines.cuda.sm90.tile import PANEL, ROW
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_KEPT = RESERVED + 256  # bytes of shared memory
_MOST_STAGES = 8


@dataclass(frozen=True, slots=True)
class Tile(RowsTile):
    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies and of one that copies."""
        return {1: (240, 56), 2: (232, 40)}[self.consumers]

    def holds(self, scheme: Scheme) -> bool:
        """Whether its sums fit into registers."""
        return scheme.sets * self.bn // 2 <= 192

    def stage_bytes(self, planes: int, deep: int) -> int:
        return planes * (self.bm + self.bn) // PANEL * deep * ROW

    def stages(self, planes: int, deep: int, shared_memory: int) -> int:
        return min(_MOST_STAGES, (shared_memory - _KEPT) // (self.stage_bytes(planes, deep) + 16))

    def deep(self, planes: int, shared_memory: int) -> int:
        """Pixels of a stage: fewer where two stages would have to do."""
        return PANEL if self.stages(planes, PANEL, shared_memory) > 2 else PANEL // 2


TILES = tuple(Tile(bm, bn) for bm in (128, 64) for bn in (192, 128, 64))
TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a tile, if it serves")
PARTS = Knob(KnobType.SPLIT_K, 0, 128, 1, 0, "parts of the sum, computed side by side; 0: chosen by the shape")


class Choice(NamedTuple):
    tile: Tile
    deep: int
    stages: int
    parts: int
    seconds: float


def choose(scheme: Scheme, sizes: Sizes, device: DeviceSpec, knobs: Knobs) -> Choice:
    """The fastest of the allowed tiles and parts. What does not fit gives way to what is chosen by the shape."""
    machine = Machine.of(device)
    asked = knobs[TILE.type], knobs[PARTS.type]
    found = _fastest(scheme, sizes, machine, *asked) or _fastest(scheme, sizes, machine, 0, asked[1])
    assert found is not None, "the smallest tile fits every device that has the instructions"
    return found


@lru_cache(maxsize=256)
def _fastest(scheme: Scheme, sizes: Sizes, machine: Machine, number: int, parts: int) -> Choice | None:
    found = []
    least = (
        -(-sizes.products[0][1] * PANEL // scheme.longest) if scheme.longest else 1
    )  # so that no part's sums overflow
    for tile in (TILES[number - 1],) if number else TILES:
        deep = tile.deep(scheme.planes, machine.shared_memory)
        stages = tile.stages(scheme.planes, deep, machine.shared_memory)
        if tile.holds(scheme):
            for count in sorted({max(least, n) for n in ((parts,) if parts else _parts(sizes, tile, machine))}):
                found.append(Choice(tile, deep, stages, count, _seconds(scheme, sizes, tile, count, machine)))
    return min(found, key=lambda choice: choice.seconds, default=None)


def _tiles(sizes: Sizes, tile: Tile) -> int:
    ((rows, _),) = sizes.products
    return -(-rows // tile.bm) * -(-sizes.columns // tile.bn) * sizes.groups


def _parts(sizes: Sizes, tile: Tile, machine: Machine) -> Iterator[int]:
    yield 1
    tiles, depth = _tiles(sizes, tile), sizes.products[0][1]
    for waves in (1, 2, 3):
        parts = min(waves * machine.sms // tiles, depth, PARTS.maximum)
        if parts > 1 and depth >= 2 * parts:
            yield parts


def _seconds(scheme: Scheme, sizes: Sizes, tile: Tile, parts: int, machine: Machine) -> float:
    """As planes_tiles.py counts; 4 % from what tiles of VGG's layer take on an H200, 15 % with three planes."""
    multiplying = scheme.pace * scheme.products * 4 * tile.bn / 2 * tile.consumers
    step = max(multiplying, tile.stage_bytes(scheme.planes, PANEL) / 60) + 20
    tiles, depth = _tiles(sizes, tile), sizes.products[0][1]
    rounds = -(-tiles * parts // machine.sms)
    wide = ELEMENTS[scheme.compute].bytes
    leaving = tile.bm * tile.bn * (wide if parts > 1 else sizes.result_bytes) / 17
    clocks = rounds * max(-(-depth // parts) * step + 1200 + leaving / 3, leaving) + 3000
    seconds = clocks / machine.clock
    if parts > 1:
        seconds += summing_seconds(float(wide) * tiles * tile.bm * tile.bn * parts, machine.launch, machine.bandwidth)
    return seconds
