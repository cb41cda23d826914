"""The division of a reduction's elements among threads, and of its results among CTAs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphdnn.engines.cuda.reduction.reduced_axes import ReducedAxes

_UNROLLED = 8  # loads
_LINE = 128  # bytes of memory
_MANY_RESULTS = 4096  # results from which on each has few partial results


@dataclass(frozen=True, slots=True)
class Shape:
    """The division of a reduction among threads; see reduction.cu."""

    along: bool
    width: int
    threads: int
    threads_per_result: int
    unroll: int
    kept: tuple[int, ...]  # vectors
    reduced: tuple[int, ...]  # vectors
    per_block: int  # vectors

    @property
    def tiles(self) -> int:
        return -(-prod(self.kept) // (self.threads // self.threads_per_result))

    @property
    def splits(self) -> int:
        return -(-prod(self.reduced) // self.per_block)

    @property
    def results_per_block(self) -> int:
        """Threads side by side in the second launch: a read of 32 bytes or more of a row of partial results."""
        return 8 if prod(self.kept) * (1 if self.along else self.width) < _MANY_RESULTS else 32

    @property
    def step(self) -> tuple[int, ...]:
        """Digits of ``threads_per_result`` in the radices of ``reduced``."""
        digits, rest = [], self.threads_per_result
        for size in reversed(self.reduced[1:]):
            digits.append(rest % size)
            rest //= size
        return (rest, *reversed(digits))


def choose_shape(
    axes: ReducedAxes, along: bool, width: int, vec_bytes: int, in_flight: int, threads: int, blocks: int
) -> Shape:
    """The division whose threads read whole memory lines. ``blocks``: CTAs that fit the device, if results are few."""
    kept, reduced = list(axes.kept), list(axes.reduced)
    vector = reduced if along else kept
    vector[-1] //= width
    results, depth = prod(kept), prod(reduced)
    most = min(_UNROLLED, _power_below(in_flight))
    if along:
        # Short rows: a warp has several, so that each thread has as many loads in flight as with long rows.
        threads_per_result = min(32, _power_above(-(-depth // most)))
        if depth >= threads and results < 16 * blocks:
            threads_per_result = threads
    elif depth < 8 or results >= threads * blocks:
        threads_per_result = 1
    else:
        threads_per_result = threads // _kept_threads(results, vec_bytes)
    tiles = -(-results // (threads // threads_per_result))
    splits = 1
    if 2 * tiles <= blocks:
        splits = max(1, min(blocks // tiles, depth // (4 * threads_per_result)))
    per_block = -(-depth // splits)
    per_block = -(-per_block // threads_per_result) * threads_per_result
    unroll = min(most, _power_above(per_block // threads_per_result))
    return Shape(along, width, threads, threads_per_result, unroll, tuple(kept), tuple(reduced), per_block)


def _kept_threads(vecs: int, vec_bytes: int) -> int:
    """Threads with adjacent vectors, at most a warp: few idle threads, and whole memory lines for a part of a row."""

    def loss(threads: int) -> float:
        line = threads * vec_bytes
        return -(-vecs // threads) * threads * (1.0 if threads >= vecs or line >= _LINE else (_LINE / line) ** 0.5)

    return min((32, 16, 8, 4, 2, 1), key=loss)


def _power_below(count: int) -> int:
    """The largest power of two up to ``count``, at least 1."""
    return 1 << (max(1, count).bit_length() - 1)


def _power_above(count: int) -> int:
    """The smallest power of two that is at least ``count``."""
    return 1 << (count - 1).bit_length()
