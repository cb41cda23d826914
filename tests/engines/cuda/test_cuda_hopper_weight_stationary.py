"""Forward convolutions whose filters stay in shared memory: on the host against the general NumPy engine, and compiled.

Operands are small multiples of a quarter, or any bytes: every sum is exact in any order, so results are equal to the bit.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_comparison import compiler, compiles_cleanly, device_kernel, emulated
from exact_sums import check_sums, operations

from graphdnn.device.profiles import device_spec
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.sm90.weight_stationary.hopper_weight_stationary import ENGINE
from graphdnn.engines.cuda.sm90.weight_stationary.weight_stationary_tiles import TILES
from graphdnn.enums import KnobType

NUMBER = {tile.name: i for i, tile in enumerate(TILES, 1)}
_SCALED = "compute=i32 out=i8 + scale + bias + relu"

# Multiprocessors: few, so that rings go round, or more than there are pieces, so that some have none.
CASES = [
    (f"conv x=i8[3,128,9,11]nhwc w=i8[160,128,3,3]nhwc pad=1 {_SCALED}", "2x128", 3),
    (f"conv x=i8[3,64,14,15]nhwc w=i8[72,64,3,3]nhwc pad=1 stride=2 {_SCALED}", "2x64", 2),
    ("conv x=u8[2,160,9,10]nhwc w=i8[96,160,2,3]nhwc pre=0,1 post=1,1 stride=2 compute=i32 out=f32 + bias", "3x64", 2),
    ("conv x=f16[2,72,9,10]nhwc w=f16[136,72,1,1]nhwc stride=2 + bias + residual + relu", "3x128", 132),
    ("conv x=bf16[2,64,7]nhwc w=bf16[256,64,3]nhwc pad=2 dil=2 mode=conv spatial=1 + bias", "2x256", 1),
    ("conv x=f16[2,64,9,10]nhwc w=f16[112,64,3,3]nhwc pad=1 + bias", "3x64", 2),
]


@emulated
@pytest.mark.parametrize(("text", "tile", "multiprocessors"), CASES, ids=[f"{i}" for i in range(len(CASES))])
def test_results(text: str, tile: str, multiprocessors: int) -> None:
    number = NUMBER[tile]
    step = device_kernel(operations(text), ENGINE, {KnobType.TILE_SIZE: number}).steps[-1]
    assert isinstance(step, Launch)
    assert f"__weight_stationary_{tile}x" in step.text.name, "the tile that was asked for"
    check_sums(text, ENGINE, device=replace(device_spec("h200"), sm_count=multiprocessors), TILE_SIZE=number)


@compiler
@pytest.mark.parametrize("tile", ["2x128", "3x128"])
def test_compiles_cleanly(tile: str) -> None:
    text = f"conv x=i8[64,128,56,56]nhwc w=i8[128,128,3,3]nhwc pad=1 stride=2 {_SCALED}"
    compiles_cleanly(operations(text), ENGINE, "sm_90a", {KnobType.TILE_SIZE: NUMBER[tile]})
