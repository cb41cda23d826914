"""Filter gradients whose taps share what is copied: on the host against the general NumPy engine, and compiled.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partialmethod
from itertools import product

import numpy as np
import pytest
from cuda_comparison import compiler, compiles_cleanly, device_kernel, emulated, fused, run_both
from emulator import Emulated
from exact_sums import check_sums, operations, quarters

from graphdnn.device.profiles import device_spec
from graphdnn.engines.cuda.sm90.halo.halo_wgrad_requirements import shape_of
from graphdnn.engines.cuda.sm90.halo.halo_wgrad_tiles import TILES, HaloTile
from graphdnn.engines.cuda.sm90.halo.hopper_halo_wgrad import ENGINE
from graphdnn.engines.engine import Task
from graphdnn.enums import KnobType
from graphdnn.operations import Operation

NUMBER = {tile.name: i for i, tile in enumerate(TILES, 1)}


def check(text: str, tile: str, parts: int, multiprocessors: int = 132) -> None:
    knobs = {"SPLIT_K": parts} | ({"TILE_SIZE": NUMBER[tile]} if tile else {})
    kernel = device_kernel(operations(text), ENGINE, {KnobType[k]: v for k, v in knobs.items()})
    assert f"__halo_{tile}" in kernel.name, "the patch that was asked for"
    check_sums(text, ENGINE, device=replace(device_spec("h200"), sm_count=multiprocessors), **knobs)


CASES = [
    ("wgrad x=f16[2,64,8,8]nhwc dy=f16[2,64,8,8]nhwc dw=[64,64,3,3] pad=1", "8x8x64", 1, 132),
    ("wgrad x=f16[2,64,8,16]nhwc dy=f16[2,64,8,16]nhwc dw=[64,64,3,3] pad=1", "8x8x32", 3, 1),
    ("wgrad x=bf16[2,72,8,15]nhwc dy=bf16[2,80,8,16]nhwc dw=[80,72,3,2] pad=1 mode=conv", "8x16x32", 2, 132),
    ("wgrad x=f16[1,40,18,10] dy=f16[1,24,14,8] dw=[24,40,3,2] dil=2 + relu", "14x8x64", 1, 132),
    # Three axes: a block has one tap between slices.
    ("wgrad x=f16[1,32,3,8,8]nhwc dy=f16[1,32,3,8,8]nhwc dw=[32,32,3,3,3] pad=1 spatial=3", "8x8x32", 3, 4),
    (
        "wgrad x=bf16[2,64,5,6,10]nhwc dy=bf16[2,72,2,4,8]nhwc dw=[72,64,2,3,3] stride=2,1,1 mode=conv spatial=3",
        "4x8x64",
        1,
        2,
    ),
]
MORE = [
    ("wgrad x=f16[1,64,16,8]nhwc dy=f16[1,136,16,8]nhwc dw=[136,64,1,3] pad=0,1 out=f32", "16x8x64", 1, 2),
    ("wgrad x=f16[3,136,5,8]nhwc dy=f16[3,64,4,8]nhwc dw=[64,136,2,1]", "4x8x32", 3, 3),
    ("wgrad x=bf16[2,64,5,9]nhwc dy=bf16[2,64,4,8]nhwc dw=[64,64,2,4] pad=0,1", "2x8x64", 20, 5),
    ("wgrad x=bf16[2,64,6,9]nhwc dy=bf16[2,64,4,8]nhwc dw=[64,64,3,4] pad=0,1", "2x8x32", 20, 5),
]  # fmt: skip


@emulated
@pytest.mark.parametrize(("text", "tile", "parts", "multiprocessors"), CASES, ids=[tile for _, tile, *_ in CASES])
def test_results(text: str, tile: str, parts: int, multiprocessors: int) -> None:
    check(text, tile, parts, multiprocessors)


@emulated
@pytest.mark.long
@pytest.mark.parametrize(("text", "tile", "parts", "multiprocessors"), MORE, ids=[tile for _, tile, *_ in MORE])
def test_more_results(text: str, tile: str, parts: int, multiprocessors: int) -> None:
    check(text, tile, parts, multiprocessors)


@emulated
def test_threads_in_the_other_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that multiply come before those that copy."""
    monkeypatch.setattr(Emulated, "launch", partialmethod(Emulated.launch, backward=True))
    check(*CASES[1])


