"""Engines ``cuda_resample_forward`` and ``cuda_resample_backward`` on the emulator against the host, and through NVRTC."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, device_kernel, emulated, fused, run_both
from problems import tensor, unit, values_of

from graphdnn.device.profiles import device_spec
from graphdnn.dtypes import ELEMENTS, Array, data_type_of
from graphdnn.engines import Task
from graphdnn.engines.cuda.resample import pool, pool_backward, resample_backward, resample_forward
from graphdnn.enums import DataType, NanPropagation, PaddingMode, PointwiseMode, ReductionOperator, ResampleMode
from graphdnn.operations import (
    Operation,
    PointwiseOperation,
    PointwiseSpec,
    Reduction,
    ReductionSpec,
    ResampleBackward,
    ResampleForward,
    ResampleSpec,
)
from graphdnn.operations.resample import resampled_extents
from graphdnn.tensors import TensorSpec

MAX, NEAREST, BILINEAR = ResampleMode.MAXPOOL, ResampleMode.NEAREST, ResampleMode.BILINEAR
INCLUDING, EXCLUDING = ResampleMode.AVGPOOL_INCLUDE_PADDING, ResampleMode.AVGPOOL_EXCLUDE_PADDING
ZERO, EDGE, LOWEST = PaddingMode.ZERO_PAD, PaddingMode.EDGE_VAL_PAD, PaddingMode.NEG_INF_PAD
HALF = Fraction(1, 2)


def settings(
    mode: ResampleMode,
    window: Sequence[Any],
    stride: Sequence[Any],
    pre: Sequence[Any] = (),
    post: Sequence[Any] = (),
    padding: PaddingMode = ZERO,
    nan: bool = False,
    compute: str = "f32",
) -> ResampleSpec:
    zeros = (0,) * len(window)
    return ResampleSpec(
        mode=mode,
        compute_type=compute,
        nan_propagation=NanPropagation.PROPAGATE_NAN if nan else NanPropagation.NOT_PROPAGATE_NAN,
        spatial_dims=len(window),
        padding_mode=padding,
        strides=tuple(stride),
        pre_paddings=tuple(pre) or zeros,
        post_paddings=tuple(post) or tuple(pre) or zeros,
        window_dims=tuple(window),
    )


# name: settings, extents of x, types of x and y, layouts of x and y
CASES: dict[str, tuple[ResampleSpec, tuple[int, ...], tuple[str, str], tuple[str, str]]] = {
    "max 2x2 nhwc f16": (settings(MAX, (2, 2), (2, 2)), (2, 16, 6, 8), ("f16", "f16"), ("channels_last",) * 2),
    "max 2x2 nchw f16": (settings(MAX, (2, 2), (2, 2)), (2, 3, 6, 16), ("f16", "f16"), ("packed",) * 2),
    "max 3x3 lowest": (
        settings(MAX, (3, 3), (2, 2), (1, 1), padding=LOWEST, nan=True), (2, 8, 7, 9), ("f16", "f32"), ("channels_last",) * 2),
    "max 3x3 nchw": (settings(MAX, (3, 3), (2, 2), (1, 1), padding=LOWEST), (2, 3, 9, 16), ("f32", "f32"), ("packed",) * 2),
    "max zero padding": (settings(MAX, (3, 2), (1, 2), (1, 1), (2, 0)), (1, 5, 5, 7), ("bf16", "bf16"), ("gaps", "packed")),
    "max edge padding": (settings(MAX, (3, 2), (1, 2), (2, 1), (2, 2), EDGE), (1, 5, 4, 3), ("f32", "f32"), ("packed", "gaps")),
    "max all padding": (settings(MAX, (2, 2), (1, 1), (3, 2), (2, 3), LOWEST), (1, 4, 3, 2), ("f32", "f32"), ("packed",) * 2),
    "max 3d all padding": (
        settings(MAX, (2, 1, 3), (1, 2, 2), (2, 1, 1), (1, 1, 3), LOWEST), (1, 2, 3, 2, 4), ("f32", "f32"), ("packed",) * 2),
    "max integers": (settings(MAX, (2, 2), (2, 1), compute="i32"), (2, 16, 5, 6), ("i8", "i8"), ("channels_last",) * 2),
    "max int64": (settings(MAX, (2, 2), (2, 1), (1, 1), padding=LOWEST, compute="i64"), (2, 2, 5, 6), ("i64", "i32"), ("packed",) * 2),
    "max f64 3d": (settings(MAX, (2, 2, 2), (2, 2, 2), compute="f64"), (1, 4, 4, 4, 6), ("f64", "f64"), ("channels_last", "packed")),
    "max 1d": (settings(MAX, (3,), (2,), (1,)), (2, 3, 16), ("e4m3", "e5m2"), ("packed",) * 2),
    "average nhwc": (settings(INCLUDING, (3, 3), (1, 1), (1, 1)), (2, 8, 5, 6), ("f16", "f16"), ("channels_last",) * 2),
    "average nchw": (settings(INCLUDING, (3, 3), (1, 1), (1, 1)), (2, 3, 5, 16), ("f32", "f32"), ("packed",) * 2),
    "average edges": (settings(INCLUDING, (3, 2), (2, 1), (2, 1), (1, 1), EDGE), (2, 3, 5, 4), ("f32", "bf16"), ("packed",) * 2),
    "average excluding": (settings(EXCLUDING, (3, 3), (2, 2), (1, 1)), (2, 8, 7, 5), ("bf16", "f32"), ("channels_last",) * 2),
    "average excluding all": (
        settings(EXCLUDING, (2, 2), (1, 2), (2, 2), (2, 2), EDGE), (1, 3, 3, 3), ("f32", "f32"), ("reversed", "rotated")),
    "average of all": (settings(INCLUDING, (7, 7), (1, 1)), (2, 16, 7, 7), ("f16", "f32"), ("packed",) * 2),
    "average 3d": (settings(EXCLUDING, (2, 3, 2), (1, 2, 1), (1, 1, 0), compute="f64"), (1, 4, 3, 5, 4), ("f64", "f32"), ("packed",) * 2),
    "nearest": (settings(NEAREST, (1, 1), (HALF, HALF)), (2, 8, 3, 4), ("f16", "f16"), ("channels_last",) * 2),
    "nearest thirds": (
        settings(NEAREST, (2, 1), (Fraction(2, 3), Fraction(1, 3)), (HALF, 1), (1, 2)), (2, 3, 5, 4), ("f32", "f32"), ("packed",) * 2),
    "nearest edges": (
        settings(NEAREST, (1, 1), (Fraction(3, 2), HALF), (2, 1), (3, 2), EDGE), (2, 3, 5, 4), ("f32", "f32"), ("packed",) * 2),
    "bilinear": (
        settings(BILINEAR, (2, 2), (HALF, HALF), (HALF, HALF), (1, 1), EDGE), (2, 8, 4, 5), ("f16", "f16"), ("channels_last",) * 2),
    "bilinear nchw": (
        settings(BILINEAR, (2, 2), (HALF, Fraction(2, 5)), (HALF, 0), (1, 2)), (2, 3, 4, 4), ("f32", "f32"), ("packed",) * 2),
    "bilinear f64 3d": (
        settings(BILINEAR, (2, 2, 2), (HALF, Fraction(3, 7), 2), (HALF, HALF, 0), (1, 1, 1), EDGE, compute="f64"),
        (1, 2, 3, 4, 5), ("f64", "f64"), ("packed",) * 2),
}  # fmt: skip


def forward(name: str, index: str | None = None, **fields: Any) -> ResampleForward:
    spec, x_extents, (x_kind, y_kind), (x_layout, y_layout) = CASES[name]
    extents = resampled_extents(x_extents, spec)
    return ResampleForward(
        spec=spec,
        x=tensor(1, x_extents, x_kind, x_layout),
        y=tensor(2, extents, y_kind, y_layout),
        index=None if index is None else tensor(3, extents, index, y_layout),
        **fields,
    )


def backward(name: str, *, index: str | None = None, x: bool = False, **fields: Any) -> ResampleBackward:
    spec, x_extents, (x_kind, y_kind), (x_layout, y_layout) = CASES[name]
    extents = resampled_extents(x_extents, spec)
    return ResampleBackward(
        spec=spec,
        dx=tensor(1, x_extents, x_kind, x_layout),
        dy=tensor(2, extents, y_kind, y_layout),
        index=None if index is None else tensor(3, extents, index, y_layout),
        x=tensor(4, x_extents, x_kind, x_layout) if x else None,
        **fields,
    )


def assert_close(got: Array, expected: Array, spec: TensorSpec, terms: float = 8.0) -> None:
    """Equal, special values and zeros included, up to a few roundings of float and one of the tensor's type."""
    if ELEMENTS[spec.data_type].kind != "float":
        np.testing.assert_array_equal(got, expected)
        return
    with np.errstate(invalid="ignore"):
        a, b = got.astype(np.float64), expected.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        own = 0.0 if spec.data_type is DataType.DOUBLE else 2 * unit(spec.data_type)
        step = terms * (2.0**-52 if spec.data_type is DataType.DOUBLE else 2.0**-23) + own
        near = np.abs(a - b) <= step * np.maximum(np.abs(b), 1.0)
    assert (same | near).all(), f"{(~(same | near)).sum()} of {same.size} differ"


