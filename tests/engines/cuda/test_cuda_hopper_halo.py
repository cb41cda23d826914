"""Convolutions whose taps share what is copied: on the host against the general NumPy engine, and compiled.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_comparison import compiler, compiles_cleanly, device_kernel, emulated
from exact_sums import check_sums, operations

from graphdnn.device.profiles import device_spec
from graphdnn.engines import Engine
from graphdnn.engines.cuda.sm90.halo.halo_tile_choice import TILES
from graphdnn.engines.cuda.sm90.halo.hopper_halo import ENGINE, ENGINE_TF32
from graphdnn.enums import DataType, KnobType

NUMBER = {tile.name: i for i, tile in enumerate(TILES, 1)}


def engine_of(text: str) -> Engine:
    operand = next(iter(operations(text)[0].inputs().values()))
    return ENGINE_TF32 if operand.data_type is DataType.FLOAT else ENGINE


def check(text: str, tile: str, multiprocessors: int = 132) -> None:
    knobs = {"TILE_SIZE": NUMBER[tile]} if tile else {}
    engine = engine_of(text)
    step = device_kernel(operations(text), engine, {KnobType[k]: v for k, v in knobs.items()}).steps[-1]
    assert f"__halo_{tile}" in step.text.name, "the patch that was asked for"
    check_sums(text, engine, device=replace(device_spec("h200"), sm_count=multiprocessors), **knobs)


CASES = [
    ("conv x=f16[2,64,9,11]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu", "8x8x64_3resident"),
    ("conv x=f16[3,40,10,9]nhwc w=f16[41,40,3,3]nhwc pad=0 + bias", "8x8x64_2resident"),
    ("conv x=bf16[1,64,20,9]nhwc w=bf16[32,64,3,3]nhwc pad=1 mode=conv + residual", "8x8x32_4resident"),
    ("conv x=f16[1,64,9,17]nhwc w=f16[64,64,3,3]nhwc pad=2", "8x16x64_2ring"),
    ("conv x=f16[2,64,9,17]nhwc w=f16[128,64,3,3]nhwc pad=1 + residual", "8x8x128_2resident"),
    ("conv x=f16[2,64,6,28]nhwc w=f16[64,64,3,3]nhwc pad=1", "4x28x64_2resident"),
    ("conv x=f16[1,128,9,9]nhwc w=f16[72,128,3,3]nhwc pad=1 + relu", "8x8x64_2ring"),
    ("conv x=f16[3,72,9,9]nhwc w=f16[96,72,1,3]nhwc pad=1 dil=2", "8x8x96_2ring"),
    ("conv x=f16[1,64,8,17]nhwc w=f16[128,64,3,3]nhwc pad=1", "8x16x128_2ring"),
    ("conv x=f16[1,64,17,8]nhwc w=f16[64,64,3,3]nhwc pad=1", "16x8x128_2ring"),
    ("conv x=f16[1,64,9,17]nhwc w=f16[144,64,3,3]nhwc pad=1 + bias + residual", "2x8x8x160_2ring"),  # permuted in 16s
    ("conv x=f16[3,64,14,14]nhwc w=f16[64,64,3,3]nhwc pad=1", "7x14x128_2ring"),
    ("dgrad dy=f16[2,64,9,11]nhwc w=f16[64,64,3,3]nhwc dx=[2,64,9,11] pad=1", "8x8x64_3resident"),
    ("dgrad dy=f16[1,72,9,9]nhwc w=f16[72,40,3,3]nhwc dx=[1,40,9,9] pad=1", "8x8x64_2ring"),
    ("dgrad dy=bf16[1,64,9,9]nhwc w=bf16[64,104,3,3]nhwc dx=[1,104,9,9] pad=1", "8x8x96_2ring"),
    ("dgrad dy=bf16[1,72,9,9]nhwc w=bf16[72,24,3,3]nhwc dx=[1,24,9,9] pad=1 mode=conv", "8x8x32_4resident"),
    ("conv x=f16[1,37,9,9]nhwc w=f16[24,37,3,3] out=f32", ""),
    ("conv x=i8[1,64,9,9]nhwc w=i8[64,64,3,3]nhwc pad=1 compute=i32 out=i32", "8x8x64_3resident"),
    ("conv x=i8[1,160,9,9]nhwc w=i8[64,160,3,3]nhwc pad=1 compute=i32 out=i8 + relu", "8x8x64_2ring"),
    ("conv x=f32[2,64,9,11]nhwc w=f32[64,64,3,3]nhwc pad=1 + bias + relu", "8x8x64_3resident"),
    ("conv x=f32[1,40,9,17]nhwc w=f32[104,40,3,3]nhwc pad=1 + residual", "8x16x64_2ring"),
    ("dgrad dy=f32[1,72,9,9]nhwc w=f32[72,40,3,3]nhwc dx=[1,40,9,9] pad=1", "8x8x64_2ring"),
    # A residual through shared memory: its first half is read at the first tap, for there is one block of channels.
    ("conv x=f16[2,64,9,11]nhwc w=f16[128,64,3,3]nhwc pad=1 + bias + residual + relu", "2x8x8x128_2ring"),
    # One tap: pixels of all images are a plane.
    ("conv x=f32[2,40,9,11]nhwc w=f32[200,40,1,1]nhwc + bias + residual", "8x8x256_2resident"),
    ("dgrad dy=f32[2,64,9,11]nhwc w=f32[64,80,1,1]nhwc dx=[2,80,9,11]", "8x16x128_2resident"),
    # Three axes: each tap along the first reads patches of another slice.
    ("conv x=f16[2,24,4,9,10]nhwc w=f16[40,24,2,3,3]nhwc pad=1 spatial=3 + bias + relu", "8x8x64_2resident"),
    ("conv x=f16[2,24,7,9,10]nhwc w=f16[32,24,3,3,3]nhwc pad=1 spatial=3 + bias + relu", "8x8x32_4deep"),
    ("conv x=bf16[1,72,5,9,8]nhwc w=bf16[20,72,2,2,3]nhwc pad=1 mode=conv spatial=3 + residual", "8x8x32_4deep"),
    ("dgrad dy=f16[2,32,5,9,9]nhwc w=f16[32,24,3,3,3]nhwc dx=[2,24,5,9,9] pad=1 spatial=3", "8x8x32_4deep"),
    ("conv x=f16[1,32,5,9,9]nhwc w=f16[48,32,3,3,3]nhwc pad=1 spatial=3 + bias", "8x8x64_4resident"),
    ("dgrad dy=bf16[1,24,5,9,9]nhwc w=bf16[24,64,3,3,3]nhwc dx=[1,64,5,9,9] pad=1 spatial=3", "8x8x64_4resident"),
    ("dgrad dy=f16[1,24,9,9]nhwc w=f16[24,72,3,3]nhwc dx=[1,72,9,9] pad=1", "8x8x96_2resident"),
    ("conv x=f32[1,16,9,9]nhwc w=f32[32,16,3,3]nhwc pad=1", "8x8x32_4resident"),
    ("conv x=i8[1,32,5,9,9]nhwc w=i8[32,32,3,3,3]nhwc pad=1 compute=i32 out=i8 spatial=3 + relu", "8x8x32_4deep"),
    ("conv x=f32[1,32,5,9,9]nhwc w=f32[32,32,3,3,3]nhwc pad=1,0,0 spatial=3 + bias", "8x8x32_4deep"),
    ("conv x=bf16[1,32,5,9,8]nhwc w=bf16[32,32,2,3,2]nhwc pad=1 mode=conv spatial=3 + residual", "8x8x32_3resident"),
    ("conv x=f16[1,72,5,9,8]nhwc w=f16[40,72,3,3,3]nhwc pad=1 stride=2,1,1 dil=1,2,1 spatial=3", "8x8x64_2ring"),
    ("conv x=f16[2,64,3,8,9]nhwc w=f16[128,64,3,3,3]nhwc pad=1 spatial=3 + bias + residual + relu", "2x8x8x128_2ring"),
    ("dgrad dy=f16[2,32,3,9,9]nhwc w=f16[32,32,3,3,3]nhwc dx=[2,32,3,9,9] pad=1 spatial=3", "8x8x32_4resident"),
    ("dgrad dy=f16[2,24,3,9,9]nhwc w=f16[24,40,3,3,3]nhwc dx=[2,40,3,9,9] pad=1 spatial=3", ""),
    ("dgrad dy=f32[1,40,5,9,9]nhwc w=f32[40,24,3,2,3]nhwc dx=[1,24,9,10,9] pad=0,0,1 dil=2,1,1 spatial=3", ""),
    ("conv x=i8[1,160,3,9,9]nhwc w=i8[64,160,3,3,3]nhwc pad=1 compute=i32 out=i8 spatial=3 + relu", "8x8x64_2ring"),
    # Bytes: the last tap of a consumer's first 64 pixels goes before that of the others.
    ("conv x=i8[1,160,9,9]nhwc w=i8[128,160,3,3]nhwc pad=1 compute=i32 out=i8 + relu", "2x8x8x128_2ring"),
    ("conv x=i8[1,64,9,17]nhwc w=i8[64,64,3,2]nhwc pad=2 compute=i32 out=i32", "8x16x64_2ring"),
    # Pixels are the columns, filters the rows.
    ("conv x=i8[1,160,9,9]nhwc w=i8[128,160,3,3]nhwc pad=1 compute=i32 out=f32 + relu", "28x8x128_2turned"),
    ("conv x=i8[2,96,30,9]nhwc w=i8[96,96,3,3]nhwc pad=1 compute=i32 out=i32", "28x8x128_2turned"),
    ("conv x=f16[2,32,33,9]nhwc w=f16[32,32,3,3]nhwc pad=0 mode=conv + bias", "32x8x128_2turned"),
    ("conv x=f16[3,64,9,29]nhwc w=f16[160,64,1,2]nhwc pad=0 + bias", "28x8x128_2turned"),
    ("conv x=bf16[2,64,15,17]nhwc w=bf16[192,64,3,3]nhwc pad=1 + bias + residual + relu", "32x8x128_2turned"),
    ("conv x=f32[1,32,12,30]nhwc w=f32[64,32,3,3]nhwc pad=2 dil=2,1 + bias", "28x8x128_2turned"),
    ("conv x=f16[2,64,3,9,9]nhwc w=f16[96,64,3,3,3]nhwc pad=1 spatial=3 + bias + relu", "28x8x128_2turned"),
    ("dgrad dy=i8[1,64,9,9]nhwc w=i8[64,96,3,3]nhwc dx=[1,96,9,9] pad=1 compute=i32 out=i32", "28x8x128_2turned"),
]


@emulated
@pytest.mark.parametrize(("text", "tile"), CASES, ids=[f"{i}" for i in range(len(CASES))])
def test_results(text: str, tile: str) -> None:
    check(text, tile)


# A multiprocessor that does all, or half of it: rings go round, consumers have more patches than one, or none.
REPEATED = [
    ("conv x=f16[3,64,17,20]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + residual + relu", "8x8x64_3resident", 1),
    ("conv x=f16[1,128,17,17]nhwc w=f16[32,128,3,3]nhwc pad=1", "8x8x32_3resident", 2),
    ("conv x=bf16[1,64,17,9]nhwc w=bf16[200,64,3,3]nhwc pad=1 + bias", "8x8x96_2ring", 1),
    ("dgrad dy=f16[2,136,9,9]nhwc w=f16[136,64,3,3]nhwc dx=[2,64,9,9] pad=1", "8x8x64_2ring", 2),
    ("dgrad dy=bf16[3,136,9,11]nhwc w=bf16[136,104,3,3]nhwc dx=[3,104,9,11] pad=1 + residual", "2x8x8x128_2ring", 2),
    (
        "conv x=f16[2,32,4,9,17]nhwc w=f16[32,32,3,3,3]nhwc pad=1 spatial=3 + bias + residual + relu",
        "8x8x32_3resident",
        1,
    ),
    ("conv x=f16[2,32,7,9,17]nhwc w=f16[32,32,3,3,3]nhwc pad=1 spatial=3 + bias + residual + relu", "8x8x32_4deep", 1),
    ("dgrad dy=f16[1,32,6,17,17]nhwc w=f16[32,32,2,3,3]nhwc dx=[1,32,7,17,17] pad=0,1,1 spatial=3", "8x8x32_4deep", 1),
    ("dgrad dy=f16[2,72,3,9,17]nhwc w=f16[72,40,3,3,3]nhwc dx=[2,40,3,9,17] pad=1 spatial=3", "8x8x64_2ring", 2),
    ("conv x=i8[5,160,15,17]nhwc w=i8[192,160,3,3]nhwc pad=1 compute=i32 out=i8 + relu", "2x8x8x128_2ring", 1),
    ("conv x=i8[3,160,15,17]nhwc w=i8[192,160,3,3]nhwc pad=1 compute=i32 out=f32 + relu", "28x8x128_2turned", 2),
    ("conv x=f16[4,64,9,17]nhwc w=f16[96,64,3,3]nhwc pad=1 + bias", "28x8x128_2turned", 1),
]


@emulated
@pytest.mark.parametrize(("text", "tile", "multiprocessors"), REPEATED, ids=[f"{i}" for i in range(len(REPEATED))])
def test_blocks_that_go_on(text: str, tile: str, multiprocessors: int) -> None:
    check(text, tile, multiprocessors)


NARROW = "conv x=f16[64,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + residual + relu"
WIDE = "conv x=f16[8,320,64,64]nhwc w=f16[320,320,3,3]nhwc pad=1 + bias + relu"
BACKWARD = "dgrad dy=f16[8,320,64,64]nhwc w=f16[320,320,3,3]nhwc dx=[8,320,64,64] pad=1"
ADDED = "conv x=f16[32,256,56,56]nhwc w=f16[256,256,3,3]nhwc pad=1 + bias + residual + relu"
FLOATS = "conv x=f32[64,64,56,56]nhwc w=f32[64,64,3,3]nhwc pad=1 + bias + residual + relu"
BYTES = "conv x=i8[32,256,56,56]nhwc w=i8[256,256,3,3]nhwc pad=1 compute=i32 out=f32 + scale + bias + relu"
VOLUME = "conv x=f16[2,32,64,64,64]nhwc w=f16[32,32,3,3,3]nhwc pad=1 spatial=3 + bias + relu"
VIDEO = "conv x=f16[8,64,16,56,56]nhwc w=f16[128,64,3,3,3]nhwc pad=1 spatial=3 + bias + residual + relu"
COMPILED = [
    *((NARROW, tile) for tile in ("8x8x64_2resident", "8x8x64_3resident", "8x8x64_4resident", "4x28x64_2resident")),
    ("conv x=f16[16,64,112,112]nhwc w=f16[128,64,3,3]nhwc pad=1 + bias + relu", "8x8x128_2resident"),
    (WIDE, "8x16x160_2ring"),
    (BACKWARD, "8x16x160_2ring"),
    (ADDED, "2x8x8x128_2ring"),
    ("conv x=f32[64,64,56,56]nhwc w=f32[256,64,1,1]nhwc + bias + relu", "8x8x256_2resident"),
    (VOLUME, "8x8x32_4resident"),
    (VOLUME, "8x8x32_4deep"),
    (
        "conv x=f16[2,32,64,64,64]nhwc w=f16[64,32,3,3,3]nhwc pad=1 spatial=3 + bias + residual + relu",
        "8x8x64_4resident",
    ),
    ("dgrad dy=f16[2,32,64,64,64]nhwc w=f16[32,64,3,3,3]nhwc dx=[2,64,64,64,64] pad=1 spatial=3", "8x8x64_4resident"),
    ("dgrad dy=f16[2,32,64,64,64]nhwc w=f16[32,32,3,3,3]nhwc dx=[2,32,64,64,64] pad=1 spatial=3", "8x8x32_4deep"),
    (VIDEO, "2x8x8x128_2ring"),
    ("dgrad dy=f16[2,32,64,64,64]nhwc w=f16[32,32,3,3,3]nhwc dx=[2,32,64,64,64] pad=1 spatial=3", "8x8x32_4resident"),
    *((BYTES, tile) for tile in ("28x8x128_2turned", "2x8x8x128_2ring")),
    (BYTES.replace("out=f32", "out=i8"), "2x8x8x128_2ring"),
    (WIDE, "32x8x128_2turned"),
    *((FLOATS, tile) for tile in ("8x8x64_2resident", "8x8x64_3resident")),
]


@compiler
@pytest.mark.parametrize(("text", "tile"), COMPILED, ids=[tile for _, tile in COMPILED])
def test_compiles_cleanly(text: str, tile: str) -> None:
    compiles_cleanly(operations(text), engine_of(text), "sm_90a", {KnobType.TILE_SIZE: NUMBER[tile]})
