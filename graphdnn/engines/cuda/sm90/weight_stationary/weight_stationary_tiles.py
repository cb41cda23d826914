"""Tiles of hopper_weight_stationary.cu, and the choice of one by a cost model.

Fitted constants of the cost model are in fitted_h200.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.fitted_constants import WEIGHT_STATIONARY as FITTED
from graphdnn.engines.cuda.sm90.tile import MMA_K_BYTES, SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_RESERVED = RESERVED + 256  # bytes of shared memory: the system's part, and alignment
_BARRIER = 8  # bytes
_MAX_STAGES, _MIN_STAGES = 8, 2

_ROUNDING = 1 + 1e-9  # a lower bound may equal the cost in floating point
_OTHER_REGISTERS = 40  # of a thread beside its accumulators


class Shape(NamedTuple):
    """What the choice depends on."""

    rows: int  # pixels of the result
    k_tiles: int  # of 128 bytes of K
    mma_k_steps: int  # of 32 bytes; steps without channels do not count
    columns: int
    result_bytes: int  # of an element that is stored, and of its epilogue operands
    column_operand_bytes: int  # bytes of epilogue operands of a column
    moved_bytes: int  # to and from memory


@dataclass(frozen=True)
class Tile:
    """A CTA's consumers, with 64 pixels each, and its columns ``bn``."""

    consumers: int
    bn: int

    @cached_property
    def name(self) -> str:
        return f"{self.consumers}x{self.bn}"

    @cached_property
    def registers(self) -> tuple[int, int]:
        """Registers of a consumer thread and of a producer thread."""
        return {2: (240, 24), 3: (160, 24)}[self.consumers]

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)

    def keeps_operands(self, column_operand_bytes: int) -> bool:
        """Whether registers hold the epilogue's column operands beside the accumulators, as in the kernel."""
        return self.bn // 2 + self.bn // 16 * column_operand_bytes + _OTHER_REGISTERS <= self.registers[0]

    def shared_bytes(self, k_tiles: int, stages: int) -> int:
        return k_tiles * (self.bn * SWIZZLE_BYTES + _BARRIER) + self.consumers * stages * (
            SLAB_ROWS * SWIZZLE_BYTES + 2 * _BARRIER
        )

    def stages(self, k_tiles: int, shared_memory: int) -> int:
        """Stages of each consumer's pipeline; 0 if the filters leave no room for two."""
        left = shared_memory - _RESERVED - self.shared_bytes(k_tiles, 0)
        stages = min(_MAX_STAGES, left // self.shared_bytes(0, 1))
        return stages if stages >= _MIN_STAGES else 0


TILES: tuple[Tile, ...] = (Tile(2, 128), Tile(3, 128), Tile(2, 64), Tile(3, 64), Tile(2, 256))
TILE = Knob.row_of(TILES, KnobType.TILE_SIZE, "0: chosen by the shape; else the number of a tile, if it serves")


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Tile
    stages: int
    seconds: float
    work_items: int  # the most CTAs that have pixels


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest tile that fits. It replaces a requested tile that does not fit. None if no tile fits."""
    machine = Machine.of(device)
    return _fastest(shape, machine, knobs[TILE.type]) or _fastest(shape, machine, 0)


@lru_cache(maxsize=256)
def _fastest(shape: Shape, machine: Machine, number: int) -> Choice | None:
    candidates = _candidates(shape._replace(rows=0, moved_bytes=0), machine.sms, machine.shared_memory, number)
    if not candidates:
        return None
    clock = machine.clock * FITTED.sustained_clock_share
    memory = shape.moved_bytes / machine.bandwidth * clock
    least, best = inf, candidates[0]
    for candidate in candidates:
        clocks = candidate.clocks(shape.rows, memory, least)
        if clocks < least:
            least, best = clocks, candidate
    work_items = -(-shape.rows // SLAB_ROWS) * -(-shape.columns // best.tile.bn)
    return Choice(best.tile, best.stages, least / clock, work_items)


class _Candidate(NamedTuple):
    """A tile that fits, with its costs that do not depend on the rows, in clocks unless stated otherwise."""

    tile: Tile
    stages: int
    pixels: int  # of all multiprocessors in a wave
    products: float  # of a wave
    consumer: float  # of one consumer, if no other uses the tensor cores
    copies: float  # of a wave
    outside: float  # before the first wave and after the last

    @classmethod
    def of(cls, tile: Tile, stages: int, shape: Shape, sms: int) -> _Candidate:
        tiles_n = -(-shape.columns // tile.bn)
        smem_read = (SLAB_ROWS + tile.bn) * SWIZZLE_BYTES / FITTED.smem_bytes_per_cycle
        step = max(SLAB_ROWS * tile.bn * FITTED.mma_cycles_per_result, smem_read)
        products = (
            shape.mma_k_steps * MMA_K_BYTES / SWIZZLE_BYTES * step + shape.k_tiles * FITTED.k_tile_overhead_cycles
        )
        per_byte = FITTED.epilogue_cycles_per_byte
        read = 0.0 if tile.keeps_operands(shape.column_operand_bytes) else per_byte * shape.column_operand_bytes
        epilogue = SLAB_ROWS * tile.bn * (per_byte * shape.result_bytes + read)
        missing = 1.0 - shape.mma_k_steps * MMA_K_BYTES / (shape.k_tiles * SWIZZLE_BYTES)
        partial = 1.0 + FITTED.partial_row_load_factor * missing
        consumer = max(products, shape.k_tiles * FITTED.tma_latency_cycles / stages) + epilogue
        copies = shape.k_tiles * SLAB_ROWS * SWIZZLE_BYTES / FITTED.pixel_tma_bytes_per_cycle * partial
        outside = shape.k_tiles * tile.bn * SWIZZLE_BYTES / FITTED.filter_tma_bytes_per_cycle + epilogue
        return cls(tile, stages, SLAB_ROWS * max(1, sms // tiles_n), products, consumer, copies, outside)

    def clocks(self, rows: int, memory: float, most: float) -> float:
        """Clocks of a launch. ``memory``: clocks of all memory traffic. Above ``most``, a lower bound is enough."""
        waves = -(-rows // self.pixels)
        mma, loading = waves * self.products, waves * self.copies
        consumer = -(-waves // self.tile.consumers) * self.consumer
        bound = max(mma, consumer, memory, loading) + self.outside
        if bound > most * _ROUNDING:
            return bound
        # The longest phase; the time is longer if other phases are nearly as long.
        norm = FITTED.overlap_norm
        mainloop: float = sum((mma**norm, consumer**norm, memory**norm, loading**norm)) ** (1 / norm)
        return mainloop + self.outside


@lru_cache(maxsize=256)
def _candidates(kind: Shape, sms: int, shared_memory: int, number: int) -> tuple[_Candidate, ...]:
    """The tiles that fit. ``kind``: a shape without rows."""
    tiles = [(tile, tile.stages(kind.k_tiles, shared_memory)) for tile in ((TILES[number - 1],) if number else TILES)]
    candidates = [(tile, stages) for tile, stages in tiles if stages and -(-kind.columns // tile.bn) <= sms]
    return tuple(_Candidate.of(tile, stages, kind, sms) for tile, stages in candidates)
