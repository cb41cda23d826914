"""Direct convolutions on tensor cores, run on the host against the general NumPy engine, and compiled.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, emulated, fused
from exact_sums import check_values, operations, quarters
from test_cuda_direct import check

from graphdnn.device.profiles import device_spec
from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.direct.direct import ENGINE
from graphdnn.engines.cuda.direct.direct_wgrad import ENGINE as WGRAD
from graphdnn.engines.cuda.direct.measured_tiles import MEASURED
from graphdnn.enums import KnobType

H200 = device_spec("h200")
ON_TENSOR_CORES = {"KERNEL_CFG": 2}


def kernel(text: str, engine: Engine, **knobs: int) -> DeviceKernel:
    task = Task(fused(operations(text)), H200)
    found = engine.compile(task, engine.settings({KnobType[name]: value for name, value in knobs.items()}))
    assert isinstance(found, DeviceKernel)
    return found


# What is drawn: filters even and odd, strides, groups, layouts of the filter, element types, columns that fill no tile.
PROBLEMS: list[tuple[str, Engine, dict[str, Any]]] = [
    ("conv x=f16[2,48,9,11]nhwc w=f16[48,1,3,3] pad=1 + bias + relu(0,6)", ENGINE, {}),
    ("conv x=f16[1,40,9,11]nhwc w=f16[40,1,3,3]nhwc pad=1 stride=2 + bias", ENGINE, {}),
    ("conv x=f16[1,64,12,10]nhwc w=f16[64,1,5,5] pad=2 + bias + residual + relu", ENGINE, {"TILE_ROWS": 4}),
    ("conv x=bf16[1,32,14,15]nhwc w=bf16[32,1,7,7] pad=3 mode=conv", ENGINE, {"STAGES": 3}),
    ("conv x=f16[2,32,9,9]nhwc w=f16[32,4,3,3] pad=1 + bias + relu", ENGINE, {"TILE_COLS": 2}),
    ("conv x=f16[1,16,6,9]nhwc w=f16[16,2,3,3] pad=1", ENGINE, {}),
    ("conv x=bf16[1,32,6,9]nhwc w=bf16[32,8,3,3]nhwc pad=1", ENGINE, {}),
    ("conv x=f16[1,32,6,9]nhwc w=f16[32,1,3,3] pad=1 out=f32 + residual", ENGINE, {"LOAD_SIZE": 2}),
    ("conv x=f16[1,16,9,9]nhwc w=f16[16,1,3,3] pre=0,2 post=3,1 mode=conv", ENGINE, {}),
    ("conv x=f16[1,16,40,70]nhwc w=f16[16,1,3,3] pad=1", ENGINE, {"TILE_ROWS": 8}),
    ("conv x=f16[1,48,11,56]nhwc w=f16[48,1,7,7] pad=3 + bias", ENGINE, {"NUM_C_PER_BLOCK": 4, "LOAD_SIZE": 2}),
    ("conv x=f16[1,16,9,9]nhwc w=f16[16,1,1,1] + bias", ENGINE, {}),
    ("conv x=f16[2,8,9,9]nhwc w=f16[8,1,5,3] pad=2,0 stride=1,2", ENGINE, {}),
    ("dgrad dy=f16[1,64,12,10]nhwc w=f16[64,1,5,5] dx=[1,64,12,10] pad=2", ENGINE, {}),
    ("dgrad dy=f16[2,32,9,9]nhwc w=f16[32,4,3,3] dx=[2,32,9,9] pad=1 mode=conv", ENGINE, {"LOAD_SIZE": 3}),
    ("dgrad dy=f16[2,40,5,6]nhwc w=f16[40,1,3,3] dx=[2,40,10,12] pad=1 stride=2", ENGINE, {}),
    ("dgrad dy=f16[1,32,4,5]nhwc w=f16[32,1,7,7] dx=[1,32,8,9] pad=3 stride=2 mode=conv", ENGINE, {}),
    ("dgrad dy=f16[2,32,5,5]nhwc w=f16[32,4,3,3]nhwc dx=[2,32,9,9] pad=1 stride=2", ENGINE, {"TILE_ROWS": 2}),
    ("wgrad x=f16[2,48,9,11]nhwc dy=f16[2,48,9,11]nhwc dw=[48,1,3,3] pad=1", WGRAD, {}),
    ("wgrad x=f16[2,40,9,11]nhwc dy=f16[2,40,5,6]nhwc dw=[40,1,3,3] pad=1 stride=2", WGRAD, {}),
    ("wgrad x=f16[1,64,12,10]nhwc dy=f16[1,64,12,10]nhwc dw=[64,1,5,5] pad=2", WGRAD, {"TILE_ROWS": 5, "LOAD_SIZE": 3}),
    ("wgrad x=bf16[1,32,14,15]nhwc dy=bf16[1,32,14,15]nhwc dw=[32,1,7,7] pad=3 out=f32", WGRAD, {}),
    ("wgrad x=f16[1,32,8,9]nhwc dy=f16[1,32,4,5]nhwc dw=[32,1,7,7] pad=3 stride=2 mode=conv", WGRAD, {}),
    ("wgrad x=f16[1,32,12,14]nhwc dy=f16[1,32,4,5]nhwc dw=[32,1,2,1] stride=3", WGRAD, {}),
    ("wgrad x=f16[2,32,9,9]nhwc dy=f16[2,32,5,5]nhwc dw=[32,4,3,3] pad=1 stride=2", WGRAD, {}),
    ("wgrad x=f16[1,24,7,40]nhwc dy=f16[1,24,7,40]nhwc dw=[24,1,3,3] pad=1 out=f32 + residual", WGRAD,
     {"NUM_C_PER_BLOCK": 1, "BLOCK_SIZE": 32}),
    ("wgrad x=f16[1,16,7,33]nhwc dy=f16[1,16,7,33]nhwc dw=[16,2,3,3] pad=1", WGRAD, {}),
    # Blocks that go through several items.
    ("wgrad x=f16[300,24,7,9]nhwc dy=f16[300,24,7,9]nhwc dw=[24,1,3,3] pad=1 out=f32", WGRAD, {"OCCUPANCY": 1}),
]  # fmt: skip


@emulated
@pytest.mark.parametrize(("text", "engine", "knobs"), PROBLEMS, ids=[text for text, *_ in PROBLEMS])
def test_agrees_with_numpy(text: str, engine: Engine, knobs: dict[str, int]) -> None:
    assert "__sliding_mma_" in kernel(text, engine, **ON_TENSOR_CORES, **knobs).name
    check(text, engine, **ON_TENSOR_CORES, **knobs)


@emulated
@pytest.mark.parametrize("value", [np.inf, np.nan], ids=str)
@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("conv x=f16[1,32,7,9]nhwc w=f16[32,1,3,3] pad=1 + bias", ENGINE),
        ("conv x=f16[1,32,7,9]nhwc w=f16[32,4,3,3] pad=1 stride=2", ENGINE),
        ("dgrad dy=f16[1,24,4,5]nhwc w=f16[24,1,3,3] dx=[1,24,7,9] pad=1 stride=2", ENGINE),
        ("wgrad x=f16[2,24,7,9]nhwc dy=f16[2,24,7,9]nhwc dw=[24,1,3,3] pad=1", WGRAD),
        ("wgrad x=f16[2,16,7,17]nhwc dy=f16[2,16,7,17]nhwc dw=[16,4,3,3] pad=1", WGRAD),
    ],
)
def test_what_is_not_finite_stays_where_it_belongs(text: str, engine: Engine, which: int, value: float) -> None:
    """Neighbouring channels and pixels meet it with weights of 0, in the second operand in the filter."""
    ops, rng = operations(text), np.random.default_rng(1)
    op = fused(ops)
    values = {t.uid: quarters(t, rng) for t in op.inputs}
    operand = op.inputs[which]
    place = tuple(min(at, size - 1) for at, size in zip((0, 5, 3, 4), operand.extents, strict=True))
    values[operand.uid][place] = value
    check_values(ops, engine, values, KERNEL_CFG=2, TILE_ROWS=3)


REFUSED = [
    "conv x=f32[1,16,8,8]nhwc w=f32[16,1,3,3] pad=1",  # not a 16-bit float
    "conv x=i8[1,32,8,8]nhwc w=i8[32,1,3,3] pad=1 compute=i32 out=i32",
    "conv x=f16[1,12,8,8]nhwc w=f16[12,1,3,3] pad=1",  # pixels not in pieces of 16 bytes
    "conv x=f16[1,16,8,8]nhwc w=f16[32,1,3,3] pad=1",  # groups that grow
    "conv x=f16[1,32,8,8]nhwc w=f16[32,16,3,3] pad=1",  # wide groups
    "conv x=f16[1,16,8,8]nhwc w=f16[16,1,11,11] pad=5",  # more filter than registers
    "conv x=f16[1,16,8,8]nhwc w=f16[16,1,3,3] pad=1 out=f16 -> reduce add [1,16,1,1]",  # leaves in two forms
    "dgrad dy=f16[1,32,4,5]nhwc w=f16[32,1,2,1] dx=[1,32,12,14] stride=3",  # tiles of 4 columns
    "conv x=f16[1,16,8,8]nhwc w=f16[16,1,3,3] pad=2 dil=2",
]


@pytest.mark.parametrize("text", REFUSED)
def test_multiply_adds_serve_the_rest(text: str) -> None:
    assert "__direct_" in kernel(text, ENGINE, **ON_TENSOR_CORES).name


@pytest.mark.parametrize("engine", [ENGINE, WGRAD], ids=["forward", "filter"])
def test_measured_classes_have_tensor_cores(engine: Engine) -> None:
    if engine is ENGINE:
        keys = [(d, r, stride, group) for d, (r, _), (stride, _), group in MEASURED.tensor_cores]
    else:
        keys = [(d, r, stride, group) for d, (r, _), (stride, _), group in MEASURED.tensor_core_wgrad]
    for direction, r, stride, group in keys:
        out, w = 56 // stride, f"f16[96,{group},{r},{r}]"
        text = {
            "fprop": f"conv x=f16[64,96,56,56]nhwc w={w} pad={r // 2} stride={stride}",
            "dgrad": f"dgrad dy=f16[64,96,{out},{out}]nhwc w={w} dx=[64,96,56,56] pad={r // 2} stride={stride}",
            "wgrad": f"wgrad x=f16[64,96,56,56]nhwc dy=f16[64,96,{out},{out}]nhwc dw={w[3:]} pad={r // 2} stride={stride}",
        }[direction]
        assert "__sliding_mma_" in kernel(text, engine, KERNEL_CFG=2).name
        assert "__direct_" in kernel(text, engine, KERNEL_CFG=1).name


def test_narrow_images_have_as_many_warps() -> None:
    threads = []
    for n, size in ((4, 56), (64, 14)):  # as many pixels
        text = f"wgrad x=f16[{n},96,{size},{size}]nhwc dy=f16[{n},96,{size},{size}]nhwc dw=[96,1,5,5] pad=2"
        launch = kernel(text, WGRAD, KERNEL_CFG=2).steps[0]
        assert isinstance(launch, Launch)
        threads.append(prod(launch.grid) * launch.block)
    assert threads[1] >= threads[0]


EXTREMES = [
    {"LOAD_SIZE": 8, "NUM_C_PER_BLOCK": 256, "STAGES": 8, "OCCUPANCY": 8, "BLOCK_SIZE": 512},
    {"LOAD_SIZE": 8, "NUM_C_PER_BLOCK": 1, "STAGES": 8, "OCCUPANCY": 1, "BLOCK_SIZE": 32, "TILE_ROWS": 1},
    {"LOAD_SIZE": 5, "NUM_C_PER_BLOCK": 7, "STAGES": 2, "OCCUPANCY": 8, "TILE_COLS": 2, "TILE_ROWS": 1000},
]


@pytest.mark.parametrize("knobs", EXTREMES, ids=["much", "little", "odd"])
@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("conv x=f16[64,144,56,56]nhwc w=f16[144,1,3,3] pad=1 stride=2", ENGINE),
        ("dgrad dy=f16[8,40,14,14]nhwc w=f16[40,1,5,5] dx=[8,40,56,56] pad=2 stride=4", ENGINE),
        ("wgrad x=f16[64,144,56,56]nhwc dy=f16[64,144,14,14]nhwc dw=[144,1,3,3] pad=1 stride=4", WGRAD),
    ],
)
def test_every_knob_value_gives_a_launch(text: str, engine: Engine, knobs: dict[str, int]) -> None:
    launch = kernel(text, engine, **ON_TENSOR_CORES, **knobs).steps[0]
    assert launch.shared <= H200.shared_memory - 1024  # type: ignore[union-attr]
    assert 32 <= launch.block <= 1024  # type: ignore[union-attr]


COMPILED = [
    ("conv x=f16[64,192,56,56]nhwc w=f16[192,1,7,7] pad=3 + bias + relu(0,6)", ENGINE),
    ("dgrad dy=bf16[64,192,56,56]nhwc w=bf16[192,1,7,7] dx=[64,192,56,56] pad=3", ENGINE),
    ("dgrad dy=f16[64,144,28,28]nhwc w=f16[144,1,3,3] dx=[64,144,56,56] pad=1 stride=2", ENGINE),
    ("conv x=f16[64,128,56,56]nhwc w=f16[128,4,3,3] pad=1 + bias + relu", ENGINE),
    ("wgrad x=f16[64,144,56,56]nhwc dy=f16[64,144,56,56]nhwc dw=[144,1,5,5] pad=2", WGRAD),
    ("wgrad x=bf16[64,192,56,56]nhwc dy=bf16[64,192,56,56]nhwc dw=[192,1,7,7] pad=3", WGRAD),
    ("wgrad x=f16[64,128,56,56]nhwc dy=f16[64,128,56,56]nhwc dw=[128,4,3,3] pad=1", WGRAD),
]


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("text", "engine"), COMPILED)
def test_compiles_without_spills(text: str, engine: Engine, arch: str) -> None:
    compiles_cleanly(operations(text), engine, arch)
