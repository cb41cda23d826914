"""Planes: rows that are channels of images whose planes are short pieces of memory (norm_planes).

A block has some channels that are neighbours, reads of each image what these are, in one piece, and keeps it in shared
memory. None where images are too many for that, or planes long enough to be read one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.generator.launch import Launch
from graphdnn.engines.cuda.generator.packs import width_for
from graphdnn.engines.cuda.generator.parameters import Parameters
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.space import Axis, Space, collapsed
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.cuda.normalization.operands import Operands
from graphdnn.engines.cuda.normalization.resident import pack_sizes, stored_bytes
from graphdnn.engines.cuda.reductions.rows import Rows
from graphdnn.operations import NormBackward, NormForward
from graphdnn.tensors import TensorSpec

_THREADS, _FEWER_THREADS = 512, 256  # of a block; fewer where two blocks of two tensors share the registers
_HANDED = 4  # elements of a thread that go through shared memory at once
_OTHER_SHARED = 1024 + 1024  # bytes of shared memory that lines cannot have
_LONGEST = 2048  # bytes of a plane in all tensors; longer ones are read one by one
_LEAST_LINE = 256  # bytes that a block should read in one piece
_LEAST_PACK = 4  # bytes
_BLOCKS = 2  # that share a multiprocessor, where they can
_MOST_WIDTH = 8  # elements of a thread, each with factors of its own


@dataclass(frozen=True, slots=True)
class Planes:
    """``channels`` of a block; a thread has ``rows.width`` elements of each line that it reads."""

    rows: Rows
    channels: int
    planes: int  # channels of an image
    plane: int  # elements
    packs: int  # of a line
    shared: int  # bytes
    threads: int
    blocks: int  # on a multiprocessor

    @property
    def channel_rows(self) -> Rows:
        """As functions of whole channels count them."""
        space = Space(self.rows.space.extents, (Axis(self.planes, 1),))
        return Rows(space, 1, True, 1, self.rows.main_bytes)

    def text(self) -> str:
        return f"planes_{self.channels}"

    def launch(
        self,
        steps: Steps,
        name: str,
        parameters: Parameters,
        functions: Sequence[str],
        direction: str,
        constants: Mapping[str, bool | str],
    ) -> None:
        """``direction``: the file that says what is found of the rows."""
        rows, images = self.rows, self.rows.space.sizes[1]
        fields = {"images": images, "packs": self.packs, "plane": self.plane, "channels": self.planes}
        for field, value in (fields | {"elements": images * self.plane}).items():
            parameters.integer(field, value)
        text = kernel_text(
            name,
            ["next_launch.cuh", direction, "norm_planes.cu"],
            parameters=parameters.text,
            functions=functions,
            constants={
                "RANK": rows.space.rank,
                "VECTOR": rows.width,
                "THREADS": self.threads,
                "BLOCKS": self.blocks,
                "CHANNELS": self.channels,
                **constants,
            },
        )
        grid = (-(-self.planes // self.channels), 1, 1)
        steps.add_early(Launch(text, "norm_planes", grid, self.threads, parameters.pack(), self.shared))


def planes_of(
    operands: Operands, stored: Sequence[TensorSpec], kept: Sequence[TensorSpec], device: DeviceSpec
) -> Planes | None:
    """``stored``: tensors as large as x that are read and written in packs; ``kept``: what a block keeps of them."""
    anchor, x = operands.anchor, operands.anchor.x
    extents = x.extents
    images, planes, plane = extents[0], extents[1], prod(extents[2:])
    if not are_channels(anchor) or not all(_has_planes(t, extents) for t in stored):
        return None
    if any(t.extents != extents for t in stored) or plane * sum(pack_sizes(1, kept)) > _LONGEST:
        return None
    sides = Space(extents, tuple(Axis(size, i) for i, size in enumerate(extents) if i))
    line = collapsed(sides, x, stored, operands.asked).axes
    if len(line) != 1 or operands.asked:
        return None
    space = Space(extents, (line[0], Axis(images, 0)))
    main_bytes = ELEMENTS[x.data_type].bytes
    width = min(width_for(space, stored, 0), _MOST_WIDTH)
    while width > 1 and width * main_bytes >= _LEAST_PACK:
        found = _planes(Rows(space, 1, False, width, main_bytes), planes, plane, images, operands, kept, device)
        if found is not None:
            return found
        width //= 2
    return None


def are_channels(anchor: NormForward | NormBackward) -> bool:
    """Whether a row is a channel of all images."""
    return set(anchor.axes) == {0, *range(2, len(anchor.x.extents))}


def _has_planes(spec: TensorSpec, extents: Sequence[int]) -> bool:
    """Channels are the outermost axis of an image."""
    return spec.vector_count == 1 and (extents[1] == 1 or spec.strides[1] == prod(extents[2:]))


def _planes(
    rows: Rows, planes: int, plane: int, images: int, operands: Operands, kept: Sequence[TensorSpec], device: DeviceSpec
) -> Planes | None:
    """As few turns of the device as can be, each block with as few channels as that takes."""
    width = rows.width
    channels = width // gcd(width, plane)
    best: tuple[tuple[bool, int], Planes] | None = None
    while planes // channels >= device.sm_count // 2:
        packs = channels * plane // width
        sums = len(kept) * channels * plane
        handed = operands.bytes * (_THREADS * min(_HANDED, width) + sums)
        shared = images * packs * stored_bytes(pack_sizes(width, kept)) + handed
        blocks = min(_BLOCKS, device.shared_memory // (shared + _OTHER_SHARED))
        threads = _FEWER_THREADS if blocks > 1 and len(kept) > 1 else _THREADS
        if packs > threads or not blocks:
            break
        turns = -(-planes // (channels * blocks * device.sm_count))
        loss = channels * plane * rows.main_bytes < _LEAST_LINE, turns
        if images * packs >= threads and (best is None or loss < best[0]):
            best = loss, Planes(rows, channels, planes, plane, packs, shared, threads, blocks)
        channels *= 2
    return None if best is None else best[1]
