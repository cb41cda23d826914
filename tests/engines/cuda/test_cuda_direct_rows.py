"""Depthwise convolutions by short blocks without shared memory, run on the host against the general NumPy engine.

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
from graphdnn.engines.cuda.direct.direct import ENGINE
from graphdnn.enums import KnobType

SHORT = {"KERNEL_CFG": 3}


def kernel(text: str, **knobs: int) -> DeviceKernel:
    return device_kernel(operations(text), ENGINE, {KnobType[name]: value for name, value in knobs.items()})


PROBLEMS = [
    "conv x=f16[2,48,9,11]nhwc w=f16[48,1,3,3] pad=1 + bias + relu(0,6)",
    "conv x=f16[1,64,12,10]nhwc w=f16[64,1,5,5] pad=2 + bias + residual + relu",
    "conv x=bf16[1,36,8,17]nhwc w=bf16[36,1,7,7]nhwc pad=3",
    "conv x=f32[2,20,7,5]nhwc w=f32[20,1,3,3] pad=1 + relu",
    "conv x=i8[2,33,7,9]nhwc w=i8[33,1,3,3] pad=1 compute=i32 out=i32",
    "conv x=f16[1,16,9,9]nhwc w=f16[16,1,3,3] pre=0,2 post=3,1 mode=conv",
    "conv x=f16[1,8,2,2]nhwc w=f16[8,1,3,3] pad=2",
    "conv x=f16[3,8,5,6]nhwc w=f16[8,1,1,1] out=f32",
    "conv x=f16[2,48,9,11]nhwc w=f16[48,1,3,3] pad=2 dil=2 + bias + relu(0,6)",
    "conv x=f16[1,16,13,10]nhwc w=f16[16,1,5,3] pre=1,4 post=3,0 dil=2,3 mode=conv",
    "conv x=f16[1,8,5,3]nhwc w=f16[8,1,3,3] pad=8 dil=7",
    "dgrad dy=f16[2,48,9,11]nhwc w=f16[48,1,3,3] dx=[2,48,9,11] pad=1",
    "dgrad dy=f16[1,64,11,7]nhwc w=f16[64,1,5,5] dx=[1,64,12,10] pre=1,0 post=2,1",
    "dgrad dy=bf16[1,12,9,8]nhwc w=bf16[12,1,3,4] dx=[1,12,9,8] pre=1,2 post=1,1 mode=conv",
    "dgrad dy=f16[2,40,10,11]nhwc w=f16[40,1,3,5] dx=[2,40,11,16] pre=1,2 post=2,5 dil=2,3",
]
WHOLE = [  # tiles divide the image
    "conv x=f16[64,144,56,56]nhwc w=f16[144,1,3,3] pad=1 + bias + relu(0,6)",
    "dgrad dy=f16[64,144,56,56]nhwc w=f16[144,1,3,3] dx=[64,144,56,56] pad=1",
]
CUTS: list[dict[str, int]] = [
    {},
    {"LOAD_SIZE": 2, "TILE_COLS": 2, "TILE_ROWS": 2, "BLOCK_SIZE": 64},
    {"LOAD_SIZE": 8, "TILE_COLS": 7, "TILE_ROWS": 1, "OCCUPANCY": 1},
]


@emulated
@pytest.mark.parametrize("cut", CUTS, ids=["chosen", "small", "wide"])
@pytest.mark.parametrize("text", PROBLEMS)
def test_agrees_with_numpy(text: str, cut: dict[str, int]) -> None:
    assert "__rows_" in kernel(text, **SHORT, **cut).name
    check(text, **SHORT, **cut)


@emulated
@pytest.mark.parametrize("ending", ["bias", "bias + relu(0,6)", "bias + relu(0,0.1)"])
@pytest.mark.parametrize("value", [np.inf, np.nan], ids=str)
def test_what_is_not_finite_stays_where_it_belongs(value: float, ending: str) -> None:
    ops, rng = operations(f"conv x=f16[1,16,7,9]nhwc w=f16[16,1,3,3] pad=1 + {ending}"), np.random.default_rng(1)
    op = fused(ops)
    values = {t.uid: quarters(t, rng) for t in op.inputs}
    values[op.inputs[0].uid][0, 5, 3, 4] = value
    check_values(ops, ENGINE, values, KERNEL_CFG=3, TILE_ROWS=3)


@pytest.mark.parametrize(
    "text",
    [
        "conv x=f16[1,16,8,8]nhwc w=f16[16,1,3,3] pad=1 stride=2",
        "conv x=f16[1,16,8,8]nhwc w=f16[32,1,3,3] pad=1",  # groups that grow
        "conv x=f16[1,16,9,20]nhwc w=f16[16,1,3,11] pad=1,5",  # a long filter
    ],
)
def test_other_kernels_serve_the_rest(text: str) -> None:
    assert "__rows_" not in kernel(text, **SHORT).name


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("conv x=f16[64,144,56,56]nhwc w=f16[144,1,3,3] pad=1 + bias + relu(0,6)", "v2w4h7"),
        ("dgrad dy=f16[32,1152,7,7]nhwc w=f16[1152,1,3,3] dx=[32,1152,7,7] pad=1", "v2w7h1"),
        ("conv x=f16[64,144,56,56]nhwc w=f16[144,1,3,3] pad=2 dil=2", "v2w4h7"),
    ],
)
def test_small_filters_of_whole_tiles_have_them(text: str, how: str) -> None:
    assert f"rows_r3s3{how}_" in kernel(text).name
    assert "__direct_" in kernel(text, KERNEL_CFG=1).name


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("knobs", [{}, {"KERNEL_CFG": 3, "LOAD_SIZE": 2, "OCCUPANCY": 4}], ids=["chosen", "registers"])
@pytest.mark.parametrize("text", WHOLE)
def test_compiles_without_spills(text: str, knobs: dict[str, int], arch: str) -> None:
    compiles_cleanly(operations(text), ENGINE, arch, {KnobType[name]: value for name, value in knobs.items()})


def test_other_images_of_as_many_channels_compile_nothing() -> None:
    sizes = ("64,144,56,56", "8,144,28,84")
    texts = [kernel(WHOLE[0].replace(sizes[0], size), **SHORT, TILE_COLS=4, TILE_ROWS=7).source for size in sizes]
    assert texts[0] == texts[1]


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@pytest.mark.parametrize("text", PROBLEMS[:2] + WHOLE)
def test_reads_nothing_before_the_launch_ahead_is_through(text: str) -> None:
    """Loads of the read-only path may pass the wait, as the compiler takes what they read to be constant."""
    (step,) = kernel(text, **SHORT).steps
    assert isinstance(step, Launch)
    assert step.starts_early
    assert not loads_before_the_wait(compiled(step.text, "sm_90a").cubin, step.entry)
