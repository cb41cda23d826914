"""Reduction of split-K: by another launch (split_k_reduce.cu), or by the CTAs of a cluster (split_k_cluster.cuh)."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import PackedParams, Parameters

_MIN_WARP_SPLITS = 2  # splits that a warp adds, at least
_MAX_SLICES, _MAX_LANE_SLICES = 8, 4
_MAX_BYTES_IN_FLIGHT = 32  # bytes of loads in flight for each result of a thread
_MIN_WARPS = 4  # of a CTA
_ENOUGH_CTAS = 256
_ROW_SET_ELEMENTS = 8 * 32  # results of a warp in one row of each thread and one column block
MAX_OVERLAPPED_TILES = 8  # with more tiles, launches that overlap would evict each other's operands from L2
OVERLAP_BYTES = 24 * 1024  # shared memory that a CTA leaves free for a launch that overlaps


@dataclass(frozen=True, slots=True)
class SplitKReduction:
    """How the splits of a GEMM are added.

    ``elements``: partial sums of a split, in whole fragments of 64 rows and 32 columns. ``in_cluster``: the CTAs of a
    cluster have the splits of a tile. ``overlaps``: the launch that adds the splits starts while the main kernel runs,
    which leaves room for it, and the next launch starts likewise.
    """

    elements: int
    splits: int
    element_bytes: int = 4
    in_cluster: bool = False
    overlaps: bool = False

    @property
    def _slices(self) -> int:
        return min(_MAX_SLICES, _next_power_of_two(-(-self.splits // _MIN_WARP_SPLITS)))

    @property
    def _lane_slices(self) -> int:
        """Ranges of splits among the lanes of a warp: more than one, if few results would leave the device idle."""
        lane_slices, ctas, slices = 1, self.elements // _ROW_SET_ELEMENTS, self._slices
        while (
            lane_slices < _MAX_LANE_SLICES
            and lane_slices * ctas < _ENOUGH_CTAS
            and 2 * lane_slices * slices * _MIN_WARP_SPLITS <= self.splits
        ):
            lane_slices *= 2
        return lane_slices

    @property
    def constants(self) -> dict[str, int | bool]:
        """Constants of the reduction; none without split-K."""
        if self.splits == 1:
            return {}
        if self.in_cluster:
            return {"CLUSTER": self.splits}
        slices, lane_slices = self._slices, self._lane_slices
        splits_per_range = -(-self.splits // (slices * lane_slices))
        return {
            "SLICES": slices,
            "LOADS_IN_FLIGHT": min(
                _MAX_BYTES_IN_FLIGHT // self.element_bytes, max(2, _next_power_of_two(splits_per_range))
            ),
            "UNITS_PER_CTA": max(1, _MIN_WARPS // slices),
            "UNIT_ROWS": 8 // lane_slices,
            "OVERLAPS": self.overlaps,
        }

    @property
    def text_key(self) -> tuple[int, ...]:
        """The values that kernel text depends on."""
        return (self.splits, self.in_cluster, self._lane_slices, self.overlaps) if self.splits > 1 else ()

    def describe(self, parameters: Parameters, steps: LaunchSequence, compute: str) -> None:
        """Add the fields of split_k_partials.cuh."""
        parameters.integer("splits", self.splits)
        if self.is_launched:
            partial_bytes = self.splits * self.elements * self.element_bytes
            parameters.workspace_pointer("partial", compute, steps.allocate(partial_bytes))
        else:
            parameters.null_pointer("partial", compute)

    @property
    def is_launched(self) -> bool:
        return self.splits > 1 and not self.in_cluster

    def launch(self, text: KernelText, packed: PackedParams) -> Launch:
        units = self.constants["UNITS_PER_CTA"]
        ctas = self.elements * self._lane_slices // (_ROW_SET_ELEMENTS * units)
        return Launch(text, "split_k_reduce", (ctas, 1, 1), 32 * self._slices * units, packed, starts_early=True)


def _next_power_of_two(number: int) -> int:
    """The smallest power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()
