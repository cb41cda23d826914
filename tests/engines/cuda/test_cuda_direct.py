"""Direct convolutions run on the host against the general NumPy engine, and compiled for every architecture.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_comparison import (
    ARCHITECTURES,
    compiled,
    compiler,
    compiles_cleanly,
    device_kernel,
    emulated,
    fused,
    run_both,
)
from disassembly import NO_DISASSEMBLER, instructions
from exact_sums import check_sums, check_values, operations, quarters
from problems import tensor

from graphdnn import Graph, fuse
from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.direct.direct import ENGINE
from graphdnn.engines.cuda.direct.direct_wgrad import ENGINE as WGRAD
from graphdnn.engines.cuda.direct.stem.stem import ENGINE as STEM
from graphdnn.engines.cuda.direct.stem.stem_fp32 import ENGINE as STEM_FLOAT
from graphdnn.engines.cuda.simt.implicit_gemm import ENGINE as GENERAL
from graphdnn.enums import ConvolutionMode, KnobType
from graphdnn.operations import ConvBackwardData, ConvForward, ConvolutionSpec

H200 = device_spec("h200")


def check(text: str, engine: Engine = ENGINE, seed: int = 0, device: DeviceSpec = H200, **knobs: Any) -> None:
    check_sums(text, engine, seed, device, **knobs)


FORWARD = [
    "conv x=f16[2,48,9,11]nhwc w=f16[48,1,3,3] pad=1 + bias + relu(0,6)",
    "conv x=f16[2,40,9,11]nhwc w=f16[40,1,3,3] pad=1 stride=2 + bias",
    "conv x=f16[1,64,12,10]nhwc w=f16[64,1,5,5] pad=2 + bias + residual + relu",
    "conv x=f16[1,32,14,15]nhwc w=f16[32,1,7,7] pad=3",
    "conv x=bf16[1,36,8,8]nhwc w=bf16[36,1,7,7] pad=3 stride=2",
    "conv x=f32[2,20,7,5]nhwc w=f32[20,1,3,3] pad=1 + relu",
    "conv x=i8[2,33,7,9]nhwc w=i8[33,1,3,3] pad=1 compute=i32 out=i32",
    "conv x=f16[2,8,9,9]nhwc w=f16[8,1,5,3] pad=2,0 stride=1,2",
    "conv x=f16[1,16,9,9]nhwc w=f16[16,1,3,3] pre=0,2 post=3,1 mode=conv",
    "conv x=f16[1,16,9,9]nhwc w=f16[16,1,1,1] stride=2",
    "conv x=f16[1,16,9,9]nhwc w=f16[32,1,3,3] pad=1 + bias",
    "conv x=f16[1,6,9,9]nhwc w=f16[18,1,3,3] pad=1",
    "conv x=f16[2,32,9,9]nhwc w=f16[32,4,3,3] pad=1 + bias + relu",
    "conv x=f16[2,32,9,9]nhwc w=f16[32,4,3,3]nhwc pad=1 stride=2",
    "conv x=f16[1,16,6,9]nhwc w=f16[16,2,3,3] pad=1",
    "conv x=bf16[1,32,6,9]nhwc w=bf16[32,8,3,3]nhwc pad=1",
    "conv x=f16[1,32,6,5]nhwc w=f16[32,16,3,3] pad=1",
    "conv x=i8[1,32,6,9]nhwc w=i8[32,4,3,3] pad=1 compute=i32 out=i32",
    "conv x=f32[1,12,6,9]nhwc w=f32[12,3,3,3] pad=1 mode=conv",
    "conv x=f16[1,4,9,9]nhwc w=f16[8,4,3,3] pad=1",
    "conv x=f16[1,8,2,2]nhwc w=f16[8,1,3,3] pad=2",
    "conv x=f16[1,16,9,30]nhwc w=f16[16,1,2,31] pad=1,15",
    "conv x=f16[1,8,15,14]nhwc w=f16[8,1,13,13] pad=6 stride=2",
    "conv x=f16[2,48,9,11]nhwc w=f16[48,1,3,3] pad=2 dil=2 + bias + relu(0,6)",
    "conv x=f16[1,16,13,10]nhwc w=f16[16,1,5,3] pre=1,4 post=3,0 dil=2,3 mode=conv",
    "conv x=f16[1,16,13,10]nhwc w=f16[16,1,1,3] pad=0,2 stride=2,1 dil=4,2",
    "conv x=f16[1,8,5,3]nhwc w=f16[8,1,3,3] pad=8 dil=7",
    "conv x=bf16[1,32,9,9]nhwc w=bf16[32,8,3,3]nhwc pad=2 dil=2 + residual",
    "conv x=f16[1,32,14,15]nhwc w=f16[32,1,7,7] pad=6 dil=2",
]
BACKWARD = [
    "dgrad dy=f16[2,48,9,11]nhwc w=f16[48,1,3,3] dx=[2,48,9,11] pad=1",
    "dgrad dy=f16[2,40,5,6]nhwc w=f16[40,1,3,3] dx=[2,40,9,11] pad=1 stride=2",
    "dgrad dy=f16[2,40,5,6]nhwc w=f16[40,1,3,3] dx=[2,40,10,12] pad=1 stride=2",
    "dgrad dy=f16[1,64,12,10]nhwc w=f16[64,1,5,5] dx=[1,64,12,10] pad=2",
    "dgrad dy=bf16[1,32,14,15]nhwc w=bf16[32,1,7,7] dx=[1,32,14,15] pad=3",
    "dgrad dy=f16[1,32,4,5]nhwc w=f16[32,1,7,7] dx=[1,32,8,9] pad=3 stride=2 mode=conv",
    "dgrad dy=f16[1,32,4,5]nhwc w=f16[32,1,2,1] dx=[1,32,12,14] stride=3",
    "dgrad dy=f16[1,32,9,9]nhwc w=f16[32,1,3,3] dx=[1,16,9,9] pad=1",
    "dgrad dy=f16[2,32,9,9]nhwc w=f16[32,4,3,3] dx=[2,32,9,9] pad=1",
    "dgrad dy=f16[2,32,5,5]nhwc w=f16[32,4,3,3]nhwc dx=[2,32,9,9] pad=1 stride=2",
    "dgrad dy=f16[1,16,9,9]nhwc w=f16[16,8,3,3] dx=[1,16,9,9] pad=1",
    "dgrad dy=f32[1,20,7,5]nhwc w=f32[20,1,3,3] dx=[1,20,7,5] pad=1",
    "dgrad dy=f16[1,16,5,9]nhwc w=f16[16,1,21,12] dx=[1,16,10,16] pad=10,6 stride=2",
    "dgrad dy=f16[2,48,9,11]nhwc w=f16[48,1,3,3] dx=[2,48,9,11] pad=2 dil=2",
    "dgrad dy=f16[2,40,10,11]nhwc w=f16[40,1,3,5] dx=[2,40,11,16] pre=1,2 post=2,5 dil=2,3",
]

FILTER = [
    "wgrad x=f16[1,16,5,20]nhwc dy=f16[1,16,5,20]nhwc dw=[16,1,1,25] pad=0,12",
    "wgrad x=f16[2,48,9,11]nhwc dy=f16[2,48,9,11]nhwc dw=[48,1,3,3] pad=1",
    "wgrad x=f16[2,40,9,11]nhwc dy=f16[2,40,5,6]nhwc dw=[40,1,3,3] pad=1 stride=2",
    "wgrad x=f16[1,64,12,10]nhwc dy=f16[1,64,12,10]nhwc dw=[64,1,5,5] pad=2",
    "wgrad x=bf16[1,32,14,15]nhwc dy=bf16[1,32,14,15]nhwc dw=[32,1,7,7] pad=3 out=f32",
    "wgrad x=f16[1,32,8,9]nhwc dy=f16[1,32,4,5]nhwc dw=[32,1,7,7] pad=3 stride=2 mode=conv",
    "wgrad x=f16[1,32,12,14]nhwc dy=f16[1,32,4,5]nhwc dw=[32,1,2,1] stride=3",
    "wgrad x=f16[1,16,9,9]nhwc dy=f16[1,32,9,9]nhwc dw=[32,1,3,3] pad=1",
    "wgrad x=f16[2,32,9,9]nhwc dy=f16[2,32,9,9]nhwc dw=[32,4,3,3] pad=1",
    "wgrad x=f16[2,32,9,9]nhwc dy=f16[2,32,5,5]nhwc dw=[32,4,3,3] pad=1 stride=2",
    "wgrad x=f16[1,32,9,7]nhwc dy=f16[1,32,9,7]nhwc dw=[32,16,3,3] pad=1",
    "wgrad x=f32[1,20,7,5]nhwc dy=f32[1,20,7,5]nhwc dw=[20,1,3,3] pad=1",
    "wgrad x=i8[1,24,7,5]nhwc dy=i8[1,24,7,5]nhwc dw=[24,1,3,3] pad=1 compute=i32 out=i32",
    "wgrad x=f16[2,48,19,11]nhwc dy=f16[2,48,19,11]nhwc dw=[48,1,3,3] pad=3 dil=3",
    "wgrad x=f16[1,16,13,10]nhwc dy=f16[1,16,9,8]nhwc dw=[16,1,5,3] pre=1,4 post=3,0 dil=2,3 mode=conv",
    "wgrad x=f16[1,8,5,3]nhwc dy=f16[1,8,7,5]nhwc dw=[8,1,3,3] pad=8 dil=7",
    "wgrad x=bf16[1,32,9,9]nhwc dy=bf16[1,32,9,9]nhwc dw=[32,8,3,3] pad=2 dil=2",
    "wgrad x=f16[1,32,14,15]nhwc dy=f16[1,32,14,15]nhwc dw=[32,1,7,7] pad=6 dil=2",
]


@emulated
@pytest.mark.parametrize("text", [*FORWARD, *BACKWARD])
def test_agrees_with_numpy(text: str) -> None:
    check(text)


@emulated
@pytest.mark.parametrize("text", FILTER)
def test_filter_gradient_agrees_with_numpy(text: str) -> None:
    check(text, WGRAD)


FILTER += [
    "wgrad x=f16[1,24,7,5]nhwc dy=f16[1,24,7,5]nhwc dw=[24,1,3,3] pad=1 out=f32 + residual + relu",
    "wgrad x=f16[1,8,7,5]nhwc dy=f16[1,8,7,5]nhwc dw=[8,4,3,3] pad=1 mode=conv -> reduce add [1,1,1,1]",
]
FIRST = [
    "conv x=f16[2,3,20,24]nhwc w=f16[64,3,7,7] pad=3 stride=2 + bias + relu",
    "conv x=f16[1,3,11,37]nhwc w=f16[32,3,3,3]nhwc pad=1 stride=2 + bias",
    "conv x=bf16[1,4,9,18]nhwc w=bf16[40,4,5,5] pad=2 stride=1",
    "conv x=f16[1,1,9,20]nhwc w=f16[16,1,5,5] pre=2,1 post=0,3 stride=1,2 mode=conv",
    "conv x=f16[1,2,9,20]nhwc w=f16[12,2,4,3] pad=1",
    "conv x=f16[1,3,40,40]nhwc w=f16[24,3,11,11] pad=2 stride=4",
    "conv x=f16[1,3,9,20]nhwc w=f16[200,3,3,3] pad=1 stride=2 out=f32 + residual",
    # Windows of neighbouring pixels begin at odd distances.
    "conv x=f16[2,3,9,45]nhwc w=f16[64,3,3,3]nhwc pad=1 + bias + relu",
    "conv x=bf16[1,3,6,35]nhwc w=bf16[20,3,5,5] pre=1,2 post=2,0 mode=conv",
    "conv x=f16[1,1,9,40]nhwc w=f16[72,1,3,8] pad=1 stride=2,3",
    "conv x=f16[1,1,7,21]nhwc w=f16[8,1,4,7] pre=0,3 post=2,3",
    "conv x=f16[1,3,5,33]nhwc w=f16[130,3,1,1] + residual",
    "conv x=f16[2,3,59,43]nhwc w=f16[96,3,11,11]nhwc pad=2 stride=4 + bias + relu",
]


@emulated
@pytest.mark.parametrize("text", FIRST)
def test_first_layers_agree_with_numpy(text: str) -> None:
    """By products of warpgroups, and of warps."""
    check(text, STEM)
    check(text, STEM, KERNEL_CFG=2)


@emulated
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("conv x=f16[3,3,40,48]nhwc w=f16[64,3,7,7]nhwc pad=3 stride=2 + bias + relu", 3),
        ("conv x=f16[2,3,20,80]nhwc w=f16[64,3,3,3]nhwc pad=1 + bias + relu", 2),
        ("conv x=f16[2,3,59,43]nhwc w=f16[96,3,11,11]nhwc pad=2 stride=4 + bias + relu", 1),
    ],
)
def test_first_layers_of_many_tiles_agree_with_numpy(text: str, rows: int) -> None:
    """Two multiprocessors: places in shared memory are filled again, by the copy unit and by threads."""
    check(text, STEM, device=replace(H200, sm_count=2), KERNEL_CFG=2, TILE_ROWS=rows)


@emulated
@pytest.mark.parametrize(
    ("text", "knobs"),
    [
        ("conv x=f32[2,3,18,30]nhwc w=f32[24,3,7,7]nhwc pad=3 stride=2 + bias + relu", {}),
        ("conv x=f32[1,1,13,39]nhwc w=f32[40,1,3,3] pad=1 mode=conv", {"TILE_ROWS": 3}),
        ("conv x=f32[1,4,9,70]nhwc w=f32[72,4,3,3]nhwc pre=2,0 post=1,3", {"TILE_COLS": 5}),
        ("conv x=f32[1,2,9,21]nhwc w=f32[70,2,2,5]nhwc pad=1 out=f16 + bias", {"TILE_COLS": 8}),
    ],
)
def test_first_layers_in_fp32_agree_with_numpy(text: str, knobs: dict[str, int]) -> None:
    check(text, STEM_FLOAT, **knobs)


# One problem cut in many ways: (channels of a thread, columns, rows of a block, lanes, threads, stages).
CUTS = [
    (1, 3, 4, 8, 32, 2), (2, 2, 3, 10, 64, 3), (4, 4, 100, 5, 128, 5), (2, 16, 1, 12, 512, 2), (1, 1, 7, 20, 96, 8),
    (2, 2, 4, 10, 64, 6), (1, 1, 5, 20, 96, 7),
]  # fmt: skip
KNOBS = ("LOAD_SIZE", "TILE_COLS", "TILE_ROWS", "NUM_C_PER_BLOCK", "BLOCK_SIZE", "STAGES")


@emulated
@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("conv x=f16[2,20,13,11]nhwc w=f16[20,1,5,3] pre=2,1 post=3,0 + bias + residual + relu", ENGINE),
        ("conv x=f16[1,24,9,13]nhwc w=f16[24,4,3,3] pad=1 stride=2,1 + bias", ENGINE),
        ("dgrad dy=f16[2,20,7,6]nhwc w=f16[20,1,5,3] dx=[2,20,13,11] pad=2,1 stride=2", ENGINE),
        ("wgrad x=f16[3,20,13,11]nhwc dy=f16[3,20,7,6]nhwc dw=[20,1,5,3] pad=2,1 stride=2", WGRAD),
        ("wgrad x=f16[2,24,9,7]nhwc dy=f16[2,24,9,7]nhwc dw=[24,4,3,3] pad=1", WGRAD),
    ],
)
def test_every_cut_agrees(text: str, engine: Engine, cut: tuple[int, ...]) -> None:
    check(text, engine, **dict(zip(KNOBS, cut, strict=True)))


@emulated
@pytest.mark.parametrize("which", [0, 1], ids=["x", "dy"])
@pytest.mark.parametrize("column", [0, 8])
@pytest.mark.parametrize("kernel", [1, 2], ids=["adds", "tensor cores"])
def test_what_is_not_finite_at_an_edge_meets_no_pixel_beside_it(kernel: int, column: int, which: int) -> None:
    ops = operations("wgrad x=f16[2,24,7,9]nhwc dy=f16[2,24,7,9]nhwc dw=[24,1,3,3] pad=1")
    op, rng = fused(ops), np.random.default_rng(1)
    values = {t.uid: quarters(t, rng) for t in op.inputs}
    values[op.inputs[which].uid][0, 5, 3, column] = np.inf
    check_values(ops, WGRAD, values, KERNEL_CFG=kernel)


@emulated
@pytest.mark.parametrize("value", [np.inf, np.nan], ids=str)
@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("conv x=f16[1,24,7,9]nhwc w=f16[24,1,3,3] pad=1", ENGINE),
        ("conv x=f16[1,3,13,12]nhwc w=f16[16,3,7,7] pad=3 stride=2", STEM),
        ("conv x=f16[1,4,9,12]nhwc w=f16[16,4,3,3] pad=1", STEM),
        ("conv x=f16[1,3,9,12]nhwc w=f16[16,3,3,3] pad=1", STEM),
        ("conv x=f16[1,24,7,9]nhwc w=f16[24,4,3,3] pad=1 stride=2", ENGINE),
        ("dgrad dy=f16[1,24,4,5]nhwc w=f16[24,1,3,3] dx=[1,24,7,9] pad=1 stride=2", ENGINE),
        ("wgrad x=f16[2,24,7,9]nhwc dy=f16[2,24,7,9]nhwc dw=[24,1,3,3] pad=1", WGRAD),
    ],
)
def test_what_is_not_finite_stays_where_it_belongs(text: str, engine: Engine, value: float) -> None:
    ops, rng = operations(text), np.random.default_rng(1)
    op = fused(ops)
    values = {t.uid: quarters(t, rng) for t in op.inputs}
    image = next(t for t in op.inputs if t.extents[-1] > 3)
    values[image.uid][0, min(5, image.extents[1] - 1), 3, 4] = value
    check_values(ops, engine, values, TILE_ROWS=3)


@emulated
def test_outputs_besides_the_last_and_statistics() -> None:
    check("conv x=f16[2,24,7,9]nhwc w=f16[24,1,3,3] pad=1 + bias -> reduce add [1,24,1,1]")


@emulated
@pytest.mark.parametrize("layout", ["gaps", "reversed", "rotated"])
@pytest.mark.parametrize("direction", ["fprop", "dgrad"])
def test_filters_in_any_layout(direction: str, layout: str) -> None:
    """A filter that is not packed is copied first."""
    conv = ConvolutionSpec(
        compute_type="f32", mode=ConvolutionMode.CROSS_CORRELATION, spatial_dims=2, dilations=(1, 1),
        filter_strides=(1, 1), pre_paddings=(1, 1), post_paddings=(1, 1),
    )  # fmt: skip
    x, y = (tensor(uid, (1, 16, 5, 6), "f16", "channels_last") for uid in (1, 3))
    w = tensor(2, (16, 2, 3, 3), "f16", layout)
    op = (
        ConvForward(x=x, w=w, y=y, conv=conv) if direction == "fprop"
        else ConvBackwardData(dx=x, w=w, dy=y, conv=conv)
    )  # fmt: skip
    rng = np.random.default_rng(2)
    got, expected = run_both(op, ENGINE, {t.uid: quarters(t, rng) for t in op.inputs().values()})
    (uid,) = expected
    np.testing.assert_array_equal(got[uid], expected[uid])


COMPILED = [
    ("conv x=f16[64,144,56,56]nhwc w=f16[144,1,3,3] pad=1 + bias + relu(0,6)", ENGINE),
    ("conv x=bf16[64,144,56,56]nhwc w=bf16[144,1,5,5] pad=2 + bias + relu", ENGINE),
    ("conv x=f16[64,192,56,56]nhwc w=f16[192,1,7,7] pad=3 + bias + residual + gelu", ENGINE),
    ("conv x=f16[8,96,20,20]nhwc w=f16[96,1,11,11] pad=5", ENGINE),
    ("conv x=f16[64,144,56,56]nhwc w=f16[144,1,3,3] pad=1 stride=2 + bias", ENGINE),
    ("conv x=f16[64,128,56,56]nhwc w=f16[128,4,3,3] pad=1 + bias + relu", ENGINE),
    ("conv x=f16[64,256,28,28]nhwc w=f16[256,16,3,3] pad=1", ENGINE),
    ("conv x=i8[64,144,56,56]nhwc w=i8[144,1,3,3] pad=1 compute=i32 out=i32", ENGINE),
    ("conv x=f16[64,3,224,224]nhwc w=f16[64,3,7,7] pad=3 stride=2 + bias + relu", STEM),
    ("conv x=bf16[64,3,224,224]nhwc w=bf16[32,3,3,3] pad=1 stride=2 + bias + relu(0,6)", STEM),
    ("conv x=f16[64,3,224,224]nhwc w=f16[96,3,11,11] pad=2 stride=4", STEM),
    ("conv x=f16[64,3,224,224]nhwc w=f16[64,3,3,3] pad=1 + bias + relu", STEM),
    ("conv x=f32[64,3,224,224]nhwc w=f32[64,3,7,7]nhwc pad=3 stride=2", STEM_FLOAT),
    ("dgrad dy=f32[64,144,28,28]nhwc w=f32[144,1,3,3] dx=[64,144,56,56] pad=1 stride=2", ENGINE),
    ("dgrad dy=f16[64,192,56,56]nhwc w=f16[192,1,7,7] dx=[64,192,56,56] pad=3", ENGINE),
    ("wgrad x=f16[64,144,56,56]nhwc dy=f16[64,144,56,56]nhwc dw=[144,1,3,3] pad=1", WGRAD),
    ("wgrad x=f16[64,144,56,56]nhwc dy=f16[64,144,56,56]nhwc dw=[144,1,5,5] pad=2", WGRAD),
    ("wgrad x=bf16[64,192,56,56]nhwc dy=bf16[64,192,56,56]nhwc dw=[192,1,7,7] pad=3", WGRAD),
    ("wgrad x=f16[64,128,56,56]nhwc dy=f16[64,128,56,56]nhwc dw=[128,4,3,3] pad=1", WGRAD),
    ("wgrad x=f16[64,256,14,14]nhwc dy=f16[64,256,14,14]nhwc dw=[256,16,3,3] pad=1", WGRAD),
]


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("text", "engine"), COMPILED)
def test_compiles_without_spills(text: str, engine: Engine, arch: str) -> None:
    walks = {KnobType.KERNEL_CFG: 1}
    for knobs in (walks, {KnobType.KERNEL_CFG: 2}) if engine is STEM else (walks if engine is ENGINE else {},):
        if arch == "sm_90a" or knobs != {KnobType.KERNEL_CFG: 2}:
            compiles_cleanly(operations(text), engine, arch, knobs)


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
def test_first_layers_multiply_by_warpgroups() -> None:
    text = "conv x=f16[64,3,224,224]nhwc w=f16[64,3,7,7] pad=3 stride=2 + bias + relu"
    step = device_kernel(operations(text), STEM, {KnobType.KERNEL_CFG: 2}).steps[-1]
    assert isinstance(step, Launch)
    found = instructions(compiled(step.text, "sm_90a").cubin)
    assert found["HGMMA"], found
    assert not found["HMMA"], found


@pytest.mark.parametrize(
    ("text", "engine", "how"),
    [
        ("conv x=f16[32,240,28,28]nhwc w=f16[240,1,5,5] pad=2 + bias + relu", ENGINE, "r5s5v2w7x4c120"),
        ("dgrad dy=f16[32,672,14,14]nhwc w=f16[672,1,5,5] dx=[32,672,14,14] pad=2", ENGINE, "r5s5v2w4x4c84"),
        ("conv x=f16[32,384,14,14]nhwc w=f16[384,1,7,7] pad=3", ENGINE, "r7s7v2w2x4c96"),
        ("wgrad x=f16[32,384,14,14]nhwc dy=f16[32,384,14,14]nhwc dw=[384,1,7,7] pad=3", WGRAD, "r7s7v1w7x2c32"),
    ],
)
def test_small_images_have_the_tiles_that_were_measured(text: str, engine: Engine, how: str) -> None:
    assert f"direct_{how}_" in device_kernel(operations(text), engine, {KnobType.KERNEL_CFG: 1}).name


_DW, _DDW = "w=f16[16,1,3,3]", "dy=f16[1,16,8,8]nhwc dw=[16,1,3,3] pad=1"
_FIRST = "w=f16[16,4,3,3] pad=1"
REFUSED = [
    ("conv x=f16[1,64,8,8]nhwc w=f16[64,64,3,3] pad=1", ENGINE, "channels_per_group"),
    ("conv x=f16[1,64,8,8] w=f16[64,1,3,3] pad=1", ENGINE, "layout"),
    ("conv x=f16[1,64,8,8]nhwc w=f16[64,1,3,3] pad=2 stride=2 dil=2", ENGINE, "dilation"),
    ("conv x=f64[1,64,8,8]nhwc w=f64[64,1,3,3] pad=1", ENGINE, "compute_type"),
    ("conv x=f16[1,64,8] w=f16[64,1,3] pad=1", ENGINE, "spatial_dims"),
    ("conv x=f16[1,64,80,20]nhwc w=f16[64,1,64,3]", ENGINE, "filter"),
    ("conv x=f16[1,64,20,20]nhwc w=f16[64,1,3,3] stride=5", ENGINE, "stride"),
    ("conv x=f16[1,2,4,8,8] w=f16[2,4,4,3,3] spatial=2", ENGINE, "group_axis"),
    (f"conv x=f16[1,16,8,8]nhwc {_DW} pre=2147483000,0 post=0,0", ENGINE, "coordinates"),
    (f"wgrad x=f16[1,16,8,8]nhwc {_DDW}", ENGINE, "direction"),
    ("matmul a=f16[1,8,8] b=f16[1,8,8]", ENGINE, "operation"),
    (f"conv x=f16[1,16,8,8]nhwc {_DW}", WGRAD, "direction"),
    ("wgrad x=f16[1,32,8,8]nhwc dy=f16[1,32,8,8]nhwc dw=[32,16,5,5] pad=2", WGRAD, "sums"),
    ("wgrad x=f16[1,32,8,8]nhwc dy=f16[1,32,8,8]nhwc dw=[32,32,3,3] pad=1", WGRAD, "channels_per_group"),
    ("wgrad x=f16[1,16,8,8] dy=f16[1,16,8,8]nhwc dw=[16,1,3,3] pad=1", WGRAD, "layout"),
    ("wgrad x=f16[1,16,8,8]nhwc dy=f16[1,16,4,4]nhwc dw=[16,1,3,3] pad=2 stride=2 dil=2", WGRAD, "dilation"),
    ("wgrad x=f64[1,16,8,8]nhwc dy=f64[1,16,8,8]nhwc dw=[16,1,3,3] pad=1", WGRAD, "compute_type"),
    ("wgrad x=f16[1,16,8] dy=f16[1,16,8] dw=[16,1,3] pad=1", WGRAD, "spatial_dims"),
    ("wgrad x=f16[1,16,80,20]nhwc dy=f16[1,16,17,18]nhwc dw=[16,1,64,3]", WGRAD, "filter"),
    ("wgrad x=f16[1,16,20,20]nhwc dy=f16[1,16,4,4]nhwc dw=[16,1,3,3] stride=5", WGRAD, "stride"),
    ("wgrad x=f16[1,2,4,8,8] dy=f16[1,2,4,6,6] dw=[2,4,4,3,3] spatial=2", WGRAD, "group_axis"),
    (
        "wgrad x=f16[1,16,8,8]nhwc dy=f16[1,16,2147483006,6]nhwc dw=[16,1,3,3] pre=2147483000,0 post=0,0",
        WGRAD, "coordinates",
    ),
    ("matmul a=f16[1,8,8] b=f16[1,8,8]", WGRAD, "operation"),
    ("conv x=f32[1,4,9,20]nhwc w=f32[16,4,3,3] pad=1", STEM, "data_type"),
    ("conv x=f16[1,4,9,20]nhwc w=f16[16,4,3,3] pad=1 compute=f64", STEM, "compute_type"),
    (f"conv x=f16[1,4,9,20] {_FIRST}", STEM, "layout"),
    ("conv x=f16[1,1,4,9,20] w=f16[1,16,4,3,3] spatial=2", STEM, "addressable"),
    ("conv x=f16[1,8,9,20]nhwc w=f16[16,8,3,3] pad=1", STEM, "channels"),
    ("conv x=f16[1,8,9,20]nhwc w=f16[8,1,3,3] pad=1", STEM, "groups"),
    ("conv x=f16[1,4,9,20]nhwc w=f16[16,4,3,3] dil=2", STEM, "dilation"),
    ("conv x=f16[1,4,9,20]nhwc w=f16[16,4,3,15]", STEM, "filter"),
    (f"conv x=f16[1,4,9,9000]nhwc {_FIRST}", STEM, "row"),
    ("conv x=f16[1,4,20] w=f16[16,4,3]", STEM, "spatial_dims"),
    ("conv x=f16[1,4,8,8]nhwc w=f16[16,4,3,3] pre=2147483000,0 post=0,0", STEM, "coordinates"),
    ("dgrad dy=f16[1,16,9,9]nhwc w=f16[16,4,3,3] dx=[1,4,9,9] pad=1", STEM, "direction"),
    ("matmul a=f16[1,8,8] b=f16[1,8,8]", STEM, "operation"),
]  # fmt: skip


def assert_refused(engine: Engine, task: Task, rule: str) -> None:
    reasons = {r.rule: r for r in engine.why_not(task)}
    assert f"{engine.name}.{rule}" in reasons, list(reasons)


@pytest.mark.parametrize(("text", "engine", "rule"), REFUSED)
def test_refusals(text: str, engine: Engine, rule: str) -> None:
    assert_refused(engine, Task(fused(operations(text)), H200), rule)


@pytest.mark.parametrize(
    ("text", "engine"),
    [(f"conv x=f16[1,16,8,8]nhwc {_DW}", ENGINE), (f"wgrad x=f16[1,16,8,8]nhwc {_DDW}", WGRAD)],
)
def test_refuses_without_room(text: str, engine: Engine) -> None:
    assert_refused(engine, Task(fused(operations(text)), replace(H200, shared_memory=1500)), "shared_memory")


@pytest.mark.parametrize("engine", [ENGINE, WGRAD, STEM], ids=lambda e: e.name)
def test_refuses_prologues(engine: Engine) -> None:
    graph = Graph()
    x = graph.tensor([1, 4, 8, 8], data_type="float16", name="x")
    other = graph.tensor(
        [1, 4, 8, 8] if engine is WGRAD else [4, 1 if engine is ENGINE else 4, 3, 3], data_type="float16"
    )
    if engine is WGRAD:
        graph.conv_wgrad(graph.relu(x), other, padding=[1, 1]).set_dim([4, 1, 3, 3]).set_output(True)
    else:
        graph.conv_fprop(graph.relu(x), other, padding=[1, 1]).set_output(True)
    (op,) = fuse(graph.build_operation_graph())
    assert op.prologue
    assert_refused(engine, Task(op, H200), "prologue")


@pytest.mark.parametrize("text", [COMPILED[0][0], COMPILED[2][0], COMPILED[5][0]])
def test_ranks_before_the_general_engine(text: str) -> None:
    task = Task(fused(operations(text)), H200)
    assert ENGINE.cost(task, ENGINE.defaults()).seconds < GENERAL.cost(task, GENERAL.defaults()).seconds / 2
