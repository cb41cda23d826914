"""Patches of pixels that share what their taps read: the rows of a product that they are, and their shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES

_RESERVED = RESERVED + 256  # bytes of shared memory: the system's, and barriers
BARRIERS = 16  # bytes for each stage
BOX_ROW = 64  # bytes of channels that a residual comes in
_MOST_STREAMED_SUMS, _MOST_STREAMED_BYTES = 128, 2  # of a thread, and of an element of the residual
_MOST_BYTES_OUT = 4  # of an element that leaves, and of all that is read for it
_MAX_STAGES, MOST_FILTERS, LEAST_FILTERS = 4, 8, 3
_LONGEST_BOX = 256
_WIDEST = 96  # columns of a product of one of four consumers, for which registers suffice
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
    column_multiple: int  # of filters in shared memory, where there are so many
    result_bytes: int  # of an element that leaves, and of what is read for it
    tma_residual_bytes: int = 0  # of those, what the copy unit may bring
    slices_out: int = 1  # of the result along the first of three axes; they count as images
    deep: int = 1  # taps along it, which are counted as blocks, if the slices they meet follow each other
    row: int = SWIZZLE_BYTES  # bytes of channels that are copied at a time
    are_bytes: bool = False  # the operands
    column_operand_bytes: int = 0  # that are read for a column
    is_permutable: bool = False  # filters may change places on their way to shared memory

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
        several = f"{self.held}x" if self.held > 1 else ""
        return f"{several}{self.tall}x{self.wide}x{self.bn}_{self.consumers}{self.kind}"

    @property
    def kind(self) -> str:
        """In names."""
        return "deep" if self.is_deep else "resident" if self.is_resident else "ring"

    @property
    def swap_ab(self) -> bool:
        """Whether the pixels are the columns of the product."""
        return False

    @property
    def of_block(self) -> int:
        """Patches that consumers have together."""
        return 1 if self.is_resident else self.held * self.consumers

    def columns(self, shape: Shape) -> int:
        """Of a product."""
        return self.beside(shape) * self.bn

    def registers(self, shape: Shape) -> tuple[int, int]:
        """Of a thread that multiplies and of one that copies. Where two patches leave registers over, filters along k
        are multiplied 1 to 2 % faster without them, those across k 3 % slower; copies of a residual need them.
        """
        is_spare = self.held > 1 and self.sums(shape) <= _MOST_STREAMED_SUMS and shape.column_multiple == 1
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
            return self.held * self.tall * self.wide // SLAB_ROWS
        return self.held * -(-((self.tall - 1) * self.reached(shape)[1] + self.wide) // SLAB_ROWS)

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
            rows = max(rows, SLAB_ROWS * self.groups_of_rows(shape) // self.held + last_tap)
        return -(-rows * shape.row // 1024) * 1024

    def filter_bytes(self, shape: Shape) -> int:
        """Of one tap."""
        columns = (
            self.bn if self.bn < shape.column_multiple else -(-self.bn // shape.column_multiple) * shape.column_multiple
        )
        return columns * shape.row

    def streams(self, shape: Shape) -> bool:
        """Whether a residual comes through shared memory: registers hold it beside the sums it is added to."""
        holds = shape.tma_residual_bytes <= _MOST_STREAMED_BYTES and shape.result_bytes <= _MOST_BYTES_OUT
        return self.held > 1 and shape.tma_residual_bytes > 0 and holds and self.sums(shape) <= _MOST_STREAMED_SUMS

    def sums(self, shape: Shape) -> int:
        """Of a thread."""
        return self.groups_of_rows(shape) * self.beside(shape) * self.bn // 2

    def keeps(self, shape: Shape) -> bool:
        """Whether registers hold what the epilogue reads for a lane's columns, beside sums (as in hopper_halo.cu)."""
        kept = self.bn // 16 * shape.column_operand_bytes
        return self.sums(shape) + kept + _OTHER_REGISTERS <= self.registers(shape)[0]

    def beside(self, shape: Shape) -> int:
        """Slices of the result whose sums lie side by side."""
        return shape.deep if self.is_deep else 1

    def residual_bytes(self, shape: Shape) -> int:
        """Half of the residual, and its barriers."""
        if not self.streams(shape):
            return 0
        boxes = self.held * -(-self.bn * shape.tma_residual_bytes // BOX_ROW)  # of a consumer
        return self.consumers * (-(-boxes // 2) * self.tall * self.wide * BOX_ROW + BARRIERS)

    def stages(self, shape: Shape, shared_memory: int) -> tuple[int, int] | None:
        """Of patches and of filters, of which resident ones have one; None if they do not fit."""
        return self._stages(shape, shared_memory - _RESERVED) if self.serves(shape) else None

    def serves(self, shape: Shape) -> bool:
        """Shared memory aside."""
        if shape.tap_count == 1 and not self.is_resident:
            return False
        if self.is_deep and (shape.deep == 1 or self.beside(shape) * self.bn > _WIDEST):
            return False
        return max(self.reached(shape)) <= _LONGEST_BOX

    def _stages(self, shape: Shape, space: int) -> tuple[int, int] | None:
        patch, taps = self.patch_bytes(shape), self.filter_bytes(shape)
        if self.is_resident:
            left = space - shape.tap_count * shape.blocks * taps
            stages = min(_MAX_STAGES, left // (self.consumers * (patch + BARRIERS)))
            return (stages, 1) if stages >= 2 and shape.columns <= self.bn else None
        left = space - 2 * self.held * self.consumers * patch - BARRIERS * 2 - self.residual_bytes(shape)
        filters = min(MOST_FILTERS, left // (taps + BARRIERS))
        return (2, filters) if filters >= LEAST_FILTERS else None

    def patches(self, shape: Shape) -> tuple[int, int]:
        """Down and across an image."""
        return -(-shape.pixels[0] // self.tall), -(-shape.pixels[1] // self.wide)

    def shared_bytes(self, shape: Shape, stages: int, filters: int) -> int:
        panels = shape.tap_count * shape.blocks if self.is_resident else filters
        rings = self.consumers if self.is_resident else 1
        held = self.held * self.consumers * stages * self.patch_bytes(shape) + panels * self.filter_bytes(shape)
        return held + BARRIERS * (rings * stages + filters) + self.residual_bytes(shape)
