"""Engines of the extension operations on the emulator against NumPy, and their text through NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, device_kernel, emulated, run_both
from extension_cases import extension
from legal_problems import convolution
from problems import tensor

from graphdnn.engines.cuda.extensions import grid_sample
from graphdnn.engines.cuda.extensions.grid_sample import BACKWARD
from graphdnn.engines.cuda.extensions.grid_sample import ENGINE as SAMPLE
from graphdnn.engines.cuda.extensions.im2col import ENGINE as PATCHES
from graphdnn.enums import ConvolutionMode
from graphdnn.operations import Operation, Patches

RNG = np.random.default_rng(3)
KINDS = [("f32", "f32", 2e-5), ("f16", "f32", 2e-3), ("f64", "f64", 1e-12)]
LAYOUTS = ["packed", "channels_last", "gaps"]


def numbers(dims: Any, scale: float = 1.0) -> np.ndarray:
    return scale * RNG.standard_normal(dims)


def positions(dims: Any) -> np.ndarray:
    found = RNG.uniform(-1.3, 1.3, dims)
    found.reshape(-1)[:6] = [-1, -1, 1, 1, np.nan, np.inf]
    return found


def sampled(kind: str, compute: str, layout: str, x: Any, grid: Any) -> tuple[Operation, dict[int, Any]]:
    y = (*x[:2], *grid[1:3])
    op = extension("grid_sample", x=tensor(1, x, kind, layout), grid=tensor(2, grid, kind), y=tensor(3, y, kind, layout),
                   arithmetic=compute)  # fmt: skip
    return op, {1: numbers(x), 2: positions(grid)}


def gradients(kind: str, compute: str, layout: str, x: Any, grid: Any) -> tuple[Operation, dict[int, Any]]:
    y = (*x[:2], *grid[1:3])
    op = extension(
        "grid_sample_bwd", x=tensor(1, x, kind, layout), grid=tensor(2, grid, kind), dy=tensor(3, y, kind, layout),
        dx=tensor(4, x, kind, layout), dgrid=tensor(5, grid, kind, "gaps" if layout == "gaps" else "packed"),
        arithmetic=compute,
    )  # fmt: skip
    return op, {1: numbers(x), 2: positions(grid), 3: numbers(y)}


SHAPES = [((2, 3, 4, 5), (2, 3, 6, 2)), ((1, 6, 11, 37), (1, 17, 19, 2)), ((2, 1, 1, 4), (2, 1, 3, 2)),
          ((2, 24, 9, 40), (2, 7, 13, 2))]  # fmt: skip


@emulated
@pytest.mark.parametrize(("kind", "compute", "bound"), KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("x", "grid"), SHAPES)
def test_samples(kind: str, compute: str, bound: float, layout: str, x: Any, grid: Any) -> None:
    op, values = sampled(kind, compute, layout, x, grid)
    here, there = run_both(op, SAMPLE, values)
    np.testing.assert_allclose(here[3].astype(float), there[3].astype(float), rtol=bound, atol=bound)


@emulated
@pytest.mark.parametrize(("kind", "compute", "bound"), KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("x", "grid"), SHAPES)
def test_gradients(kind: str, compute: str, bound: float, layout: str, x: Any, grid: Any) -> None:
    op, values = gradients(kind, compute, layout, x, grid)
    here, there = run_both(op, BACKWARD, values)
    for uid in (4, 5):
        np.testing.assert_allclose(here[uid].astype(float), there[uid].astype(float), rtol=20 * bound, atol=20 * bound)


@emulated
def test_large_images_are_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels are read in packs, which takes them next to each other."""
    op, values = gradients("f16", "f32", "packed", *SHAPES[-1])
    assert device_kernel(op, BACKWARD).name == "grid_sample_bwd"
    monkeypatch.setattr(grid_sample, "_LEAST_TURNED", 1)
    assert device_kernel(op, BACKWARD).name == "grid_sample_bwd__turned"
    here, there = run_both(op, BACKWARD, values)
    for uid in (4, 5):
        np.testing.assert_allclose(here[uid].astype(float), there[uid].astype(float), rtol=0.04, atol=0.04)


@emulated
@pytest.mark.parametrize("kind", ["f32", "f16", "f64", "i8"])
@pytest.mark.parametrize("mode", ConvolutionMode)
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_patches(kind: str, mode: ConvolutionMode, spatial: int) -> None:
    x = (2, 3, 7, 6, 5)[: spatial + 2]
    taps, padding, stride, dilation = (3, 2, 2)[:spatial], (2, 1, 0)[:spatial], (2, 1, 1)[:spatial], (1, 2, 1)[:spatial]
    conv = convolution(
        mode=mode, spatial_dims=spatial, pre_paddings=padding, post_paddings=padding, filter_strides=stride,
        dilations=dilation,
    )  # fmt: skip
    source = tensor(1, x, kind, "channels_last" if spatial == 2 else "packed")
    fields = {"x": source, "taps": taps, "conv": conv}
    op = Patches(**fields, y=tensor(2, Patches.infer(fields)["y"], kind))
    here, there = run_both(op, PATCHES, {1: numbers(x, 9)})
    np.testing.assert_array_equal(here[2], there[2])


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("kind", "compute", "bound"), KINDS)
def test_text_compiles(kind: str, compute: str, bound: float, arch: str) -> None:
    compiles_cleanly(sampled(kind, compute, "packed", *SHAPES[0])[0], SAMPLE, arch)
    compiles_cleanly(gradients(kind, compute, "packed", *SHAPES[0])[0], BACKWARD, arch)
    compiles_cleanly(extension("patches"), PATCHES, arch)
