"""Depthwise convolutions by a sliding window in registers, run on the host against the general NumPy engine.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiled, compiler, compiles_cleanly, emulated, fused
from disassembly import NO_DISASSEMBLER, instructions, loads_before_the_wait
from exact_sums import check_values, operations, quarters
from test_cuda_direct import check
from test_cuda_direct_rows import PROBLEMS, kernel

from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.direct.direct import ENGINE
from graphdnn.enums import KnobType

SLIDING = {"KERNEL_CFG": 4}
WHOLE = [  # tiles divide the image
    "conv x=f16[64,144,56,56]nhwc w=f16[144,1,5,5] pad=2 + bias + relu(0,6)",
    "dgrad dy=f16[64,144,56,56]nhwc w=f16[144,1,5,5] dx=[64,144,56,56] pad=2",
]
CUTS: list[dict[str, int]] = [
    {},
    {"LOAD_SIZE": 2, "TILE_COLS": 2, "TILE_ROWS": 2, "BLOCK_SIZE": 64},
    {"LOAD_SIZE": 8, "TILE_COLS": 7, "TILE_ROWS": 3, "OCCUPANCY": 1},
]


@emulated
@pytest.mark.parametrize("cut", CUTS, ids=["chosen", "small", "wide"])
@pytest.mark.parametrize("text", PROBLEMS)
def test_agrees_with_numpy(text: str, cut: dict[str, int]) -> None:
    assert "__sliding_r" in kernel(text, **SLIDING, **cut).name
    check(text, **SLIDING, **cut)


@emulated
@pytest.mark.parametrize("ending", ["bias", "bias + relu(0,6)"])
@pytest.mark.parametrize("value", [np.inf, np.nan], ids=str)
def test_what_is_not_finite_stays_where_it_belongs(value: float, ending: str) -> None:
    ops, rng = operations(f"conv x=f16[1,16,13,9]nhwc w=f16[16,1,5,5] pad=2 + {ending}"), np.random.default_rng(1)
    op = fused(ops)
    values = {t.uid: quarters(t, rng) for t in op.inputs}
    values[op.inputs[0].uid][0, 5, 5, 4] = value
    check_values(ops, ENGINE, values, KERNEL_CFG=4, TILE_ROWS=6)


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        (WHOLE[0], "r5s5v2w8h56"),
        (WHOLE[1], "r5s5v2w8h56"),
        ("conv x=f16[32,240,28,28]nhwc w=f16[240,1,5,5] pad=2 + bias + relu(0,6)", "r5s5v2w7h14"),
        (WHOLE[0].replace("64,144", "32,144"), "r5s5v2w8h28"),  # warps enough
        ("dgrad dy=f16[32,672,14,14]nhwc w=f16[672,1,5,5] dx=[32,672,14,14] pad=2", "r5s5v2w7h14"),
    ],
)
def test_medium_filters_of_whole_tiles_use_the_kernel(text: str, variant: str) -> None:
    assert f"sliding_{variant}_" in kernel(text).name
    assert "__direct_" in kernel(text, KERNEL_CFG=1).name


@pytest.mark.parametrize(
    "text",
    [
        "conv x=f16[1,16,8,8]nhwc w=f16[16,1,5,5] pad=2 stride=2",
        "conv x=f16[1,16,8,8]nhwc w=f16[32,1,5,5] pad=2",  # groups that grow
        "conv x=f16[1,16,9,20]nhwc w=f16[16,1,3,11] pad=1,5",  # a long filter
    ],
)
def test_other_kernels_serve_other_convolutions(text: str) -> None:
    assert "__sliding_r" not in kernel(text, **SLIDING).name


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("knobs", [{}, {"LOAD_SIZE": 4, "TILE_COLS": 4}], ids=["chosen", "channels"])
@pytest.mark.parametrize("text", WHOLE)
def test_compiles_without_spills(text: str, knobs: dict[str, int], arch: str) -> None:
    knobs = SLIDING | knobs
    compiles_cleanly(operations(text), ENGINE, arch, {KnobType[name]: value for name, value in knobs.items()})


def test_other_images_of_as_many_channels_compile_nothing() -> None:
    sizes = ("64,144,56,56", "80,144,28,64")
    texts = [kernel(WHOLE[0].replace(sizes[0], size), **SLIDING).source for size in sizes]
    assert texts[0] == texts[1]


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@pytest.mark.parametrize("text", PROBLEMS[:2] + WHOLE)
def test_reads_nothing_before_the_launch_ahead_is_through(text: str) -> None:
    """Loads of the read-only path may pass the wait, as the compiler takes what they read to be constant."""
    (step,) = kernel(text, **SLIDING).steps
    assert isinstance(step, Launch)
    assert step.starts_early
    assert not loads_before_the_wait(compiled(step.text, "sm_90a").cubin, step.entry)


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
def test_instructions_are_products() -> None:
    """Of those of two rows of a thread, four in five."""
    (step,) = kernel(WHOLE[1], **SLIDING).steps
    assert isinstance(step, Launch)
    found = instructions(compiled(step.text, "sm_90a").cubin)
    assert found["FFMA"] >= 800
    assert found.total() < 1600


def test_rows_of_a_thread_are_not_in_the_text() -> None:
    """Another height finds the kernel on disk, whose key has the text and its name."""
    texts = {kernel(WHOLE[0], **SLIDING, TILE_ROWS=rows).steps[-1].text for rows in (14, 28, 56)}  # type: ignore[union-attr]
    assert len(texts) == 1
