"""Engines of batch norm's building blocks on the emulator against NumPy, and their text through NVRTC."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, device_kernel, emulated, run_both
from legal_problems import convolution
from problems import LAYOUTS, tensor, tiny, unit, values_of

from graphdnn.dtypes import Array
from graphdnn.engines.cuda.reduction.statistics import BN_FINALIZE, BN_WEIGHTS, GENSTATS
from graphdnn.engines.cuda.simt.implicit_gemm import ENGINE as IMPLICIT_GEMM
from graphdnn.enums import BnFinalizeStatsMode, PointwiseMode, ReductionOperator
from graphdnn.operations import (
    BnBackwardWeights,
    BnFinalize,
    ConvForward,
    GenStats,
    Operation,
    PointwiseOperation,
    PointwiseSpec,
    Reduction,
    ReductionSpec,
)
from graphdnn.tensors import TensorSpec


def channel(uid: int, c: int, kind: str = "f32", rank: int = 4, **fields: Any) -> TensorSpec:
    return tensor(uid, (1, c, *(1,) * (rank - 2)), kind, **fields)


def assert_near(got: Array, expected: Array, size: Any, terms: int, math: str, y: TensorSpec) -> None:
    """Within the rounding of any order of a sum whose terms' magnitudes add up to ``size``, and y's own."""
    wide, found = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    bound = 2 * (terms + 4) * unit(math) * np.asarray(size) + 3 * unit(y.data_type) * np.abs(wide) + tiny(y.data_type)
    near = (np.abs(found - wide) <= bound) | (np.isnan(found) & np.isnan(wide))
    assert near.all(), f"{found[~near][:4]} in place of {wide[~near][:4]}"


# Sums of channels.

IMAGES: dict[str, tuple[tuple[int, ...], str]] = {
    "nchw": ((6, 5, 16, 24), "packed"),
    "nhwc": ((3, 24, 17, 16), "channels_last"),
    "odd channels, nhwc": ((2, 3, 19, 20), "channels_last"),
    "vectors": ((37, 8), "packed"),
    "volume": ((2, 8, 3, 5, 8), "channels_last"),
    "gaps": ((2, 8, 3, 5), "gaps"),
    "rotated": ((2, 8, 3, 5), "rotated"),
}


@emulated
@pytest.mark.parametrize("kind", ["f16", "f32", "f64", "i8"])
@pytest.mark.parametrize("name", IMAGES)
def test_genstats(name: str, kind: str) -> None:
    dims, layout = IMAGES[name]
    math = "f64" if kind == "f64" else "f32"
    sums = [
        channel(uid, dims[1], target, len(dims)) for uid, target in ((2, math), (3, "bf16" if kind == "i8" else math))
    ]
    op = GenStats(x=tensor(1, dims, kind, layout), sum=sums[0], sqsum=sums[1], math_type=math)
    x = values_of(op.x, np.random.default_rng(0))
    got, expected = run_both(op, GENSTATS, {1: x})
    axes = tuple(a for a in range(len(dims)) if a != 1)
    wide = np.abs(x.astype(np.float64))
    terms = x.size // dims[1]
    assert_near(got[2], expected[2], wide.sum(axes, keepdims=True), terms, math, op.sum)
    assert_near(got[3], expected[3], (wide * wide).sum(axes, keepdims=True), terms, math, op.sqsum)


@emulated
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
def test_genstats_after_pointwise_operations(layout: str) -> None:
    dims = (2, 16, 7, 8)
    x, bias = tensor(1, dims, "bf16", layout), channel(2, 16)
    added, active = tensor(3, dims, "f32", is_virtual=True), tensor(4, dims, "bf16", is_virtual=True)
    operations: list[Operation] = [
        PointwiseOperation(spec=PointwiseSpec(mode=PointwiseMode.ADD, math_type="f32"), x=x, b=bias, y=added),
        PointwiseOperation(spec=PointwiseSpec(mode=PointwiseMode.RELU_FWD, math_type="f32"), x=added, y=active),
        GenStats(x=active, sum=channel(5, 16), sqsum=channel(6, 16), math_type="f32"),
    ]
    rng = np.random.default_rng(1)
    got, expected = run_both(operations, GENSTATS, {t.uid: values_of(t, rng) for t in (x, bias)})
    for uid in (5, 6):
        np.testing.assert_allclose(got[uid], expected[uid], rtol=1e-5)


@emulated
def test_nan_stays_in_its_channel() -> None:
    op = GenStats(x=tensor(1, (4, 8, 5, 5), "f16"), sum=channel(2, 8), sqsum=channel(3, 8), math_type="f32")
    x = np.ones((4, 8, 5, 5), np.float16)
    x[3, 2, 4, 4], x[0, 5, 0, 0] = np.nan, np.inf
    got, expected = run_both(op, GENSTATS, {1: x})
    for uid in (2, 3):
        np.testing.assert_array_equal(got[uid], expected[uid])


# Gradients of scale and bias.


def weights(
    dims: tuple[int, ...], kind: str, layout: str, math: str, dy_layout: str | None = None
) -> BnBackwardWeights:
    names = ("mean", "inv_std", "scale", "dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias")
    each = {name: channel(uid, dims[1], math, len(dims)) for uid, name in enumerate(names, start=3)}
    dy = tensor(2, dims, kind, dy_layout or layout)
    return BnBackwardWeights(math_type=math, x=tensor(1, dims, kind, layout), dy=dy, **each)


def statistics_of(op: BnBackwardWeights, rng: np.random.Generator) -> dict[int, Array]:
    values = {t.uid: values_of(t, rng) for t in (op.x, op.dy, op.mean, op.scale)}
    return {**values, op.inv_std.uid: np.abs(values_of(op.inv_std, rng)) + 0.5}


def assert_gradients(
    got: Mapping[int, Array], expected: Mapping[int, Array], op: BnBackwardWeights, v: Mapping[int, Array]
) -> None:
    x, dy, mean, scale, inv_std = (v[t.uid].astype(np.float64) for t in (op.x, op.dy, op.mean, op.scale, op.inv_std))
    axes = tuple(a for a in range(x.ndim) if a != 1)
    count = x.size // x.shape[1]
    sizes = {"dbias": np.abs(dy), "dscale": np.abs(dy * ((np.abs(x) + np.abs(mean)) * inv_std))}
    sizes = {name: size.sum(axes, keepdims=True) for name, size in sizes.items()}
    sizes["eq_dy_scale"] = np.abs(scale * inv_std)
    sizes["eq_x_scale"] = sizes["eq_dy_scale"] * inv_std * sizes["dscale"] / count
    sizes["eq_bias"] = sizes["eq_dy_scale"] * sizes["dbias"] / count + sizes["eq_x_scale"] * np.abs(mean)
    for name, size in sizes.items():
        y = getattr(op, name)
        if y.uid in got:
            assert_near(got[y.uid], expected[y.uid], size, count, op.math_type.name.lower(), y)


@emulated
@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", IMAGES)
def test_bn_weights(name: str, kind: str) -> None:
    dims, layout = IMAGES[name]
    op = weights(dims, kind, layout, "f64" if kind == "f64" else "f32")
    values = statistics_of(op, np.random.default_rng(2))
    got, expected = run_both(op, BN_WEIGHTS, values)
    assert_gradients(got, expected, op, values)


@emulated
@pytest.mark.parametrize("dy_layout", LAYOUTS)
def test_bn_weights_of_two_layouts(dy_layout: str) -> None:
    op = weights((2, 16, 5, 6), "bf16", "channels_last", "f32", dy_layout)
    values = statistics_of(op, np.random.default_rng(3))
    got, expected = run_both(op, BN_WEIGHTS, values)
    assert_gradients(got, expected, op, values)


@emulated
def test_bn_weights_after_an_activation_gradient() -> None:
    """relu_bwd feeds dy."""
    plain = weights((2, 16, 5, 8), "f16", "channels_last", "f32")
    before, mask = tensor(20, (2, 16, 5, 8), "f16", "channels_last"), tensor(21, (2, 16, 5, 8), "f16", "channels_last")
    dy = plain.dy.model_copy(update={"is_virtual": True})
    spec = PointwiseSpec(mode=PointwiseMode.RELU_BWD, math_type="f32")
    op = plain.model_copy(update={"dy": dy})
    values = statistics_of(plain, np.random.default_rng(4))
    values |= {20: values.pop(2), 21: values_of(mask, np.random.default_rng(5))}
    got, expected = run_both([PointwiseOperation(spec=spec, dy=before, x=mask, dx=dy), op], BN_WEIGHTS, values)
    values[2] = np.where(values[21] > 0, values[20], 0)
    assert_gradients(got, expected, op, values)


# From sums to statistics.

RUNNING = ("previous_running_mean", "previous_running_var", "updated_running_mean", "updated_running_var")


def finalize(c: int, kind: str, math: str, mode: BnFinalizeStatsMode, by_value: bool, running: bool) -> BnFinalize:
    names = ("y_sum", "y_sq_sum", "scale", "bias", "saved_mean", "saved_inv_std", "eq_scale", "eq_bias")
    ports = {name: channel(uid, c, kind) for uid, name in enumerate((*names, *(RUNNING if running else ())), start=1)}
    scalars = {
        "accumulation_count": tensor(20, (1, 1, 1, 1), "i64", is_by_value=by_value),
        "epsilon": tensor(21, (1, 1, 1, 1), "f64" if by_value else "f32", is_by_value=by_value),
        "momentum": tensor(22, (1, 1, 1, 1), "f32", is_by_value=by_value),
    }
    return BnFinalize(mode=mode, math_type=math, **ports, **scalars)


@emulated
@pytest.mark.parametrize("by_value", [False, True])
@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("mode", ["training", "training, running", "inference"])
def test_bn_finalize(mode: str, kind: str, by_value: bool) -> None:
    c, count = 300, 64
    stats_mode = BnFinalizeStatsMode.INFERENCE if mode == "inference" else BnFinalizeStatsMode.TRAINING
    math = "f64" if kind == "f64" else "f32"
    op = finalize(c, kind, math, stats_mode, by_value, running=mode != "training")
    rng = np.random.default_rng(6)
    x = rng.standard_normal((count, c)) + 3 * rng.standard_normal(c)
    x[:, 0] = 1.5  # no variance: the difference is 0 or below it
    values: dict[int, Any] = {t.uid: values_of(t, rng) for t in op.inputs().values()}
    values |= {op.y_sum.uid: x.sum(0), op.y_sq_sum.uid: (x * x).sum(0) * np.where(np.arange(c) == 1, np.nan, 1)}
    values |= {20: np.int64(count), 21: np.float64(1e-5), 22: np.float32(0.3)}
    if op.previous_running_var is not None:
        values[op.previous_running_var.uid] = np.abs(values[op.previous_running_var.uid])
    got, expected = run_both(op, BN_FINALIZE, values)
    assert len(got) == (4 if mode == "training" else 6)
    for uid, result in got.items():
        y = next(t for t in op.outputs().values() if t.uid == uid)
        step = 2 * unit(y.data_type) if kind != "f64" else 1e-12
        np.testing.assert_allclose(result, expected[uid], rtol=step, atol=1e-9 if kind == "f64" else tiny(kind))


@emulated
def test_bn_finalize_of_one_element_and_scalars_of_another_rank() -> None:
    op = finalize(5, "f32", "f32", BnFinalizeStatsMode.TRAINING, by_value=False, running=True)
    op = op.model_copy(update={"epsilon": tensor(21, (1,), "f32"), "accumulation_count": tensor(20, (1, 1), "i32")})
    values: dict[int, Any] = {t.uid: np.abs(values_of(t, np.random.default_rng(8))) for t in op.inputs().values()}
    values |= {20: np.int32(1), 21: np.float32(1e-3), 22: np.float32(0.1)}
    got, expected = run_both(op, BN_FINALIZE, values)
    for uid, result in got.items():
        np.testing.assert_allclose(result, expected[uid], rtol=1e-6)


# At the exit of a convolution.


def _conv(layout: str) -> tuple[ConvForward, TensorSpec, TensorSpec]:
    x, w = tensor(1, (2, 16, 9, 8), "f16", layout), tensor(2, (24, 16, 3, 3), "f16", layout)
    y = tensor(3, (2, 24, 9, 8), "f16", layout, is_virtual=True)
    return ConvForward(x=x, w=w, y=y, conv=convolution(pre_paddings=(1, 1), post_paddings=(1, 1))), x, w


@emulated
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("exit", ["reduction", "genstats", "bn_weights"])
def test_exits_of_a_convolution(exit: str, stored: bool) -> None:
    conv, x, w = _conv("channels_last")
    rng = np.random.default_rng(9)
    values = {t.uid: values_of(t, rng) / 4 for t in (x, w)}
    spec = PointwiseSpec(mode=PointwiseMode.TANH_FWD, math_type="f32")
    y = tensor(4, conv.y.dims, "f16", "channels_last", is_virtual=not stored)
    last: Operation
    if exit == "reduction":
        total = ReductionSpec(operator=ReductionOperator.ADD, compute_type="f32")
        last = Reduction(x=y, y=channel(10, 24), spec=total)
    elif exit == "genstats":
        last = GenStats(x=y, sum=channel(10, 24), sqsum=channel(11, 24), math_type="f32")
    else:
        plain = weights(y.dims, "f16", "channels_last", "f32")
        last = plain.model_copy(
            update={
                name: t.model_copy(update={"uid": t.uid + 30}) for name, t in plain.tensors().items() if name != "dy"
            }
        ).model_copy(update={"dy": y})
        values |= {t.uid: np.abs(values_of(t, rng)) for p, t in last.inputs().items() if p != "dy"}
    got, expected = run_both([conv, PointwiseOperation(spec=spec, x=conv.y, y=y), last], IMPLICIT_GEMM, values)
    assert len(got) == len(last.outputs()) + stored
    for uid, result in got.items():
        np.testing.assert_allclose(result, expected[uid], rtol=2e-3, atol=0.05)


# Large shapes and text.


@pytest.mark.parametrize("layout", ["packed", "channels_last"])
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_large_shapes_fill_the_device_with_little_scratch(kind: str, layout: str) -> None:
    dims = (64, 128, 56, 56)
    stats = GenStats(x=tensor(1, dims, kind, layout), sum=channel(2, 128), sqsum=channel(3, 128), math_type="f32")
    for op, engine in ((stats, GENSTATS), (weights(dims, kind, layout, "f32"), BN_WEIGHTS)):
        kernel = device_kernel(op, engine)
        assert prod(kernel.steps[0].grid) >= 2 * 132
        assert kernel.workspace_bytes <= 1 << 20
        assert f"constexpr int VEC_WIDTH = {8 if kind == 'f16' else 4};" in kernel.steps[0].text.text


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("layout", ["packed", "channels_last", "gaps"])
def test_text_compiles_without_spills(layout: str, arch: str) -> None:
    dims = (64, 128, 28, 28)
    for kind in ("f16", "f32", "f64") if layout == "packed" else ("f16", "f32"):
        math = "f64" if kind == "f64" else "f32"
        stats = GenStats(
            x=tensor(1, dims, kind, layout), sum=channel(2, 128, math), sqsum=channel(3, 128, math), math_type=math
        )
        compiles_cleanly(stats, GENSTATS, arch, registers=128)
        compiles_cleanly(weights(dims, kind, layout, math), BN_WEIGHTS, arch, registers=128)
    for mode in BnFinalizeStatsMode:
        compiles_cleanly(finalize(64, "f32", "f32", mode, by_value=True, running=True), BN_FINALIZE, arch)