def check(operations: Operation | Sequence[Operation], engine: Any, inputs: Sequence[TensorSpec], **rest: Any) -> None:
    rng = np.random.default_rng(len(inputs) + sum(inputs[0].extents))
    extreme = rest.pop("extreme", False)
    values = {spec.uid: values_of(spec, rng, extreme=extreme) for spec in inputs} | rest.pop("values", {})
    device = rest.pop("device", None)
    got, expected = run_both(operations, engine, values, device=device and device_spec(device))
    listed = [operations] if isinstance(operations, Operation) else operations
    specs = {t.uid: t for op in listed for t in op.outputs().values()}
    for uid, array in got.items():
        assert_close(array, expected[uid], specs[uid])


@emulated
@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_forward(name: str, extreme: bool) -> None:
    op = forward(name)
    check(op, resample_forward.ENGINE, [op.x], extreme=extreme)


@emulated
@pytest.mark.parametrize(("name", "index"), [
    *((name, "i8") for name in CASES if name.startswith("max")), ("max 2x2 nhwc f16", "i64"), ("max 3x3 nchw", "u8"),
])  # fmt: skip
def test_forward_index(name: str, index: str) -> None:
    op = forward(name, index)
    check(op, resample_forward.ENGINE, [op.x], extreme=True)


@emulated
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("max")])
def test_backward_of_linear_modes(name: str) -> None:
    op = backward(name)
    check(op, resample_backward.ENGINE, [op.dy])


