"""Groups of 8 to 64 channels on tensor cores of warps: on the host against the general engine, and what is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_comparison import emulated, first_choice, fused
from exact_sums import check_sums, operations

from graphdnn import OperationGraph
from graphdnn.device.profiles import device_spec
from graphdnn.engines import Task
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.direct.grouped.grouped import ENGINE
from graphdnn.engines.cuda.direct.grouped.grouped_tiles import KNOBS

H200 = device_spec("h200")

PROBLEMS = [
    "conv x=f16[1,16,5,6]nhwc w=f16[16,8,3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[2,64,6,7]nhwc w=f16[64,16,3,3] pad=1 + bias + residual + relu",  # filters are copied
    "conv x=bf16[2,48,6,5]nhwc w=bf16[96,24,3,3]nhwc pad=1 stride=2 mode=conv + bias",
    "conv x=f16[1,64,9,8]nhwc w=f16[128,32,3,3]nhwc pad=2 dil=2",
    "conv x=f16[3,80,4,9]nhwc w=f16[80,40,1,2]nhwc pre=0,1 post=0,0 + bias",
    "conv x=f16[1,112,9,9]nhwc w=f16[112,56,3,3]nhwc stride=2",
    "conv x=f16[5,16,3,3]nhwc w=f16[32,8,2,2]nhwc pad=1 + residual",  # images share a tile, the last one is not full
    "dgrad dy=f16[2,64,5,4]nhwc w=f16[64,16,3,3] dx=[2,64,5,4] pad=1",
    "dgrad dy=f16[2,48,5,4]nhwc w=f16[48,8,3,3]nhwc dx=[2,16,5,4] pad=1",
    "dgrad dy=bf16[1,32,4,7]nhwc w=bf16[32,8,2,3]nhwc dx=[1,16,5,7] pad=0,1 mode=conv + residual",
    "conv x=f16[2,32,9,11]nhwc w=f16[32,16,3,3]nhwc pad=2 stride=2,3 dil=2,2 + bias",
]


@emulated
@pytest.mark.parametrize("text", PROBLEMS)
def test_results(text: str) -> None:
    check_sums(text, ENGINE, 0, H200)


@emulated
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_blocks_that_take_several_tiles(rows: int, stages: int) -> None:
    """Tiles that do not divide the image, on a device of one multiprocessor."""
    small = replace(H200, sm_count=1)
    knobs = {"TILE_ROWS": 3, "TILE_COLS": 4, "TILE_M": rows, "STAGES": stages, "NUM_C_PER_BLOCK": 1}
    check_sums("conv x=f16[4,32,7,9]nhwc w=f16[32,16,3,3]nhwc pad=1 + bias + relu", ENGINE, 0, small, **knobs)
    check_sums("dgrad dy=f16[3,16,7,9]nhwc w=f16[16,8,3,3]nhwc dx=[3,16,7,9] pad=1", ENGINE, 1, small, **knobs)


LAYERS = [
    "conv x=f16[64,256,28,28]nhwc w=f16[256,8,3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[64,512,14,14]nhwc w=f16[512,16,3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[64,1024,7,7]nhwc w=f16[1024,32,3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[64,120,28,28]nhwc w=f16[120,24,3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[64,432,14,14]nhwc w=f16[432,48,3,3]nhwc pad=1 + bias + relu",
    "dgrad dy=f16[64,1024,7,7]nhwc w=f16[1024,32,3,3]nhwc dx=[64,1024,7,7] pad=1",
    "dgrad dy=f16[64,256,28,28]nhwc w=f16[256,8,3,3]nhwc dx=[64,256,28,28] pad=1",
    "conv x=f16[64,128,29,31]nhwc w=f16[128,16,3,3]nhwc pad=2 stride=2,3 dil=2,2 + bias",
]


@pytest.mark.parametrize("text", LAYERS)
def test_what_is_chosen(text: str) -> None:
    """ResNeXt's and RegNet's layers; nothing is spilled."""
    first_choice(OperationGraph.of(operations(text)), "cuda_grouped", H200)


def test_another_batch_shares_the_text() -> None:
    def text(batch: int) -> str:
        problem = f"conv x=f16[{batch},512,14,14]nhwc w=f16[512,16,3,3]nhwc pad=1 + bias + relu"
        asked = {knob.type: 1 for knob in KNOBS if knob.type.name in ("STAGES", "TILE_M")}
        kernel = ENGINE.compile(Task(fused(operations(problem)), H200), ENGINE.settings(asked))
        assert isinstance(kernel, DeviceKernel)
        return kernel.source

    assert text(64) == text(61)
