"""The products of compute capability 9.0 run on the host against the general NumPy engine, and compiled.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
The emulator lets copies land, and products run, as late as the barriers allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partialmethod
from typing import Any

import numpy as np
import pytest
from cuda_comparison import compiled, compiler, compiles_cleanly, device_kernel, emulated, fused, last_compiles_cleanly
from disassembly import NO_DISASSEMBLER, instructions
from emulator import Emulated, EmulationError
from exact_sums import check_sums, check_values, operations, quarters

from graphdnn import ConvolutionMode, TensorSpec
from graphdnn.bounded_cache import BoundedCache
from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.engines import Engine
from graphdnn.engines.cuda.codegen import included_files, source
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.sm90.gemm.hopper_gemm import ENGINE, ENGINE_FP8, ENGINE_FP8_FAST, ENGINE_TF32
from graphdnn.engines.cuda.sm90.tile import TILES
from graphdnn.enums import DataType, KnobType, PointwiseMode
from graphdnn.operations import ConvForward, ConvolutionSpec, Operation, PointwiseOperation, PointwiseSpec

_NUMBER = {tile.name: i for i, tile in enumerate(TILES, 1)}
_NAME = {i: name for name, i in _NUMBER.items()}
SMALL = _NUMBER["64x64"]


def check(
    what: str | Sequence[Operation],
    seed: int = 0,
    tile: int = SMALL,
    engine: Engine = ENGINE,
    device: DeviceSpec | None = None,
    **knobs: Any,
) -> None:
    check_sums(what, engine, seed, device, TILE_SIZE=tile, **knobs)


FORWARD = [
    "conv x=f16[2,64,9,11]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + residual + relu",
    "conv x=bf16[2,40,9,11]nhwc w=bf16[24,40,3,3]nhwc pad=1 stride=2 mode=conv",
    "conv x=f16[1,72,9,8]nhwc w=f16[80,72,3,3]nhwc pad=1 dil=2 out=f32 + residual",
    "conv x=i8[2,48,7,6]nhwc w=u8[32,48,3,3]nhwc pad=1 compute=i32 out=i32",
    "conv x=u8[1,144,7,6]nhwc w=i8[10,144,1,1]nhwc compute=i32 out=i8 + relu",
    "conv x=bf16[1,16,17]nhwc w=bf16[10,16,5]nhwc pad=2 spatial=1",
    "conv x=bf16[1,16,5,6,7]nhwc w=bf16[8,16,3,3,3]nhwc pad=1 spatial=3",
    "conv x=f16[2,128,6,5]nhwc w=f16[96,64,3,3]nhwc pad=1 stride=2,1",
    "conv x=f16[2,64,8,12] w=f16[64,64,3,3] pad=1 + bias + relu",
    "conv x=i8[2,3,9,12] w=i8[40,3,3,3] pad=1 compute=i32 out=i32",
    "conv x=f16[2,160,6,5]nhwc w=f16[160,40,3,3]nhwc pad=1 stride=2 + bias + relu",  # groups that end within a row
    "conv x=f16[1,48,5,6] w=f16[48,16,3,3] pad=1 + bias + relu",
    "conv x=f16[2,24,6,5]nhwc w=f16[144,24,1,1]nhwc + bias + relu",  # filters permuted in 16s
    "conv x=f16[2,64,6,5]nhwc w=f16[80,64,3,3]nhwc pad=1 + residual",
]
BACKWARD = [
    "dgrad dy=f16[2,16,9,11]nhwc w=f16[16,64,3,3]nhwc dx=[2,64,9,11] pad=1",
    "dgrad dy=f16[2,8,5,6]nhwc w=f16[8,16,3,3]nhwc dx=[2,16,9,11] pad=1 stride=2",
    "dgrad dy=bf16[2,72,10,12]nhwc w=bf16[72,80,3,3]nhwc dx=[2,80,10,12] pad=1 mode=conv",
    "dgrad dy=bf16[1,8,4,4]nhwc w=bf16[8,8,2,3]nhwc dx=[1,8,8,12] stride=2,3",
    "dgrad dy=f16[3,40,9,11]nhwc w=f16[40,136,1,1]nhwc dx=[3,136,18,21] stride=2",
    "dgrad dy=f16[1,16,4,5]nhwc w=f16[16,24,5,5]nhwc dx=[1,24,12,13] pad=2 stride=3",
    "dgrad dy=f16[1,128,4,4]nhwc w=f16[128,16,3,3]nhwc dx=[1,32,4,4] pad=1",
    "dgrad dy=f16[2,40,9,11] w=f16[40,24,3,3] dx=[2,24,9,11] pad=1",
    "dgrad dy=f16[2,160,6,5]nhwc w=f16[160,40,3,3]nhwc dx=[2,160,6,5] pad=1",
    "wgrad x=f16[2,8,9,11]nhwc dy=f16[2,24,9,11]nhwc dw=[24,8,3,3] pad=1",
    "wgrad x=f16[2,72,9,11]nhwc dy=f16[2,80,5,6]nhwc dw=[80,72,3,3] pad=1 stride=2",
    "wgrad x=bf16[1,8,5,6,7]nhwc dy=bf16[1,8,5,6,7]nhwc dw=[8,8,3,3,3] pad=1 spatial=3 mode=conv",
    "wgrad x=f16[1,32,9,11]nhwc dy=f16[1,48,9,11]nhwc dw=[48,16,3,3] pad=1",
    "wgrad x=f16[2,5,9,11] dy=f16[2,7,9,11] dw=[7,5,3,3] pad=1",
]


@emulated
@pytest.mark.parametrize("text", FORWARD + BACKWARD)
def test_results(text: str) -> None:
    check(text, SPLIT_K=1)
    check(text, SPLIT_K=3, STAGES=3)


@emulated
@pytest.mark.parametrize("text", ["conv x=f32[1,40,5,6]nhwc w=f32[24,40,3,3]nhwc pad=1 + relu",
                                  "dgrad dy=f32[1,12,5,6] w=f32[12,36,3,3] dx=[1,36,10,12] pad=1 stride=2"])  # fmt: skip
def test_tf32(text: str) -> None:
    """Quarters have few digits: nothing is rounded."""
    check(text, engine=ENGINE_TF32)


@emulated
@pytest.mark.parametrize("text", [FORWARD[0], FORWARD[3], BACKWARD[0], BACKWARD[7]])
def test_more_parts_than_steps(text: str) -> None:
    """Parts without a step are zero, also where the block had another piece before."""
    few = replace(device_spec("h200"), sm_count=3)
    check(text, device=few, SPLIT_K=40)


@emulated
def test_few_sums_of_many_parts() -> None:
    """Lanes of a warp share parts, where there are few sums."""
    text = "wgrad x=f16[2,40,9,8]nhwc dy=f16[2,56,9,8]nhwc dw=[56,40,1,1]"
    check(text, SPLIT_K=20)


@emulated
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("number", "parts", "tile"),
    [(0, 2, "64x64"), (3, 3, "64x64b2"), (-1, 4, "64x128"), (-2, 8, "64x64"), (-3, 5, "128x64b2"), (-4, 7, "256x64")],
)
def test_clusters_add_their_parts(
    number: int, parts: int, tile: str, backward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Emulated, "launch", partialmethod(Emulated.launch, backward=backward))
    check((FORWARD + BACKWARD)[number], tile=_NUMBER[tile], SPLIT_K=parts, CTA_SPLIT_K_MODE=2, STAGES=3)


@emulated
@pytest.mark.parametrize("tile", ["128x144s", "128x224s"])
def test_tiles_share_panels(tile: str) -> None:
    """Of 64 channels at a tap, of which a tile's columns end within the last."""
    check("wgrad x=f16[1,200,5,7]nhwc dy=f16[1,130,5,7]nhwc dw=[130,200,3,1] pad=1,0", tile=_NUMBER[tile], SPLIT_K=1)


