"""Halo tiles whose pixels are the columns of the GEMM (hopper_halo_swap_ab.cu)."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.engines.cuda.sm90.halo.halo_tile import BARRIERS, MAX_FILTER_STAGES, MIN_FILTER_STAGES, HaloTile, Shape

_STAGES = 2  # of halo tiles


@dataclass(frozen=True)
class SwappedHaloTile(HaloTile):
    """The halo tile of a CTA, 8 pixels wide. Each consumer has 64 of the ``bn`` channels."""

    @property
    def kind(self) -> str:
        return "turned"

    @property
    def swap_ab(self) -> bool:
        return True

    @property
    def halo_tiles_per_cta(self) -> int:
        return 1

    def columns(self, shape: Shape) -> int:  # noqa: ARG002  # the same for every shape
        return self.height * self.width

    def mma_tiles(self, shape: Shape) -> int:  # noqa: ARG002  # the same for every shape
        return 1

    def accumulators(self, shape: Shape) -> int:
        return self.columns(shape) // 2

    def serves(self, shape: Shape) -> bool:
        """Whether it serves. Results have more than one byte, because a lane's pixels are not contiguous in memory."""
        return super().serves(shape) and shape.is_permutable and shape.result_bytes > 1

    def _stages(self, shape: Shape, space: int) -> tuple[int, int] | None:
        """Stages of halo tiles and of filters. Each consumer has its own pipeline of filters."""
        room = space - BARRIERS - _STAGES * (self.halo_tile_bytes(shape) + BARRIERS)
        filter_stages = min(MAX_FILTER_STAGES, room // self._filter_stage_bytes(shape))
        return (_STAGES, filter_stages) if filter_stages >= MIN_FILTER_STAGES else None

    def shared_bytes(self, shape: Shape, stages: int, filter_stages: int) -> int:
        return (
            BARRIERS
            + stages * (self.halo_tile_bytes(shape) + BARRIERS)
            + filter_stages * self._filter_stage_bytes(shape)
        )

    def _filter_stage_bytes(self, shape: Shape) -> int:
        return self.filter_bytes(shape) + BARRIERS * self.consumers
