"""Convolutions as circular convolutions on tiles: contents of planes, and positions of results (overlap-save).

A tile of ``size`` positions yields ``size - filter + 1`` results without wrap-around. One tile that contains all
results is the untiled algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from graphdnn.cuda.cufft import Transform
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles

Pair = tuple[int, int]
_ODD_FACTORS = (3, 5, 7)  # factors besides 2 of sizes that cuFFT transforms fast


@dataclass(frozen=True, slots=True)
class Placement:
    """Position t holds element ``sign * u + shift + tile * advance``; u < ``limit`` is t, or -t modulo the size."""

    reversed: bool
    sign: int
    shift: Pair
    advance: Pair
    limit: Pair


@dataclass(frozen=True, slots=True)
class Crop:
    """Element i of the result is at position ``sign * i + first - tile * advance`` of tile ``i // advance``."""

    sign: int
    first: Pair
    advance: Pair


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of a convolution of two spatial axes; ``counts`` of the image's operands."""

    roles: Roles
    size: Pair
    counts: Pair

    @classmethod
    def of(cls, roles: Roles, limit: int | None = None) -> Tiles:
        """One tile, or tiles of ``limit`` positions."""
        p = roles.problem
        results = p.input if roles.direction == "dgrad" else p.output
        sizes = tuple(fast_size(n + f - 1) if limit is None else limit for n, f in zip(results, p.filter, strict=True))
        counts = tuple(-(-n // (s - f + 1)) for n, s, f in zip(results, sizes, p.filter, strict=True))
        return cls(roles, (sizes[0], sizes[1]), (counts[0], counts[1]))

    @property
    def valid(self) -> Pair:
        """Results of a tile."""
        p = self.roles.problem
        return self.size[0] - p.filter[0] + 1, self.size[1] - p.filter[1] + 1

    def planes(self, role: str) -> tuple[int, Pair, int]:
        """Outer axis, tiles, inner axis of x, w or y."""
        p = self.roles.problem
        if role == "w":
            return p.k, (1, 1), p.c
        return p.n, self.counts, p.c if role == "x" else p.k

    def transform(self, role: str, is_inverse: bool = False) -> Transform:
        outer, tiles, inner = self.planes(role)
        return Transform(self.size[0], self.size[1], outer * prod(tiles) * inner, is_inverse)

    def placement(self, role: str) -> Placement:
        p, direction = self.roles.problem, self.roles.direction
        pre, taps = (p.pre_padding[0], p.pre_padding[1]), (p.filter[0], p.filter[1])
        if role == "w":
            # The forward direction is a correlation: a convolution with the reversed filter.
            sign, shift = (-1, (taps[0] - 1, taps[1] - 1)) if p.flip else (1, (0, 0))
            return Placement(direction == "fprop", sign, shift, (0, 0), self.size)
        if role == "x":
            return Placement(False, 1, (-pre[0], -pre[1]), self.valid, self.size)
        if direction == "dgrad":
            return Placement(False, 1, (pre[0] - taps[0] + 1, pre[1] - taps[1] + 1), self.valid, self.size)
        return Placement(True, 1, (0, 0), self.valid, self.valid)

    def crop(self) -> Crop:
        p, direction = self.roles.problem, self.roles.direction
        taps = (p.filter[0], p.filter[1])
        last = (taps[0] - 1, taps[1] - 1)
        if direction == "fprop":
            return Crop(1, (0, 0), self.valid)
        if direction == "dgrad":
            return Crop(1, last, self.valid)
        return Crop(-1, last, taps) if p.flip else Crop(1, (0, 0), taps)


@lru_cache(maxsize=256)
def fast_size(least: int) -> int:
    """The smallest even size of small factors that is at least ``least``."""
    best = 1 << max(1, (least - 1).bit_length())
    for odd in _odd_products(1, _ODD_FACTORS, best):
        best = min(best, odd << max(1, (-(-least // odd) - 1).bit_length()))
    return best


def _odd_products(start: int, factors: tuple[int, ...], below: int) -> Iterator[int]:
    """``start`` times each product of powers of the factors that is below a limit."""
    if not factors:
        yield start
        return
    while start < below:
        yield from _odd_products(start, factors[1:], below)
        start *= factors[0]
