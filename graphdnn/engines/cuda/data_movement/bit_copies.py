"""Copies: items in y's order, as wide as both sides allow; several pieces of one y by one launch.

A launch has its start, and few blocks leave a device idle: the pieces of a concatenation whose items are alike go
together, each by blocks of its own.
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

THREADS, BLOCKS_PER_SM = 256, 16  # of kernels that go through items one by one
_ITEM = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "uint2", 16: "uint4"}  # by bytes
_UNROLL = {1: 8, 2: 8, 4: 4, 8: 4, 16: 2}  # accesses of a thread under way, by bytes
_MOST_WORDS = 448  # of a launch's parameters, which are 4 KB at most


@dataclass(frozen=True, slots=True)
class Copy:
    """``block`` counts items of so many bytes, the last axis those that follow each other on both sides."""

    x: TensorSpec
    y: TensorSpec
    block: Block
    bytes: int

    @classmethod
    def of(cls, x: TensorSpec, y: TensorSpec, block: Block, size: int, pack: int) -> Copy:
        """Of elements of ``size`` bytes, ``pack`` of them an item."""
        *outer, inner = block.axes
        axes = [Axis(a.size, a.x // pack, a.y // pack) for a in outer]
        last = inner if pack == 1 else replace(inner, size=inner.size // pack)
        return cls(x, y, Block(merged([*axes, last]), block.x_start // pack, block.y_start // pack), pack * size)

    @property
    def count(self) -> int:
        return prod(a.size for a in self.block.axes)

    @property
    def rank(self) -> int:
        return len(self.block.axes)


def launches_of(copies: Iterable[Copy], tag: str, device: DeviceSpec) -> list[Launch]:
    """Of one y; those with items alike together."""
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
    if total < 2 * device.sm_count * THREADS * unroll:  # threads first, then work for each
        unroll = 1
    turns = -(-total // (THREADS * unroll * BLOCKS_PER_SM * device.sm_count))
    blocks = [-(-count // (THREADS * unroll * turns)) for count in counts]
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
            "blocks": blocks,
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
            "PIECES": number,
            "Item": _ITEM[size],
            "Count": count_type(max(counts)),
        },
    )
    return early(Launch(text, "movement_copy", (sum(blocks), 1, 1), THREADS, parameters.pack()), device)


def _source(number: int) -> str:
    """The function that knows where a piece comes from."""
    cases = "".join(f"    if (piece == {i}) return (const Item*)p.x{i};\n" for i in range(1, number))
    head = "__device__ __forceinline__ const Item* source_of(const Params& p, int piece) {\n"
    return f"{head}{cases}    return (const Item*)p.x0;\n}}\n"