def test_launches_overlap_where_tiles_are_few() -> None:
    """Products leave registers and shared memory to the launch that adds their parts."""
    for rows, overlap in ((64, True), (1024, False)):
        what = operations(f"wgrad x=f16[64,64,28,28]nhwc dy=f16[64,{rows},28,28]nhwc dw=[{rows},64,1,1]")
        kernel = device_kernel(what, ENGINE, {KnobType.TILE_SIZE: _NUMBER["64x64"], KnobType.SPLIT_K: 8})
        assert ("OVERLAPS = true" in kernel.source) == overlap
        assert ("CTAS_PER_SM = 2" in kernel.source) == overlap


def test_clusters_need_no_second_launch() -> None:
    """Nor memory for their parts. There are none of more than 8 blocks."""
    what = operations("wgrad x=f16[32,672,7,7]nhwc dy=f16[32,192,7,7]nhwc dw=[192,672,1,1]")
    for parts, mode, launches in ((4, 1, 2), (4, 2, 1), (9, 2, 2)):
        asked = {KnobType.TILE_SIZE: SMALL, KnobType.SPLIT_K: parts, KnobType.CTA_SPLIT_K_MODE: mode}
        kernel = device_kernel(what, ENGINE, asked)
        assert len(kernel.steps) == launches
        assert (kernel.workspace_bytes == 0) == (launches == 1)


