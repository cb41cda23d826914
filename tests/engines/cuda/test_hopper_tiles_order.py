"""Choices of tiles on compute capability 9.0 do not depend on what was chosen before."""

from __future__ import annotations

import random

from graphdnn.device.profiles import device_spec
from graphdnn.engines.cuda.sm90 import tile_choice
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.tile_choice import SPLIT_K_REDUCTION, SPLITS, STAGES, TILE, Choice, choose
from graphdnn.enums import KnobType

H200 = device_spec("h200")


def drawn_sizes(rng: random.Random) -> GemmShape:
    """Products of one kind or another, from a few tiles to thousands."""
    is_mn_major, count = rng.random() < 0.3, rng.choice((1, 1, 1, 4))
    depths = (1, 4, 9, 36, 300, 5000) if count == 1 else (0, 1, 4, 9)
    rows = [rng.choice((7, 49, 784, 3136)) * rng.choice((1, 3, 24, 100)) for _ in range(count)]
    return GemmShape(
        gemms=tuple((n, rng.choice(depths)) for n in rows),
        columns=rng.choice((16, 64, 72, 128, 576, 2304)),
        groups=rng.choice((1, 1, 32)),
        column_multiple=rng.choice((1, 64)),
        result_bytes=rng.choice((1, 2, 4)),
        is_mn_major=is_mn_major and count == 1,
        may_swap_ab=not is_mn_major and count == 1 and rng.random() < 0.5,
        bytes_read=rng.choice((0, 10**6, 10**8)),
        bytes_moved=rng.choice((0, 10**6, 10**8)),
    )


def test_what_was_chosen_before_decides_nothing() -> None:
    """The tile that was the fastest of the last products is tried first, and is chosen only where it is the fastest."""
    rng = random.Random(0)
    kinds = [drawn_sizes(rng) for _ in range(40)]
    every = [
        (kind._replace(gemms=tuple((rows * n, depth) for rows, depth in kind.gemms)), {SPLIT_K_REDUCTION.type: joining})
        for kind in kinds
        for n in (1, 2, 7, 64)
        for joining in range(3)
    ]

    def chosen(sizes: GemmShape, knobs: dict[KnobType, int]) -> Choice:
        tile_choice._fastest.cache_clear()
        return choose(sizes, H200, {TILE.type: 0, STAGES.type: 0, SPLITS.type: 0, **knobs})

    again = [chosen(*one) for one in reversed(every)][::-1]
    for one, found in zip(every, again, strict=True):
        tile_choice._table.cache_clear()
        assert chosen(*one) == found
