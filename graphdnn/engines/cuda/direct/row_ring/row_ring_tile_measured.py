"""The measured tile of a depthwise convolution, in the form of knob values."""

from __future__ import annotations

from dataclasses import replace

from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED, RingTile
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import Wishes


def measured(shape: Shape, wishes: Wishes) -> tuple[Wishes, float] | None:
    """The tile that was measured as the best one for such a filter, if it divides the channels; and its time over the
    model's.
    """
    p = shape.problem
    for row in MEASURED.small_ring:
        is_it = shape.direction in row.directions and row.filter == p.filter and set(p.stride) == {1}
        if is_it and row.columns // 2 < shape.columns <= row.columns:
            v, most = row.tile.v, row.tile.lanes
            lanes = next(n for n in range(most, 0, -1) if shape.channels_out // v % n == 0)
            if shape.channels_out % v == 0 and 2 * lanes >= most:
                return _as_wishes(replace(row.tile, lanes=lanes), wishes), row.tile.share
    known = MEASURED.ring.get((shape.direction, p.filter, p.stride))
    if known is None:
        return None
    if shape.channels_out % (known.v * (known.lanes or 1)):
        return None
    if shape.rows < 2 * known.rows or shape.columns < 2 * known.tw:
        return None
    return _as_wishes(known, wishes), known.share


def _as_wishes(tile: RingTile, wishes: Wishes) -> Wishes:
    return replace(
        wishes, v=tile.v, tw=tile.tw, lanes=tile.lanes, threads=tile.threads, rows=tile.rows,
        stages=tile.stages or wishes.stages,
    )  # fmt: skip