FP8 = [
    "conv x=e4m3[2,160,9,11]nhwc w=e5m2[64,160,3,3]nhwc pad=1 out=f32 + bias + relu",
    "conv x=e5m2[2,36,5,6] w=e5m2[40,36,3,3] pad=1 stride=2 out=f16",
    "dgrad dy=e5m2[2,24,5,6]nhwc w=e4m3[24,40,3,3]nhwc dx=[2,40,9,11] pad=1 stride=2",
]


@emulated
@pytest.mark.parametrize("text", FP8)
def test_fp8(text: str) -> None:
    """Quarters below two have few digits: every sum of 128 products is exact."""
    check(text, engine=ENGINE_FP8)
    check(text, engine=ENGINE_FP8, tile=_NUMBER["128x64b2"], SPLIT_K=3)


@emulated
def test_fast_fp8() -> None:
    """Tensor cores keep the sums to the end."""
    (conv,) = operations("conv x=e4m3[1,144,5,6]nhwc w=e4m3[24,144,3,3]nhwc pad=1 out=f32")
    assert isinstance(conv, ConvForward)
    fast = conv.conv.model_copy(update={"compute_type": DataType.FAST_FLOAT_FOR_FP8})
    check([conv.model_copy(update={"conv": fast})], engine=ENGINE_FP8_FAST)


@emulated
def test_blends_gaps_and_several_results() -> None:
    def images(uid: int, channels: int, gap: int, **fields: Any) -> TensorSpec:
        pitch = channels + gap
        return TensorSpec(
            uid=uid, data_type="f16", dims=(2, channels, 5, 6), strides=(30 * pitch, 1, 6 * pitch, pitch), **fields
        )

    filters = TensorSpec(uid=2, data_type="f16", dims=(48, 24, 3, 3), strides=(9 * 32, 1, 96, 32))
    conv = ConvolutionSpec(
        compute_type="f32",
        mode=ConvolutionMode.CROSS_CORRELATION,
        spatial_dims=2,
        dilations=(1, 1),
        filter_strides=(1, 1),
        pre_paddings=(1, 1),
        post_paddings=(1, 1),
    )
    check([ConvForward(x=images(1, 24, 8), w=filters, y=images(3, 48, 16), conv=conv, alpha=2.0, beta=-0.5)])
    relu = PointwiseSpec(mode=PointwiseMode.RELU_FWD, math_type="f32")
    first = ConvForward(x=images(1, 24, 8), w=filters, y=images(3, 48, 4), conv=conv)
    check([first, PointwiseOperation(spec=relu, x=first.y, y=images(4, 48, 0))])


@emulated
@pytest.mark.parametrize("text", [FORWARD[0], FORWARD[8], BACKWARD[0], BACKWARD[6]])
def test_many_parts_are_added_by_slices(text: str) -> None:
    check(text, SPLIT_K=13)


@emulated
@pytest.mark.parametrize("tile", ["128x96", "256x64"])
def test_tiles(tile: str) -> None:
    """Two warpgroups that multiply, and two blocks of rows for each."""
    check(FORWARD[0], tile=_NUMBER[tile])


