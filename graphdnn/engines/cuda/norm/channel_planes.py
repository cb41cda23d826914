"""Channels of images whose planes are short contiguous runs of memory (norm_channel_planes).

A CTA has adjacent channels. It reads its part of each image, which is contiguous, and keeps it in shared memory. If the
images do not fit, or if planes are long enough to be read one by one, this kernel is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace, collapsed
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.norm.norm_operands import Operands
from graphdnn.engines.cuda.norm.persistent import stored_bytes, vec_sizes_of
from graphdnn.engines.cuda.reduction.row_threads import Rows
from graphdnn.operations import NormBackward, NormForward
from graphdnn.tensors import TensorSpec

_THREADS, _FEWER_THREADS = 512, 256  # of a CTA; fewer if two CTAs with two tensors share the registers
_PASSED = 4  # elements of a thread that pass through shared memory at once
OTHER_SHARED = 1024 + 1024  # bytes of shared memory that cached segments cannot use
_LONGEST = 2048  # bytes of a plane in all tensors; longer planes are read one by one
_LEAST_LINE = 256  # contiguous bytes that a CTA should read
_MIN_VEC_BYTES = 4  # bytes
_BLOCKS = 2  # CTAs of a multiprocessor, if they fit
_PAIR = 16  # the most bytes of two sums
_MAX_VEC_WIDTH = 8  # elements of a thread; each has its own scale and bias
_IN_CTA, _IN_CLUSTER, _IN_WORKSPACE = 0, 1, 2  # COMBINE_SCOPE of channel_planes_variant.cuh


@dataclass(frozen=True, slots=True)
class Planes:
    """``channels`` rows of a CTA. A thread has ``rows.width`` elements of each segment that it reads. ``parts`` CTAs
    divide the segments; they are a cluster, or separate CTAs if ``is_divided``.
    """

    rows: Rows  # ([image,] element of a segment, segment)
    known: IndexSpace  # the index space of per-row functions: row, or image, row and element of it in a segment
    channels: int
    planes: int  # rows of a segment
    plane: int  # elements of a row in a segment
    vecs: int  # vectors of a segment
    shared: int  # bytes
    threads: int
    blocks: int  # on a multiprocessor
    parts: int = 1
    passed: int = _PASSED  # elements of a thread that pass through shared memory at once, at most
    is_divided: bool = False  # further launches combine the partial sums of the parts

    @property
    def is_of_groups(self) -> bool:
        """Whether each element of a row has its own scale, and each image its own rows."""
        return self.known.rank > 1

    @property
    def channel_rows(self) -> Rows:
        """The rows as functions of whole channels count them."""
        return Rows(self.known, self.known.rank, True, 1, self.rows.main_bytes)

    @property
    def place_rows(self) -> Rows:
        """The elements of rows, by image and then by CTA, for functions of partial gradients."""
        images, *others = self.known.axes
        count = images.size * self.parts
        space = IndexSpace((count, *self.known.extents[1:]), (Axis(count, images.logical), *others))
        return Rows(space, space.rank, True, 1, self.rows.main_bytes)

    def text(self) -> str:
        parts = "_divided" if self.is_divided else f"_in_{self.parts}" if self.parts > 1 else ""
        return f"planes_{self.threads}x{self.channels}{parts}"

    def launch(
        self,
        steps: LaunchSequence,
        name: str,
        parameters: Parameters,
        functions: Sequence[str],
        constants: Mapping[str, bool | str],
        *,
        is_backward: bool,
    ) -> None:
        """Adds the launch. ``is_backward``: a gradient."""
        rows, sizes = self.rows, self.rows.space.sizes
        fields = {"images": sizes[-1], "vecs": self.vecs, "plane": self.plane, "channels": self.planes}
        for field, value in (fields | {"elements": sizes[-1] * self.plane}).items():
            parameters.integer(field, value)
        images = sizes[0] if self.is_of_groups else 1
        scope = _IN_WORKSPACE if self.is_divided else _IN_CLUSTER if self.parts > 1 else _IN_CTA
        if self.is_divided:
            parameters.integer("parts", self.parts)
            pair = f"Vec<{constants['Compute']}, 2>"
            for field, count in (("partial", self.parts), ("combined", 1)):
                parameters.workspace_pointer(field, pair, steps.allocate(count * images * self.planes * _PAIR))
        text = kernel_text(
            name,
            ["norm_channel_planes_split.cu" if self.is_divided else "norm_channel_planes.cu"],
            variants={"NORM_BACKWARD": is_backward, "COMBINE_SCOPE": scope},
            parameters=parameters.text,
            functions=functions,
            constants={
                "RANK": rows.space.rank,
                "ROW_RANK": self.known.rank,
                "VEC_WIDTH": rows.width,
                "THREADS": self.threads,
                "BLOCKS": self.blocks,
                "CHANNELS": self.channels,
                "PASSED_ELEMENTS": min(self.passed, rows.width),
                **({"CLUSTER": self.parts} if self.parts > 1 and not self.is_divided else {}),
                **constants,
            },
        )
        grid, packed = (-(-self.planes // self.channels) * self.parts, images, 1), parameters.pack()
        if not self.is_divided:
            steps.add_early(Launch(text, "norm_channel_planes", grid, self.threads, packed, self.shared))
            return
        combining = (self.planes, images, 1)
        steps.add_early(Launch(text, "channel_planes_partials", grid, self.threads, packed, self.shared))
        steps.add_early(Launch(text, "channel_planes_combine", combining, self.threads, packed))
        steps.add_early(Launch(text, "channel_planes_apply", grid, self.threads, packed))


def planes_of(
    operands: Operands, stored: Sequence[TensorSpec], kept: Sequence[TensorSpec], device: DeviceSpec
) -> Planes | None:
    """``stored``: tensors of x's shape that are accessed in vectors; ``kept``: the tensors that a CTA caches."""
    anchor, x = operands.anchor, operands.anchor.x
    extents = x.extents
    images, planes, plane = extents[0], extents[1], prod(extents[2:])
    if not are_channels(anchor) or not all(_has_planes(t, extents) for t in stored):
        return None
    if any(t.extents != extents for t in stored) or plane * sum(vec_sizes_of(1, kept)) > _LONGEST:
        return None
    sides = IndexSpace(extents, tuple(Axis(size, i) for i, size in enumerate(extents) if i))
    line = collapsed(sides, x, stored, operands.asked).axes
    if len(line) != 1 or operands.asked:
        return None
    space = IndexSpace(extents, (line[0], Axis(images, 0)))
    main_bytes = ELEMENTS[x.data_type].bytes
    width = min(width_for(space, stored, 0), _MAX_VEC_WIDTH)
    while width > 1 and width * main_bytes >= _MIN_VEC_BYTES:
        found = _planes(Rows(space, 1, False, width, main_bytes), planes, plane, images, operands, kept, device)
        if found is not None:
            return found
        width //= 2
    return None


