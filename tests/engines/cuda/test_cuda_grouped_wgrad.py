"""Filter gradients of narrow groups on tensor cores of warps: on the host against the general engine, what is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_comparison import emulated, first_choice, fused
from exact_sums import check_sums, operations

from graphdnn import OperationGraph
from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.engines import Task
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.direct.grouped.grouped_wgrad import ENGINE
from graphdnn.engines.cuda.direct.grouped.grouped_wgrad_tiles import KNOBS

H200 = device_spec("h200")

PROBLEMS = [
    "wgrad x=f16[2,16,5,6]nhwc dy=f16[2,16,5,6]nhwc dw=[16,8,3,3] pad=1",
    "wgrad x=f16[2,64,6,7]nhwc dy=f16[2,64,6,7]nhwc dw=[64,16,3,3] pad=1",
    "wgrad x=bf16[2,48,6,5]nhwc dy=bf16[2,96,3,3]nhwc dw=[96,24,3,3] pad=1 stride=2 mode=conv",
    "wgrad x=f16[5,64,9,8]nhwc dy=f16[5,128,9,8]nhwc dw=[128,32,3,3] pad=2 dil=2",
    "wgrad x=f16[3,80,4,9]nhwc dy=f16[3,80,4,9]nhwc dw=[80,40,1,2] pre=0,1 post=0,0",
    "wgrad x=f16[3,112,5,5]nhwc dy=f16[3,112,2,2]nhwc dw=[112,56,3,3] stride=2",
    "wgrad x=f16[9,16,3,3]nhwc dy=f16[9,32,4,4]nhwc dw=[32,8,2,2] pad=1",  # images share a tile
    "wgrad x=f16[2,32,9,12]nhwc dy=f16[2,32,5,6]nhwc dw=[32,8,3,3] pad=1 stride=2",
    "wgrad x=f16[2,128,7,8]nhwc dy=f16[2,128,4,4]nhwc dw=[128,8,3,3] pad=1 stride=2",  # two boxes side by side
    "wgrad x=f16[2,32,9,11]nhwc dy=f16[2,32,5,4]nhwc dw=[32,16,3,3] pad=2 stride=2,3 dil=2,2 + scale",
]


A100 = device_spec("a100")  # without a copy unit


@emulated
@pytest.mark.parametrize("device", [H200, A100], ids=["boxes", "threads"])
@pytest.mark.parametrize("kernel", [1, 2])
@pytest.mark.parametrize("text", PROBLEMS)
def test_results(text: str, kernel: int, device: DeviceSpec) -> None:
    check_sums(text, ENGINE, 0, device, KERNEL_CFG=kernel)


DIVISIONS = [
    {"TILE_ROWS": 3, "TILE_COLS": 4, "NUM_C_PER_BLOCK": 1},
    {"TILE_ROWS": 3, "TILE_COLS": 9, "SPLIT_RS": 2, "SPLIT_P_SLC": 2, "STAGES": 3},
    {"TILE_ROWS": 2, "TILE_COLS": 9, "NUM_C_PER_BLOCK": 2, "STAGES": 4},
    {"TILE_ROWS": 7, "TILE_COLS": 9, "TILE_CGA": 2, "SPLIT_P_SLC": 4, "NUM_C_PER_BLOCK": 2},
]


@emulated
@pytest.mark.parametrize("kernel", [1, 2])
@pytest.mark.parametrize("knobs", DIVISIONS)
@pytest.mark.parametrize("device", [H200, A100], ids=["boxes", "threads"])
def test_blocks_that_take_several_tiles(device: DeviceSpec, kernel: int, knobs: dict[str, int]) -> None:
    """Tiles that do not divide the image, on a device of one multiprocessor."""
    small = replace(device, sm_count=1)
    check_sums(
        "wgrad x=f16[5,32,7,9]nhwc dy=f16[5,32,7,9]nhwc dw=[32,16,3,3] pad=1",
        ENGINE,
        0,
        small,
        KERNEL_CFG=kernel,
        **knobs,
    )


LAYERS = [
    "wgrad x=f16[64,512,14,14]nhwc dy=f16[64,512,14,14]nhwc dw=[512,16,3,3] pad=1",
    "wgrad x=f16[64,256,56,56]nhwc dy=f16[64,256,28,28]nhwc dw=[256,8,3,3] pad=1 stride=2",
    "wgrad x=f16[64,120,28,28]nhwc dy=f16[64,120,28,28]nhwc dw=[120,24,3,3] pad=1",
]


@pytest.mark.parametrize("text", LAYERS)
def test_what_is_chosen(text: str) -> None:
    """ResNeXt's and RegNet's layers; nothing is spilled."""
    first_choice(OperationGraph.of(operations(text)), "cuda_grouped_wgrad", H200)


def test_another_batch_shares_the_text() -> None:
    def text(batch: int) -> str:
        problem = f"wgrad x=f16[{batch},512,14,14]nhwc dy=f16[{batch},512,14,14]nhwc dw=[512,16,3,3] pad=1"
        asked = {knob.type: 2 for knob in KNOBS if knob.type.name in ("STAGES", "SPLIT_RS")}
        kernel = ENGINE.compile(Task(fused(operations(problem)), H200), ENGINE.settings(asked))
        assert isinstance(kernel, DeviceKernel)
        return kernel.source

    assert text(64) == text(61)
