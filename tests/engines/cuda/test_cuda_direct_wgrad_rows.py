"""Depthwise filter gradients by threads without shared memory, run on the host against the general NumPy engine.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiled, compiler, compiles_cleanly, device_kernel, emulated, fused
from disassembly import NO_DISASSEMBLER, loads_before_the_wait
from exact_sums import check_values, operations, quarters
from test_cuda_direct import check

from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.direct.direct_wgrad import ENGINE
from graphdnn.enums import KnobType

ROWS = {"KERNEL_CFG": 3}


def kernel(text: str, **knobs: int) -> DeviceKernel:
    return device_kernel(operations(text), ENGINE, {KnobType[name]: value for name, value in knobs.items()})


PROBLEMS = [
    "wgrad x=f16[2,48,9,11]nhwc dy=f16[2,48,9,11]nhwc dw=[48,1,3,3] pad=1",
    "wgrad x=f16[9,40,7,7]nhwc dy=f16[9,40,7,7]nhwc dw=[40,1,3,3] pad=1",
    "wgrad x=f16[1,64,12,10]nhwc dy=f16[1,64,12,10]nhwc dw=[64,1,5,5] pad=2",
    "wgrad x=bf16[2,32,14,15]nhwc dy=bf16[2,32,14,15]nhwc dw=[32,1,3,3] pad=1 out=f32 + residual + relu",
    "wgrad x=f32[1,20,7,5]nhwc dy=f32[1,20,7,5]nhwc dw=[20,1,3,3] pad=1 mode=conv",
    "wgrad x=i8[1,24,7,5]nhwc dy=i8[1,24,7,5]nhwc dw=[24,1,3,3] pad=1 compute=i32 out=i32",
    "wgrad x=f16[1,16,9,12]nhwc dy=f16[1,16,10,10]nhwc dw=[16,1,3,3] pre=0,0 post=3,0",
    "wgrad x=f16[1,16,2,2]nhwc dy=f16[1,16,6,6]nhwc dw=[16,1,3,3] pad=3",
]
WHOLE = [
    "wgrad x=f16[64,144,56,56]nhwc dy=f16[64,144,56,56]nhwc dw=[144,1,3,3] pad=1",
    "wgrad x=f16[32,1152,7,7]nhwc dy=f16[32,1152,7,7]nhwc dw=[1152,1,3,3] pad=1",
]
CUTS: list[dict[str, int]] = [
    {},
    {"TILE_COLS": 4, "TILE_ROWS": 3, "BLOCK_SIZE": 64},
    {"LOAD_SIZE": 1, "TILE_COLS": 7, "TILE_ROWS": 2, "NUM_C_PER_BLOCK": 6, "STAGES": 3},
]


@emulated
@pytest.mark.parametrize("cut", CUTS, ids=["chosen", "small", "wide"])
@pytest.mark.parametrize("text", PROBLEMS)
def test_agrees_with_numpy(text: str, cut: dict[str, int]) -> None:
    assert "__rows_" in kernel(text, **ROWS, **cut).name
    check(text, ENGINE, **ROWS, **cut)


@emulated
@pytest.mark.parametrize("which", [0, 1], ids=["x", "dy"])
@pytest.mark.parametrize("place", [(0, 5, 3, 4), (0, 5, 3, 0), (1, 5, 6, 8)], ids=str)
@pytest.mark.parametrize("lanes", [0, 6], ids=["cluster", "parts"])
def test_what_is_not_finite_meets_no_pixel_beside_the_image(lanes: int, place: tuple[int, ...], which: int) -> None:
    images = 2 if lanes == 0 else 20
    text = f"wgrad x=f16[{images},24,7,9]nhwc dy=f16[{images},24,7,9]nhwc dw=[24,1,3,3] pad=1"
    knobs = ROWS | {"TILE_COLS": 4, "TILE_ROWS": 3, "NUM_C_PER_BLOCK": lanes}
    assert ("j3__" in kernel(text, **knobs).name) == (lanes == 0)
    ops = operations(text)
    op, rng = fused(ops), np.random.default_rng(1)
    values = {t.uid: quarters(t, rng) for t in op.inputs}
    values[op.inputs[which].uid][place] = np.inf
    check_values(ops, ENGINE, values, **knobs)


@pytest.mark.parametrize(
    "text",
    [
        "wgrad x=f16[1,16,8,8]nhwc dy=f16[1,16,4,4]nhwc dw=[16,1,3,3] pad=1 stride=2",
        "wgrad x=f16[1,16,8,8]nhwc dy=f16[1,32,8,8]nhwc dw=[32,1,3,3] pad=1",  # groups that grow
        "wgrad x=f16[1,16,9,9]nhwc dy=f16[1,16,9,9]nhwc dw=[16,1,3,3] pad=2 dil=2",
    ],
)
def test_other_kernels_serve_the_rest(text: str) -> None:
    assert "__rows_" not in kernel(text, **ROWS).name


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (WHOLE[0], "r3s3v2w8h7x7c144_"),
        (WHOLE[1], "r3s3v2w7h7x8c32j4_"),
        ("wgrad x=f16[32,240,28,28]nhwc dy=f16[32,240,28,28]nhwc dw=[240,1,5,5] pad=2", "r5s5v2w7h14x8c60_"),
        ("wgrad x=f16[32,672,14,14]nhwc dy=f16[32,672,14,14]nhwc dw=[672,1,5,5] pad=2", "r5s5v2w7h14x8c32j8_"),
    ],
)
def test_small_filters_of_whole_tiles_have_them(text: str, how: str) -> None:
    assert f"rows_{how}" in kernel(text).name
    assert "__direct_" in kernel(text, KERNEL_CFG=1).name


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("text", WHOLE)
def test_compiles_without_spills(text: str, arch: str) -> None:
    if text == WHOLE[0] or arch == "sm_90a":  # where there are clusters
        compiles_cleanly(operations(text), ENGINE, arch)


def test_other_images_of_as_many_channels_compile_nothing() -> None:
    texts = [kernel(WHOLE[0].replace("64,144,56,56", size)).source for size in ("64,144,56,56", "80,144,56,112")]
    assert texts[0] == texts[1]


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@pytest.mark.parametrize("text", PROBLEMS[:2] + WHOLE)
def test_reads_nothing_before_the_launch_ahead_is_through(text: str) -> None:
    """Loads of the read-only path may pass the wait, as the compiler takes what they read to be constant."""
    for step in kernel(text, **ROWS).steps:
        assert isinstance(step, Launch)
        assert step.starts_early
        assert not loads_before_the_wait(compiled(step.text, "sm_90a").cubin, step.entry)
