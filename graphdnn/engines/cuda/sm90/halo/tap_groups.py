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

_ROW_AXIS, _COLUMN_AXIS = 1, 2  # the spatial axes that there are, of three


class Tap(NamedTuple):
    row: int  # of dy, from a place
    column: int
    residue: int
    filter_tap: int  # in the filter

    @property
    def offset(self) -> tuple[int, int]:
        return self.row, self.column


@dataclass(frozen=True, slots=True)
class TapGroups:
    """``taps`` in the order of their products."""

    taps: tuple[Tap, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """That taps read, from a place."""
        return tuple(sorted({tap.row for tap in self.taps})) or (0,)

    @property
    def column(self) -> int:
        """The first that a line's taps read, from a place."""
        return min((tap.column for tap in self.taps), default=0)

    @property
    def reach(self) -> int:
        """Pixels that they read behind it."""
        return max((tap.column for tap in self.taps), default=0) - self.column

    @property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        """Of the meetings: line and pixel, from a place."""
        return tuple(dict.fromkeys(tap.offset for tap in self.taps))

    def loads(self, is_disjoint: bool) -> tuple[tuple[int, int], ...]:
        """Of dy for 64 places: of what each meeting reads, or of each line with what its taps read behind the first."""
        return self.offsets if is_disjoint else tuple((row, self.column) for row in self.rows)


@memoize_by_identity
def tap_groups_of(gemm: GemmProblem) -> TapGroups:
    *_, width = gemm.roles.space(gemm.roles.op.roles[1]).sizes
    taps = [tap for i, residue in enumerate(gemm.residues) for tap in _taps_of(gemm, residue, i, width)]
    return TapGroups(tuple(sorted(taps)))


def _taps_of(gemm: GemmProblem, residue: Residue, filter_tap: int, width: int) -> Iterator[Tap]:
    for i in range(residue.taps[_ROW_AXIS]):
        for j in range(residue.taps[_COLUMN_AXIS]):
            row, column = (residue.start[d] + t * gemm.dilation[d] for d, t in ((_ROW_AXIS, i), (_COLUMN_AXIS, j)))
            r, s = (residue.first_tap[d] + t * gemm.tap_stride[d] for d, t in ((_ROW_AXIS, i), (_COLUMN_AXIS, j)))
            yield Tap(row, column, filter_tap, r * width + s)