@emulated
def test_infinities_stay_where_they_are() -> None:
    """At the border of an image only some taps meet them: nothing else is spoiled."""
    ops, rng = operations(CASES[0][0]), np.random.default_rng(0)
    op = fused(ops)
    values = {t.uid: quarters(t, rng) for t in (*op.inputs, *op.outputs)}
    x = op.anchor.roles[0]  # type: ignore[union-attr]
    values[x.uid][0, 5, 0, 0], values[x.uid][1, 7, 7, 3] = np.inf, np.nan
    got, expected = run_both(ops, ENGINE, values, {KnobType.SPLIT_K: 1})
    (result,) = expected
    assert np.isfinite(expected[result]).any(axis=(0, 2, 3)).all(), "some taps of every channel do not meet them"
    np.testing.assert_array_equal(got[result], expected[result])


LAYERS = {
    "c2": "wgrad x=f16[64,64,56,56]nhwc dy=f16[64,64,56,56]nhwc dw=[64,64,3,3] pad=1",
    "sd": "wgrad x=bf16[8,320,64,64]nhwc dy=bf16[8,320,64,64]nhwc dw=[320,320,3,3] pad=1",
}


@compiler
@pytest.mark.parametrize("parts", [1, 5, 100])
@pytest.mark.parametrize("tile", ["8x8x64", "14x8x32"])
def test_compiles_cleanly(tile: str, parts: int) -> None:
    knobs = {KnobType.TILE_SIZE: NUMBER[tile], KnobType.SPLIT_K: parts}
    compiles_cleanly(operations(LAYERS["c2"]), ENGINE, "sm_90a", knobs)


def _filter_of(taps: tuple[int, int], tile: HaloTile) -> list[Operation]:
    height, width = 2 * tile.height, 2 * tile.width
    image = f"bf16[2,64,{height + taps[0] - 1},{width + taps[1] - 1}]nhwc"
    return operations(f"wgrad x={image} dy=bf16[2,64,{height},{width}]nhwc dw=[64,64,{taps[0]},{taps[1]}]")


@compiler
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("tile", ["2x8x64", "2x8x32"])
def test_filters_of_most_taps_compile(tile: str, parts: int) -> None:
    """Three warpgroups with four taps each: ptxas has no registers for 64 channels, so 32 serve whatever is requested."""
    ops, knobs = (
        _filter_of((3, 4), TILES[NUMBER[tile] - 1]),
        {KnobType.TILE_SIZE: NUMBER[tile], KnobType.SPLIT_K: parts},
    )
    assert "x32x" in device_kernel(ops, ENGINE, knobs).name
    compiles_cleanly(ops, ENGINE, "sm_90a", knobs)


@compiler
@pytest.mark.long
@pytest.mark.parametrize("tile", TILES, ids=[tile.name for tile in TILES])
def test_all_filters_compile_with_all_tiles(tile: HaloTile) -> None:
    for taps in product(range(1, 5), range(1, 6)):
        ops = _filter_of(taps, tile)
        if not ENGINE.serves(Task(fused(ops), device_spec("h200"))):
            assert taps == (1, 1) or taps[0] > 3 or taps[1] > 4
            continue
        for parts in (1, 3):
            compiles_cleanly(ops, ENGINE, "sm_90a", {KnobType.TILE_SIZE: NUMBER[tile.name], KnobType.SPLIT_K: parts})


def test_whole_patches_only() -> None:
    shape = shape_of(fused(operations(LAYERS["sd"])))
    serving = {tile.name for tile in TILES if tile.serves(shape, device_spec("h200").shared_memory)}
    assert {"8x8x64", "16x8x32"} <= serving
    assert not any(name.startswith("14x") for name in serving)
