"""Convolutions as a matrix of columns and a product: NumPy stands in for cuBLAS, the rest runs in the emulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from cuda_comparison import ARCHITECTURES, compiler, emulated, fused, text_compiles_cleanly
from emulator.libraries import HostBlas, host_libraries
from problems import tensor
from test_cuda_library_gemm import check as check_engine
from test_cuda_library_gemm import launches as launches_of
from test_cuda_library_gemm import refusals as refusals_of
from test_cuda_matmul import operations, pointwise

from graphdnn.device.profiles import device_spec
from graphdnn.engines import Task
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.cublas.explicit_gemm import ENGINE
from graphdnn.enums import ConvolutionMode, PointwiseMode
from graphdnn.operations import (
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionOperation,
    ConvolutionSpec,
    Operation,
)
from graphdnn.operations.convolution import forward_extents


@pytest.fixture(autouse=True)
def blas() -> Iterator[HostBlas]:
    with host_libraries() as library:
        yield library


def check(ops: Operation | Sequence[Operation]) -> None:
    check_engine(ops, ENGINE)


LAYOUTS_OF_IMAGES = ("packed", "channels_last", "rotated")
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"pad": (1, 1)},
    "strided": {"pad": (1, 1), "stride": (2, 2)},
    "uneven": {"pad": (2, 1), "post": (0, 2), "dilation": (2, 1)},
    "flipped": {"pad": (1, 0), "stride": (2, 1), "dilation": (1, 2), "mode": ConvolutionMode.CONVOLUTION},
}


def convolution(
    direction: str,
    x: Sequence[int],
    w: Sequence[int],
    layouts: Sequence[str] = ("packed",) * 3,
    kinds: Sequence[str] = ("f32",) * 3,
    compute: str = "f32",
    pad: Sequence[int] = (0, 0),
    post: Sequence[int] | None = None,
    stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
    mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
    virtual: bool = False,
    **factors: float,
) -> ConvolutionOperation:
    """One convolution; layouts and types of x, w, y. The output's uid is 3."""
    spec = ConvolutionSpec(
        compute_type=compute, mode=mode, spatial_dims=len(pad), dilations=dilation, filter_strides=stride,
        pre_paddings=pad, post_paddings=pad if post is None else post,
    )  # fmt: skip
    y = forward_extents(tuple(x), tuple(w), spec)
    cls, (out, *_) = {
        "fprop": (ConvForward, "ywx"),
        "dgrad": (ConvBackwardData, "xwy"),
        "wgrad": (ConvBackwardFilter, "wxy"),
    }[direction]
    uids = dict(zip([n for n in "xwy" if n != out] + [out], (1, 2, 3), strict=True))
    tensors = {
        name: tensor(uids[name], dims, kind, layout, is_virtual=virtual and name == out)
        for name, dims, kind, layout in zip("xwy", (x, w, y), kinds, layouts, strict=True)
    }
    ports = dict(zip(cls.role_names, tensors.values(), strict=True))
    return cls(**ports, conv=spec, **factors)


@emulated
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("x", LAYOUTS_OF_IMAGES)
@pytest.mark.parametrize("w", ["packed", "channels_last", "rotated"])
@pytest.mark.parametrize("y", LAYOUTS_OF_IMAGES)
@pytest.mark.parametrize("shape", ["plain", "flipped"])
def test_any_layout(direction: str, x: str, w: str, y: str, shape: str) -> None:
    check(convolution(direction, (2, 8, 7, 6), (12, 8, 3, 2), (x, w, y), **SHAPES[shape]))


@emulated
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["f16", "bf16", "f64"])
def test_groups_and_types(direction: str, layout: str, shape: str, kind: str) -> None:
    compute = "f64" if kind == "f64" else "f32"
    check(convolution(direction, (2, 16, 7, 8), (12, 8, 3, 3), (layout,) * 3, (kind,) * 3, compute, **SHAPES[shape]))
    check(convolution(direction, (2, 6, 7, 8), (4, 3, 3, 3), (layout,) * 3, (kind,) * 3, compute, **SHAPES[shape]))


@emulated
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
def test_group_axes_and_other_ranks(direction: str) -> None:
    check(convolution(direction, (2, 3, 4, 6, 5), (3, 2, 4, 3, 3), pad=(1, 1)))
    check(convolution(direction, (2, 4, 9), (6, 4, 3), pad=(1,), stride=(2,), dilation=(1,)))
    check(convolution(direction, (2, 4, 4, 5, 3), (6, 4, 2, 3, 1), ("channels_last",) * 3, pad=(1, 0, 1), stride=(1, 2, 1), dilation=(1, 1, 1)))  # fmt: skip
    check(convolution(direction, (1, 1, 3, 3), (1, 1, 3, 3)))


