"""Data gradients of fp32 whose filters come through registers: on the host against the general NumPy engine, and compiled.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_comparison import compiler, compiles_cleanly, device_kernel, emulated
from exact_sums import check_sums, operations

from graphdnn.device.profiles import device_spec
from graphdnn.engines.cuda.sm90.gemm.dgrad_tf32_tiles import TILES
from graphdnn.engines.cuda.sm90.gemm.hopper_dgrad_tf32 import ENGINE
from graphdnn.enums import KnobType

NUMBER = {tile.name: i for i, tile in enumerate(TILES, 1)}

CASES = [
    ("dgrad dy=f32[2,64,9,11]nhwc w=f32[64,64,3,3]nhwc dx=[2,64,9,11] pad=1", "128x96", 132),
    ("dgrad dy=f32[1,72,9,9]nhwc w=f32[72,40,3,3]nhwc dx=[1,40,9,9] pad=1", "64x2x64", 1),
    ("dgrad dy=f32[3,36,9,9]nhwc w=f32[36,137,1,1]nhwc dx=[3,137,9,9] + relu", "128x192", 1),
    ("dgrad dy=f32[2,40,9,9]nhwc w=f32[40,200,2,3]nhwc dx=[2,200,10,11]", "192x160", 2),
    ("dgrad dy=f32[2,33,9]nhwc w=f32[33,66,3]nhwc dx=[2,66,11] spatial=1 out=f16", "", 132),  # rows that are filled up
]


@emulated
@pytest.mark.parametrize(("text", "tile", "multiprocessors"), CASES, ids=[tile for _, tile, _ in CASES])
def test_results(text: str, tile: str, multiprocessors: int) -> None:
    """On all multiprocessors, or with more tiles than one for each."""
    knobs = {"TILE_SIZE": NUMBER[tile]} if tile else {}
    check_sums(text, ENGINE, device=replace(device_spec("h200"), sm_count=multiprocessors), **knobs)


def test_filters_stay_where_they_are() -> None:
    text = "dgrad dy=f32[8,64,16,16]nhwc w=f32[64,64,3,3]nhwc dx=[8,64,16,16] pad=1"
    (step,) = device_kernel(operations(text), ENGINE).steps
    assert "__tf32_rs_" in step.text.name


GRADIENT = "dgrad dy=f32[64,128,28,28]nhwc w=f32[128,128,3,3]nhwc dx=[64,128,28,28] pad=1"


@compiler
@pytest.mark.parametrize("tile", ["128x256", "64x2x64", "192x160"])
def test_compiles_cleanly(tile: str) -> None:
    compiles_cleanly(operations(GRADIENT), ENGINE, "sm_90a", {KnobType.TILE_SIZE: NUMBER[tile]})
