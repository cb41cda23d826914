"""Patches of pixels that share what their taps read, and the choice of one: a model of a block's clocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.hopper.machine import Machine
from graphdnn.engines.cuda.hopper.tiles import PANEL, ROW, SLICE
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType
from graphdnn.multiprocessor import RESERVED

_KEPT = RESERVED + 256  # bytes of shared memory: the system's, and barriers
_BARRIERS = 16  # bytes for each stage
BOX_ROW = 64  # bytes of channels that a residual comes in
_MOST_STREAMED_SUMS, _MOST_STREAMED_BYTES = 128, 2  # of a thread, and of an element of the residual
_MOST_BYTES_OUT = 4  # of an element that leaves, and of all that is read for it
_STREAMED_SHARE, _READ_SHARE = 0.25, 4.0  # of its bytes when results leave: if it does, or is read by threads then
_MOST_STAGES, _MOST_FILTERS, _LEAST_FILTERS = 4, 8, 3
_LONGEST_BOX = 256
_NARROWEST = 64  # columns of filters that pass by
_WIDEST = 96  # columns of a product of one of four consumers, for which registers suffice

# The model's constants: those of tiles.py, and what 30 measured pairs of a layer and a patch need besides, on an
# H200. They lie within 8 % of what was measured.
_PRODUCT = 1.04 / 32  # clocks for each sum of a patch, and 32 bytes of k
_READ = 114.0  # bytes of shared memory a clock that products read
_COPIED = 71.0  # bytes a clock into shared memory
_BESIDE = 0.0032  # clocks of a byte that comes while others are multiplied: power
_STEP = 9.0  # clocks of a tap besides
_PATCH = 1000.0  # clocks of a patch besides
_OF_SLICES = 0.92  # what patches of volumes were measured to take of that, 0.81 to 1.02
_OWN_WAY = (
    320.0  # which is this, divided among consumers, where they wait neither for each other nor for the next patch
)
_LEAVING = 15.6  # bytes a clock of results
_START = 1200.0  # clocks of a launch
_PACE = 0.916  # of the highest clock
# The same where filters of bytes come by, fitted to 9 measured pairs, which lie within 5 %: power does not hold the
# clock back, so what is not products counts more.
_START_OF_BYTES, _PATCH_OF_BYTES, _LEAVING_OF_BYTES, _PACE_OF_BYTES = 6200.0, 170.0, 9.7, 1.07
_AGAIN = 8.0  # clocks for each sum of a thread besides, where what is read for columns does not stay in registers
_OTHER_REGISTERS = 40  # of a thread, than those of sums and of what stays


class Shape(NamedTuple):
    """What the choice depends on. Pairs are of lines and of pixels in a line."""

    images: int
    pixels: tuple[int, int]  # of the result
    taps: tuple[int, int]
    step: tuple[int, int]  # from tap to tap
    blocks: int  # 128 bytes of channels that are summed
    slices: int  # 32s of these bytes that are multiplied
    columns: int
    column_unit: int  # of filters in shared memory, where there are so many
    result_bytes: int  # of an element that leaves, and of what is read for it
    streamed_bytes: int = 0  # of those, what the copy unit may bring
    slices_out: int = 1  # of the result along the first of three axes; they count as images
    deep: int = 1  # taps along it, which are counted as blocks, if the slices they meet follow each other
    row: int = ROW  # bytes of channels that are copied at a time
    are_bytes: bool = False  # the operands
    kept_bytes: int = 0  # that are read for a column

    @property
    def tap_count(self) -> int:
        return self.taps[0] * self.taps[1]


@dataclass(frozen=True)
class Halo:
    """A consumer's patch, or several, and columns. ``is_linear``: the pixels of its lines follow each other in a
    product's rows.
    """

    tall: int
    wide: int
    bn: int
    consumers: int
    is_resident: bool
    is_linear: bool = False
    held: int = 1  # patches of a consumer
    is_deep: bool = False  # a slice of the image is multiplied once for all slices of the result that it meets

    @property
    def name(self) -> str:
        kind = "deep" if self.is_deep else "resident" if self.is_resident else "ring"
        several = f"{self.held}x" if self.held > 1 else ""
        return f"{several}{self.tall}x{self.wide}x{self.bn}_{self.consumers}{kind}"

    def registers(self, shape: Shape) -> tuple[int, int]:
        """Of a thread that multiplies and of one that copies. Where two patches leave registers over, filters along k
        are multiplied 1 to 2 % faster without them, those across k 3 % slower; copies of a residual need them.
        """
        is_spare = self.held > 1 and self.sums(shape) <= _MOST_STREAMED_SUMS and shape.column_unit == 1
        if is_spare or self.streams(shape):
            return 232, 40
        return {1: (240, 56), 2: (240, 24), 3: (160, 24), 4: (112, 24)}[self.consumers]

    def reached(self, shape: Shape) -> tuple[int, int]:
        """Lines and pixels of the image that a patch's taps read."""
        reach = [(taps - 1) * step for taps, step in zip(shape.taps, shape.step, strict=True)]
        return self.tall + reach[0], self.wide + reach[1]

    def groups_of_rows(self, shape: Shape) -> int:
        """64s of rows of the product."""
        if not self.is_linear:
            return self.held * self.tall * self.wide // PANEL
        return self.held * -(-((self.tall - 1) * self.reached(shape)[1] + self.wide) // PANEL)

    def landing(self, shape: Shape) -> int:
        """Bytes of the image that one copy brings."""
        lines, pitch = self.reached(shape)
        return lines * pitch * shape.row

    def patch_bytes(self, shape: Shape) -> int:
        """Of a patch, and of what rows that nobody stores read after it."""
        lines, pitch = self.reached(shape)
        rows = lines * pitch
        if self.is_linear:
            last_tap = (lines - self.tall) * pitch + pitch - self.wide
            rows = max(rows, PANEL * self.groups_of_rows(shape) // self.held + last_tap)
        return -(-rows * shape.row // 1024) * 1024

    def filter_bytes(self, shape: Shape) -> int:
        """Of one tap."""
        columns = self.bn if self.bn < shape.column_unit else -(-self.bn // shape.column_unit) * shape.column_unit
        return columns * shape.row

    def streams(self, shape: Shape) -> bool:
        """Whether a residual comes through shared memory: registers hold it beside the sums it is added to."""
        holds = shape.streamed_bytes <= _MOST_STREAMED_BYTES and shape.result_bytes <= _MOST_BYTES_OUT
        return self.held > 1 and shape.streamed_bytes > 0 and holds and self.sums(shape) <= _MOST_STREAMED_SUMS

    def sums(self, shape: Shape) -> int:
        """Of a thread."""
        return self.groups_of_rows(shape) * self.beside(shape) * self.bn // 2

    def keeps(self, shape: Shape) -> bool:
        """Whether registers hold what the epilogue reads for a lane's columns, beside sums (as in hopper_halo.cu)."""
        kept = self.bn // 16 * shape.kept_bytes
        return self.sums(shape) + kept + _OTHER_REGISTERS <= self.registers(shape)[0]

    def beside(self, shape: Shape) -> int:
        """Slices of the result whose sums lie side by side."""
        return shape.deep if self.is_deep else 1

    def residual_bytes(self, shape: Shape) -> int:
        """Half of the residual, and its barriers."""
        if not self.streams(shape):
            return 0
        boxes = self.held * -(-self.bn * shape.streamed_bytes // BOX_ROW)  # of a consumer
        return self.consumers * (-(-boxes // 2) * self.tall * self.wide * BOX_ROW + _BARRIERS)

    def stages(self, shape: Shape, shared_memory: int) -> tuple[int, int] | None:
        """Of patches and of filters, of which resident ones have one; None if they do not fit."""
        if shape.tap_count == 1 and not self.is_resident:
            return None
        if self.is_deep and (shape.deep == 1 or self.beside(shape) * self.bn > _WIDEST):
            return None
        space, patch, taps = shared_memory - _KEPT, self.patch_bytes(shape), self.filter_bytes(shape)
        if max(self.reached(shape)) > _LONGEST_BOX:
            return None
        if self.is_resident:
            left = space - shape.tap_count * shape.blocks * taps
            stages = min(_MOST_STAGES, left // (self.consumers * (patch + _BARRIERS)))
            return (stages, 1) if stages >= 2 and shape.columns <= self.bn else None
        left = space - 2 * self.held * self.consumers * patch - _BARRIERS * 2 - self.residual_bytes(shape)
        filters = min(_MOST_FILTERS, left // (taps + _BARRIERS))
        return (2, filters) if filters >= _LEAST_FILTERS else None

    def patches(self, shape: Shape) -> tuple[int, int]:
        """Down and across an image."""
        return -(-shape.pixels[0] // self.tall), -(-shape.pixels[1] // self.wide)


TILES: tuple[Halo, ...] = (
    *(Halo(8, 8, 64, consumers, True) for consumers in (4, 3, 2)),
    *(Halo(8, 8, 32, consumers, True) for consumers in (4, 3)),
    *(Halo(8, 8, bn, 2, True) for bn in (96, 128)),
    Halo(4, 28, 64, 2, True, True),
    *(Halo(8, 8, bn, 2, False) for bn in (64, 96, 128, 160, 192, 256)),
    *(Halo(8, 16, bn, 2, False) for bn in (64, 96, 128, 160)),
    *(Halo(16, 8, bn, 2, False) for bn in (128, 160)),
    *(Halo(8, 8, bn, 2, False, held=2) for bn in (128, 160)),
    Halo(4, 28, 128, 2, False, True),
    Halo(7, 14, 128, 2, False, True),
    *(Halo(8, 8, 256, consumers, True) for consumers in (2, 1)),
    *(Halo(8, 16, bn, 2, True) for bn in (64, 128)),
    Halo(8, 8, 32, 4, True, is_deep=True),
)

TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a patch, if it serves")


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Halo
    stages: int
    filters: int
    run: int  # slices of the result of a patch
    seconds: float

    def shared_bytes(self, shape: Shape) -> int:
        tile = self.tile
        panels = shape.tap_count * shape.blocks if tile.is_resident else self.filters
        rings = tile.consumers if tile.is_resident else 1
        stages = tile.held * tile.consumers * self.stages * tile.patch_bytes(shape) + panels * tile.filter_bytes(shape)
        return stages + _BARRIERS * (rings * self.stages + self.filters) + tile.residual_bytes(shape)


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest that fits; a patch that was asked for and does not gives way to it. None if none fits."""
    machine = Machine.of(device)
    return _fastest(shape, machine, knobs[TILE.type]) or _fastest(shape, machine, 0)


def _widest(shape: Shape) -> int:
    """Columns of a tile that is not mostly empty."""
    return max(_NARROWEST, shape.columns + _NARROWEST // 2)


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: Machine, number: int) -> Choice | None:
    best: tuple[float, int, _Held] | None = None
    kind = shape._replace(images=1, pixels=(1, 1), slices_out=1)
    for held in _fitting(kind, machine.shared_memory, number):
        for run in held.runs(shape):
            clocks = held.clocks(shape, machine.sms, run)
            if best is None or clocks < best[0]:
                best = clocks, run, held
    if best is None:
        return None
    clocks, run, held = best
    return Choice(held.tile, held.stages, held.filters, run, clocks / (machine.clock * _PACE))


@dataclass(frozen=True, slots=True)
class _Held:
    """A patch that fits, with what the size of the image does not change."""

    tile: Halo
    stages: int
    filters: int
    start: float  # clocks
    patch: float  # of each round
    alone: float  # of a consumer's patch that has the tensor cores for itself, where filters stay
    across: int  # tiles of the columns

    @classmethod
    def of(cls, tile: Halo, stages: int, filters: int, shape: Shape) -> _Held:
        columns = tile.beside(shape) * tile.bn
        groups, taps = tile.groups_of_rows(shape), shape.tap_count * shape.blocks // tile.beside(shape)
        read = (PANEL + columns) * ROW / _READ
        filled = shape.slices * SLICE / (shape.blocks * ROW)
        tap = groups * filled * max(PANEL * columns * _PRODUCT, read)
        share = 1.0 if tile.is_resident else _STREAMED_SHARE if tile.streams(shape) else _READ_SHARE
        bytes_out = shape.result_bytes + (share - 1.0) * shape.streamed_bytes
        across = -(-shape.columns // tile.bn)
        leaving = groups * PANEL * -(-shape.columns // across) * bytes_out / _LEAVING
        if tile.is_resident:
            blocks = shape.blocks // tile.beside(shape)
            hidden = tile.consumers if tile.is_deep or stages > blocks else 1
            patch = max(taps * tap + _OWN_WAY / hidden, blocks * tile.landing(shape) / _COPIED, leaving)
            start = _START + shape.tap_count * shape.blocks * tile.filter_bytes(shape) / _COPIED
            return cls(tile, stages, filters, start, patch, taps * tap + _PATCH + leaving, across)
        copied = tile.filter_bytes(shape) + tile.held * tile.consumers * tile.landing(shape) / shape.tap_count
        step = max(tile.consumers * tap, copied / _COPIED) + _BESIDE * copied + _STEP
        if shape.are_bytes:
            again = 0.0 if tile.keeps(shape) else _AGAIN * tile.sums(shape)
            end = _PATCH_OF_BYTES + again + tile.consumers * leaving * _LEAVING / _LEAVING_OF_BYTES / 3
            slower = _PACE / _PACE_OF_BYTES
            return cls(tile, stages, filters, slower * _START_OF_BYTES, slower * (taps * step + end), 0.0, across)
        return cls(tile, stages, filters, _START, taps * step + _PATCH + tile.consumers * leaving / 3, 0.0, across)

    def runs(self, shape: Shape) -> Iterable[int]:
        """Slices of the result that a patch may have: parts of all of them that are alike."""
        slices = shape.slices_out
        if slices == 1 or not self.tile.is_deep:
            return (1,)
        return sorted({-(-slices // parts) for parts in range(1, slices + 1)})

    def clocks(self, shape: Shape, sms: int, run: int) -> float:
        tile, (lines, pixels) = self.tile, shape.pixels
        patches, slices = shape.images * -(-lines // tile.tall) * -(-pixels // tile.wide), 1
        if tile.is_deep:
            patches, slices = patches // shape.slices_out * -(-shape.slices_out // run), run + shape.deep - 1
        if tile.is_resident:
            rounds = -(-patches // sms)
            return self.start + slices * max(rounds * self.patch, -(-rounds // tile.consumers) * self.alone)
        rounds = -(-(-(-patches // (tile.held * tile.consumers)) * self.across) // sms)
        return self.start + rounds * self.patch * (_OF_SLICES if shape.slices_out > 1 else 1.0)


@lru_cache(maxsize=256)
def _fitting(kind: Shape, shared_memory: int, number: int) -> tuple[_Held, ...]:
    """Where filters stay in shared memory, nothing that copies them again and again is faster. ``kind``: a shape with
    one pixel.
    """
    staying = [tile for tile in TILES if tile.is_resident and kind.columns <= tile.bn]
    passing = [tile for tile in TILES if not tile.is_resident and tile.bn <= _widest(kind)]
    for tiles in ([TILES[number - 1]],) if number else (staying, passing):
        fitting = [(tile, held) for tile in tiles if (held := tile.stages(kind, shared_memory)) is not None]
        if fitting:
            return tuple(_Held.of(tile, *held, kind) for tile, held in fitting)
    return ()
