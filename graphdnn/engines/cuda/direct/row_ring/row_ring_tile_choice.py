"""The choice of a direct convolution's tile: the candidate with the least time by the model.

A measured tile takes precedence. The time of the chosen tile is the engine's cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import isfinite

from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED, class_of
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile import MOST_REGISTERS, STAGES, Choice, Wishes, registers
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_measured import measured
from graphdnn.engines.cuda.direct.row_ring.row_ring_tile_model import DeviceOf, predict

MAX_COLUMNS = 16  # the most columns of a thread


@lru_cache(maxsize=256)
def choose(shape: Shape, device: DeviceOf, wishes: Wishes) -> Choice:
    """The tile with the least predicted time; knob values that no tile can meet are dropped.

    Without knob values, a tile that was measured as the best one for this filter is taken if it fits.
    """
    if shape.group_out == shape.group_in == 1 and not wishes.asks:
        known = measured(shape, wishes)
        if known is not None:
            tile, share = known
            found = choose(shape, device, tile if wishes.stages == STAGES else replace(tile, stages=wishes.stages))
            if isfinite(found.seconds):
                return replace(found, seconds=share * found.seconds)
    best: Choice | None = None
    for v, tw, lanes, tiles in dict.fromkeys(_candidates(shape, wishes)):
        choice = predict(shape, device, wishes, v, tw, lanes, tiles)
        if best is None or choice.seconds < best.seconds:
            best = choice
    assert best is not None
    if shape.group_in == shape.group_out:
        best = replace(best, seconds=best.seconds * MEASURED.ring_shares.get(class_of(shape), 1.0))
    free = replace(wishes, v=0, tw=0, lanes=0, threads=0, stages=2)
    return best if isfinite(best.seconds) or wishes == free else choose(shape, device, free)


def _lanes(shape: Shape, v: int) -> list[int]:
    """Threads along the channels, for whole groups: all channels if they are few, else about 32."""
    unit = max(1, shape.group_out // v)
    total = -(-shape.channels_out // v // unit) * unit
    if total <= 32:
        return [total]
    found = {max(unit, 32 // unit * unit), max(unit, 64 // unit * unit)} | ({unit, 2 * unit} if unit > 2 else set())
    divisors = [lanes for lanes in range(unit, 97, unit) if total % lanes == 0 and lanes >= 16]
    if divisors:
        found |= {divisors[0], divisors[-1], min(divisors, key=lambda lanes: abs(lanes - 36))}
    return sorted(found)


def _candidates(shape: Shape, wishes: Wishes) -> Iterator[tuple[int, int, int, int]]:
    """Candidates as tuples (v, tw, lanes, tiles)."""
    group, step = shape.group_out, shape.problem.stride[1] if shape.is_dgrad else 1
    legal = [v for v in (1, 2, 4, 8) if v % group == 0 or group % v == 0]
    fitting = [v for v in legal if shape.channels_out % v == 0] or legal[:1]
    chosen = [wishes.v] if wishes.v in fitting else [v for v in fitting if v <= 4] or fitting[:1]
    for v in chosen:
        widths = [wishes.tw] if wishes.tw else [1, 2, 4, 6, 7, 8, 14]
        for tw in sorted({-(-min(w, MAX_COLUMNS) // step) * step for w in widths}):
            too_wide = -(-shape.columns // tw) * tw > max(1.3 * shape.columns, shape.columns + step)
            if not wishes.tw and (too_wide or registers(shape, v, tw) > MOST_REGISTERS) and tw > step:
                continue
            count = -(-shape.columns // tw)
            unit = max(1, group // v)
            for lanes in [max(unit, wishes.lanes // unit * unit)] if wishes.lanes else _lanes(shape, v):
                for threads in [wishes.threads] if wishes.threads else [128, 256, 384]:
                    most = max(1, threads // lanes)
                    yield v, tw, lanes, -(-count // -(-count // most))
