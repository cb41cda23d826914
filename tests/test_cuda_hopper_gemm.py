"""The products of compute capability 9.0 run on the host against the general NumPy engine, and compiled.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_comparison import fused, run_both
from emulator import MISSING
from test_cuda_implicit_gemm import operations, quarters

from graphdnn.engines.cuda.hopper_gemm import ENGINE
from graphdnn.engines.cuda.hopper_tiles import TILES
from graphdnn.enums import KnobType

emulated = pytest.mark.skipif(bool(MISSING), reason=MISSING)

_NUMBER = {tile.name: i for i, tile in enumerate(TILES, 1)}
SMALL = _NUMBER["64x64"]


def check(text: str, seed: int = 0, tile: int = SMALL, **knobs: Any) -> None:
    ops, rng = operations(text), np.random.default_rng(seed)
    op = fused(ops)
    values = {t.uid: quarters(t, rng) for t in (*op.inputs, *op.outputs) if not t.is_constant}
    chosen = {KnobType.TILE_SIZE: tile} | {KnobType[k]: v for k, v in knobs.items()}
    got, expected = run_both(ops, ENGINE, values, chosen)
    for uid, array in expected.items():
        np.testing.assert_array_equal(got[uid], array)


FORWARD = [
    "conv x=f16[2,64,9,11]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu",
]


@emulated
@pytest.mark.parametrize("text", FORWARD)
def test_results(text: str) -> None:
    check(text)
