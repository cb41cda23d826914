"""The choice of a tile of the row ring: the candidate with the least predicted time.

A measured tile takes precedence. The predicted time of the chosen tile is the cost of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import isfinite

from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED, class_of
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import MAX_REGISTERS, STAGES, Choice, TileRequest, registers
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_measured import measured
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import DeviceLimits, predict

MAX_COLUMNS = 16  # the most columns of a thread


@lru_cache(maxsize=256)
def choose(shape: Shape, device: DeviceLimits, request: TileRequest) -> Choice:
    """The tile with the least predicted time. Requested extents that no tile can have are ignored.

    Without requested extents, the fastest measured tile of this filter is chosen if it fits.
    """
    if shape.group_out == shape.group_in == 1 and not request.sets_tile:
        known = measured(shape, request)
        if known is not None:
            tile, time_ratio = known
            found = choose(shape, device, tile if request.stages == STAGES else replace(tile, stages=request.stages))
            if isfinite(found.seconds):
                return replace(found, seconds=time_ratio * found.seconds)
    best: Choice | None = None
    for v, tw, channel_threads, tiles in dict.fromkeys(_candidates(shape, request)):
        choice = predict(shape, device, request, v, tw, channel_threads, tiles)
        if best is None or choice.seconds < best.seconds:
            best = choice
    assert best is not None
    if shape.group_in == shape.group_out:
        best = replace(best, seconds=best.seconds * MEASURED.ring_time_ratios.get(class_of(shape), 1.0))
    unset = replace(request, v=0, tw=0, channel_threads=0, threads=0, stages=2)
    return best if isfinite(best.seconds) or request == unset else choose(shape, device, unset)


def _channel_threads(shape: Shape, v: int) -> list[int]:
    """Candidates for the threads along the channels, which own whole groups: all channels up to 32 threads, else about
    32 threads or a divisor of all channels.
    """
    unit = max(1, shape.group_out // v)
    total = -(-shape.channels_out // v // unit) * unit
    if total <= 32:
        return [total]
    found = {max(unit, 32 // unit * unit), max(unit, 64 // unit * unit)} | ({unit, 2 * unit} if unit > 2 else set())
    divisors = [n for n in range(unit, 97, unit) if total % n == 0 and n >= 16]
    if divisors:
        found |= {divisors[0], divisors[-1], min(divisors, key=lambda n: abs(n - 36))}
    return sorted(found)


def _candidates(shape: Shape, request: TileRequest) -> Iterator[tuple[int, int, int, int]]:
    """Candidates as tuples (v, tw, channel_threads, tiles)."""
    group, step = shape.group_out, shape.problem.stride[1] if shape.is_dgrad else 1
    legal = [v for v in (1, 2, 4, 8) if v % group == 0 or group % v == 0]
    fitting = [v for v in legal if shape.channels_out % v == 0] or legal[:1]
    chosen = [request.v] if request.v in fitting else [v for v in fitting if v <= 4] or fitting[:1]
    for v in chosen:
        widths = [request.tw] if request.tw else [1, 2, 4, 6, 7, 8, 14]
        for tw in sorted({-(-min(w, MAX_COLUMNS) // step) * step for w in widths}):
            too_wide = -(-shape.columns // tw) * tw > max(1.3 * shape.columns, shape.columns + step)
            if not request.tw and (too_wide or registers(shape, v, tw) > MAX_REGISTERS) and tw > step:
                continue
            count = -(-shape.columns // tw)
            unit, requested = max(1, group // v), request.channel_threads
            for channel_threads in [max(unit, requested // unit * unit)] if requested else _channel_threads(shape, v):
                for threads in [request.threads] if request.threads else [128, 256, 384]:
                    most = max(1, threads // channel_threads)
                    yield v, tw, channel_threads, -(-count // -(-count // most))
