"""The implicit GEMM on tensor cores runs on the host against the general NumPy engine, and compiled everywhere.

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

from graphdnn import Graph, fuse
from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.sm80 import mma_operands
from graphdnn.engines.cuda.sm80.mma_gemm import ENGINE, ENGINE_TF32
from graphdnn.engines.cuda.sm80.mma_tiles import TILES
from graphdnn.enums import KnobType


def check(text: str, seed: int = 0, device: DeviceSpec | None = None, engine: Engine = ENGINE, **knobs: Any) -> None:
    check_sums(text, engine, seed, device, **knobs)


FORWARD = [
    "conv x=f16[2,16,9,11]nhwc w=f16[24,16,3,3]nhwc pad=1 + bias + relu",
    "conv x=bf16[2,40,9,11]nhwc w=bf16[24,40,3,3]nhwc pad=1 stride=2 mode=conv",
    "conv x=f16[2,16,9,11] w=f16[24,16,3,3] pad=1 + bias + relu",
    "conv x=f16[1,6,9,8]nhwc w=f16[12,3,3,3]nhwc pad=1 + residual",
    "conv x=f16[1,20,9,8]nhwc w=f16[33,20,3,3] pad=1 dil=2 out=f32",
    "conv x=i8[2,48,7,6]nhwc w=i8[24,48,3,3]nhwc pad=1 compute=i32 out=i32",
    "conv x=u8[1,32,7,6]nhwc w=i8[10,32,1,1]nhwc compute=i32 out=i8 + relu",
    "conv x=i8[1,3,7,6] w=u8[10,3,3,3] compute=i32 out=i32",
    "conv x=u8[1,4,17]nhwc w=u8[10,4,5] pad=2 spatial=1 compute=i32 out=i32",
    "conv x=bf16[1,16,5,6,7]nhwc w=bf16[8,16,3,3,3]nhwc pad=1 spatial=3",
]
BACKWARD = [
    "dgrad dy=f16[2,16,9,11]nhwc w=f16[16,24,3,3]nhwc dx=[2,24,9,11] pad=1",
    "dgrad dy=f16[2,8,5,6]nhwc w=f16[8,16,3,3]nhwc dx=[2,16,9,11] pad=1 stride=2",
    "dgrad dy=f16[2,9,5,6] w=f16[9,3,7,7] dx=[2,3,10,12] pad=3 stride=2",
    "dgrad dy=i8[1,32,5,4]nhwc w=u8[32,16,3,3]nhwc dx=[1,16,9,8] pad=1 stride=2 compute=i32 out=i32",
    "dgrad dy=bf16[1,8,4,4]nhwc w=bf16[8,8,2,3] dx=[1,8,12,18] stride=3,5",
    "wgrad x=f16[2,8,9,11]nhwc dy=f16[2,24,9,11]nhwc dw=[24,8,3,3] pad=1",
    "wgrad x=f16[2,6,9,11] dy=f16[2,12,5,6] dw=[12,6,3,3] pad=1 stride=2",
    "wgrad x=f16[2,5,9,11]nhwc dy=f16[2,7,9,11]nhwc dw=[7,5,3,3] pad=1",
    "wgrad x=u8[2,16,9,11]nhwc dy=i8[2,16,9,11]nhwc dw=[16,16,3,3] pad=1 compute=i32 out=i32",
    "wgrad x=bf16[1,4,5,6,7] dy=bf16[1,4,5,6,7] dw=[4,4,3,3,3] pad=1 spatial=3 mode=conv",
]


@emulated
@pytest.mark.parametrize("text", FORWARD + BACKWARD)
def test_results(text: str) -> None:
    """With the knobs of the shape; deep tiles of two stages; and the sum in parts."""
    check(text)
    check(text, TILE_SIZE=9, TILEK=2, STAGES=2, SPLIT_K=1)
    check(text, TILE_SIZE=12, STAGES=3, SPLIT_K=3)


@emulated
@pytest.mark.parametrize("tile", range(1, len(TILES) + 1))
def test_tiles(tile: int) -> None:
    check("conv x=f16[1,72,13,23]nhwc w=f16[264,72,1,1]nhwc + bias", TILE_SIZE=tile, SPLIT_K=1)


TF32 = [
    "conv x=f32[2,16,9,11]nhwc w=f32[24,16,3,3]nhwc pad=1 + bias + relu",
    "conv x=f32[2,6,9,11] w=f32[24,6,3,3] pad=1 stride=2",
    "dgrad dy=f32[2,8,5,6]nhwc w=f32[8,16,3,3]nhwc dx=[2,16,9,11] pad=1 stride=2",
    "wgrad x=f32[2,8,9,11]nhwc dy=f32[2,12,9,11]nhwc dw=[12,8,3,3] pad=1",
]


@emulated
@pytest.mark.parametrize("text", TF32)
def test_tf32(text: str) -> None:
    """Multiples of a quarter have few digits: nothing is lost."""
    check(text, engine=ENGINE_TF32)
    check(text, engine=ENGINE_TF32, TILE_SIZE=9, TILEK=2, SPLIT_K=1)


@emulated
def test_tf32_rounds_to_nearest() -> None:
    ops = operations("conv x=f32[1,8,3,3]nhwc w=f32[8,8,1,1]nhwc")
    op = fused(ops)
    x, w, y = op.anchor.roles  # type: ignore[union-attr]
    image = np.full(x.extents, 1 + 2.0**-11 + 2.0**-20, np.float32)  # just above the middle of two neighbours
    filters = np.zeros(w.extents, np.float32)
    filters[:, 0] = 1
    got, _ = run_both(ops, ENGINE_TF32, {x.uid: image, w.uid: filters})
    np.testing.assert_array_equal(got[y.uid], np.full(y.extents, 1 + 2.0**-10, np.float32))


COPIED = [
    "conv x=f16[2,16,9,11] w=f16[24,16,3,3] pad=1 + bias + relu",
    "conv x=i8[1,32,4,9,7] w=u8[32,16,4,3,3] pad=1 compute=i32 out=i32 spatial=2",
    "dgrad dy=i8[1,32,5,4] w=u8[32,16,3,3]nhwc dx=[1,16,9,8] pad=1 stride=2 compute=i32 out=i32",
    "wgrad x=f16[2,8,9,11] dy=f16[2,12,5,6] dw=[12,8,3,3] pad=1 stride=2",
]


@emulated
@pytest.mark.parametrize("text", COPIED)
def test_copied_operands(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As large problems have them: channels lie next to each other in a copy; not where workspace is limited."""
    monkeypatch.setattr(mma_operands, "copying_seconds", lambda size, device: 0.0)
    assert len(device_kernel(operations(text), ENGINE, {KnobType.SPLIT_K: 2}).steps) > 2
    check(text, TILE_SIZE=12, SPLIT_K=2)
    assert device_kernel(operations(text), ENGINE, {KnobType.SPLIT_K: 1}).workspace_bytes == 0


