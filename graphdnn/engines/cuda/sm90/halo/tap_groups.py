"""Where the taps of a strided data gradient meet dy, and which of them read the same pixels there.

Place h of a residue is position ``residue + h * stride`` of dx. What a tap reads lies some lines and pixels from
place h of dy, whichever h; taps of several residues that lie as far are a meeting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, Residue
from graphdnn.engines.memoization import memoize_by_identity

_LINE, _PIXEL = 1, 2  # the spatial axes that there are, of three


class Tap(NamedTuple):
    line: int  # of dy, from a place
    pixel: int
    residue: int
    number: int  # in the filter

    @property
    def place(self) -> tuple[int, int]:
        return self.line, self.pixel


@dataclass(frozen=True, slots=True)
class Meetings:
    """``taps`` in the order of their products."""

    taps: tuple[Tap, ...]

    @property
    def lines(self) -> tuple[int, ...]:
        """That taps read, from a place."""
        return tuple(sorted({tap.line for tap in self.taps})) or (0,)

    @property
    def pixel(self) -> int:
        """The first that a line's taps read, from a place."""
        return min((tap.pixel for tap in self.taps), default=0)

    @property
    def reach(self) -> int:
        """Pixels that they read behind it."""
        return max((tap.pixel for tap in self.taps), default=0) - self.pixel

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Of the meetings: line and pixel, from a place."""
        return tuple(dict.fromkeys(tap.place for tap in self.taps))

    def copies(self, is_apart: bool) -> tuple[tuple[int, int], ...]:
        """Of dy for 64 places: of what each meeting reads, or of each line with what its taps read behind the first."""
        return self.places if is_apart else tuple((line, self.pixel) for line in self.lines)


@memoize_by_identity
def meetings_of(product: GemmProblem) -> Meetings:
    *_, width = product.roles.space(product.roles.op.roles[1]).sizes
    taps = [tap for i, residue in enumerate(product.residues) for tap in _taps_of(product, residue, i, width)]
    return Meetings(tuple(sorted(taps)))


def _taps_of(product: GemmProblem, residue: Residue, number: int, width: int) -> Iterator[Tap]:
    for i in range(residue.taps[_LINE]):
        for j in range(residue.taps[_PIXEL]):
            line, pixel = (residue.start[d] + t * product.dilation[d] for d, t in ((_LINE, i), (_PIXEL, j)))
            r, s = (residue.first_tap[d] + t * product.tap_stride[d] for d, t in ((_LINE, i), (_PIXEL, j)))
            yield Tap(line, pixel, number, r * width + s)
