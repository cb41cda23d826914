"""The measured tile of a depthwise convolution, as requested extents."""

from __future__ import annotations

from dataclasses import replace

from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED, RingTile
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import TileRequest


def measured(shape: Shape, request: TileRequest) -> tuple[TileRequest, float] | None:
    """The fastest measured tile of a filter and its measured time over the model's, or None if no measured tile divides
    the channels.
    """
    p = shape.problem
    for row in MEASURED.small_ring:
        matches = shape.direction in row.directions and row.filter == p.filter and set(p.stride) == {1}
        if matches and row.columns // 2 < shape.columns <= row.columns:
            v, most = row.tile.v, row.tile.channel_threads
            channel_threads = next(n for n in range(most, 0, -1) if shape.channels_out // v % n == 0)
            if shape.channels_out % v == 0 and 2 * channel_threads >= most:
                return _as_request(replace(row.tile, channel_threads=channel_threads), request), row.tile.time_ratio
    known = MEASURED.ring.get((shape.direction, p.filter, p.stride))
    if known is None:
        return None
    if shape.channels_out % (known.v * (known.channel_threads or 1)):
        return None
    if shape.rows < 2 * known.rows or shape.columns < 2 * known.tw:
        return None
    return _as_request(known, request), known.time_ratio


def _as_request(tile: RingTile, request: TileRequest) -> TileRequest:
    return replace(
        request, v=tile.v, tw=tile.tw, channel_threads=tile.channel_threads, threads=tile.threads, rows=tile.rows,
        stages=tile.stages or request.stages,
    )  # fmt: skip
