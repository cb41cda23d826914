"""Depthwise convolutions of any filter, dilation, number of axes and layout: on the host against the general NumPy engine.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

import pytest
from cuda_comparison import emulated
from exact_sums import check_sums, operations

from graphdnn import OperationGraph, fuse
from graphdnn.device.profiles import device_spec
from graphdnn.engines.cuda.direct.depthwise.depthwise import ENGINE
from graphdnn.engines.cuda.direct.depthwise.depthwise_wgrad import ENGINE as WGRAD
from graphdnn.heuristics import Ranking

H200 = device_spec("h200")

PROBLEMS = [
    "conv x=f16[2,12,9,16] w=f16[12,1,3,3] pad=1 + bias + residual + relu",
    "conv x=f16[2,24,9,11]nhwc w=f16[24,1,3,3] pad=2 dil=2 + bias + relu",
    "conv x=f16[1,40,37]nhwc w=f16[40,1,31] pad=15 + bias",
    "conv x=f16[1,64,20,21]nhwc w=f16[64,1,31,31] pad=15 mode=conv",
    "conv x=f16[1,70,28,28] w=f16[70,1,7,7] pad=3",
    "conv x=f32[1,6,5,8,9] w=f32[6,1,3,3,3] pad=1",
    "dgrad dy=f16[2,12,5,8]nhwc w=f16[12,1,5,5] dx=[2,12,9,16] pad=2 stride=2",
    "dgrad dy=f32[1,4,20,20] w=f32[4,1,9,9] dx=[1,4,70,70] pre=5,7 post=9,7 stride=3 dil=3 mode=conv",
]
MORE = [
    "conv x=f16[2,12,9,12] w=f16[12,1,5,5] pad=2 stride=2 + bias",
    "conv x=f16[1,6,40] w=f16[6,1,31] pad=15",
    "conv x=f16[1,8,20,21]nhwc w=f16[8,1,13,13] pad=6 mode=conv",
    "conv x=i8[1,8,5,8,9]nhwc w=i8[8,1,3,3,3] pad=1 compute=i32 out=i32",
    "conv x=f16[1,4,7,7] w=f16[4,1,3,3] pad=1",
    "conv x=f16[1,4,70] w=f16[4,1,9] pad=5 stride=3 dil=4",
    "conv x=f16[1,4,72] w=f16[4,1,3] pad=16 dil=16",
    "conv x=f16[1,3,60,64] w=f16[3,1,7,7] pad=9 dil=3",
    "conv x=f16[1,3,12,16] w=f16[3,1,110,110] pad=60",
    "dgrad dy=f16[2,12,9,16] w=f16[12,1,3,3] dx=[2,12,9,16] pad=1",
    "dgrad dy=f16[2,12,5,8] w=f16[12,1,3,3] dx=[2,12,9,16] pad=1 stride=2",
    "dgrad dy=f16[2,12,9,11]nhwc w=f16[12,1,3,3] dx=[2,12,9,11] pad=2 dil=2",
    "dgrad dy=f16[1,4,19] w=f16[4,1,31] dx=[1,4,58] pad=5 stride=2",
    "dgrad dy=f16[1,4,17] w=f16[4,1,9] dx=[1,4,63] pad=5 stride=3 dil=3 mode=conv",
    "dgrad dy=bf16[2,12,5,8]nhwc w=bf16[12,1,9,9] dx=[2,12,17,29] pad=4 stride=4",
]
FILTER = [
    "wgrad x=f16[2,12,9,16] dy=f16[2,12,9,16] dw=[12,1,3,3] pad=1",
    "wgrad x=f16[2,24,9,11]nhwc dy=f16[2,24,9,11]nhwc dw=[24,1,3,3] pad=2 dil=2 mode=conv",
    "wgrad x=f16[1,40,37]nhwc dy=f16[1,40,37]nhwc dw=[40,1,31] pad=15",
    "wgrad x=f32[1,6,5,8,9] dy=f32[1,6,5,8,9] dw=[6,1,3,3,3] pad=1 + residual + relu",
    "wgrad x=bf16[3,5,14,28] dy=bf16[3,5,7,14] dw=[5,1,5,5] pad=2 stride=2",
]
MORE_FILTER = [
    "wgrad x=f16[2,40,9,11]nhwc dy=f16[2,40,5,6]nhwc dw=[40,1,3,3] pad=1 stride=2",
    "wgrad x=f16[2,12,9,11] dy=f16[2,12,9,11] dw=[12,1,5,5] pad=2 out=f32",
    "wgrad x=f16[1,6,40] dy=f16[1,6,40] dw=[6,1,31] pad=15",
    "wgrad x=f16[1,8,20,21]nhwc dy=f16[1,8,20,21]nhwc dw=[8,1,13,13] pad=6 mode=conv",
    "wgrad x=i8[1,24,7,5]nhwc dy=i8[1,24,7,5]nhwc dw=[24,1,3,3] pad=1 compute=i32 out=i32",
    "wgrad x=f16[40,3,30,30] dy=f16[40,3,30,30] dw=[3,1,3,3] pad=1",
]


@emulated
@pytest.mark.parametrize("text", [*PROBLEMS, *(pytest.param(text, marks=pytest.mark.long) for text in MORE)])
def test_results(text: str) -> None:
    check_sums(text, ENGINE, 0, H200)


@emulated
@pytest.mark.parametrize("text", [*FILTER, *(pytest.param(text, marks=pytest.mark.long) for text in MORE_FILTER)])
def test_filter_gradients(text: str) -> None:
    check_sums(text, WGRAD, 0, H200)


@emulated
@pytest.mark.long
@pytest.mark.parametrize("columns", [1, 2, 4, 7, 8, 14, 16])
def test_any_tile(columns: int) -> None:
    for layout in ("", "nhwc"):
        check_sums(f"conv x=f16[2,24,13,32]{layout} w=f16[24,1,5,5] pad=2 stride=2", ENGINE, 0, H200, TILE_COLS=columns)
        text = f"wgrad x=f16[2,24,13,32]{layout} dy=f16[2,24,13,32]{layout} dw=[24,1,5,5] pad=2"
        check_sums(text, WGRAD, 0, H200, TILE_COLS=columns)


def _best(text: str) -> str:
    return Ranking(fuse(OperationGraph.of(operations(text))), H200).best.name


def test_what_is_chosen() -> None:
    """Depthwise layers whose columns are neighbours, and those that are strided and dilated; others have engines of their own."""
    assert _best("conv x=f16[64,128,56,56] w=f16[128,1,3,3] pad=1 + bias + relu") == "cuda_depthwise"
    assert _best("conv x=f16[64,144,56,56]nhwc w=f16[144,1,3,3] pad=2 stride=2 dil=2 + bias + relu") == "cuda_depthwise"
    assert _best("dgrad dy=f16[32,96,56,56] w=f16[96,1,3,3] dx=[32,96,112,112] pad=1 stride=2") == "cuda_depthwise"
    assert _best("wgrad x=f16[64,128,56,56] dy=f16[64,128,56,56] dw=[128,1,3,3] pad=1") == "cuda_depthwise_wgrad"
    assert _best("conv x=f16[64,144,56,56]nhwc w=f16[144,1,3,3] pad=1 + bias + relu") == "cuda_direct"
    assert _best("conv x=f16[64,144,56,56]nhwc w=f16[144,1,3,3] pad=2 dil=2 + bias + relu") == "cuda_direct"
    assert _best("wgrad x=f16[64,144,56,56]nhwc dy=f16[64,144,56,56]nhwc dw=[144,1,3,3] pad=1") == "cuda_direct_wgrad"
