"""The SIMT implicit GEMM runs on the host against the general NumPy engine, and compiled for every architecture.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from typing import Any

import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, device_kernel, emulated, fused
from exact_sums import check_sums, operations

from graphdnn.device.profiles import device_spec
from graphdnn.engines import ENGINES, Task
from graphdnn.engines.cuda.simt import implicit_copies, implicit_dp4a
from graphdnn.engines.cuda.simt.implicit_gemm import ENGINE
from graphdnn.enums import KnobType


def check(text: str, seed: int = 0, **knobs: Any) -> None:
    check_sums(text, ENGINE, seed, **knobs)


CHANNELS_FIRST = [
    "conv x=f32[2,16,9,11] w=f32[24,16,3,3] pad=1",
    "conv x=f16[2,16,9,11] w=f16[24,16,3,3] pad=1 + bias + relu",
    "conv x=f16[1,8,9,8] w=f16[12,4,3,3] pad=1 stride=2 mode=conv",
    "conv x=i8[1,16,9,8] w=i8[12,16,3,3] pad=1 compute=i32 out=i32",
    "dgrad dy=f32[2,16,9,11] w=f32[16,24,3,3] dx=[2,24,9,11] pad=1",
]


@emulated
@pytest.mark.parametrize("text", CHANNELS_FIRST)
@pytest.mark.parametrize("tile", [4, 9])
def test_copied_filters(text: str, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As large problems have them: filters whose channels lie next to each other."""
    monkeypatch.setattr(implicit_copies, "_WORTH_COPYING", 1e9)
    check(text, TILE_SIZE=tile)
    check(text, TILE_SIZE=tile, SPLIT_K=1)


@emulated
@pytest.mark.parametrize("kind", ["f16", "i8"])
@pytest.mark.parametrize("layout", ["", "nhwc"])
@pytest.mark.parametrize("other", ["x", "dy"])
def test_a_filter_that_is_convolved(kind: str, layout: str, other: str) -> None:
    """One tensor is both operands: a copy of it is the filter. No other engine takes it for two."""
    size, rest = f"{kind}[6,6,3,3]{layout}", " compute=i32 out=i32" if kind == "i8" else ""
    form = "conv x={} w={} pad=1" if other == "x" else "dgrad dy={} w={} dx=[6,6,3,3] pad=1"
    (conv,) = operations(form.format(size, size) + rest)
    ops = [conv.model_copy(update={"w": conv.inputs()[other]})]
    check_sums(ops, ENGINE)
    task = Task(fused(ops), device_spec("h200"))
    assert [e.name for e in ENGINES if "cuda" in e.places and e.serves(task)] == [ENGINE.name]


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("text", CHANNELS_FIRST)
def test_compiles(text: str, arch: str) -> None:
    compiles_cleanly(operations(text), ENGINE, arch)


STRIDED = [
    "dgrad dy=f32[2,8,5,6]nhwc w=f32[8,12,3,3]nhwc dx=[2,12,9,11] pad=1 stride=2",
    "dgrad dy=f32[2,8,5,6] w=f32[8,12,3,3] dx=[2,12,9,11] pad=1 stride=2 mode=conv",
    "dgrad dy=f16[2,9,5,6]nhwc w=f16[9,3,7,7] dx=[2,3,10,12] pad=3 stride=2",
    "dgrad dy=i8[1,8,5,4]nhwc w=i8[8,8,1,1] dx=[1,8,9,8] stride=2 compute=i32 out=i32",
    "dgrad dy=f32[1,8,4,3] w=f32[8,4,2,3] dx=[1,4,12,13] stride=3,5",
    "dgrad dy=f32[1,4,2,2] w=f32[4,4,3,3] dx=[1,4,9,9] pad=2 stride=6 mode=conv",
    "dgrad dy=f32[1,8,4,4] w=f32[8,4,3,3] dx=[1,8,9,9] pad=1 stride=2 dil=2",
    "dgrad dy=f32[1,4,4] w=f32[4,4,3] dx=[1,4,15] pad=1 stride=4 dil=2 spatial=1",
    "dgrad dy=f32[1,4,2,3,3]nhwc w=f32[4,4,3,3,3] dx=[1,4,4,5,6] pad=1 stride=2 spatial=3",
]


