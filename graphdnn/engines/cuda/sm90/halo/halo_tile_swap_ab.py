"""Patches of pixels that are the columns of a product, whose rows are channels (hopper_halo_swap_ab.cu)."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.engines.cuda.sm90.halo.halo_tile import BARRIERS, LEAST_FILTERS, MOST_FILTERS, Halo, Shape

_STAGES = 2  # of patches


@dataclass(frozen=True)
class Turned(Halo):
    """A block's patch, lines of 8 pixels; each consumer has 64 of its ``bn`` filters."""

    @property
    def kind(self) -> str:
        return "turned"

    @property
    def swap_ab(self) -> bool:
        return True

    @property
    def of_block(self) -> int:
        return 1

    def columns(self, shape: Shape) -> int:  # noqa: ARG002  # the same for every shape
        return self.tall * self.wide

    def groups_of_rows(self, shape: Shape) -> int:  # noqa: ARG002  # the same for every shape
        return 1

    def sums(self, shape: Shape) -> int:
        return self.columns(shape) // 2

    def serves(self, shape: Shape) -> bool:
        """Results of one byte are not packed: neighbouring pixels of a lane are no neighbours in memory."""
        return super().serves(shape) and shape.is_permutable and shape.result_bytes > 1

    def _stages(self, shape: Shape, space: int) -> tuple[int, int] | None:
        """A consumer has a ring of filters of its own."""
        left = space - BARRIERS - _STAGES * (self.patch_bytes(shape) + BARRIERS)
        filters = min(MOST_FILTERS, left // self._of_tap(shape))
        return (_STAGES, filters) if filters >= LEAST_FILTERS else None

    def shared_bytes(self, shape: Shape, stages: int, filters: int) -> int:
        return BARRIERS + stages * (self.patch_bytes(shape) + BARRIERS) + filters * self._of_tap(shape)

    def _of_tap(self, shape: Shape) -> int:
        return self.filter_bytes(shape) + BARRIERS * self.consumers
