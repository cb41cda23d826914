"""Convolutions by spectra: NumPy stands in for cuFFT and cuBLAS, the rest runs in the emulator.

Operands are whole numbers of few bits, so the bound on the results is that of the transforms in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, emulated, fused, run_both, text_compiles_cleanly
from emulator.libraries import HostBlas, host_libraries
from problems import tensor
from test_cuda_explicit_gemm import convolution
from test_cuda_library_gemm import refusals as refusals_of
from test_cuda_matmul import exact_values, operations, pointwise

from graphdnn.device.profiles import device_spec
from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.fft.fft import ENGINE, TILING
from graphdnn.engines.cuda.fft.fft_tiles import fast_size
from graphdnn.enums import ConvolutionMode, PointwiseMode
from graphdnn.operations import Operation

engines = pytest.mark.parametrize("engine", [ENGINE, TILING], ids=lambda e: e.name)
directions = pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])


@pytest.fixture(autouse=True)
def blas() -> Iterator[HostBlas]:
    with host_libraries() as library:
        yield library


def check(ops: Operation | Sequence[Operation], engine: Engine, relative: float = 3e-6, seed: int = 0) -> None:
    op, rng = fused(ops), np.random.default_rng(seed)
    values = {t.uid: exact_values(t, rng) for t in (*op.inputs, *op.outputs) if not t.is_constant}
    got, expected = run_both(ops, engine, values)
    for uid, array in expected.items():
        scale = max(1.0, float(np.abs(array.astype(np.float64)).max()))
        np.testing.assert_allclose(
            got[uid].astype(np.float64), array.astype(np.float64), rtol=relative, atol=relative * scale
        )


SHAPES: list[dict[str, Any]] = [
    {},
    {"pad": (1, 1)},
    {"pad": (3, 0), "post": (0, 4)},
    {"pad": (1, 2), "mode": ConvolutionMode.CONVOLUTION},
]


@emulated
@engines
@directions
@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("layout", ["packed", "channels_last", "rotated"])
def test_agrees_with_numpy(engine: Engine, direction: str, shape: int, layout: str) -> None:
    check(convolution(direction, (2, 8, 9, 12), (4, 8, 3, 2), (layout,) * 3, **SHAPES[shape]), engine)


@emulated
@directions
@pytest.mark.parametrize("mode", ["CROSS_CORRELATION", "CONVOLUTION"])
def test_several_tiles(direction: str, mode: str) -> None:
    check(
        convolution(direction, (2, 3, 61, 40), (5, 3, 5, 4), pad=(2, 1), post=(2, 3), mode=ConvolutionMode[mode]),
        TILING,
    )
    check(convolution(direction, (1, 3, 40, 70), (2, 3, 32, 31), pad=(3, 1)), TILING)


@emulated
@engines
@directions
def test_filters_as_large_as_the_image(engine: Engine, direction: str) -> None:
    check(convolution(direction, (2, 3, 9, 8), (4, 3, 9, 8)), engine)
    check(convolution(direction, (2, 3, 5, 4), (4, 3, 9, 8), pad=(4, 4)), engine)
    check(convolution(direction, (1, 1, 1, 1), (1, 1, 1, 1)), engine)
    check(convolution(direction, (2, 3, 5, 4), (4, 3, 1, 1), pad=(4, 4)), engine)


@emulated
@engines
@pytest.mark.parametrize(
    "text",
    [
        "conv x=f16[2,8,9,10]nhwc w=f16[16,8,3,3]nhwc pad=1 + bias + relu",
        "conv x=f32[2,8,9,10] w=f32[16,8,3,3] pad=1 + bias + residual + relu",
        "conv x=bf16[2,8,9,10] w=bf16[16,8,5,5] pad=2 out=f32",
        "conv x=f32[2,8,9,10] w=f32[16,8,3,3] pad=1 + bias -> reduce add [1,16,1,1]",
        "dgrad dy=f16[2,16,9,10] w=f16[16,8,3,3] dx=[2,8,9,10] pad=1 + bias + relu",
    ],
)
def test_what_follows(engine: Engine, text: str) -> None:
    check(operations(text), engine, 2e-5 if "reduce" in text else 1e-3 if "f16" in text else 3e-6)


@emulated
def test_factors_old_contents_and_a_chain_before() -> None:
    check(convolution("fprop", (2, 8, 5, 6), (4, 8, 3, 3), pad=(1, 1), alpha=0.5, beta=2.0), ENGINE)
    image, virtual = tensor(11, (2, 8, 5, 6), "f16"), tensor(1, (2, 8, 5, 6), "f32", is_virtual=True)
    op = convolution("fprop", (2, 8, 5, 6), (4, 8, 3, 3), pad=(1, 1)).model_copy(update={"x": virtual})
    check([pointwise(PointwiseMode.RELU_FWD, image, virtual), op], ENGINE)


def test_sizes_have_small_factors() -> None:
    assert [fast_size(n) for n in (1, 2, 11, 13, 58, 226)] == [2, 2, 12, 14, 60, 240]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("conv x=f64[2,8,8,8] w=f64[8,8,3,3] compute=f64", "types"),
        ("conv x=i8[2,8,8,8] w=i8[8,8,3,3] compute=i32 out=i32", "types"),
        ("conv x=f32[2,8,8,8] w=f32[8,8,3,3] stride=2", "stride"),
        ("conv x=f32[2,8,8,8] w=f32[8,8,3,3] dil=2", "dilation"),
        ("conv x=f32[2,8,8,8] w=f32[8,4,3,3]", "groups"),
        ("conv x=f32[2,8,8] w=f32[8,8,3]", "spatial"),
        ("conv x=f32[256,2048,224,224] w=f32[2048,2048,3,3]", "memory"),
        ("matmul a=f32[8,8] b=f32[8,8]", "operation"),
    ],
)
def test_what_they_decline(text: str, rule: str) -> None:
    assert refusals_of(text, ENGINE) == {f"cuda_fft.{rule}"}
    assert refusals_of(text, TILING) == {f"cuda_fft_tiling.{rule}"}


def test_tiles_hold_the_filter() -> None:
    assert refusals_of("conv x=f32[2,8,64,64] w=f32[8,8,33,3]", TILING) == {"cuda_fft_tiling.filter"}
    assert not refusals_of("conv x=f32[2,8,64,64] w=f32[8,8,33,3]", ENGINE)


@compiler
@engines
@directions
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
def test_compiles_without_spills(engine: Engine, direction: str, layout: str, arch: str) -> None:
    op = convolution(direction, (2, 16, 8, 8), (16, 16, 3, 3), (layout,) * 3, ("f16",) * 3, beta=1.0)
    kernel = engine.compile(Task(fused(op), device_spec("h200")), engine.defaults())
    for step in kernel.steps:  # type: ignore[attr-defined]
        if isinstance(step, Launch):
            text_compiles_cleanly(step.text, arch)
