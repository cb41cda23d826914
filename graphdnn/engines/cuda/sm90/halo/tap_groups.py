"""Tap groups of a strided data gradient: taps of several residues that read the same pixels of dy.

Coarse pixel h of a residue is position ``residue + h * stride`` of dx. A tap reads dy at a fixed offset from the coarse
pixel. Taps with the same offset are a tap group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, Residue
from graphdnn.engines.memoization import memoize_by_identity

_ROW_AXIS, _COLUMN_AXIS = 1, 2  # of three spatial axes; the first has extent 1


class Tap(NamedTuple):
    row: int  # offset in dy from a coarse pixel
    column: int
    residue: int
    filter_tap: int  # its index in the filter

    @property
    def offset(self) -> tuple[int, int]:
        return self.row, self.column


@dataclass(frozen=True, slots=True)
class TapGroups:
    """``taps``: in the order in which the kernel multiplies them."""

    taps: tuple[Tap, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """Row offsets of all taps."""
        return tuple(sorted({tap.row for tap in self.taps})) or (0,)

    @property
    def column(self) -> int:
        """The smallest column offset."""
        return min((tap.column for tap in self.taps), default=0)

    @property
    def reach(self) -> int:
        """The distance from the smallest column offset to the largest."""
        return max((tap.column for tap in self.taps), default=0) - self.column

    @property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        """(row, column) offsets of the tap groups."""
        return tuple(dict.fromkeys(tap.offset for tap in self.taps))

    def loads(self, is_disjoint: bool) -> tuple[tuple[int, int], ...]:
        """Offsets of the loads of dy: one for each tap group if ``is_disjoint``, otherwise one for each row offset."""
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