@emulated
@pytest.mark.parametrize("text", [FORWARD[0], FORWARD[3], "dgrad dy=f16[3,24,5,1]nhwc w=f16[24,135,3,1]nhwc dx=[3,135,5,1] pad=1,0",
                                  "conv x=bf16[5,16,1]nhwc w=bf16[10,16,1]nhwc out=f32 spatial=1"])  # fmt: skip
def test_turned_tiles(text: str) -> None:
    """Channels are rows though they are neighbours in the result; 135 of them go one by one."""
    tile = _NUMBER["128x96t"]
    assert "128x96t" in device_kernel(operations(text), ENGINE, {KnobType.TILE_SIZE: tile}).name
    check(text, tile=tile)


RESIDUAL = [
    (
        "conv x=f16[2,64,9,11]nhwc w=f16[192,64,3,3]nhwc pad=1 + bias + residual + relu",
        ("64x64", "128x256", "256x160", "128x96t"),
    ),
    ("conv x=f16[1,72,9,8]nhwc w=f16[88,72,3,3]nhwc pad=1 dil=2 out=f32 + residual", ("128x256", "256x128", "256x96t")),
    ("dgrad dy=f16[2,40,9,11]nhwc w=f16[40,136,3,3]nhwc dx=[2,136,9,11] pad=1 + residual", ("128x64b2", "64x192b2")),
    ("conv x=i8[2,48,7,6]nhwc w=u8[80,48,3,3]nhwc pad=1 compute=i32 out=i8 + residual", ("128x96",)),
]


@emulated
@pytest.mark.parametrize(("text", "tile"), [(text, tile) for text, tiles in RESIDUAL for tile in tiles])
def test_residuals_come_through_the_ring(text: str, tile: str) -> None:
    ops, knobs = operations(text), {KnobType.TILE_SIZE: _NUMBER[tile], KnobType.SPLIT_K: 1}
    assert "p.residual[0]" in (device_kernel(ops, ENGINE, knobs).source or "")
    check(text, tile=_NUMBER[tile], SPLIT_K=1)


@emulated
@pytest.mark.parametrize("layout", ["nhwc", ""])
def test_indices_of_pixels(layout: str) -> None:
    """Whoever asks where a pixel is gets its own place: pixels are not counted as one axis then."""
    (conv,) = operations(f"conv x=f16[2,16,5,6]{layout} w=f16[24,16,3,3]{layout} pad=1")
    assert isinstance(conv, ConvForward)
    place, y = (TensorSpec(uid=50 + i, data_type="f16", dims=conv.y.dims, strides=conv.y.strides) for i in range(2))
    index = PointwiseSpec(mode=PointwiseMode.GEN_INDEX, math_type="f32", axis=3)
    add = PointwiseSpec(mode=PointwiseMode.ADD, math_type="f32")
    first = conv.model_copy(update={"y": conv.y.model_copy(update={"is_virtual": True})})
    ops = [
        first,
        PointwiseOperation(spec=index, x=first.y, y=place.model_copy(update={"is_virtual": True})),
        PointwiseOperation(spec=add, x=first.y, b=place.model_copy(update={"is_virtual": True}), y=y),
    ]
    check(ops)
    check(ops, tile=_NUMBER["128x96t"])


@emulated
@pytest.mark.parametrize(
    "text",
    [
        "conv x=f16[3,72,9,11]nhwc w=f16[200,72,3,3]nhwc pad=1 + residual + relu",
        "dgrad dy=f16[3,72,9,11]nhwc w=f16[72,200,3,3]nhwc dx=[3,200,9,11] pad=1",
    ],
)
def test_teams_have_tiles_in_turns(text: str) -> None:
    check(text, tile=_NUMBER["128x128w2"], device=replace(device_spec("h200"), sm_count=2), SPLIT_K=1)


@emulated
@pytest.mark.long
@pytest.mark.parametrize("tile", [0, *_NAME], ids=["chosen", *_NAME.values()])
@pytest.mark.parametrize("text", [*FORWARD[:2], FORWARD[8], *BACKWARD[:2], *BACKWARD[5:8]])
def test_every_tile(text: str, tile: int) -> None:
    check(text, tile=tile)
    check(text, tile=tile, SPLIT_K=2)