@emulated
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
@pytest.mark.parametrize("groups", [1, 2])
def test_filters_of_one_tap_need_no_columns(direction: str, layout: str, groups: int, blas: HostBlas) -> None:
    op = convolution(direction, (2, 8, 5, 6), (4, 8 // groups, 1, 1), (layout,) * 3)
    if layout == "channels_last":
        assert launches_of(op, ENGINE) == (1, 0)
    check(op)


@emulated
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
def test_factors_and_old_contents(direction: str) -> None:
    check(convolution(direction, (2, 8, 5, 6), (4, 8, 3, 3), kinds=("f16",) * 3, pad=(1, 1), alpha=0.5, beta=2.0))
    check(convolution(direction, (2, 8, 5, 6), (4, 8, 1, 1), kinds=("f16", "f16", "f16"), alpha=0.5))


@emulated
@pytest.mark.parametrize(
    "text",
    [
        "conv x=f16[2,8,9,10]nhwc w=f16[16,8,3,3]nhwc pad=1 + bias + relu",
        "conv x=f32[2,8,9,10] w=f32[16,8,3,3] pad=1 stride=2 + bias + residual + relu",
        "conv x=bf16[2,8,9,10]nhwc w=bf16[16,4,3,3] out=f32 + scale",
        "conv x=f16[2,8,9,10]nhwc w=f16[16,8,1,1] + bias -> reduce add [1,16,1,1]",
        "dgrad dy=f16[2,16,9,10]nhwc w=f16[16,8,3,3] dx=[2,8,9,10] pad=1 + bias + relu",
        "wgrad x=f16[2,8,9,10]nhwc dy=f16[2,16,9,10]nhwc dw=[16,8,3,3] pad=1 out=f32",
        "conv x=f32[2,8,9,10] w=f32[16,8,3,3] pad=1 out=i8",
    ],
)
def test_what_follows(text: str) -> None:
    check(operations(text))


@emulated
def test_a_chain_before_the_image() -> None:
    image = tensor(11, (2, 8, 5, 6), "f16", "channels_last")
    for direction, port in (("fprop", "x"), ("dgrad", "dy"), ("wgrad", "x")):
        op = convolution(direction, (2, 8, 5, 6), (8, 8, 3, 3), ("channels_last",) * 3, ("f16",) * 3, pad=(1, 1))
        spec = getattr(op, port).model_copy(update={"is_virtual": True})
        op = op.model_copy(update={port: spec})
        check([pointwise(PointwiseMode.RELU_FWD, image, spec), op])


def test_columns_are_what_moves() -> None:
    assert launches_of(convolution("fprop", (2, 8, 7, 6), (12, 8, 3, 2), ("channels_last",) * 3), ENGINE) == (1, 1)
    assert launches_of(convolution("fprop", (2, 8, 7, 6), (12, 8, 3, 2)), ENGINE) == (1, 1)
    assert launches_of(convolution("wgrad", (2, 8, 7, 6), (12, 8, 3, 2), ("channels_last",) * 3), ENGINE) == (1, 1)
    assert launches_of(convolution("dgrad", (2, 8, 7, 6), (12, 8, 3, 2), ("channels_last",) * 3), ENGINE) == (1, 1)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("conv x=i8[2,8,8,8] w=i8[8,8,3,3] compute=i32 out=i32", "types"),
        ("conv x=f16[2,8,8,8] w=f32[8,8,3,3]", "types"),
        ("conv x=f32[2,8,8,8] w=f32[8,8,3,3] compute=f64", "compute_type"),
        ("conv x=f32[1024,256,112,112] w=f32[8,256,3,3]", "memory"),
        ("conv x=f32[1,1,8,8] w=f32[1,1,2,1] dil=2000000000,1 pad=1000000000,0", "coordinates"),
        ("matmul a=f32[8,8] b=f32[8,8]", "operation"),
    ],
)
def test_what_it_declines(text: str, rule: str) -> None:
    assert refusals_of(text, ENGINE) == {f"cuda_explicit_gemm.{rule}"}


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
def test_compiles_without_spills(direction: str, layout: str, arch: str) -> None:
    op = convolution(direction, (2, 16, 8, 8), (16, 16, 3, 3), (layout,) * 3, ("f16",) * 3, beta=1.0)
    kernel = ENGINE.compile(Task(fused(op), device_spec("h200")), ENGINE.defaults())
    for step in kernel.steps:  # type: ignore[attr-defined]
        if isinstance(step, Launch):
            text_compiles_cleanly(step.text, arch)