@emulated
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("max")])
def test_backward_of_a_maximum_by_index_and_by_x(name: str) -> None:
    by_x = backward(name, x=True)
    assert by_x.x is not None
    check(by_x, resample_backward.ENGINE, [by_x.dy, by_x.x])
    by_index = backward(name, index="i8")
    assert by_index.index is not None
    rng = np.random.default_rng(5)
    places = rng.integers(-2, int(np.prod([int(w) for w in by_index.spec.window_dims])) + 2, by_index.index.extents)
    check(by_index, resample_backward.ENGINE, [by_index.dy], values={3: places.astype(np.int8)})


POOLED: dict[str, tuple[ResampleSpec, tuple[int, ...], str, tuple[str, str]]] = {
    "2x2 nchw": (settings(MAX, (2, 2), (2, 2), padding=LOWEST), (2, 3, 6, 16), "f16", ("packed", "packed")),
    "3x3 nchw nan": (settings(MAX, (3, 3), (2, 2), (1, 1), padding=LOWEST, nan=True), (1, 3, 9, 16), "f16", ("packed", "packed")),
    "3x3 by one": (settings(MAX, (3, 3), (1, 1), (1, 1), padding=LOWEST), (1, 3, 12, 8), "f16", ("packed", "packed")),
    "3x3 by one nan": (settings(MAX, (3, 3), (1, 1), (1, 1), nan=True), (1, 2, 9, 12), "bf16", ("packed", "packed")),
    "3x3 by one nhwc": (settings(MAX, (3, 3), (1, 1), (2, 1), padding=EDGE), (1, 4, 9, 7), "f16", ("channels_last", "channels_last")),
    "4x3 edges": (settings(MAX, (4, 3), (1, 1), (3, 2), (1, 2), EDGE, nan=True), (1, 2, 7, 8), "f32", ("packed", "packed")),
    "3x3 nhwc": (settings(MAX, (3, 3), (1, 1), (1, 1), padding=EDGE), (2, 8, 5, 7), "f32", ("channels_last", "gaps")),
    "5x2 odd": (settings(MAX, (5, 2), (2, 3), (2, 0), (1, 1)), (1, 3, 11, 13), "f64", ("packed", "packed")),
    "volume": (settings(MAX, (2, 1, 2), (2, 1, 2)), (2, 3, 4, 3, 8), "f32", ("packed", "reversed")),
    "integers": (settings(MAX, (2, 2), (1, 2), compute="i32"), (2, 16, 5, 6), "i8", ("channels_last", "channels_last")),
    "average nchw": (settings(EXCLUDING, (3, 3), (2, 2), (1, 1)), (2, 3, 9, 16), "f16", ("packed", "packed")),
    "average nhwc": (settings(INCLUDING, (2, 3), (2, 2), (0, 1)), (2, 16, 6, 7), "f16", ("channels_last", "channels_last")),
}  # fmt: skip


