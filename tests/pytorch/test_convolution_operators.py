"""``graphdnn.torch.conv2d`` and its kin: opcheck, gradients, integers to the bit, layouts, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphdnn.torch as gt  # noqa: E402
from graphdnn import BadParam, NotSupported  # noqa: E402

SHAPES = {1: ((2, 4, 9), (6, 2, 3)), 2: ((2, 4, 7, 6), (6, 2, 3, 3)), 3: ((1, 4, 5, 6, 4), (6, 2, 3, 3, 3))}
CONV = {1: gt.conv1d, 2: gt.conv2d, 3: gt.conv3d}


@pytest.mark.parametrize("axes", SHAPES)
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"padding": 2, "dilation": 2}])
def test_values_and_gradients(axes: int, options: dict[str, int]) -> None:
    generator = torch.Generator().manual_seed(4)
    shapes = (*SHAPES[axes], (6,))
    mine, theirs = (
        [torch.randn(s, generator=generator.manual_seed(4 + i), dtype=torch.float64).requires_grad_()
         for i, s in enumerate(shapes)] for _ in range(2)
    )  # fmt: skip
    y = CONV[axes](*mine, **options)
    wanted = getattr(torch.nn.functional, f"conv{axes}d")(*theirs, **options, groups=2)
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(wanted)
    (y * weight).sum().backward()
    (wanted * weight).sum().backward()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("bias", [False, True])
def test_opcheck(bias: bool) -> None:
    x, weight = torch.randn(2, 4, 7, 6, requires_grad=True), torch.randn(6, 2, 3, 3, requires_grad=True)
    offset = torch.randn(6, requires_grad=True) if bias else None
    torch.library.opcheck(torch.ops.graphdnn.convolution.default, (x, weight, offset, [2, 1], [1, 0], [1, 1]))


def test_gradcheck() -> None:
    x, weight = torch.randn(1, 4, 5, 4).double().requires_grad_(), torch.randn(2, 2, 3, 3).double().requires_grad_()
    bias = torch.randn(2).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda *a: gt.conv2d(*a, padding=1), (x, weight, bias), fast_mode=True)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_integers_are_exact(dtype: str) -> None:
    """Compared with sums of NumPy in 64 bits that wrap; PyTorch has no such convolution."""
    kind = getattr(torch, dtype)
    limits = torch.iinfo(kind)
    rng = np.random.default_rng(6)
    low, high = max(limits.min, -(2**40)), min(limits.max, 2**40)
    x, w = (rng.integers(low, high + 1, s) for s in ((2, 3, 6, 5), (4, 3, 3, 3)))
    y = gt.conv2d(torch.from_numpy(x).to(kind), torch.from_numpy(w).to(kind), padding=1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    wanted = np.einsum("nchwrs,kcrs->nkhw", windows, w)
    assert y.dtype is (torch.int64 if kind is torch.int64 else torch.int32)
    np.testing.assert_array_equal(y.numpy(), wanted.astype(y.numpy().dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_channels_last_stays(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = torch.randn(2, 4, 7, 6).to(kind).to(memory_format=torch.channels_last)
    weight = torch.randn(6, 4, 3, 3).to(kind)
    y, wanted = gt.conv2d(x, weight, padding=1), torch.conv2d(x.float(), weight.float(), padding=1)
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y.float(), wanted, rtol=2e-2, atol=2e-2)


def test_views_that_a_kernel_cannot_read() -> None:
    """Expanded, misaligned and negative inputs are copied."""
    weight = torch.randn(6, 4, 3, 3)
    memory = torch.randn(2 * 4 * 7 * 6 + 1)
    for x in (
        torch.randn(1, 1, 7, 6).expand(2, 4, 7, 6),
        memory[1:].view(2, 4, 7, 6),
        torch._neg_view(memory[:-1].view(2, 4, 7, 6)),
    ):
        torch.testing.assert_close(gt.conv2d(x, weight), torch.conv2d(x, weight), rtol=1e-5, atol=1e-5)


def test_inside_torch_compile() -> None:
    x, weight = (
        torch.randint(-9, 9, (1, 3, 6, 6), dtype=torch.int8),
        torch.randint(-9, 9, (2, 3, 3, 3), dtype=torch.int8),
    )
    torch._dynamo.reset()
    call = torch.compile(lambda x, w: gt.conv2d(x, w) * 2, backend="eager", fullgraph=True)
    torch.testing.assert_close(call(x, weight), gt.conv2d(x, weight) * 2, rtol=0, atol=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (torch.randn(2, 5, 7, 6), torch.randn(6, 2, 3, 3)),  # channels that no groups divide
        lambda: (torch.randn(2, 4, 2, 2), torch.randn(6, 4, 3, 3)),  # a filter larger than the image
        lambda: (torch.randn(2, 4, 7, 6), torch.randn(6, 4, 3, 3).double()),  # two types
        lambda: (torch.randn(2, 4, 7, 6).to(torch.complex64), torch.randn(6, 4, 3, 3).to(torch.complex64)),
        lambda: (torch.randn(0, 4, 7, 6), torch.randn(6, 4, 3, 3)),
    ],
)
def test_bad_input_is_refused(make: Any) -> None:
    x, weight = make()
    with pytest.raises((BadParam, NotSupported, RuntimeError)) as error:
        gt.conv2d(x, weight)
    assert str(error.value)
