"""Strided data gradients whose residues share what is copied: on the host against the general NumPy engine.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from emulator import MISSING
from exact_sums import check_sums

from graphdnn.device import device_spec
from graphdnn.engines.cuda.hopper.halo_dgrad import ENGINE

emulated = pytest.mark.skipif(bool(MISSING), reason=MISSING)

CASES = [
    ("dgrad dy=f16[3,72,7,9]nhwc w=f16[72,40,3,3]nhwc dx=[3,40,14,18] pad=1 stride=2", 132, 1),
    ("dgrad dy=f16[3,128,7,9]nhwc w=f16[128,128,3,3]nhwc dx=[3,128,13,17] pad=1 stride=2", 2, 1),
    ("dgrad dy=bf16[3,128,7,9]nhwc w=bf16[128,64,1,1]nhwc dx=[3,64,13,17] pad=0 stride=2", 2, 1),
    ("dgrad dy=f16[3,128,7,9]nhwc w=f16[128,72,3,3]nhwc dx=[3,72,13,17] pad=1 stride=2", 4, 3),
]


@emulated
@pytest.mark.parametrize(("text", "multiprocessors", "tile"), CASES, ids=[f"{i}" for i in range(len(CASES))])
def test_results(text: str, multiprocessors: int, tile: int) -> None:
    check_sums(text, ENGINE, device=replace(device_spec("h200"), sm_count=multiprocessors), TILE_SIZE=tile)