STAYING = [
    "conv x=f16[2,72,13,23]nhwc w=f16[136,72,3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[6,160,9,11]nhwc w=f16[66,80,1,1]nhwc + residual",
    "dgrad dy=bf16[2,72,13,23]nhwc w=bf16[72,136,3,3]nhwc dx=[2,136,13,23] pad=1",
    "wgrad x=f16[2,40,9,11]nhwc dy=f16[2,136,9,11]nhwc dw=[136,40,3,3] pad=1",
    "conv x=u8[2,272,13,23]nhwc w=i8[136,272,1,1]nhwc compute=i32 out=i8 + relu",
]


@emulated
@pytest.mark.parametrize("text", STAYING)
def test_blocks_that_stay(text: str) -> None:
    """On a device of few multiprocessors a block computes many tiles, of several groups."""
    small = replace(device_spec("h200"), sm_count=2)
    ops = operations(text)
    for tile, more in ((9, {}), (12, {KnobType.STAGES: 2}), (12, {KnobType.TILEK: 1})):
        knobs = {KnobType.CTA_COUNT: 2, KnobType.TILE_SIZE: tile, KnobType.OCCUPANCY: 1, KnobType.SPLIT_K: 1, **more}
        kernel = ENGINE.compile(Task(fused(ops), small), ENGINE.settings(knobs))
        assert "constexpr bool PERSISTENT = true;" in (kernel.source or "")
        check(text, device=small, **{k.name: v for k, v in knobs.items()})


@emulated
def test_infinities_stay_where_they_are() -> None:
    """Padding and what lies beyond the product are zeros times zeros."""
    ops = operations("conv x=f16[1,8,5,7]nhwc w=f16[9,8,3,3]nhwc pad=1")
    op, rng = fused(ops), np.random.default_rng(0)
    values = {t.uid: quarters(t, rng) for t in (*op.inputs, *op.outputs)}
    x, w, _ = op.anchor.roles  # type: ignore[union-attr]
    values[x.uid][0, 3, 2, 2] = np.inf
    values[w.uid][5] = np.nan
    check_values(ops, ENGINE, values, TILE_SIZE=12)


