"""Who adds the parts of a split product: a launch of its own (split_k_reduce.cu), or the blocks of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import Packed, Parameters

# Of every text that may be split, behind epilogue_store.cuh.
PARTS_FILES = ("split_k_partials.cuh", "split_k_tile.cuh")
_APART, _IN_CLUSTER = "split_k_workspace.cuh", "split_k_cluster.cuh"  # of hopper_gemm.cu, behind these
_OF_WARP = 2  # parts that a warp adds at least
_MOST_SLICES, _MOST_BESIDE = 8, 4
_MOST_UNDER_WAY = 32  # bytes for each of a thread's sums that are asked for at the same time
_LEAST_WARPS = 4  # of a block
_FILLED = 256  # blocks
_SET = 8 * 32  # sums
FEW_SHARES = 8  # tiles of a product whose launches overlap: more would not find their neighbours' copies in the cache
ROOM = 24 * 1024  # bytes of shared memory that a block of products leaves then


@dataclass(frozen=True, slots=True)
class Adding:
    """``sums``: all that a part has, in whole pieces of 64 rows and 32 columns; ``size``: bytes of one.
    ``in_cluster``: the parts of a tile are the blocks of a cluster, which add them. ``overlaps``: the launch that adds
    them begins beside the products, which leave room for it, and lets the next one begin.
    """

    sums: int
    parts: int
    size: int = 4
    in_cluster: bool = False
    overlaps: bool = False

    @property
    def file(self) -> str:
        return _IN_CLUSTER if self.in_cluster else _APART

    @property
    def _slices(self) -> int:
        return min(_MOST_SLICES, _power(-(-self.parts // _OF_WARP)))

    @property
    def _beside(self) -> int:
        """Shares of the parts that the lanes of a warp have: few sums would leave most of the device idle."""
        beside, blocks, slices = 1, self.sums // _SET, self._slices
        while beside < _MOST_BESIDE and beside * blocks < _FILLED and 2 * beside * slices * _OF_WARP <= self.parts:
            beside *= 2
        return beside

    @property
    def constants(self) -> dict[str, int | bool]:
        """The text's, beside those of the product; none where there is nothing to add."""
        if self.parts == 1:
            return {}
        if self.in_cluster:
            return {"CLUSTER": self.parts}
        slices, beside = self._slices, self._beside
        of_share = -(-self.parts // (slices * beside))
        return {
            "SLICES": slices,
            "LOADS_IN_FLIGHT": min(_MOST_UNDER_WAY // self.size, max(2, _power(of_share))),
            "UNITS_PER_CTA": max(1, _LEAST_WARPS // slices),
            "UNIT_ROWS": 8 // beside,
            "OVERLAPS": self.overlaps,
        }

    @property
    def about(self) -> tuple[int, ...]:
        """What texts depend on."""
        return (self.parts, self.in_cluster, self._beside, self.overlaps) if self.parts > 1 else ()

    def describe(self, parameters: Parameters, steps: LaunchSequence, compute: str) -> None:
        """Fields of split_k_partials.cuh."""
        parameters.integer("splits", self.parts)
        if self.is_launched:
            parameters.scratch("partial", compute, steps.allocate(self.parts * self.sums * self.size))
        else:
            parameters.nothing("partial", compute)

    @property
    def is_launched(self) -> bool:
        return self.parts > 1 and not self.in_cluster

    def launch(self, text: KernelText, packed: Packed) -> Launch:
        units = self.constants["UNITS_PER_CTA"]
        blocks = self.sums * self._beside // (_SET * units)
        return Launch(text, "split_k_reduce", (blocks, 1, 1), 32 * self._slices * units, packed, starts_early=True)


def _power(number: int) -> int:
    """The least power of two that is not below."""
    return 1 << (number - 1).bit_length()
