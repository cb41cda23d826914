"""Pooling and interpolation end to end, beside PyTorch and its autograd; integers bit for bit."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import EXAMPLES, INTEGERS, SEEDS, Tally, drawn, execute, one, tensor, three_layouts, values_of

from graphdnn.dtypes import Array
from graphdnn.enums import PaddingMode, ResampleMode
from graphdnn.errors import BadParam
from graphdnn.operations import ResampleBackward, ResampleForward, ResampleSpec

torch_only = pytest.mark.torch


# Resampling.

M = ResampleMode
TORCH_PADDING = {PaddingMode.NEG_INF_PAD: -math.inf, PaddingMode.ZERO_PAD: 0.0}


def _pooling(window: Any) -> ResampleSpec:
    return ResampleSpec(
        compute_type="f32", spatial_dims=1, window_dims=[window], strides=[1], pre_paddings=[0], post_paddings=[0]
    )


@pytest.mark.parametrize("window", [2, Fraction(2), (4, 2), [2, 1], np.int64(2)], ids=repr)
def test_fractions_in_every_form(window: Any) -> None:
    assert _pooling(window).window_dims == (Fraction(2),)


@pytest.mark.parametrize("window", [True, "2", "1/2", None, (1, 0), (1, 2, 3), 2.5j], ids=repr)
def test_what_is_no_fraction(window: Any) -> None:
    with pytest.raises(BadParam, match="window_dims"):
        _pooling(window)


@st.composite
def poolings(draw: st.DrawFn) -> ResampleSpec:
    """Asymmetric padding, narrower than the window so that each window holds an element."""
    s = draw(st.integers(1, 3))
    mode = draw(st.sampled_from((M.MAXPOOL, M.AVGPOOL_INCLUDE_PADDING, M.AVGPOOL_EXCLUDE_PADDING)))
    paddings = [PaddingMode.ZERO_PAD]
    if mode is not M.AVGPOOL_EXCLUDE_PADDING:
        paddings.append(PaddingMode.EDGE_VAL_PAD)
    if mode is M.MAXPOOL:
        paddings.append(PaddingMode.NEG_INF_PAD)
    window = [draw(st.integers(1, 3)) for _ in range(s)]
    return ResampleSpec(
        mode=mode, padding_mode=draw(st.sampled_from(paddings)), compute_type="f64", spatial_dims=s, window_dims=window,
        strides=[draw(st.integers(1, 3)) for _ in range(s)],
        pre_paddings=[draw(st.integers(0, w - 1)) for w in window],
        post_paddings=[draw(st.integers(0, w - 1)) for w in window],
    )  # fmt: skip


def torch_pooling(spec: ResampleSpec, x: Any) -> Any:
    """Padding by ``pad``, then pooling without."""
    import torch

    functional, s = torch.nn.functional, spec.spatial_dims
    pads = zip(reversed(spec.pre_paddings), reversed(spec.post_paddings), strict=True)
    padding = [int(amount) for pair in pads for amount in pair]
    window, strides = (tuple(map(int, v)) for v in (spec.window_dims, spec.strides))

    def pad(values: Any) -> Any:
        if spec.padding_mode is PaddingMode.EDGE_VAL_PAD:
            return functional.pad(values, padding, mode="replicate")
        return functional.pad(values, padding, value=TORCH_PADDING[spec.padding_mode])

    if spec.mode is M.MAXPOOL:
        return getattr(functional, f"max_pool{s}d")(pad(x), window, strides)
    average = getattr(functional, f"avg_pool{s}d")
    y = average(pad(x), window, strides)
    return y if spec.mode is M.AVGPOOL_INCLUDE_PADDING else y / average(pad(torch.ones_like(x)), window, strides)


def check_resampling(
    spec: ResampleSpec, x: Array, dy: Array, y: Any, dx: Any, how: list[str], index: str | None
) -> None:
    """Forward and backward through plans; a maximum goes back by its index and from x."""
    x_spec, y_spec = tensor(1, x.shape, "f64", how[0]), tensor(2, dy.shape, "f64", how[1])
    index_spec = None if index is None else tensor(3, dy.shape, index, how[2])
    found = execute(ResampleForward(spec=spec, x=x_spec, y=y_spec, index=index_spec), {1: x})
    np.testing.assert_allclose(found[2], y, rtol=1e-12, atol=1e-12)
    dx_spec, dy_spec = tensor(4, x.shape, "f64", how[2]), tensor(5, dy.shape, "f64", how[0])
    sources: list[dict[str, Any]] = [{}] if index is None else [{"index": index_spec}, {"x": x_spec}]
    for source in sources:
        op = ResampleBackward(spec=spec, dx=dx_spec, dy=dy_spec, **source)
        found_dx = one(op, {1: x, 5: dy, 3: found.get(3)} if source else {5: dy})
        np.testing.assert_allclose(found_dx, dx, rtol=1e-12, atol=1e-12)


@torch_only
@EXAMPLES
def test_pooling_equals_pytorch_forward_and_backward(examples: int) -> None:
    torch = pytest.importorskip("torch")
    tally = Tally("pooling against PyTorch")

    @drawn(150 * examples)
    @given(poolings(), st.integers(4, 6), three_layouts, st.sampled_from(("i8", "u8", "i16", "i32", "i64")), SEEDS)
    def check(spec: ResampleSpec, size: int, how: list[str], index: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((2, 3, *(size - i % 2 for i in range(spec.spatial_dims))))
        leaf = torch.from_numpy(x).requires_grad_()
        y = torch_pooling(spec, leaf)
        dy = rng.standard_normal(tuple(y.shape))
        y.backward(torch.from_numpy(dy))
        is_maximum = spec.mode is M.MAXPOOL
        check_resampling(spec, x, dy, y.detach().numpy(), leaf.grad.numpy(), how, index if is_maximum else None)
        tally.add(spec.mode.name, spec.padding_mode.name, f"{spec.spatial_dims}-D")

    check()
    tally.expect([M.MAXPOOL, M.AVGPOOL, M.AVGPOOL_EXCLUDE_PADDING, *PaddingMode, "1-D", "2-D", "3-D"], at_least=5)


@torch_only
@pytest.mark.parametrize("factor", [1, 2, 3])
@pytest.mark.parametrize("spatial", [(6,), (4, 5), (3, 2, 4)])
@pytest.mark.parametrize("mode", [M.NEAREST, M.BILINEAR], ids=str)
def test_interpolation_equals_pytorch(mode: ResampleMode, spatial: tuple[int, ...], factor: int) -> None:
    """Pixel centres, as ``interpolate`` places them with align_corners=False; 2x is the documented case."""
    torch = pytest.importorskip("torch")
    s = len(spatial)
    linear = mode is M.BILINEAR
    pre, window = (Fraction(1, 2), 2) if linear else (Fraction(0), 1)
    # As much padding at the end as gives factor * size outputs.
    post = Fraction(window) - pre - Fraction(1, factor)
    spec = ResampleSpec(
        mode=mode, padding_mode=PaddingMode.EDGE_VAL_PAD, compute_type="f64", spatial_dims=s, window_dims=[window] * s,
        strides=[Fraction(1, factor)] * s, pre_paddings=[pre] * s, post_paddings=[max(post, Fraction(0))] * s,
    )  # fmt: skip
    rng = np.random.default_rng(s)
    leaf = torch.from_numpy(rng.standard_normal((2, 3, *spatial))).requires_grad_()
    name = {1: "linear", 2: "bilinear", 3: "trilinear"}[s] if linear else "nearest"
    y = torch.nn.functional.interpolate(
        leaf, scale_factor=factor, mode=name, **({"align_corners": False} if linear else {})
    )
    dy = rng.standard_normal(tuple(y.shape))
    y.backward(torch.from_numpy(dy))
    x = leaf.detach().numpy()
    check_resampling(spec, x, dy, y.detach().numpy(), leaf.grad.numpy(), ["packed", "channels_last", "gaps"], None)


def max_pooling(compute: str, **fields: Any) -> ResampleSpec:
    plain = {
        "mode": M.MAXPOOL, "padding_mode": PaddingMode.NEG_INF_PAD, "compute_type": compute, "spatial_dims": 2,
        "window_dims": (2, 2), "strides": (2, 2), "pre_paddings": (0, 0), "post_paddings": (0, 0),
    }  # fmt: skip
    return ResampleSpec(**{**plain, **fields})


@pytest.mark.parametrize(("kind", "vector"), [*((kind, 1) for kind in INTEGERS), ("i8", 4), ("u8", 4), ("i8", 32)])
def test_integer_maxima_are_exact(kind: str, vector: int) -> None:
    fields = {"vector_count": vector, "vectorized_dimension": 1} if vector != 1 else {}
    x, y = tensor(1, (2, 2, 6, 6), kind, "gaps", **fields), tensor(2, (2, 2, 3, 3), kind, "channels_last", **fields)
    data = values_of(x, np.random.default_rng(0), extreme=True)
    expected = data.reshape(2, 2 * vector, 3, 2, 3, 2).max(axis=(3, 5))
    compute = "i64" if kind == "i64" else "i32"
    np.testing.assert_array_equal(one(ResampleForward(spec=max_pooling(compute), x=x, y=y), {1: data}), expected)


@pytest.mark.parametrize("beta", [0.0, -0.5])
def test_resampling_blends_with_alpha_and_beta(beta: float) -> None:
    dims, pooled = (1, 2, 4, 4), (1, 2, 2, 2)
    x, y = tensor(1, dims, "f64"), tensor(2, pooled, "f64", "gaps")
    rng = np.random.default_rng(0)
    data, old = rng.standard_normal(dims), rng.standard_normal(pooled)
    forward = ResampleForward(spec=max_pooling("f64"), x=x, y=y, alpha=3.0, beta=beta)
    largest = data.reshape(1, 2, 2, 2, 2, 2).max(axis=(3, 5))
    inputs = {1: data} if beta == 0 else {1: data, 2: old}
    np.testing.assert_allclose(one(forward, inputs), 3 * largest + beta * old, rtol=1e-14)
    spread = max_pooling("f64", mode=M.AVGPOOL, padding_mode=PaddingMode.ZERO_PAD)
    backward = ResampleBackward(spec=spread, dx=x, dy=y, alpha=3.0, beta=beta)
    inputs = {2: old} if beta == 0 else {1: data, 2: old}
    expected = 0.75 * old.repeat(2, axis=2).repeat(2, axis=3) + beta * data
    np.testing.assert_allclose(one(backward, inputs), expected, rtol=1e-14)