@emulated
@pytest.mark.parametrize(
    "text",
    [
        "conv x=f16[2,72,5,7] w=f16[72,72,3,3] pad=1 + bias + relu",
        "conv x=i8[3,32,5,5] w=i8[48,32,1,1] compute=i32 out=i8 + relu",
    ],
)
def test_odd_images_are_turned_by_a_copy(text: str) -> None:
    last = device_kernel(operations(text), ENGINE, {}).steps[-1]
    assert isinstance(last, Launch)
    assert last.entry == "movement_run"
    check(text)


@emulated
def test_old_contents_of_odd_images() -> None:
    (conv,) = operations("conv x=f16[2,72,5,7] w=f16[72,72,3,3] pad=1")
    check([conv.model_copy(update={"beta": -2.0})])


@emulated
@pytest.mark.parametrize("layout", ["nhwc", ""])
def test_infinities_stay_where_they_are(layout: str) -> None:
    """Padding and what lies beyond the product are zeros times zeros."""
    ops = operations(f"conv x=f16[1,8,5,7]{layout} w=f16[9,8,3,3]{layout} pad=1")
    op, rng = fused(ops), np.random.default_rng(0)
    values = {t.uid: quarters(t, rng) for t in (*op.inputs, *op.outputs)}
    x, w, _ = op.anchor.roles  # type: ignore[union-attr]
    values[x.uid][0, 3, 2, 2] = np.inf
    values[w.uid][5] = np.nan
    check_values(ops, ENGINE, values, TILE_SIZE=SMALL)