@emulated
@pytest.mark.parametrize("text", STRIDED)
def test_strided_dgrad(text: str) -> None:
    """One product for every residue; those that no tap reaches are zeros."""
    check(text, TILE_SIZE=10)
    check(text, TILE_SIZE=9, SPLIT_K=3)


BYTES = [
    "conv x=i8[2,48,7,6]nhwc w=i8[24,48,3,3]nhwc pad=1 compute=i32 out=i32",
    "conv x=u8[2,8,7,6]nhwc w=i8[9,8,3,3] pad=1 stride=2 mode=conv compute=i32 out=i32",
    "conv x=i8[1,32,7,6]nhwc w=u8[10,32,1,1]nhwc compute=i32 out=i8 + relu",
    "conv x=u8[1,12,7,6]nhwc w=u8[9,4,3,3] pad=1 compute=i32 out=i32",
    "dgrad dy=i8[1,32,4,5]nhwc w=i8[32,10,3,3]nhwc dx=[1,10,7,9] pad=1 stride=2 compute=i32 out=i32",
    "dgrad dy=i8[1,8,4,5]nhwc w=u8[8,5,3,3] dx=[1,10,7,9] pad=1 stride=2 compute=i32 out=i32",
]


COPIED_BYTES = [
    "conv x=i8[2,8,7,6] w=i8[9,8,3,3] pad=1 compute=i32 out=i32",
    "conv x=u8[1,12,7,6] w=i8[9,4,3,3] pad=1 stride=2 compute=i32 out=i32",
    "dgrad dy=i8[1,8,4,5] w=i8[8,10,3,3] dx=[1,10,7,9] pad=1 stride=2 compute=i32 out=i32",
    "conv x=i8[1,3,4,7,6] w=i8[3,8,4,3,3] pad=1 compute=i32 out=i32 spatial=2",
]


@emulated
@pytest.mark.parametrize("text", BYTES + COPIED_BYTES)
def test_products_of_four_bytes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implicit_dp4a, "copying_seconds", lambda size, device: 0.0)  # as for a large problem
    kernel = device_kernel(operations(text), ENGINE, {KnobType.TILE_SIZE: 10})
    assert "constexpr bool DP4A = true;" in kernel.source
    check(text, TILE_SIZE=10)
    check(text, TILE_SIZE=3)
    check(text, TILE_SIZE=3, SPLIT_K=1)
    check(text, TILE_SIZE=12, SPLIT_K=3)


@emulated
def test_bytes_whose_channels_are_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implicit_dp4a, "copying_seconds", lambda size, device: 0.0)
    text = "conv x=i8[1,6,7,6]nhwc w=i8[8,6,3,3]nhwc pad=1 compute=i32 out=i32"
    assert "constexpr bool DP4A = false;" in device_kernel(operations(text), ENGINE).source
    check(text)


@emulated
def test_bytes_that_are_not_worth_a_copy() -> None:
    text = "conv x=i8[1,8,7,6] w=i8[8,8,3,3] pad=1 compute=i32 out=i32"
    assert "constexpr bool DP4A = false;" in device_kernel(operations(text), ENGINE).source
    check(text)


FILTER_GRADIENTS = [
    "wgrad x=f32[2,8,9,11]nhwc dy=f32[2,24,9,11]nhwc dw=[24,8,3,3] pad=1",
    "wgrad x=f16[2,6,9,11] dy=f16[2,12,5,6] dw=[12,6,3,3] pad=1 stride=2",
    "wgrad x=f32[1,4,5,6,7] dy=f32[1,4,5,6,7] dw=[4,4,3,3,3] pad=1 spatial=3 mode=conv",
]


@emulated
@pytest.mark.parametrize("text", FILTER_GRADIENTS)
def test_filter_gradients(text: str) -> None:
    for knobs in ({}, {"TILE_SIZE": 9, "SPLIT_K": 3}, {"TILE_SIZE": 3, "SPLIT_K": 2}):
        check(text, **knobs)
