"""Patches of pixels of a filter gradient whose taps share them, and the choice of one: a model of a block's clocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.sm90.device_limits import Machine
from graphdnn.engines.cuda.sm90.tile import ROW
from graphdnn.engines.engine import Knob, Knobs
from graphdnn.enums import KnobType

_KEPT = RESERVED + 256  # bytes of shared memory: the system's, and barriers
_BARRIERS = 16  # bytes for each stage
_MOST_STAGES, _LEAST_STAGES = 8, 3
_ROWS = 64  # of a block's tile: channels of the gradient
_ELEMENT = 2  # bytes
_MOST_LINES, _MOST_OF_LINE = 3, 4  # of taps: warpgroups that multiply, and taps in one product
_LONGEST_BOX = 256
_REGISTER_FILE = 65536  # 32-bit registers of a multiprocessor
_OTHER_REGISTERS = 26  # of a thread beside its accumulators: ptxas asks for as many

# The model's constants: 14 measured pairs of a layer and a patch lie within 4 % of it, on an H200.
_PRODUCTS = 2130.0  # of 16-bit numbers, a clock
_READ = 120.0  # bytes of shared memory a clock that products read
_COPIED = 60.0  # bytes a clock into shared memory
_PATCH = 12.0  # clocks of a patch besides
_LEAVING = 27.0  # bytes a clock of sums
_TILE = 1000.0  # clocks of a tile besides
_START = -2540.0  # of a launch
_PACE = 0.95  # of the highest clock
_SUM = 0.8  # launches' time that a split costs


class Shape(NamedTuple):
    """What the choice depends on. Pairs are of lines and of pixels in a line."""

    images: int
    pixels: tuple[int, int]  # of the gradient
    taps: tuple[int, int]
    step: tuple[int, int]  # from tap to tap
    rows: int  # channels of the gradient
    channels: int  # of the image
    result_bytes: int  # of an element that leaves, and of what is read for it
    deep: int = 1  # taps along the first of three axes, whose slices of the gradient count as images

    @property
    def tap_count(self) -> int:
        return self.taps[0] * self.taps[1]


@dataclass(frozen=True)
class Patch:
    """A patch of the gradient, and how many of the image's channels a block takes."""

    tall: int
    wide: int
    channels: int

    @property
    def name(self) -> str:
        return f"{self.tall}x{self.wide}x{self.channels}"

    def reached(self, shape: Shape) -> tuple[int, int]:
        """Lines and pixels of the image that a patch's taps read."""
        reach = [(taps - 1) * step for taps, step in zip(shape.taps, shape.step, strict=True)]
        return self.tall + reach[0], self.wide + reach[1]

    def stage_bytes(self, shape: Shape) -> int:
        lines, pitch = self.reached(shape)
        image = -(-lines * pitch * self.channels * _ELEMENT // 1024) * 1024
        return image + self.tall * self.wide * ROW

    def stages(self, shape: Shape, shared_memory: int) -> int:
        return min(_MOST_STAGES, (shared_memory - _KEPT) // (self.stage_bytes(shape) + _BARRIERS))

    def serves(self, shape: Shape, shared_memory: int) -> bool:
        return self.is_whole(shape) and self.fits(shape, shared_memory)

    def is_whole(self, shape: Shape) -> bool:
        return shape.pixels[0] % self.tall == shape.pixels[1] % self.wide == 0

    def fits(self, kind: Shape, shared_memory: int) -> bool:
        """Whether ptxas compiles the taps with this tile, TMA takes its box, and shared memory has enough stages."""
        lines, of_line = kind.taps
        return (
            lines <= _MOST_LINES
            and of_line <= _MOST_OF_LINE
            and self.has_registers(128 * (lines + 1), of_line)
            and max(self.reached(kind)) <= _LONGEST_BOX
            and self.stages(kind, shared_memory) >= _LEAST_STAGES
        )

    def has_registers(self, threads: int, of_line: int) -> bool:
        """Whether a thread of a CTA of so many threads has registers for its accumulators.

        ptxas compiles a kernel for an equal part of the register file, whatever ``setmaxnreg`` gives a warpgroup later.
        """
        return of_line * self.channels // 2 + _OTHER_REGISTERS <= _REGISTER_FILE // threads // 8 * 8

    def patches(self, shape: Shape) -> tuple[int, int]:
        """Down and across an image."""
        return shape.pixels[0] // self.tall, shape.pixels[1] // self.wide

    def shares(self, shape: Shape) -> tuple[int, int, int]:
        """Tiles down and across the products, and taps between slices."""
        return -(-shape.rows // _ROWS), -(-shape.channels // self.channels), shape.deep


TILES: tuple[Patch, ...] = tuple(
    Patch(tall, wide, channels)
    for channels in (64, 32)
    for tall, wide in ((8, 8), (14, 8), (16, 8), (8, 16), (4, 8), (2, 8))
)
TILE = Knob(KnobType.TILE_SIZE, 0, len(TILES), 1, 0, "0: chosen by the shape; else the number of a patch, if it serves")
PARTS = Knob(KnobType.SPLIT_K, 0, 256, 1, 0, "parts of the sum, computed side by side; 0: chosen by the shape")


class Choice(NamedTuple):
    tile: Patch
    stages: int
    whole: int  # shares that are not split: all, or as many as fill the device some times
    parts: int  # of each of the others
    seconds: float


def registers(lines: int) -> tuple[int, int]:
    """Of a thread that multiplies and of one that copies, for so many lines of taps."""
    return {1: (240, 56), 2: (232, 40), 3: (160, 24)}[lines]


def lean_registers(taps: tuple[int, int], tile: Patch) -> tuple[int, int, int] | None:
    """The same, and the threads that a multiprocessor's registers are divided among at the start, where a block leaves
    room for others: three lines of taps of 32 channels need few for their sums, unless a line has four taps.
    """
    lines, of_line = taps
    return (96, 24, 768) if (lines, tile.channels) == (3, 32) and tile.has_registers(768, of_line) else None


def choose(shape: Shape, device: DeviceSpec, knobs: Knobs) -> Choice | None:
    """The fastest that serves; a patch that was asked for and does not gives way to it. None if none does."""
    machine = Machine.of(device)
    asked = knobs[PARTS.type]
    return _fastest(shape, machine, knobs[TILE.type], asked) or _fastest(shape, machine, 0, asked)


@lru_cache(maxsize=1024)
def _fastest(shape: Shape, machine: Machine, number: int, asked: int) -> Choice | None:
    best: Choice | None = None
    for held in _fitting(shape._replace(images=1, pixels=(1, 1)), machine.shared_memory, number):
        if not held.tile.is_whole(shape):
            continue
        down, across = held.tile.patches(shape)
        patches = shape.images * down * across
        for whole, parts in _splits(held.shares, patches, machine.sms, asked):
            seconds = held.seconds(whole, parts, patches, machine)
            if best is None or seconds < best.seconds:
                best = Choice(held.tile, held.stages, whole, parts, seconds)
    return best


class _Held(NamedTuple):
    """A patch that fits, with what the size of the image does not change."""

    tile: Patch
    stages: int
    shares: int  # tiles of the products
    patch: float  # clocks
    sums: int  # of a tile
    leaving: float  # clocks of a tile, its sums stored as results

    @classmethod
    def of(cls, tile: Patch, kind: Shape, shared_memory: int) -> _Held:
        lines, of_line = kind.taps
        columns = of_line * tile.channels
        pixel = max(_ROWS * columns / _PRODUCTS, (_ROWS + columns) * _ELEMENT / _READ)
        patch = max(lines * tile.tall * tile.wide * pixel, tile.stage_bytes(kind) / _COPIED) + _PATCH
        sums = _ROWS * tile.channels * kind.tap_count
        leaving = sums * kind.result_bytes / _LEAVING
        return cls(tile, tile.stages(kind, shared_memory), prod(tile.shares(kind)), patch, sums, leaving)

    def seconds(self, whole: int, parts: int, patches: int, machine: Machine) -> float:
        rest = self.shares - whole
        clocks = -(-whole // machine.sms) * (patches * self.patch + self.leaving + _TILE)
        part = -(-patches // parts) * self.patch + self.sums * 4 / _LEAVING + _TILE
        clocks = clocks + -(-(rest * parts) // machine.sms) * part + _START
        seconds = clocks / (machine.clock * _PACE)
        if rest:  # written, read and added
            seconds += _SUM * machine.launch + 4.0 * rest * self.sums * parts / machine.bandwidth
        return seconds


@lru_cache(maxsize=256)
def _fitting(kind: Shape, shared_memory: int, number: int) -> tuple[_Held, ...]:
    """``kind``: a shape with one pixel."""
    tiles = (TILES[number - 1],) if number else TILES
    return tuple(_Held.of(tile, kind, shared_memory) for tile in tiles if tile.fits(kind, shared_memory))


def _splits(shares: int, patches: int, sms: int, asked: int) -> Iterator[tuple[int, int]]:
    """Whole shares, and parts of the others.

    Where parts of so many are asked for, the time rises or falls evenly with the whole shares: the first number or the
    last is best. Else parts are for the shares that do not fill the device once more.
    """
    if asked in (0, 1) or patches == 1:
        yield shares, 1
    if asked == 1:
        return
    last = (shares - 1) // sms * sms
    for whole in dict.fromkeys((0, last) if asked else (max(0, last - sms), last)):
        for waves in (1, 2, 3):
            parts = min(asked or waves * sms // (shares - whole), patches, PARTS.maximum)
            if parts > 1:
                yield whole, parts