@emulated
@pytest.mark.parametrize("text", [FORWARD[0], BACKWARD[6]])
def test_threads_in_the_other_order(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that multiply come before those that copy."""
    monkeypatch.setattr(Emulated, "launch", partialmethod(Emulated.launch, backward=True))
    check(text, SPLIT_K=1)
    check(text, SPLIT_K=3, STAGES=3)


# What the emulator has to see: a kernel that signals, waits or announces wrongly.
_BROKEN = {
    "fills what is still read": ("if (unreleased >= 0 && releases) mbarrier_arrive(smem.empty + 8 * unreleased);\n"
                                 "        unreleased", "if (releases) mbarrier_arrive(smem.empty + 8 * pipe.stage);\n"
                                 "        unreleased"),
    "reads before it landed": ("mbarrier_wait_parity(smem.full + 8 * pipe.stage, pipe.phase);", ""),
    "fills without waiting": ("mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);", ""),
    "announces too few bytes": ("mbarrier_expect_tx(barrier, bytes)", "mbarrier_expect_tx(barrier, bytes - 128)"),
    "leaves products unfinished": ("            wgmma_wait<0>();", "            wgmma_wait<1>();"),
}  # fmt: skip


def with_broken(monkeypatch: pytest.MonkeyPatch, file: str, right: str, wrong: str) -> None:
    """Replace ``right`` by ``wrong`` in the kernels' text from now on.

    The check that ``file`` has ``right`` is made at once: inside ``pytest.raises`` its failure would pass for a find.
    """
    whole = included_files.kernel_file
    assert right in whole(file).text, f"{file} has no line {right!r}"

    def broken(name: str) -> included_files.KernelFile:
        found = whole(name)
        return replace(found, text=found.text.replace(right, wrong)) if name == file else found

    monkeypatch.setattr(source, "_texts", BoundedCache(512))
    monkeypatch.setattr(included_files, "kernel_file", broken)


@emulated
@pytest.mark.parametrize("what", _BROKEN)
def test_wrong_signals_are_seen(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_broken(monkeypatch, "hopper_gemm.cu", *_BROKEN[what])
    with pytest.raises((EmulationError, AssertionError)):
        check(FORWARD[0], STAGES=3, SPLIT_K=1)


@emulated
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    cluster_arrive();\n    cluster_wait();\n", ""),
        ("    cluster_arrive();\n    cluster_wait();\n", "    cluster_wait();\n"),
        ("CLUSTER - 1) / CLUSTER;", "CLUSTER - 1) / CLUSTER - 1;"),
        ("unit_at + HALF_UNIT_BYTES, unit % CLUSTER, v + 4", "unit_at + HALF_UNIT_BYTES, rank, v + 4"),
    ],
)
def test_blocks_that_do_not_meet_are_seen(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_broken(monkeypatch, "split_k_cluster.cuh", right, wrong)
    with pytest.raises((EmulationError, AssertionError)):
        check(FORWARD[0], SPLIT_K=3, CTA_SPLIT_K_MODE=2)


LARGE = [
    "conv x=f16[32,256,56,56]nhwc w=f16[256,256,3,3]nhwc pad=1 + bias + residual + relu",
    "conv x=bf16[32,64,56,56] w=bf16[256,64,1,1] + bias + relu",
    "conv x=i8[32,256,56,56]nhwc w=u8[256,256,3,3]nhwc pad=1 compute=i32 out=i8 + relu",
    "dgrad dy=bf16[64,128,28,28]nhwc w=bf16[128,64,3,3]nhwc dx=[64,64,56,56] pad=1 stride=2",
    "wgrad x=f16[32,256,56,56]nhwc dy=f16[32,256,56,56]nhwc dw=[256,256,3,3] pad=1",
]


@compiler
@pytest.mark.parametrize("text", LARGE)
def test_compiles(text: str) -> None:
    last_compiles_cleanly(operations(text), ENGINE)


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@pytest.mark.parametrize("b", ["e4m3", "e5m2"])
@pytest.mark.parametrize("a", ["e4m3", "e5m2"])
def test_fp8_compiles(a: str, b: str) -> None:
    ops = operations(f"conv x={a}[32,256,56,56]nhwc w={b}[256,256,3,3]nhwc pad=1 out=f16 + bias + relu")
    compiles_cleanly(ops, ENGINE_FP8, "sm_90a")
    step = device_kernel(ops, ENGINE_FP8).steps[-1]
    assert isinstance(step, Launch)
    assert _count(instructions(compiled(step.text, "sm_90a").cubin), "QGMMA") > 0


@compiler
@pytest.mark.long
@pytest.mark.parametrize("tile", _NAME, ids=_NAME.get)
def test_every_tile_of_fp8_compiles(tile: int) -> None:
    text = "conv x=e4m3[32,256,56,56]nhwc w=e5m2[256,256,3,3]nhwc pad=1 out=f16 + bias + residual + relu"
    compiles_cleanly(operations(text), ENGINE_FP8, "sm_90a", {KnobType.TILE_SIZE: tile})


@compiler
@pytest.mark.long
@pytest.mark.parametrize("tile", _NAME, ids=_NAME.get)
@pytest.mark.parametrize("text", LARGE)
def test_every_tile_compiles(text: str, tile: int) -> None:
    knobs = {KnobType.TILE_SIZE: tile}
    compiles_cleanly(operations(text), ENGINE, "sm_90a", knobs)


def _count(found: Counter[str], *parts: str) -> int:
    return sum(n for name, n in found.items() if all(part in name for part in parts))


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@pytest.mark.parametrize("text", LARGE)
def test_instructions(text: str) -> None:
    """Tensor cores read from shared memory, the copy unit walks through images, warpgroups change registers."""
    found = instructions(last_compiles_cleanly(operations(text), ENGINE).cubin, whole=True)
    assert _count(found, "IGMMA" if "i8" in text else "HGMMA") > 0, found
    assert _count(found, "UTMALDG", "IM2COL") > 0, found
    assert text.startswith("wgrad") or _count(found, "UTMALDG") > _count(found, "UTMALDG", "IM2COL"), "filters by boxes"
    assert _count(found, "USETMAXREG") >= 2, found
    assert _count(found, "SYNCS") > 0, found
    assert not _count(found, "HMMA.") + _count(found, "IMMA."), "products of warps"
    if "relu" in text and "f16" in text:
        assert _count(found, "F2FP.RELU") > 0, "rounding takes the ReLU in, where no branch stands between them"
        assert not _count(found, "FMNMX"), found


def test_workspace_only_where_the_sum_is_in_parts() -> None:
    assert device_kernel(operations(LARGE[0]), ENGINE).workspace_bytes == 0
    assert device_kernel(operations(LARGE[4]), ENGINE).workspace_bytes > 0
    assert device_kernel(operations(LARGE[4]), ENGINE, {KnobType.SPLIT_K: 1}).workspace_bytes == 0
