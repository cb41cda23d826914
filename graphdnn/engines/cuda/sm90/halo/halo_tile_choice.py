"""Patches of pixels that share what their taps read, and the choice of one: a model of a block's clocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.halo.halo_tile import Halo, Shape
from graphdnn.engines.cuda.sm90.halo.halo_tile_swap_ab import Turned
from graphdnn.engines.cuda.sm90.tile import MMA_K_BYTES, SLAB_ROWS, SWIZZLE_BYTES
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_STREAMED_SHARE, _READ_SHARE = 0.25, 4.0  # of its bytes when results leave: if it does, or is read by threads then
_NARROWEST = 64  # columns of filters that pass by

# The model's constants: those of tiles.py, and what 30 measured pairs of a layer and a patch need besides, on an
# H200. They lie within 8 % of what was measured.
_PRODUCT = 1.04 / 32  # clocks for each sum of a patch, and 32 bytes of k
_READ = 126.0  # bytes of shared memory a clock that products read
_COPIED = 95.0  # bytes a clock into shared memory
_BESIDE = 0.0032  # clocks of a byte that comes while others are multiplied: power
_TAP = 360.0  # of a tap, no less, where a consumer has 64 pixels: waits for its filters are not hidden
_PATCH = 890.0  # clocks of a patch besides
_OF_SLICES = 0.93  # what patches of volumes take of that: 0.89 and 0.93 of the two layers that were measured
# Which is this, divided among consumers, where they wait neither for each other nor for the next patch.
_OWN_WAY = 430.0
_LEAVING = 16.9  # bytes a clock of results
_START = 1240.0  # clocks of a launch
_PACE = 0.916  # of the highest clock
IDLE = 0.87  # of a launch, that pieces do not take which leave nearly all multiprocessors idle
# The same where filters of bytes come by, fitted to 15 measured pairs, which lie within 10 %: power does not hold the
# clock back, so what is not products counts more.
_START_OF_BYTES, _PATCH_OF_BYTES, _LEAVING_OF_BYTES, _PACE_OF_BYTES = 6200.0, 170.0, 9.7, 1.07
_BESIDE_PRODUCTS = 21.2  # bytes a clock of results that leave beside another consumer's products: turned ones
_COPIED_OF_BYTES, _STEP_OF_BYTES = 71.0, 9.0  # bytes a clock into shared memory; clocks of a tap besides
_AGAIN = 8.0  # clocks for each sum of a thread besides, where what is read for columns does not stay in registers


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
    *(Turned(tall, 8, 128, 2, False) for tall in (28, 32)),
)

TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a patch, if it serves")


@dataclass(frozen=True, slots=True)
class Choice:
    tile: Halo
    stages: int
    filters: int
    run: int  # slices of the result of a patch
    seconds: float
    pieces: int  # blocks that have patches, at most

    def shared_bytes(self, shape: Shape) -> int:
        return self.tile.shared_bytes(shape, self.stages, self.filters)


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
    seconds = clocks / (machine.clock * _PACE)
    return Choice(held.tile, held.stages, held.filters, run, seconds, held.pieces(shape, run))


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
        columns = tile.columns(shape)
        groups, taps = tile.groups_of_rows(shape), shape.tap_count * shape.blocks // tile.beside(shape)
        read = (SLAB_ROWS + columns) * SWIZZLE_BYTES / _READ
        filled = shape.slices * MMA_K_BYTES / (shape.blocks * SWIZZLE_BYTES)
        tap = groups * filled * max(SLAB_ROWS * columns * _PRODUCT, read)
        share = 1.0 if tile.is_resident else _STREAMED_SHARE if tile.streams(shape) else _READ_SHARE
        bytes_out = shape.result_bytes + (share - 1.0) * shape.tma_residual_bytes
        across = -(-shape.columns // tile.bn)
        held = columns if tile.swap_ab else -(-shape.columns // across)
        leaving = groups * SLAB_ROWS * held * bytes_out / _LEAVING
        if tile.is_resident:
            blocks = shape.blocks // tile.beside(shape)
            hidden = tile.consumers if tile.is_deep or stages > blocks else 1
            patch = max(taps * tap + _OWN_WAY / hidden, blocks * tile.landing(shape) / _COPIED, leaving)
            start = _START + shape.tap_count * shape.blocks * tile.filter_bytes(shape) / _COPIED
            return cls(tile, stages, filters, start, patch, taps * tap + _PATCH + leaving, across)
        copied = tile.filter_bytes(shape) + tile.of_block * tile.landing(shape) / shape.tap_count
        copying = copied / (_COPIED_OF_BYTES if shape.are_bytes else _COPIED)
        step = max(tile.consumers * tap, copying) + _BESIDE * copied + _STEP_OF_BYTES * shape.are_bytes
        if groups == 1 and shape.columns >= _NARROWEST and not shape.are_bytes:
            step = max(step, _TAP)
        if shape.are_bytes:
            if tile.swap_ab:
                end = tile.consumers * leaving * _LEAVING / _BESIDE_PRODUCTS / 3
            else:
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

    def pieces(self, shape: Shape, run: int) -> int:
        """Patches, or pairs of them with a tile of the columns."""
        tile, (lines, pixels) = self.tile, shape.pixels
        patches = shape.images * -(-lines // tile.tall) * -(-pixels // tile.wide)
        if tile.is_deep:
            patches = patches // shape.slices_out * -(-shape.slices_out // run)
        return patches if tile.is_resident else -(-patches // tile.of_block) * self.across

    def clocks(self, shape: Shape, sms: int, run: int) -> float:
        tile, rounds = self.tile, -(-self.pieces(shape, run) // sms)
        if tile.is_resident:
            slices = run + shape.deep - 1 if tile.is_deep else 1
            return self.start + slices * max(rounds * self.patch, -(-rounds // tile.consumers) * self.alone)
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
