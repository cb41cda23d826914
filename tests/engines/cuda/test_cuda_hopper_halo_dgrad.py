"""Strided data gradients whose residues share what is copied: on the host against the general NumPy engine, and compiled.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_comparison import compiler, compiles_cleanly, device_kernel, emulated, fused
from exact_sums import check_sums, operations

from graphdnn.device.profiles import device_spec
from graphdnn.engines import Engine
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_tiles import TILES
from graphdnn.engines.cuda.sm90.halo.hopper_halo_dgrad import ENGINE, ENGINE_TF32
from graphdnn.engines.cuda.sm90.halo.tap_groups import tap_groups_of
from graphdnn.enums import KnobType

NUMBER = {tile.name: i for i, tile in enumerate(TILES, 1)}


def engine_of(text: str) -> Engine:
    return ENGINE_TF32 if "f32[" in text else ENGINE


# Multiprocessors: one that does all, so that rings go round, or more than there are pieces, so that some have none.
CASES = [
    ("dgrad dy=f16[3,72,7,9]nhwc w=f16[72,40,3,3]nhwc dx=[3,40,14,18] pad=1 stride=2 + residual", "64_2", 132),
    ("dgrad dy=f16[3,128,7,9]nhwc w=f16[128,128,3,3]nhwc dx=[3,128,13,17] pad=1 stride=2", "64_2", 2),
    ("dgrad dy=f16[3,128,7,9]nhwc w=f16[128,128,3,3]nhwc dx=[3,128,13,17] pad=1 stride=2", "64_2apart", 2),
    ("dgrad dy=bf16[2,128,7,9]nhwc w=bf16[128,64,1,1]nhwc dx=[2,64,13,17] pad=0 stride=2", "32_3held", 1),
    ("dgrad dy=f16[3,128,7,9]nhwc w=f16[128,72,3,3]nhwc dx=[3,72,15,19] pad=0 stride=2 mode=conv", "32_2", 4),
    ("dgrad dy=f16[2,40,5,7]nhwc w=f16[40,40,2,5]nhwc dx=[2,40,6,21] pad=0,1 stride=1,3", "64_2apart", 1),
    ("dgrad dy=f32[2,40,7,9]nhwc w=f32[40,40,3,3]nhwc dx=[2,40,13,17] pad=1 stride=2", "32_2", 4),
    ("dgrad dy=f32[2,64,7,9]nhwc w=f32[64,64,3,3]nhwc dx=[2,64,13,17] pad=1 stride=2", "32_3held", 4),
]


@emulated
@pytest.mark.parametrize(("text", "tile", "multiprocessors"), CASES, ids=[f"{i}" for i in range(len(CASES))])
def test_results(text: str, tile: str, multiprocessors: int) -> None:
    engine, number = engine_of(text), NUMBER[tile]
    step = device_kernel(operations(text), engine, {KnobType.TILE_SIZE: number}).steps[-1]
    assert f"__halo_{tile}x" in step.text.name, "the tile that was asked for"
    check_sums(text, engine, device=replace(device_spec("h200"), sm_count=multiprocessors), TILE_SIZE=number)


def test_taps_of_all_residues_meet_dy_in_few_places() -> None:
    text = "dgrad dy=f16[1,8,4,4]nhwc w=f16[8,8,3,3]nhwc dx=[1,8,8,8] pad=1 stride=2"
    groups = tap_groups_of(gemm_problem_of(fused(operations(text))))
    assert sorted(tap.filter_tap for tap in groups.taps) == list(range(9))
    assert groups.offsets == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert groups.reach == 1


DEFAULT = "dgrad dy=f16[64,128,28,28]nhwc w=f16[128,128,3,3]nhwc dx=[64,128,56,56] pad=1 stride=2"


@compiler
@pytest.mark.parametrize(("kind", "tile"), [("f16", "64_3"), ("f16", "32_3held"), ("f32", "32_3held")])
def test_compiles_cleanly(kind: str, tile: str) -> None:
    text = DEFAULT.replace("f16", kind)
    compiles_cleanly(operations(text), engine_of(text), "sm_90a", {KnobType.TILE_SIZE: NUMBER[tile]})
