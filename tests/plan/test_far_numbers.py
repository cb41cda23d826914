"""Numbers that Python holds and NumPy's 64 bits do not: what is accepted is computed, and what is not is refused by name."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from legal_problems import LEGAL, convolution, operation, pointwise, pooling, tensor
from problems import HOST_ENGINES, bound, execute, plan_of

from graphdnn import OperationGraph
from graphdnn.engines import Engine
from graphdnn.enums import PaddingMode, PointwiseMode, ResampleMode, Status
from graphdnn.errors import BadParam
from graphdnn.host_allocation import HostOutOfMemory
from graphdnn.operations import Operation
from graphdnn.operations.resample import resampled_extents

FAR = (2**60, 2**62, 2**63 - 1)
NAMES = {"conv_fprop": ("x", "w", "y"), "conv_dgrad": ("dx", "w", "dy"), "conv_wgrad": ("x", "dw", "dy")}
MOST_BYTES = 2**45


def _of(tag: str, shapes: tuple[tuple[int, ...], ...], **settings: Any) -> Operation:
    tensors = {name: tensor(uid, dims) for uid, (name, dims) in enumerate(zip(NAMES[tag], shapes, strict=True), 1)}
    return operation(tag, **{**LEGAL[tag](), **tensors, "conv": convolution(**settings)})


def _same(op: Operation, near: Operation, engine: Engine) -> None:
    rng = np.random.default_rng(0)
    inputs = {t.uid: rng.integers(-4, 5, t.extents) for t in op.inputs().values()}
    found, expected = execute(op, inputs, engine), execute(near, inputs, engine)
    for uid, values in expected.items():
        np.testing.assert_array_equal(found[uid], values)


@pytest.mark.parametrize("engine", HOST_ENGINES, ids=lambda e: e.name)
@pytest.mark.parametrize("tag", NAMES)
@pytest.mark.parametrize("far", FAR)
def test_a_single_tap_may_be_dilated_and_a_single_output_strided(far: int, tag: str, engine: Engine) -> None:
    one_tap = (2, 4, 6, 6), (4, 4, 1, 1), (2, 4, 6, 6)
    _same(_of(tag, one_tap, dilations=(far, far)), _of(tag, one_tap), engine)
    for shapes in (((2, 4, 5, 5), (4, 4, 3, 3), (2, 4, 1, 1)), ((2, 64, 5, 5), (4, 64, 3, 3), (2, 4, 1, 1))):
        _same(_of(tag, shapes, filter_strides=(far, far)), _of(tag, shapes, filter_strides=(5, 5)), engine)


STEPS = (2**31, 2**62, Fraction(2**62 + 1, 2**62), Fraction(2**40, 3**25), Fraction(10**18, 10**18 + 1))


@pytest.mark.parametrize("mode", [ResampleMode.NEAREST, ResampleMode.BILINEAR])
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_interpolation_with_far_or_fine_steps(step: Fraction | int, mode: ResampleMode) -> None:
    """Each output is the value at its place, which fractions of Python say."""
    spec = pooling(mode=mode, padding_mode=PaddingMode.EDGE_VAL_PAD, strides=(step, 1), window_dims=(2, 2))
    dims = (1, 1, 6, 6)
    y = resampled_extents(dims, spec)
    x = np.arange(36.0).reshape(dims)
    op = operation("resample_fwd", x=tensor(1, dims), y=tensor(2, y), index=..., spec=spec)
    (found,) = execute(op, {1: x}).values()
    for o in range(y[2]):
        place = o * Fraction(step) + (Fraction(1, 2) if mode is ResampleMode.NEAREST else Fraction(step) / 2)
        below = place.numerator // place.denominator
        share = float(place - below) if mode is ResampleMode.BILINEAR else 0.0
        rows = [x[0, 0, min(max(row, 0), 5), 0] for row in (below, below + 1)]
        along = 0.5 if mode is ResampleMode.BILINEAR else 0.0
        np.testing.assert_allclose(found[0, 0, o, 0], rows[0] * (1 - share) + rows[1] * share + along, rtol=1e-6)


@pytest.mark.parametrize("tag", ["resample_fwd", "resample_bwd"])
@pytest.mark.parametrize("step", [2**31, 2**53 + 1, 2**62, 2**63 - 1])
def test_pooling_with_far_steps(step: int, tag: str) -> None:
    for mode in (ResampleMode.MAXPOOL, ResampleMode.AVGPOOL_EXCLUDE_PADDING):
        padding = PaddingMode.NEG_INF_PAD if mode is ResampleMode.MAXPOOL else PaddingMode.ZERO_PAD

        def make(stride: int, mode: ResampleMode = mode, padding: PaddingMode = padding) -> Operation:
            spec = pooling(mode=mode, padding_mode=padding, strides=(stride, stride), window_dims=(2, 2))
            x, y = tensor(1, (1, 2, 4, 4)), tensor(2, (1, 2, 1, 1))
            if tag == "resample_fwd":
                return operation(tag, x=x, y=y, index=..., spec=spec)
            found = {"x": x.model_copy(update={"uid": 3}), "y": y.model_copy(update={"uid": 4})}
            return operation(tag, dx=x, dy=y, index=..., spec=spec, **(found if mode is ResampleMode.MAXPOOL else {}))

        _same(make(step), make(4), HOST_ENGINES[-1])


@pytest.mark.parametrize("kind", ["f32", "f64", "i8", "bool"])
def test_an_axis_of_one_element_may_have_any_stride(kind: str) -> None:
    far = 2**63 - 1
    dims, strides = (1, 3, 1), (far, 1, far)
    mode = PointwiseMode.IDENTITY
    math = "bool" if kind == "bool" else "i32" if kind == "i8" else "f32"
    x, y = tensor(1, dims, kind, strides=strides), tensor(2, dims, kind, strides=strides)
    op = operation("pointwise", x=x, y=y, b=..., spec=pointwise(mode, math))
    plan = plan_of(OperationGraph.of([op]))
    arrays = {t.uid: plan.new_array(t) for t in (x, y)}
    plan.execute(arrays, plan.new_workspace())
    values = np.array([[[1], [0], [1]]])
    np.testing.assert_array_equal(execute(op, {1: values})[2], values)


@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.parametrize("name", ["relu_lower_clip", "relu_upper_clip", "relu_lower_clip_slope"])
def test_integers_have_no_nan(name: str, kind: str) -> None:
    with pytest.raises(BadParam) as caught:
        pointwise(PointwiseMode.RELU_FWD, kind, **{name: float("nan")})
    (rejection,) = caught.value.rejections
    assert rejection.rule == "pointwise.parameter.whole"
    assert rejection.attribute.split()[0] == name
    assert pointwise(PointwiseMode.RELU_FWD, "f32", **{name: float("nan")})


# Memory that is not there.


def _large() -> tuple[Operation, Any]:
    op = operation(
        "pointwise", x=tensor(1, (MOST_BYTES,)), y=tensor(2, (MOST_BYTES,)), b=..., spec=pointwise(PointwiseMode.EXP)
    )
    return op, plan_of(OperationGraph.of([op]))


def _is_named(error: HostOutOfMemory) -> None:
    (rejection,) = error.rejections
    assert error.status is Status.INTERNAL_ERROR_HOST_ALLOCATION_FAILED
    assert rejection.rule == "host.memory"
    assert all((rejection.attribute, rejection.value, rejection.expected, rejection.reason, rejection.fix))


def test_an_array_without_memory_is_refused_by_name() -> None:
    op, plan = _large()
    with pytest.raises(HostOutOfMemory) as caught:
        plan.new_array(next(iter(op.inputs().values())))
    _is_named(caught.value)
    assert caught.value.rejections[0].value == f"{4 * MOST_BYTES} bytes"
    most = tensor(3, (2**63 - 1,), "i8", byte_alignment=4096)
    with pytest.raises(HostOutOfMemory):
        plan.new_array(most)


def test_a_certificate_without_memory_is_refused_by_name() -> None:
    _op, plan = _large()
    with pytest.raises(HostOutOfMemory) as caught:
        plan.certificate(ranges={1: (0.0, 1.0)})
    _is_named(caught.value)
    assert caught.value.rejections[0].attribute == "ranges"
    far = operation(
        "pointwise", x=tensor(1, (2**61,), "i8"), y=tensor(2, (2**61,), "i8"), b=..., spec=pointwise(PointwiseMode.EXP)
    )
    with pytest.raises(HostOutOfMemory):
        plan_of(OperationGraph.of([far])).certificate(ranges={1: (0.0, 1.0)})


@contextmanager
def _memory(more: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_an_execution_and_a_workspace_without_memory_are_refused_by_name() -> None:
    between = tensor(2, (2**26,), is_virtual=True)
    first = operation("pointwise", x=tensor(1, (2**26,), "i8"), y=between, b=..., spec=pointwise(PointwiseMode.EXP))
    last = operation("reduction", x=between, y=tensor(3, (1,)))
    graph = OperationGraph.of([first, last])
    plan = plan_of(graph)
    arrays = {t.uid: bound(t) for t in graph.bound}
    workspace = plan.new_workspace()
    with _memory(2**26), pytest.raises(HostOutOfMemory) as caught:
        plan.execute(arrays, workspace)
    _is_named(caught.value)
    plan.execute(arrays, workspace)  # nothing is lost
    if plan.workspace_size >= 2**27:
        with _memory(2**26), pytest.raises(HostOutOfMemory) as caught:
            plan.new_workspace()
        _is_named(caught.value)
