"""Tiles of the engine whose filters stay in shared memory, and the choice of one: a model of a block's clocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.tile import PANEL, ROW, SLICE
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_KEPT = RESERVED + 256  # bytes of shared memory: the system's, and what is left of barriers
_BARRIER = 8  # bytes
_MOST_STAGES, _LEAST_STAGES = 8, 2

# The model's constants, fitted to 56 measured pairs of a layer and a tile (bytes and halves, results of one to four
# bytes), operands from memory, on an H200: 10 % from what was measured, in the mean.
_PRODUCT = 0.0368  # clocks for each sum of a tile, and step of k
_READ = 101.0  # bytes of shared memory a clock that products read
_PIXELS = 53.0  # bytes of them a clock into shared memory
_PARTIAL = 1.8  # times this besides, for what is missing of rows of 128 bytes
_UNDER_WAY = 1300.0  # clocks from a request to its pixels: a ring of few stages runs dry
_STEP = 6.4  # clocks of a step besides
_BYTE_OUT = 0.0106  # clocks of a consumer for each byte that leaves, and that is read for it
_FILTERS = 1580.0  # bytes of them a clock: most come while the kernel before ends
_NORM = 2.7  # how much less what is not the longest counts
_PACE = 1.08  # of the clock that products alone keep
_ROUNDING = 1 + 1e-9  # a bound may be as high as what it bounds
_OTHER_REGISTERS = 40  # of a thread, than those of sums
IDLE = 0.55  # of a launch, that pieces do not take which leave nearly all multiprocessors idle


class Shape(NamedTuple):
    """What the choice depends on."""

    rows: int  # pixels of the result
    depth: int  # steps of 128 bytes of k
    slices: int  # 32s of these bytes that are multiplied
    columns: int
    result_bytes: int  # of an element that leaves, and of what is read for it
    kept_bytes: int  # that are read for a column
    moved_bytes: int  # all that comes from memory, and goes there


@dataclass(frozen=True)
class Held:
    """Consumers of a block, 64 pixels each, and the columns of its filters."""

    consumers: int
    bn: int

    @cached_property
    def name(self) -> str:
        return f"{self.consumers}x{self.bn}"

    @cached_property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies and of one that copies."""
        return {2: (240, 24), 3: (160, 24)}[self.consumers]

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)

    def keeps(self, kept_bytes: int) -> bool:
        """Whether registers hold the epilogue's column operands beside the accumulators, as in the kernel."""
        return self.bn // 2 + self.bn // 16 * kept_bytes + _OTHER_REGISTERS <= self.registers[0]

    def shared_bytes(self, depth: int, stages: int) -> int:
        return depth * (self.bn * ROW + _BARRIER) + self.consumers * stages * (PANEL * ROW + 2 * _BARRIER)

    def stages(self, depth: int, shared_memory: int) -> int:
        """Of each consumer's ring; 0 where filters leave no room for two."""
        left = shared_memory - _KEPT - self.shared_bytes(depth, 0)
        stages = min(_MOST_STAGES, left // self.shared_bytes(0, 1))
        return stages if stages >= _LEAST_STAGES else 0


TILES: tuple[Held, ...] = (Held(2, 128), Held(3, 128), Held(2, 64), Held(3, 64), Held(2, 256))
TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a tile, if it serves")


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Held
    stages: int
    seconds: float
    pieces: int  # blocks that have pixels, at most


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest that fits; a tile that was asked for and does not gives way to it. None if none fits."""
    machine = Machine.of(device)
    return _fastest(shape, machine, knobs[TILE.type]) or _fastest(shape, machine, 0)


@lru_cache(maxsize=256)
def _fastest(shape: Shape, machine: Machine, number: int) -> Choice | None:
    fitting = _fitting(shape._replace(rows=0, moved_bytes=0), machine.sms, machine.shared_memory, number)
    if not fitting:
        return None
    clock = machine.clock * _PACE
    memory = shape.moved_bytes / machine.bandwidth * clock
    least, best = inf, fitting[0]
    for one in fitting:
        clocks = one.clocks(shape.rows, memory, least)
        if clocks < least:
            least, best = clocks, one
    pieces = -(-shape.rows // PANEL) * -(-shape.columns // best.tile.bn)
    return Choice(best.tile, best.stages, least / clock, pieces)


class _Fitting(NamedTuple):
    """A tile that fits, with what rows do not change. Clocks, unless it says otherwise."""

    tile: Held
    stages: int
    pixels: int  # that all multiprocessors take in a round
    products: float  # of a round
    alone: float  # of a consumer that has the tensor cores for itself
    copies: float  # of a round
    outside: float  # before the first round and after the last

    @classmethod
    def of(cls, tile: Held, stages: int, shape: Shape, sms: int) -> _Fitting:
        across = -(-shape.columns // tile.bn)
        step = max(PANEL * tile.bn * _PRODUCT, (PANEL + tile.bn) * ROW / _READ)
        products = shape.slices * SLICE / ROW * step + shape.depth * _STEP
        read = 0.0 if tile.keeps(shape.kept_bytes) else _BYTE_OUT * shape.kept_bytes
        own = PANEL * tile.bn * (_BYTE_OUT * shape.result_bytes + read)
        partial = 1.0 + _PARTIAL * (1.0 - shape.slices * SLICE / (shape.depth * ROW))
        alone = max(products, shape.depth * _UNDER_WAY / stages) + own
        copies = shape.depth * PANEL * ROW / _PIXELS * partial
        outside = shape.depth * tile.bn * ROW / _FILTERS + own
        return cls(tile, stages, PANEL * max(1, sms // across), products, alone, copies, outside)

    def clocks(self, rows: int, memory: float, most: float) -> float:
        """``memory``: clocks in which everything comes from memory and goes there. Beyond ``most`` a bound serves."""
        rounds = -(-rows // self.pixels)
        turns = -(-rounds // self.tile.consumers) * self.alone
        # The longest of these, and more where others are nearly as long.
        parts = rounds * self.products, turns, memory, rounds * self.copies
        bound = max(parts) + self.outside
        if bound > most * _ROUNDING:
            return bound
        busy: float = sum([part**_NORM for part in parts]) ** (1 / _NORM)
        return busy + self.outside


@lru_cache(maxsize=256)
def _fitting(kind: Shape, sms: int, shared_memory: int, number: int) -> tuple[_Fitting, ...]:
    """``kind``: a shape without rows."""
    tiles = [(tile, tile.stages(kind.depth, shared_memory)) for tile in ((TILES[number - 1],) if number else TILES)]
    fitting = [(tile, stages) for tile, stages in tiles if stages and -(-kind.columns // tile.bn) <= sms]
    return tuple(_Fitting.of(tile, stages, kind, sms) for tile, stages in fitting)
