"""Copies in the memory order of y, by items as wide as both layouts allow. One launch may copy several pieces of one y.

Every launch costs time, and few CTAs leave a device idle. So one launch copies all pieces of a concatenation that have
items of one size; each piece has its own CTAs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.fast_division import count_type, magic
from graphdnn.engines.cuda.codegen.launch import Launch, early
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.operations.copy_blocks import Axis, Block, merged
from graphdnn.tensors import TensorSpec

THREADS, BLOCKS_PER_SM = 256, 16  # CTAs of kernels that copy one item for each access
_ITEM = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "uint2", 16: "uint4"}  # by bytes
_UNROLL = {1: 8, 2: 8, 4: 4, 8: 4, 16: 2}  # loads of a thread in flight, by bytes of an item
_MOST_WORDS = 448  # 8-byte words of a launch's parameters, which are at most 4 KB


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of items of ``bytes`` bytes. ``block`` counts items; its last axis is contiguous in x and in y."""

    x: TensorSpec
    y: TensorSpec
    block: Block
    bytes: int

    @classmethod
    def of(cls, x: TensorSpec, y: TensorSpec, block: Block, size: int, vec_width: int) -> Copy:
        """The copy of a block of elements of ``size`` bytes by items of ``vec_width`` elements."""
        *outer, inner = block.axes
        axes = [Axis(a.size, a.x // vec_width, a.y // vec_width) for a in outer]
        last = inner if vec_width == 1 else replace(inner, size=inner.size // vec_width)
        return cls(
            x, y, Block(merged([*axes, last]), block.x_start // vec_width, block.y_start // vec_width), vec_width * size
        )

    @property
    def count(self) -> int:
        return prod(a.size for a in self.block.axes)

    @property
    def rank(self) -> int:
        return len(self.block.axes)


def launches_of(copies: Iterable[Copy], tag: str, device: DeviceSpec) -> list[Launch]:
    """The launches of the copies to one y; copies with items of one size and axes of one number share a launch."""
    alike: dict[tuple[int, int], list[Copy]] = {}
    for copy in copies:
        alike.setdefault((copy.bytes, copy.rank), []).append(copy)
    found = []
    for (_, rank), group in alike.items():
        most = _MOST_WORDS // (4 * rank + 6)
        found += [_launch(group[first : first + most], tag, device) for first in range(0, len(group), most)]
    return found


def _launch(pieces: Sequence[Copy], tag: str, device: DeviceSpec) -> Launch:
    size, rank, number = pieces[0].bytes, pieces[0].rank, len(pieces)
    counts = [piece.count for piece in pieces]
    total, unroll = sum(counts), _UNROLL[size]
    if total < 2 * device.sm_count * THREADS * unroll:  # few items: rather more threads than more items for each
        unroll = 1
    tiles_per_cta = -(-total // (THREADS * unroll * BLOCKS_PER_SM * device.sm_count))
    ctas = [-(-count // (THREADS * unroll * tiles_per_cta)) for count in counts]
    parameters = Parameters()
    for i, piece in enumerate(pieces):
        parameters.tensor(f"x{i}", piece.x)
    parameters.tensor("y", pieces[0].y, is_output=True)
    axes = [axis for piece in pieces for axis in piece.block.axes]
    parameters.table(
        {
            "x_start": [piece.block.x_start for piece in pieces],
            "y_start": [piece.block.y_start for piece in pieces],
            "count": counts,
            "ctas": ctas,
            "size": [a.size for a in axes],
            "magic": [magic(a.size) for a in axes],
            "x_stride": [a.x for a in axes],
            "y_stride": [a.y for a in axes],
        }
    )
    several = f"p{number}" if number > 1 else ""
    text = kernel_text(
        f"movement__copy_b{size}r{rank}u{unroll}{several}__{tag}",
        ["movement_copy.cu"],
        parameters=parameters.text,
        functions=[_source(number)],
        constants={
            "THREADS": THREADS,
            "UNROLL": unroll,
            "RANK": rank,
            "SOURCES": number,
            "Item": _ITEM[size],
            "Count": count_type(max(counts)),
        },
    )
    return early(Launch(text, "movement_copy", (sum(ctas), 1, 1), THREADS, parameters.pack()), device)


def _source(number: int) -> str:
    """The text of the function that returns the base pointer of each source."""
    cases = "".join(f"    if (source =={i}) return (const Item*)p.x{i};\n" for i in range(1, number))
    head = "__device__ __forceinline__ const Item* source_of(const Params& p, int source) {\n"
    return f"{head}{cases}    return (const Item*)p.x0;\n}}\n"
