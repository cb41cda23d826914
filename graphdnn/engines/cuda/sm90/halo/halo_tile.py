"""Halo tiles of hopper_halo.cu: extents, MMA rows, registers and shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, SWIZZLE_BYTES

_RESERVED = RESERVED + 256  # bytes of shared memory: the system's part, and barriers
BARRIERS = 16  # bytes of barriers for each stage
RESIDUAL_BOX_BYTES = 64  # bytes of channels in a TMA box of a residual
_MAX_RESIDUAL_ACCUMULATORS, _MAX_RESIDUAL_BYTES = (
    128,
    2,
)  # accumulators of a thread, and bytes of a residual's element, with which TMA loads the residual
_MAX_RESULT_BYTES = 4  # bytes of an element that is stored, with its epilogue operands
_MAX_STAGES, MAX_FILTER_STAGES, MIN_FILTER_STAGES = 4, 8, 3
_MAX_BOX = 256  # elements of a TMA box along an axis
_MAX_DEPTH_SLICE_COLUMNS = 96  # columns of an MMA with depth slices, for which registers suffice
_OTHER_REGISTERS = 40  # of a thread beside accumulators and kept operands


class Shape(NamedTuple):
    """What the choice depends on. Pairs are (height, width)."""

    images: int
    pixels: tuple[int, int]  # of the result
    taps: tuple[int, int]
    dilation: tuple[int, int]
    k_blocks: int  # of 128 bytes of channels, at all taps along the depth
    mma_k_steps: int  # of 32 bytes; steps without channels do not count
    columns: int
    column_multiple: int  # the columns in shared memory are a multiple, if the result has as many
    result_bytes: int  # of an element that is stored, and of its epilogue operands
    tma_residual_bytes: int = 0  # the part of ``result_bytes`` that TMA may load
    output_slices: int = 1  # depth slices of the result, which count as images
    depth_taps: int = 1  # taps along the depth, if their slices are consecutive; else 1
    pixel_bytes: int = SWIZZLE_BYTES  # bytes of channels of a pixel in a K block
    are_bytes: bool = False  # operands have one byte
    column_operand_bytes: int = 0  # of a column
    is_permutable: bool = False  # TMA may permute the rows of the filter

    @property
    def tap_count(self) -> int:
        return self.taps[0] * self.taps[1]


@dataclass(frozen=True)
class HaloTile:
    """One or several tiles of ``height`` x ``width`` pixels of a consumer, by ``bn`` columns.

    ``has_flat_rows``: MMA rows are consecutive pixels of the halo tile; otherwise they are blocks of 8 x 8 pixels.
    """

    height: int
    width: int
    bn: int
    consumers: int
    is_weight_stationary: bool
    has_flat_rows: bool = False
    halo_tiles: int = 1  # of a consumer
    has_depth_slices: bool = False  # a depth slice of the image is multiplied once for all output slices

    @property
    def name(self) -> str:
        several = f"{self.halo_tiles}x" if self.halo_tiles > 1 else ""
        return f"{several}{self.height}x{self.width}x{self.bn}_{self.consumers}{self.kind}"

    @property
    def kind(self) -> str:
        """The last part of the name."""
        return "deep" if self.has_depth_slices else "resident" if self.is_weight_stationary else "ring"

    @property
    def swap_ab(self) -> bool:
        """Whether the pixels are the columns of the GEMM."""
        return False

    @property
    def halo_tiles_per_cta(self) -> int:
        """Halo tiles that all consumers of a CTA share in a stage."""
        return 1 if self.is_weight_stationary else self.halo_tiles * self.consumers

    def columns(self, shape: Shape) -> int:
        """Columns of an MMA."""
        return self.depth_slices(shape) * self.bn

    def registers(self, shape: Shape) -> tuple[int, int]:
        """Registers of a consumer thread and of a producer thread.

        With two halo tiles and spare registers, K-major filters are 1 to 2 % faster if consumers do not have these
        registers; MN-major ones are 3 % slower. A producer that loads a residual needs more registers.
        """
        is_spare = (
            self.halo_tiles > 1
            and self.accumulators(shape) <= _MAX_RESIDUAL_ACCUMULATORS
            and shape.column_multiple == 1
        )
        if is_spare or self.loads_residual(shape):
            return 232, 40
        return {1: (240, 56), 2: (240, 24), 3: (160, 24), 4: (112, 24)}[self.consumers]

    def halo_extents(self, shape: Shape) -> tuple[int, int]:
        """Height and width of the halo tile: the pixels of the image that the taps of a tile read."""
        reach = [(taps - 1) * dilation for taps, dilation in zip(shape.taps, shape.dilation, strict=True)]
        return self.height + reach[0], self.width + reach[1]

    def mma_tiles(self, shape: Shape) -> int:
        """MMA tiles of 64 rows of a consumer."""
        if not self.has_flat_rows:
            return self.halo_tiles * self.height * self.width // SLAB_ROWS
        return self.halo_tiles * -(-((self.height - 1) * self.halo_extents(shape)[1] + self.width) // SLAB_ROWS)

    def load_bytes(self, shape: Shape) -> int:
        """Bytes of one TMA load of a halo tile."""
        halo_height, halo_width = self.halo_extents(shape)
        return halo_height * halo_width * shape.pixel_bytes

    def halo_tile_bytes(self, shape: Shape) -> int:
        """Bytes of a halo tile in shared memory, with the following bytes that MMA rows without a result read."""
        halo_height, halo_width = self.halo_extents(shape)
        rows = halo_height * halo_width
        if self.has_flat_rows:
            last_tap = (halo_height - self.height) * halo_width + halo_width - self.width
            rows = max(rows, SLAB_ROWS * self.mma_tiles(shape) // self.halo_tiles + last_tap)
        return -(-rows * shape.pixel_bytes // 1024) * 1024

    def filter_bytes(self, shape: Shape) -> int:
        """Bytes of one tap of the filter."""
        columns = (
            self.bn if self.bn < shape.column_multiple else -(-self.bn // shape.column_multiple) * shape.column_multiple
        )
        return columns * shape.pixel_bytes

    def loads_residual(self, shape: Shape) -> bool:
        """Whether TMA loads the residual: registers hold it beside the accumulators."""
        return (
            self.halo_tiles > 1
            and 0 < shape.tma_residual_bytes <= _MAX_RESIDUAL_BYTES
            and shape.result_bytes <= _MAX_RESULT_BYTES
            and self.accumulators(shape) <= _MAX_RESIDUAL_ACCUMULATORS
        )

    def accumulators(self, shape: Shape) -> int:
        """Accumulators of a thread."""
        return self.mma_tiles(shape) * self.depth_slices(shape) * self.bn // 2

    def keeps_operands(self, shape: Shape) -> bool:
        """Whether registers hold the column operands beside the accumulators, as in hopper_halo.cu."""
        operand_registers = self.bn // 16 * shape.column_operand_bytes
        return self.accumulators(shape) + operand_registers + _OTHER_REGISTERS <= self.registers(shape)[0]

    def depth_slices(self, shape: Shape) -> int:
        """Output slices whose accumulators a thread holds side by side."""
        return shape.depth_taps if self.has_depth_slices else 1

    def residual_bytes(self, shape: Shape) -> int:
        """Bytes of half of the residual, and of its barriers."""
        if not self.loads_residual(shape):
            return 0
        boxes = self.halo_tiles * -(-self.bn * shape.tma_residual_bytes // RESIDUAL_BOX_BYTES)  # of a consumer
        return self.consumers * (-(-boxes // 2) * self.height * self.width * RESIDUAL_BOX_BYTES + BARRIERS)

    def stages(self, shape: Shape, shared_memory: int) -> tuple[int, int] | None:
        """Stages of halo tiles and of filters; stationary filters have one. None if the stages do not fit."""
        return self._stages(shape, shared_memory - _RESERVED) if self.serves(shape) else None

    def serves(self, shape: Shape) -> bool:
        """Whether the tile serves the shape, apart from shared memory."""
        if shape.tap_count == 1 and not self.is_weight_stationary:
            return False
        if self.has_depth_slices and (
            shape.depth_taps == 1 or self.depth_slices(shape) * self.bn > _MAX_DEPTH_SLICE_COLUMNS
        ):
            return False
        return max(self.halo_extents(shape)) <= _MAX_BOX

    def _stages(self, shape: Shape, space: int) -> tuple[int, int] | None:
        tile_bytes, taps = self.halo_tile_bytes(shape), self.filter_bytes(shape)
        if self.is_weight_stationary:
            room = space - shape.tap_count * shape.k_blocks * taps
            stages = min(_MAX_STAGES, room // (self.consumers * (tile_bytes + BARRIERS)))
            return (stages, 1) if stages >= 2 and shape.columns <= self.bn else None
        room = space - 2 * self.halo_tiles * self.consumers * tile_bytes - BARRIERS * 2 - self.residual_bytes(shape)
        filter_stages = min(MAX_FILTER_STAGES, room // (taps + BARRIERS))
        return (2, filter_stages) if filter_stages >= MIN_FILTER_STAGES else None

    def tiles_of_image(self, shape: Shape) -> tuple[int, int]:
        """Tiles along the height and the width of an image."""
        return -(-shape.pixels[0] // self.height), -(-shape.pixels[1] // self.width)

    def shared_bytes(self, shape: Shape, stages: int, filter_stages: int) -> int:
        taps_in_smem = shape.tap_count * shape.k_blocks if self.is_weight_stationary else filter_stages
        pipelines = self.consumers if self.is_weight_stationary else 1
        halo_tiles = self.halo_tiles * self.consumers * stages * self.halo_tile_bytes(shape)
        operands = halo_tiles + taps_in_smem * self.filter_bytes(shape)
        return operands + BARRIERS * (pipelines * stages + filter_stages) + self.residual_bytes(shape)
