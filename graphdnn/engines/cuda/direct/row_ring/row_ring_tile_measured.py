"""Tiles that were measured to be the fastest, for depthwise filters of common networks."""

from __future__ import annotations

from dataclasses import replace

from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import Wishes

# (direction, filter, stride) -> v, columns of a thread, lanes, threads, rows of a block, steps in the ring (or 0):
# depthwise tiles that were the fastest of those tried on an H200 (64 images of 56 x 56, 144 and 192 channels, fp16).
MEASURED: dict[tuple[str, tuple[int, ...], tuple[int, ...]], tuple[int, int, int, int, int, int]] = {
    ("fprop", (3, 3), (1, 1)): (4, 8, 36, 0, 0, 0),
    ("fprop", (3, 3), (2, 2)): (4, 2, 36, 256, 14, 3),
    ("fprop", (5, 5), (1, 1)): (4, 4, 18, 128, 0, 5),
    ("fprop", (7, 7), (1, 1)): (1, 14, 32, 128, 28, 0),
    ("dgrad", (3, 3), (1, 1)): (4, 8, 36, 0, 0, 0),
    ("dgrad", (5, 5), (1, 1)): (4, 4, 18, 128, 0, 6),
    ("dgrad", (7, 7), (1, 1)): (2, 7, 16, 128, 28, 0),
    ("wgrad", (3, 3), (1, 1)): (2, 4, 72, 512, 0, 0),
    ("wgrad", (3, 3), (2, 2)): (4, 2, 36, 0, 0, 0),
    ("wgrad", (7, 7), (1, 1)): (1, 14, 0, 0, 0, 0),
}


# Of the model's time that such a tile takes, where that was measured.
_SHARES: dict[tuple[str, tuple[int, ...]], float] = {("fprop", (5, 5)): 0.71, ("dgrad", (5, 5)): 0.71}

# (filter gradient or not, filter, columns) -> v, columns of a thread, lanes at most, steps in the ring, and the share
# of the model's time that it takes: small images (32, of 240 to 672 channels, fp16), for down to half the columns.
SMALL: dict[tuple[bool, tuple[int, ...], int], tuple[int, int, int, int, float]] = {
    (False, (5, 5), 28): (2, 7, 60, 6, 0.7),
    (False, (5, 5), 14): (2, 4, 42, 6, 0.7),
    (False, (7, 7), 14): (2, 2, 48, 4, 0.5),
    (True, (7, 7), 14): (1, 7, 32, 4, 0.95),
}
_SMALL_THREADS, _SMALL_ROWS = 256, 14


def measured(shape: Shape, wishes: Wishes) -> tuple[Wishes, float] | None:
    """What was measured to be the best for such a filter, where it divides the channels; its share of the time."""
    p = shape.problem
    for (is_wgrad, taps, columns), (v, tw, most, stages, share) in SMALL.items():
        is_it = is_wgrad == shape.is_wgrad and taps == p.filter and set(p.stride) == {1}
        if is_it and columns // 2 < shape.columns <= columns:
            lanes = next(n for n in range(most, 0, -1) if shape.channels_out // v % n == 0)
            if shape.channels_out % v == 0 and 2 * lanes >= most:
                tile = replace(wishes, v=v, tw=tw, lanes=lanes, threads=_SMALL_THREADS, rows=_SMALL_ROWS, stages=stages)
                return tile, share
    known = MEASURED.get((shape.direction, p.filter, p.stride))
    if known is None:
        return None
    v, tw, lanes, threads, rows, stages = known
    if shape.channels_out % (v * (lanes or 1)) or shape.rows < 2 * rows or shape.columns < 2 * tw:
        return None
    tile = replace(wishes, v=v, tw=tw, lanes=lanes, threads=threads, rows=rows, stages=stages or wishes.stages)
    return tile, _SHARES.get((shape.direction, p.filter), 1.0)