LARGE = [
    "conv x=f16[32,256,56,56]nhwc w=f16[256,256,3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[32,256,56,56] w=f16[256,256,3,3] pad=1 + bias + relu",
    "conv x=i8[32,256,56,56]nhwc w=u8[256,256,3,3]nhwc pad=1 compute=i32 out=i8 + relu",
    "dgrad dy=bf16[64,128,28,28]nhwc w=bf16[128,64,3,3]nhwc dx=[64,64,56,56] pad=1 stride=2",
    "wgrad x=f16[32,256,56,56]nhwc dy=f16[32,256,56,56]nhwc dw=[256,256,3,3] pad=1",
]


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("text", LARGE)
def test_compiles(text: str, arch: str) -> None:
    for knobs in ({}, {KnobType.TILE_SIZE: 3}):
        compiles_cleanly(operations(text), ENGINE, arch, knobs)


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_tf32_compiles(arch: str) -> None:
    compiles_cleanly(operations(LARGE[0].replace("f16", "f32")), ENGINE_TF32, arch)
    compiles_cleanly(operations(LARGE[4].replace("f16", "f32")), ENGINE_TF32, arch)


@compiler
@pytest.mark.long
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("tile", range(1, len(TILES) + 1))
def test_every_tile_compiles(tile: int, arch: str) -> None:
    for text in (LARGE[0], LARGE[2], LARGE[4]):
        compiles_cleanly(operations(text), ENGINE, arch, {KnobType.TILE_SIZE: tile})


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_products_run_on_tensor_cores(arch: str) -> None:
    """Matrix instructions, copies past the registers and loads of whole matrices."""
    for text, product in ((LARGE[0], "HMMA"), (LARGE[2], "IMMA")):
        (step,) = device_kernel(operations(text), ENGINE, {KnobType.TILE_SIZE: 9}).steps
        found = instructions(compiled(step.text, arch).cubin)  # type: ignore[union-attr]
        # 32 x 32 of a warp: 2 x 4 products 32 bytes deep, and one load of four matrices for 16 rows or columns.
        steps = found[product] // 8
        assert found[product] in (16, 32), found
        assert found["LDSM"] >= 4 * steps, found
        assert found["LDGSTS"], found


def test_workspace_only_where_the_sum_is_in_parts() -> None:
    assert device_kernel(operations(LARGE[0]), ENGINE).workspace_bytes == 0
    assert device_kernel(operations(LARGE[4]), ENGINE).workspace_bytes > 0
    assert device_kernel(operations(LARGE[4]), ENGINE, {KnobType.SPLIT_K: 1}).workspace_bytes == 0


_REFUSED = {
    "operation": "matmul a=f16[1,8,8] b=f16[1,8,8]",
    "data_type": "conv x=f32[1,8,9,9]nhwc w=f32[8,8,3,3]",
    "compute_type": "conv x=i8[1,8,9,9]nhwc w=i8[8,8,3,3] compute=i64 out=i64",
    "coordinates": "conv x=f16[1,8,9,9]nhwc w=f16[8,8,3,3] pre=2147483000,0 post=0,0 stride=2147480000,1",
}

_REFUSED_TF32 = {
    "data_type": "conv x=f16[1,8,9,9]nhwc w=f16[8,8,3,3]",
    "compute_type": "conv x=f32[1,8,9,9]nhwc w=f32[8,8,3,3] compute=f64",
}


@pytest.mark.parametrize("reason", _REFUSED)
def test_refusals(reason: str) -> None:
    for engine, text in ((ENGINE, _REFUSED[reason]), (ENGINE_TF32, _REFUSED_TF32.get(reason, _REFUSED[reason]))):
        ids = {r.rule for r in engine.why_not(Task(fused(operations(text)), device_spec("h200")))}
        assert f"{engine.name}.{reason}" in ids


@pytest.mark.parametrize("engine", [ENGINE, ENGINE_TF32], ids=lambda e: e.name)
def test_refuses_prologues(engine: Engine) -> None:
    graph = Graph()
    x, w = (graph.tensor(dims, data_type="float16") for dims in ([1, 16, 9, 9], [16, 16, 3, 3]))
    graph.conv_fprop(graph.relu(x), w, padding=[1, 1]).set_output(True)
    (op,) = fuse(graph.build_operation_graph())
    assert op.prologue
    assert f"{engine.name}.prologue" in {r.rule for r in engine.why_not(Task(op, device_spec("h200")))}