def are_channels(anchor: NormForward | NormBackward) -> bool:
    """Whether a row is one channel of all images."""
    return set(anchor.axes) == {0, *range(2, len(anchor.x.extents))}


def exchange_bytes(compute_bytes: int, passed: int, threads: int, sums: int) -> int:
    """Bytes of the thread sums, their group sums, and the sums over segments, in shared memory."""
    return compute_bytes * (threads * (passed + 1) + sums)


def _has_planes(spec: TensorSpec, extents: Sequence[int]) -> bool:
    """Whether channels are the outermost axis of an image."""
    return spec.vector_count == 1 and (extents[1] == 1 or spec.strides[1] == prod(extents[2:]))


def _planes(
    rows: Rows, planes: int, plane: int, images: int, operands: Operands, kept: Sequence[TensorSpec], device: DeviceSpec
) -> Planes | None:
    """The candidate with the fewest waves, and of these the one with the fewest channels of a CTA."""
    width = rows.width
    channels = width // gcd(width, plane)
    best: tuple[tuple[bool, int], Planes] | None = None
    while planes // channels >= device.sm_count // 2:
        vecs = channels * plane // width
        sums = len(kept) * channels * plane
        exchange = exchange_bytes(operands.bytes, min(_PASSED, width), _THREADS, sums)
        shared = images * vecs * stored_bytes(vec_sizes_of(width, kept)) + exchange
        blocks = min(_BLOCKS, device.shared_memory // (shared + OTHER_SHARED))
        threads = _FEWER_THREADS if blocks > 1 and len(kept) > 1 else _THREADS
        if vecs > threads or not blocks:
            break
        turns = -(-planes // (channels * blocks * device.sm_count))
        loss = channels * plane * rows.main_bytes < _LEAST_LINE, turns
        if images * vecs >= threads and (best is None or loss < best[0]):
            known = IndexSpace(rows.space.extents, (Axis(planes, 1),))
            best = loss, Planes(rows, known, channels, planes, plane, vecs, shared, threads, blocks)
        channels *= 2
    return None if best is None else best[1]
