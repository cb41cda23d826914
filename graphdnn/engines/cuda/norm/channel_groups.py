"""Group norm of channels-last images: a row is a group of adjacent channels of one image (norm_channel_planes).

A segment is one pixel's part of the rows of a CTA. A CTA has adjacent groups, so that a segment is contiguous. The CTA
keeps the segments of all pixels of an image, or its slice of the pixels if a cluster divides them. If the pixels do not
fit, further launches combine the partial sums. Groups that are long contiguous rows do not use this kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, log2

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace, collapsed, is_addressable
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.norm.channel_planes import OTHER_SHARED, Planes, exchange_bytes
from graphdnn.engines.cuda.norm.norm_operands import Operands
from graphdnn.engines.cuda.norm.persistent import stored_bytes, vec_sizes_of
from graphdnn.engines.cuda.reduction.row_threads import Rows
from graphdnn.tensors import TensorSpec

_MAX_VEC_WIDTH = 8  # elements of a thread; each has its own scale and bias
_MOST_IMAGES = 65535  # the largest extent of a grid's y axis
_THREADS = (512, 256)  # of a CTA; the workspace variant has the last one
_MOST_THREADS = 1024  # of a multiprocessor, for each cached tensor; factors of rows take registers
# Seconds, fitted to times on an H200: of a launch; of a CTA besides its memory time; of each doubling of the cluster;
# of the launches of the workspace variant.
_LAUNCH, _ROUND, _DOUBLED, _FOLLOWED = 2.5e-6, 6e-6, 1e-6, 15e-6
_PARTS = {1: 1.0, 2: 0.98, 4: 0.9, 8: 0.85}  # CTAs of a cluster, and the share of the device that they can fill
# Share of the bandwidth, by contiguous bytes
_PACE = ((256, 1.0), (160, 0.97), (128, 0.92), (80, 0.85), (64, 0.7), (32, 0.45), (0, 0.3))
_KEPT, _FOLLOWING = 1.25, {1: 1.4, 2: 2.4}  # multiples of the memory time: cached; read twice, by tensors
# The same for rows that are read one by one, forward and backward.
_APART = ((64, 1.0), (32, 0.4), (16, 0.22), (0, 0.08))
_APART_LAUNCHES, _APART_AGAIN = {1: 5e-6, 2: 14e-6}, {1: 1.0, 2: 1.5}


@dataclass(frozen=True, slots=True)
class _SegmentLayout:
    """How rows lie in segments, and the index space of per-row functions."""

    rows: Rows
    known: IndexSpace
    tensors: int  # tensors that are cached

    @property
    def images(self) -> int:
        return self.rows.space.sizes[0]

    @property
    def count(self) -> int:
        return self.rows.space.sizes[-1]

    @property
    def groups(self) -> int:
        return self.known.sizes[1]

    @property
    def plane(self) -> int:
        """Elements of a row in a segment."""
        return self.known.sizes[2]

    @property
    def least(self) -> int:
        """The fewest groups of a CTA whose segments are whole vectors."""
        return self.rows.width // gcd(self.rows.width, self.plane)

    def seconds(self, device: DeviceSpec, passes: int) -> float:
        """Memory seconds of this number of passes over a tensor."""
        return passes * self.images * self.count * self.groups * self.plane * self.rows.main_bytes / device.bandwidth

    def apart(self, device: DeviceSpec) -> float:
        """Seconds of a kernel that reads rows one by one."""
        pace = _pace(_APART, self.plane * self.rows.main_bytes)
        return (
            _APART_LAUNCHES[self.tensors] + _APART_AGAIN[self.tensors] * self.seconds(device, self.tensors + 1) / pace
        )


def _pace(table: Sequence[tuple[int, float]], line_bytes: int) -> float:
    return next(pace for least, pace in table if line_bytes >= least)


def choose_group_tile(
    operands: Operands, stored: Sequence[TensorSpec], kept: Sequence[TensorSpec], device: DeviceSpec
) -> Planes | None:
    """``stored``: tensors accessed in vectors; ``kept``: the tensors that a CTA caches. None if rows are better read
    alone.
    """
    lines = _segment_layout(operands, stored, len(kept))
    if lines is None:
        return None
    offers = [*_offers(lines, operands.bytes, kept, device), *_divided(lines, operands.bytes, kept, device)]
    seconds, best = min(offers, key=lambda offer: offer[0], default=(0.0, None))
    return best if seconds < lines.apart(device) else None


def _segment_layout(operands: Operands, stored: Sequence[TensorSpec], tensors: int) -> _SegmentLayout | None:
    anchor, x = operands.anchor, operands.anchor.x
    extents, axes = x.extents, [a for a in range(2, x.rank) if x.extents[a] != 1]
    is_rows = set(anchor.axes) >= set(axes) and not {0, 1} & set(anchor.axes)
    if not is_rows or operands.asked or extents[0] > _MOST_IMAGES or not all(map(is_addressable, stored)):
        return None
    inside = [a for a in axes if x.strides[a] < x.strides[1]]
    outside = [a for a in axes if a not in inside]
    beside = [t for t in anchor.tensors().values() if t.extents != extents and not t.is_by_value and not t.is_constant]
    if not inside or not outside or any(t.extents[a] != 1 for t in beside for a in outside):
        return None
    line, pixels, element = (
        collapsed(IndexSpace(extents, tuple(Axis(extents[a], a) for a in some)), x, given).axes
        for some, given in (([1, *inside], stored), (outside, stored), (inside, [*stored, *beside]))
    )
    if not len(line) == len(pixels) == len(element) == 1:
        return None
    image = Axis(extents[0], 0)
    places = tuple(1 if a in outside else extent for a, extent in enumerate(extents))
    space = IndexSpace(extents, (image, line[0], pixels[0]))
    width = min(width_for(space, stored, 1), _MAX_VEC_WIDTH)
    rows = Rows(space, 2, False, width, ELEMENTS[x.data_type].bytes)
    return _SegmentLayout(rows, IndexSpace(places, (image, Axis(extents[1], 1), element[0])), tensors)


def _offers(
    lines: _SegmentLayout, compute_bytes: int, kept: Sequence[TensorSpec], device: DeviceSpec
) -> Iterator[tuple[float, Planes]]:
    """CTAs that cache the elements they read, with their predicted seconds."""
    rows, width, channels = lines.rows, lines.rows.width, lines.least
    shares = _PARTS if device.compute_capability >= (9, 0) else {1: 1.0}
    while channels * lines.plane // width <= max(_THREADS) and channels <= lines.groups:
        vecs = channels * lines.plane // width
        pace = _pace(_PACE, channels * lines.plane * rows.main_bytes)
        tiles = lines.images * -(-lines.groups // channels)
        for (parts, share), threads in product(shares.items(), _THREADS):
            shared = -(-lines.count // parts) * vecs * stored_bytes(vec_sizes_of(width, kept))
            shared += exchange_bytes(compute_bytes, width, threads, len(kept) * vecs * width)
            shared += 2 * len(kept) * parts * channels * compute_bytes
            blocks = min(_MOST_THREADS // len(kept) // threads, device.shared_memory // (shared + OTHER_SHARED))
            if not blocks or vecs > threads or (parts > 1 and lines.count < 2 * parts):
                continue
            turns = -(-tiles * parts // (blocks * max(1, int(share * device.sm_count))))
            busy = min(1.0, tiles * parts / (turns * device.sm_count * (blocks if turns > 1 else 1)))
            seconds = _LAUNCH + turns * (_ROUND + _DOUBLED * log2(parts))
            seconds += _KEPT * lines.seconds(device, len(kept) + 1) / (pace * busy)
            yield seconds, _planes(lines, channels, vecs, shared, threads, blocks, parts)
        channels *= 2


def _divided(
    lines: _SegmentLayout, compute_bytes: int, kept: Sequence[TensorSpec], device: DeviceSpec
) -> Iterator[tuple[float, Planes]]:
    """CTAs whose partial sums further launches combine; nothing if a group is longer than a CTA's segment."""
    width, least = lines.rows.width, lines.least
    threads, blocks = _THREADS[-1], _MOST_THREADS // _THREADS[-1] // len(kept)
    channels = min(-(-lines.groups // least), max(1, threads * width // (least * lines.plane))) * least
    vecs = channels * lines.plane // width
    if vecs > threads:
        return
    tiles = lines.images * -(-lines.groups // channels)
    of_line = vecs * stored_bytes(vec_sizes_of(width, kept))
    exchange = exchange_bytes(compute_bytes, width, threads, len(kept) * vecs * width)
    most = max(1, (device.shared_memory // blocks - exchange - OTHER_SHARED) // of_line)  # segments of a CTA
    parts = min(lines.count, max(-(-lines.count // most), -(-blocks * device.sm_count // tiles)))
    shared = -(-lines.count // parts) * of_line + exchange
    seconds = _FOLLOWED + _FOLLOWING[len(kept)] * lines.seconds(device, 2 * len(kept) + 1)
    yield seconds, _planes(lines, channels, vecs, shared, threads, blocks, parts, is_divided=True)


def _planes(
    lines: _SegmentLayout,
    channels: int,
    vecs: int,
    shared: int,
    threads: int,
    blocks: int,
    parts: int,
    *,
    is_divided: bool = False,
) -> Planes:
    rows, known = lines.rows, lines.known
    return Planes(
        rows, known, channels, lines.groups, lines.plane, vecs, shared, threads, blocks, parts,
        passed=rows.width, is_divided=is_divided,
    )  # fmt: skip
