"""A block's tile of a product on compute capability 9.0: its shape, registers and shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from graphdnn.device.multiprocessor import RESERVED

ROW = 128  # bytes of k in a stage, as in hopper_pipeline.cuh
PANEL = 64  # rows of a panel
SLICE = 32  # bytes of k that an instruction multiplies
LARGEST = 256  # rows of a tile
MOST_STAGES, USUAL_STAGES = 16, 8
SMALLEST_RING = 2  # stages: a product frees the one before its own, so with a single one everybody waits for ever
_BARRIERS = 16  # bytes for each stage
_SMALL = 64 * 96  # sums of a tile
_PIECE = 32  # columns that leave together
_UNIT = 8 * _PIECE  # sums that are sent together
_OTHER_REGISTERS, _TURNED_REGISTERS = 40, 8  # of a thread, than those of sums; more where they leave turned
_REGISTERS, _MOST_REGISTERS = 65536, 255  # of a multiprocessor, and of a thread


@dataclass(frozen=True)
class Tile:
    """A block's tile of the product. ``blocks``: how many share a multiprocessor, which lets the results of one leave
    while another multiplies. ``is_turned``: its rows are the products' columns, so that more shapes of the other side
    fill the device; sums are not split then. ``shares``: of a filter gradient, whose columns are panels of 64 channels
    at a tap; what is left of ``bn`` beside whole panels is a share of one that neighbouring tiles have the rest of.
    ``teams``: warpgroups that have whole tiles in turns, where others share one.
    """

    bm: int
    bn: int
    blocks: int = 1
    is_turned: bool = False
    shares: bool = False
    teams: int = 1

    @cached_property
    def consumers(self) -> int:
        """Warpgroups that multiply."""
        return {64: 1, 128: 2, 192: 3, 256: 2}[self.bm] if self.teams == 1 else self.teams

    @property
    def sharers(self) -> int:
        """Of these, those that share a tile."""
        return self.consumers // self.teams

    @cached_property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies and of one that copies. Together they must not be more than a block begins with
        (``registers_at_start`` for each thread): taking would wait for ever.
        """
        if self.blocks == 2:
            return {1: (208, 40), 2: (104, 24)}[self.consumers]
        return {1: (240, 56), 2: (232, 40), 3: (160, 24)}[self.consumers]

    @property
    def registers_at_start(self) -> int:
        """That the compiler may use for each thread, and therefore does."""
        return min(_MOST_REGISTERS, _REGISTERS // (self.blocks * 128 * (self.consumers + 1))) // 8 * 8

    @property
    def lean(self) -> Tile | None:
        """The same in half of a multiprocessor's registers, if there is one."""
        found = replace(self, blocks=2)
        return found if found in TILES else None

    def holds(self, sets: int) -> bool:
        """Whether so many sets of a tile's sums fit into registers."""
        others = _OTHER_REGISTERS + (_TURNED_REGISTERS if self.is_turned else 0)
        return sets == 1 or sets * self.sums <= self.registers[0] - others

    @property
    def may_be_split(self) -> bool:
        return not self.is_turned and self.teams == 1

    @property
    def sums(self) -> int:
        """Of a thread."""
        return self.bm // (64 * self.sharers) * self.bn // 2

    @property
    def deepest(self) -> int:
        """Stages, at most: rings of larger tiles that take all of shared memory were measured to be slower."""
        return MOST_STAGES if self.blocks == 1 and self.bm * self.bn <= _SMALL else USUAL_STAGES

    @property
    def turn_bytes(self) -> int:
        """Of the barriers by which teams take turns."""
        return 8 * self.teams if self.teams > 1 else 0

    @cached_property
    def stage_bytes(self) -> int:
        """A panel of which a tile has a share is copied whole."""
        columns = -(-self.bn // PANEL) * PANEL if self.shares else self.bn
        return (self.bm + columns) * ROW

    @property
    def padded(self) -> int:
        """Sums, in whole pieces of 32 columns."""
        return self.bm * -(-self.bn // _PIECE) * _PIECE

    def stages(self, shared_memory: int, beside: int = 0) -> int:
        """That there is room for, beside so many other bytes of each block."""
        room = shared_memory // self.blocks - RESERVED - 256 - beside
        return min(self.deepest, room // (self.stage_bytes + _BARRIERS))

    def inbox(self, parts: int) -> int:
        """Bytes in which a block of a cluster finds what the others have added: units of 8 rows and 32 columns."""
        units = self.padded // _UNIT
        return -(-units // parts) * parts * _UNIT * 4

    @property
    def name(self) -> str:
        kind = (f"b{self.blocks}" if self.blocks > 1 else "") + "t" * self.is_turned + "s" * self.shares
        kind += f"w{self.teams}" if self.teams > 1 else ""
        return f"{self.bm}x{self.bn}{kind}"


_WIDTHS = {  # by blocks and rows
    (1, 128): (256, 192, 160, 128, 96, 64),
    (1, 256): (160, 128, 96, 64),
    (1, 192): (192, 160, 128, 64),
    (1, 64): (256, 192, 128, 64),
    (2, 128): (64,),
    (2, 64): (192, 128, 64),
}
_NARROW = (64, 32), (64, 96), (128, 32)  # few rows by weights that pass once: deep rings on all multiprocessors
_TURNED = (128, 96), (128, 160), (128, 192), (128, 224), (256, 96)
TILES: tuple[Tile, ...] = (
    *(Tile(bm, bn, blocks) for (blocks, bm), widths in _WIDTHS.items() for bn in widths),
    *(Tile(bm, bn, is_turned=True) for bm, bn in _TURNED),
    Tile(128, 144, shares=True),
    Tile(128, 128, teams=2),
    *(Tile(bm, bn) for bm, bn in _NARROW),
    Tile(128, 224, shares=True),
)
