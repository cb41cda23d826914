"""The tile of a CTA of hopper_gemm.cu: its shape, registers and shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from graphdnn.device.multiprocessor import RESERVED

SWIZZLE_BYTES = 128  # bytes of K of a row in a stage, as in hopper_pipeline.cuh
SLAB_ROWS = 64  # as in conv_work_tile.cuh
MMA_K_BYTES = 32  # bytes of K of one MMA
MAX_TILE_ROWS = 256  # rows of the largest tile
MAX_STAGES, USUAL_MAX_STAGES = 16, 8
MIN_STAGES = 2  # a consumer releases the previous stage, so a single stage would deadlock
_BARRIERS = 16  # bytes for each stage
_SMALL = 64 * 96  # results of a small tile
_COLUMN_BLOCK = 32  # columns
_EXCHANGE_UNIT = 8 * _COLUMN_BLOCK  # partial sums, as in split_k_cluster.cuh
_OTHER_REGISTERS, _SWAPPED_REGISTERS = 40, 8  # of a thread, beside accumulators; more with ``swap_ab``
_REGISTERS, _MOST_REGISTERS = 65536, 255  # of a multiprocessor, and of a thread


@dataclass(frozen=True)
class Tile:
    """A tile of ``bm`` rows by ``bn`` columns: 64, 128, 192 or 256 rows, and a multiple of 32 columns up to 256.

    ``ctas_per_sm``: CTAs that share a multiprocessor, so that the epilogue of one overlaps the main loop of another.
    ``swap_ab``: channels are the rows and pixels the columns; K is not split then. ``shares_tail``: a tile of a filter
    gradient, whose columns are slabs of 64 channels of a tap. If ``bn`` is no multiple of 64, adjacent tiles share
    one more slab, and ``bn`` is a multiple of 16. ``pingpong_groups``: warpgroups that alternate whole tiles; with 1,
    all consumers share a tile.
    """

    bm: int
    bn: int
    ctas_per_sm: int = 1
    swap_ab: bool = False
    shares_tail: bool = False
    pingpong_groups: int = 1

    @cached_property
    def consumers(self) -> int:
        """Consumer warpgroups of a CTA."""
        return {64: 1, 128: 2, 192: 3, 256: 2}[self.bm] if self.pingpong_groups == 1 else self.pingpong_groups

    @property
    def tile_consumers(self) -> int:
        """Consumer warpgroups that share a tile."""
        return self.consumers // self.pingpong_groups

    @cached_property
    def registers(self) -> tuple[int, int]:
        """Registers of a consumer thread and of a producer thread.

        The sum over all threads must not exceed ``launch_registers`` times the threads, or ``setmaxnreg`` deadlocks.
        """
        if self.ctas_per_sm == 2:
            return {1: (208, 40), 2: (104, 24)}[self.consumers]
        return {1: (240, 56), 2: (232, 40), 3: (160, 24)}[self.consumers]

    @property
    def launch_registers(self) -> int:
        """Registers of a thread when the CTA starts: the compiler uses as many as the launch bounds allow."""
        return min(_MOST_REGISTERS, _REGISTERS // (self.ctas_per_sm * 128 * (self.consumers + 1))) // 8 * 8

    @property
    def half_sm_tile(self) -> Tile | None:
        """The same tile with two CTAs on a multiprocessor, if there is one."""
        tile = replace(self, ctas_per_sm=2)
        return tile if tile in TILES else None

    def fits_registers(self, accumulator_sets: int) -> bool:
        """Whether registers hold ``accumulator_sets`` sets of accumulators."""
        others = _OTHER_REGISTERS + (_SWAPPED_REGISTERS if self.swap_ab else 0)
        return accumulator_sets == 1 or accumulator_sets * self.accumulators <= self.registers[0] - others

    @property
    def may_split_k(self) -> bool:
        return not self.swap_ab and self.pingpong_groups == 1

    @property
    def accumulators(self) -> int:
        """Accumulators of a thread."""
        return self.bm // (64 * self.tile_consumers) * self.bn // 2

    @property
    def max_stages(self) -> int:
        """The most stages: with larger tiles, pipelines that fill shared memory were measured to be slower."""
        return MAX_STAGES if self.ctas_per_sm == 1 and self.bm * self.bn <= _SMALL else USUAL_MAX_STAGES

    @property
    def order_barrier_bytes(self) -> int:
        """Bytes of the barriers that order the main loops of ping-pong groups."""
        return 8 * self.pingpong_groups if self.pingpong_groups > 1 else 0

    @cached_property
    def stage_bytes(self) -> int:
        """Bytes of a stage. A shared slab is loaded whole."""
        columns = -(-self.bn // SLAB_ROWS) * SLAB_ROWS if self.shares_tail else self.bn
        return (self.bm + columns) * SWIZZLE_BYTES

    @property
    def padded_results(self) -> int:
        """Results of a tile, in whole column blocks of 32."""
        return self.bm * -(-self.bn // _COLUMN_BLOCK) * _COLUMN_BLOCK

    def stages(self, shared_memory: int, beside: int = 0) -> int:
        """Stages that fit into shared memory beside ``beside`` other bytes of each CTA."""
        room = shared_memory // self.ctas_per_sm - RESERVED - 256 - beside
        return min(self.max_stages, room // (self.stage_bytes + _BARRIERS))

    def dsmem_bytes(self, splits: int) -> int:
        """Bytes of the DSMEM buffer of a CTA: the partial sums of all CTAs of the cluster for its exchange units."""
        units = self.padded_results // _EXCHANGE_UNIT
        return -(-units // splits) * splits * _EXCHANGE_UNIT * 4

    @property
    def name(self) -> str:
        kind = (f"b{self.ctas_per_sm}" if self.ctas_per_sm > 1 else "") + "t" * self.swap_ab + "s" * self.shares_tail
        kind += f"w{self.pingpong_groups}" if self.pingpong_groups > 1 else ""
        return f"{self.bm}x{self.bn}{kind}"


# Plans store the number of a tile, its position in TILES. A new tile of any shape is a row at the end of TILES, and the
# three tables before TILES do not change.
_WIDTHS = {  # by CTAs on a multiprocessor, and rows
    (1, 128): (256, 192, 160, 128, 96, 64),
    (1, 256): (160, 128, 96, 64),
    (1, 192): (192, 160, 128, 64),
    (1, 64): (256, 192, 128, 64),
    (2, 128): (64,),
    (2, 64): (192, 128, 64),
}
_NARROW = (64, 32), (64, 96), (128, 32)  # skinny GEMMs, which read each weight once: many stages on all multiprocessors
_SWAPPED = (128, 96), (128, 160), (128, 192), (128, 224), (256, 96)
TILES: tuple[Tile, ...] = (
    *(Tile(bm, bn, ctas_per_sm) for (ctas_per_sm, bm), widths in _WIDTHS.items() for bn in widths),
    *(Tile(bm, bn, swap_ab=True) for bm, bn in _SWAPPED),
    Tile(128, 144, shares_tail=True),
    Tile(128, 128, pingpong_groups=2),
    *(Tile(bm, bn) for bm, bn in _NARROW),
    Tile(128, 224, shares_tail=True),
)