def checked_gradient(
    spec: ResampleSpec, x_dims: tuple[int, ...], kind: str, layouts: tuple[str, str]
) -> ResampleBackward:
    """Ties, NaN, infinities, zeros of both signs, old contents; no index in memory. ``layouts``: of x and y."""
    is_maximum, (x_layout, y_layout) = spec.mode is MAX, layouts
    x = tensor(1, x_dims, kind, x_layout) if is_maximum else None
    dx, dy = tensor(2, x_dims, kind, x_layout), tensor(3, resampled_extents(x_dims, spec), kind, y_layout)
    op = ResampleBackward(spec=spec, dy=dy, x=x, dx=dx, alpha=2.0, beta=0.0 if kind == "i8" else 0.5)
    rng = np.random.default_rng(0)
    values = rng.integers(-2, 3, x_dims).astype(np.float64)
    if kind != "i8":
        values[rng.random(x_dims) < 0.1], values[rng.random(x_dims) < 0.1] = np.nan, -np.inf
        values[rng.random(x_dims) < 0.1] = -0.0
    check(op, resample_backward.ENGINE, [dy, dx], values={1: values} if is_maximum else {})
    return op


@emulated
@pytest.mark.parametrize("threads", [0, 640])
@pytest.mark.parametrize("name", POOLED)
def test_gradients_of_small_windows_in_one_launch(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads go down many rows or one."""
    monkeypatch.setattr(pool_backward, "_THREADS_PER_SM", threads)
    op = checked_gradient(*POOLED[name])
    kernel = device_kernel(op, resample_backward.ENGINE)
    assert len(kernel.steps) == 1
    assert "_bwd__pool_" in kernel.name


APART: dict[str, tuple[ResampleSpec, tuple[int, ...], str, tuple[str, str]]] = {
    "2x2x2 nchw": (settings(MAX, (2, 2, 2), (2, 2, 2), padding=LOWEST), (2, 3, 4, 6, 16), "f16", ("packed", "packed")),
    "2x2x2 nhwc": (settings(MAX, (2, 2, 2), (2, 2, 2), nan=True), (1, 16, 4, 6, 4), "bf16", ("channels_last", "channels_last")),
    "rows left": (settings(MAX, (2, 2, 2), (2, 2, 2), nan=True), (1, 3, 5, 7, 8), "f32", ("packed", "packed")),
    "columns left": (settings(MAX, (2, 2, 2), (2, 2, 2)), (1, 8, 5, 6, 7), "f16", ("channels_last", "gaps")),
    "odd rows": (settings(MAX, (2, 2, 2), (2, 2, 2), padding=EDGE), (2, 2, 4, 3, 7), "f16", ("packed", "packed")),
    "3x2x3": (settings(MAX, (3, 2, 3), (3, 2, 3), padding=LOWEST), (1, 3, 6, 4, 9), "f64", ("packed", "rotated")),
    "average nchw": (settings(INCLUDING, (2, 2, 2), (2, 2, 2)), (1, 3, 4, 4, 16), "f16", ("packed", "packed")),
    "average nhwc": (settings(EXCLUDING, (3, 2, 2), (3, 2, 2)), (1, 24, 7, 5, 4), "f32", ("channels_last", "channels_last")),
    "integers": (settings(MAX, (2, 2, 2), (2, 2, 2), compute="i32"), (1, 16, 4, 4, 4), "i8", ("channels_last", "channels_last")),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", APART)
def test_gradients_of_volumes_whose_windows_lie_apart(name: str) -> None:
    """Each element is in one window at most; those in none get zeros, also beside old contents."""
    op = checked_gradient(*APART[name])
    assert [step.entry for step in device_kernel(op, resample_backward.ENGINE).steps] == ["pool_disjoint_backward"]  # type: ignore[union-attr]


@emulated
@pytest.mark.parametrize("name", APART)
def test_pooling_of_volumes_whose_windows_lie_apart(name: str) -> None:
    spec, x_dims, kind, (x_layout, y_layout) = APART[name]
    x, y = tensor(1, x_dims, kind, x_layout), tensor(2, resampled_extents(x_dims, spec), kind, y_layout)
    op = ResampleForward(spec=spec, x=x, y=y)
    check(op, resample_forward.ENGINE, [x], extreme=spec.mode is MAX)
    assert [step.entry for step in device_kernel(op, resample_forward.ENGINE).steps] == ["pool_disjoint"]  # type: ignore[union-attr]


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", APART)
def test_windows_apart_compile_without_spills(name: str, arch: str) -> None:
    spec, x_dims, kind, (x_layout, y_layout) = APART[name]
    x = tensor(1, x_dims, kind, x_layout) if spec.mode is MAX else None
    dx, dy = tensor(2, x_dims, kind, x_layout), tensor(3, resampled_extents(x_dims, spec), kind, y_layout)
    compiles_cleanly(ResampleBackward(spec=spec, dy=dy, x=x, dx=dx), resample_backward.ENGINE, arch)
    op = ResampleForward(spec=spec, x=tensor(4, x_dims, kind, x_layout), y=dy)
    compiles_cleanly(op, resample_forward.ENGINE, arch)


@emulated
def test_indices_beyond_int32_go_nowhere() -> None:
    op = backward("max 3x3 nchw", index="i64")
    assert op.index is not None
    places = np.random.default_rng(0).choice([0, 4, 2**32 + 4, -(2**40), 8], op.index.extents)
    check(op, resample_backward.ENGINE, [op.dy], values={3: places})


@emulated
@pytest.mark.parametrize("alpha", [1.0, -2.5])
def test_alpha_and_beta(alpha: float) -> None:
    for name in ("average nhwc", "max integers", "max 3x3 nchw"):
        op = forward(name, alpha=alpha, beta=0.5)
        check(op, resample_forward.ENGINE, [op.x, op.y])
    down = backward("average nhwc", alpha=alpha, beta=0.5)
    check(down, resample_backward.ENGINE, [down.dy, down.dx])


def pointwise(mode: PointwiseMode, x: TensorSpec, y: TensorSpec, b: TensorSpec | None = None) -> PointwiseOperation:
    return PointwiseOperation(spec=PointwiseSpec(mode=mode, math_type="f32"), x=x, y=y, b=b)


@emulated
@pytest.mark.parametrize("name", ["average nhwc", "max 3x3 nchw", "bilinear", "max 2x2 nchw f16"])
def test_prologue_epilogue_and_exit(name: str) -> None:
    spec, extents, (kind, _), (layout, _) = CASES[name]
    out = resampled_extents(extents, spec)
    raw = tensor(1, extents, kind, layout)
    scale = tensor(2, (1, extents[1], 1, 1), "f32")
    x = tensor(3, extents, "f32", layout, is_virtual=True)
    y = tensor(4, out, "f16", layout, is_virtual=True)
    residual = tensor(5, out, "f16", layout)
    z = tensor(6, out, "f32", layout)
    total = tensor(7, (1, out[1], 1, 1), "f32")
    operations = [
        pointwise(PointwiseMode.MUL, raw, x, scale),
        ResampleForward(spec=spec, x=x, y=y),
        pointwise(PointwiseMode.ADD, y, z, residual),
        Reduction(spec=ReductionSpec(operator=ReductionOperator.ADD, compute_type="f32"), x=z, y=total),
    ]
    check(operations, resample_forward.ENGINE, [raw, scale, residual])


@emulated
def test_packed_bits_and_vectors() -> None:
    spec = settings(MAX, (2, 2), (2, 2), compute="i32")
    x = tensor(1, (2, 3, 6, 4), DataType.BOOLEAN)
    check(ResampleForward(spec=spec, x=x, y=tensor(2, (2, 3, 3, 2), DataType.BOOLEAN)), resample_forward.ENGINE, [x])
    x = tensor(1, (2, 2, 6, 4), "i8", vector_count=4, vectorized_dimension=1)
    y = tensor(2, (2, 2, 3, 2), "i8", vector_count=4, vectorized_dimension=1)
    index = tensor(3, (2, 2, 3, 2), "u8", vector_count=4, vectorized_dimension=1)
    check(ResampleForward(spec=spec, x=x, y=y, index=index), resample_forward.ENGINE, [x])
    check(ResampleBackward(spec=spec, dx=x, dy=y, x=x.model_copy(update={"uid": 4})), resample_backward.ENGINE, [
        y, x.model_copy(update={"uid": 4})])  # fmt: skip


@emulated
@pytest.mark.parametrize("many_rows", [False, True])
@pytest.mark.parametrize(
    "seed", [pytest.param(0, id="few"), *(pytest.param(i, marks=pytest.mark.long) for i in range(1, 25))]
)
def test_random_pools(seed: int, many_rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if many_rows:  # as large problems have them
        monkeypatch.setattr(pool, "_THREADS_PER_SM", 0)
    choose = random.Random(2 * seed + many_rows)
    for _ in range(8):
        mode = choose.choice([MAX, MAX, INCLUDING, EXCLUDING])
        axes = choose.choice([1, 2, 2, 2, 3, 3])
        window = [choose.randint(1, 4) for _ in range(axes)]
        pre, post = ([choose.randrange(w) for w in window] for _ in range(2))
        stride = [choose.randint(1, 3) for _ in range(axes)]
        if axes == 3:  # two axes that windows move along, or one
            for still in choose.sample(range(3), choose.randint(1, 2)):
                window[still] = stride[still] = 1
                pre[still] = post[still] = 0
        paddings = {MAX: [ZERO, LOWEST, EDGE], INCLUDING: [ZERO, EDGE], EXCLUDING: [ZERO]}[mode]
        spec = settings(mode, window, stride, pre, post, choose.choice(paddings), nan=choose.random() < 0.5)
        layout = choose.choice(["channels_last", "packed", "gaps", "rotated"])
        kind = choose.choice(["f32", "f16", "i8"])
        sides = [5, 8, 9, 16] if axes < 3 else [4, 5, 8]
        x_extents = (2, choose.choice([3, 8, 16]), *(choose.choice(sides) for _ in range(axes)))
        extents = resampled_extents(x_extents, spec)
        index = tensor(3, extents, "u8", layout) if mode is MAX and choose.random() < 0.5 else None
        op = ResampleForward(
            spec=spec, x=tensor(1, x_extents, kind, layout), y=tensor(2, extents, kind, layout), index=index
        )
        (step,) = device_kernel(op, resample_forward.ENGINE).steps
        assert layout == "rotated" or step.entry == "resample_pool"  # type: ignore[union-attr]
        check(op, resample_forward.ENGINE, [op.x], extreme=True)


@emulated
@pytest.mark.parametrize("threads", [0, 640])
@pytest.mark.parametrize(
    "seed", [pytest.param(0, id="few"), *(pytest.param(i, marks=pytest.mark.long) for i in range(1, 25))]
)
def test_random_gradients_of_maxima(seed: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small windows with ties, NaN and padding of every kind, and threads that go down many rows or one."""
    monkeypatch.setattr(pool_backward, "_THREADS_PER_SM", threads)
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    for _ in range(4):
        window = [choose.randint(1, 5) for _ in range(2)]
        pre, post = ([choose.randrange(w) for w in window] for _ in range(2))
        stride = [choose.randint(1, 4) for _ in range(2)]
        spec = settings(MAX, window, stride, pre, post, choose.choice([ZERO, LOWEST, EDGE]), nan=choose.random() < 0.5)
        layout, kind = choose.choice(["channels_last", "packed", "gaps"]), choose.choice(["f32", "f16", "bf16"])
        dims = (2, choose.choice([3, 8]), *(choose.choice([5, 8, 9, 16]) for _ in range(2)))
        x, dx = (tensor(uid, dims, kind, layout) for uid in (1, 2))
        op = ResampleBackward(spec=spec, x=x, dx=dx, dy=tensor(3, resampled_extents(dims, spec), kind, layout))
        values = rng.integers(-2, 3, dims).astype(np.float64)
        values[rng.random(dims) < 0.1], values[rng.random(dims) < 0.1] = np.nan, -np.inf
        check(op, resample_backward.ENGINE, [op.dy], values={1: values})


def response(kind: str, layout: str, extents: tuple[int, ...] = (2, 16, 6, 8)) -> list[Operation]:
    """Local response normalization: the channels as a spatial axis, x * (1 + mean of 5 squares)^-0.75."""
    n, c, h, w = extents
    dims, one = (n, 1, c, h, w), (1,) * 5
    flat = (c * h * w, 1, w * c, c) if layout == "channels_last" else (c * h * w, h * w, w, 1)
    strides = (flat[0], flat[0], *flat[1:])
    x, y = (TensorSpec(uid=i, dims=dims, strides=strides, data_type=data_type_of(kind)) for i in (1, 2))
    square, mean, scaled, base, power = (tensor(i, dims, "f32", is_virtual=True) for i in range(3, 8))
    alpha, shift, beta = (tensor(i, one, "f32", is_by_value=True) for i in range(8, 11))
    return [
        pointwise(PointwiseMode.MUL, x, square, x),
        ResampleForward(spec=settings(INCLUDING, (5, 1, 1), (1, 1, 1), (2, 0, 0)), x=square, y=mean),
        pointwise(PointwiseMode.MUL, mean, scaled, alpha),
        pointwise(PointwiseMode.ADD, scaled, base, shift),
        pointwise(PointwiseMode.POW, base, power, beta),
        pointwise(PointwiseMode.MUL, x, y, power),
    ]


SCALARS = {uid: np.full((1,) * 5, value) for uid, value in ((8, 0.5), (9, 1.0), (10, -0.75))}


@emulated
@pytest.mark.parametrize("many_rows", [False, True])
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_windows_over_channels(kind: str, layout: str, many_rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if many_rows:
        monkeypatch.setattr(pool, "_THREADS_PER_SM", 0)
    chain = response(kind, layout)
    (step,) = device_kernel(chain, resample_forward.ENGINE, device="a100").steps
    assert step.entry == "resample_pool"  # type: ignore[union-attr]
    for extreme in (False, True):
        check(chain, resample_forward.ENGINE, [chain[0].inputs()["x"]], values=SCALARS, extreme=extreme, device="a100")


@emulated
@pytest.mark.parametrize("extents", [(2, 16, 6, 8), (1, 37, 9, 8)])
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_windows_over_planes(kind: str, extents: tuple[int, ...]) -> None:
    chain = response(kind, "packed", extents)
    (step,) = device_kernel(chain, resample_forward.ENGINE).steps
    assert step.entry == "resample_box"  # type: ignore[union-attr]
    for extreme in (False, True):
        check(chain, resample_forward.ENGINE, [chain[0].inputs()["x"]], values=SCALARS, extreme=extreme)


@emulated
@pytest.mark.parametrize("window", [2, 3, 5])
def test_averages_across_rows(window: int) -> None:
    """Other rows come out than go in, and nothing but the average is computed."""
    spec = settings(INCLUDING, (window, 1), (1, 1), (window - 1, 0), (window // 2, 0))
    x = (2, 3, 35, 16)
    op = ResampleForward(spec=spec, x=tensor(1, x, "bf16"), y=tensor(2, resampled_extents(x, spec), "f16"))
    (step,) = device_kernel(op, resample_forward.ENGINE).steps
    assert step.entry == "resample_box"  # type: ignore[union-attr]
    check(op, resample_forward.ENGINE, [op.x], extreme=True)


def test_refusals_name_direction_and_coordinates() -> None:
    device = device_spec("h200")
    task = Task(fused(backward("nearest")), device)
    assert [r.rule for r in resample_forward.ENGINE.why_not(task)] == ["cuda_resample_forward.direction"]
    task = Task(fused(forward("nearest")), device)
    assert [r.rule for r in resample_backward.ENGINE.why_not(task)] == ["cuda_resample_backward.direction"]
    fine = Fraction(10**9 + 7, 2 * 10**9)
    spec = settings(NEAREST, (1,), (fine,))
    y = resampled_extents((1, 1, 9), spec)
    op = ResampleForward(spec=spec, x=tensor(1, (1, 1, 9)), y=tensor(2, y))
    (rejection,) = resample_forward.ENGINE.why_not(Task(fused(op), device))
    assert rejection.rule == "cuda_resample_forward.coordinates"
    assert rejection.fix


COMPILED = ("max 2x2 nhwc f16", "max 3x3 nchw", "max f64 3d", "max integers", "average nhwc", "average nchw",
            "average excluding", "nearest", "bilinear", "bilinear f64 3d")  # fmt: skip


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", COMPILED)
def test_text_compiles_without_spills(name: str, arch: str) -> None:
    is_max = name.startswith("max")
    compiles_cleanly(forward(name, "i8" if is_max else None), resample_forward.ENGINE, arch, registers=128)
    compiles_cleanly(backward(name, x=is_max), resample_backward.ENGINE, arch, registers=128)


# The layers that pooling is measured on: large enough for every thread to compute several rows.
LAYERS = {
    "max 2x2": settings(MAX, (2, 2), (2, 2)),
    "max 3x3": settings(MAX, (3, 3), (2, 2), (1, 1), padding=LOWEST),
    "average 3x3": settings(INCLUDING, (3, 3), (1, 1), (1, 1)),
}


@compiler
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize("name", LAYERS)
def test_pools_of_a_network_compile_without_spills(name: str, kind: str, layout: str) -> None:
    x, spec = (64, 128, 56, 56), LAYERS[name]
    y = resampled_extents(x, spec)
    op = ResampleForward(spec=spec, x=tensor(1, x, kind, layout), y=tensor(2, y, kind, layout))
    compiles_cleanly(op, resample_forward.ENGINE, "sm_90a", registers=128)


@compiler
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("width", [28, 56])
def test_gradients_of_maxima_compile_without_spills(width: int, stride: int, kind: str, layout: str) -> None:
    """Those of a network: threads go down several rows, with the next one on its way."""
    dims, spec = (64, 128, width, width), settings(MAX, (3, 3), (stride, stride), (1, 1), padding=LOWEST)
    x, dx = (tensor(uid, dims, kind, layout) for uid in (1, 2))
    op = ResampleBackward(spec=spec, x=x, dx=dx, dy=tensor(3, resampled_extents(dims, spec), kind, layout))
    compiles_cleanly(op, resample_backward.ENGINE, "sm_90a")


@compiler
@pytest.mark.parametrize(
    ("window", "stride", "kind", "layout"),
    [(5, 1, "f16", "packed"), (5, 2, "f16", "channels_last"), (4, 1, "f32", "packed"), (3, 1, "f64", "channels_last")],
)
def test_rows_of_large_windows_have_their_registers(window: int, stride: int, kind: str, layout: str) -> None:
    dims, half = (64, 128, 56, 56), (window // 2,) * 2
    compute = kind if kind == "f64" else "f32"
    spec = settings(MAX, (window,) * 2, (stride,) * 2, half, padding=LOWEST, compute=compute)
    x, dx = (tensor(uid, dims, kind, layout) for uid in (1, 2))
    op = ResampleBackward(spec=spec, x=x, dx=dx, dy=tensor(3, resampled_extents(dims, spec), kind, layout))
    compiles_cleanly(op, resample_backward.ENGINE, "sm_90a")


@compiler
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_windows_over_channels_compile_without_spills(kind: str, layout: str) -> None:
    compiles_cleanly(response(kind, layout, (64, 128, 56, 56)), resample_forward.ENGINE, "sm_90a", registers=80)
