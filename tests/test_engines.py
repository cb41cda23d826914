"""Every engine, end to end: specs -> graph -> fusion -> plan -> execute, against plain loops and PyTorch.

Problems are drawn at random; outputs and workspace are poisoned before each run. Integers have to agree bit for
bit. How many problems of each kind ran is checked at the end, so that a generator that only skips cannot pass.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import PROBLEMS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from legal import LEGAL, operation

from graphdnn import ConvolutionMode, DataType, OperationGraph, TensorSpec, channels_last_strides, fuse, packed_strides
from graphdnn.device import this_cpu
from graphdnn.dtypes import ELEMENTS, cast
from graphdnn.engines import ENGINES, HOST_ENGINES, Engine, Task
from graphdnn.engines.host.memory import empty, load, store
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.operations import ConvBackwardData, ConvBackwardFilter, ConvForward, ConvolutionSpec, Operation
from graphdnn.oracle import compare
from graphdnn.plan import ExecutionPlan

FLOATS = ("f64", "f32", "f16", "bf16", "e4m3", "e5m2")
INTEGERS = ("i8", "u8", "i16", "i32", "i64")


def execute(op: Operation, inputs: dict[int, np.ndarray], engine: Engine) -> dict[int, np.ndarray]:
    """Outputs by uid of one operation on one engine; everything that will be written is poisoned first."""
    graph = OperationGraph.of([op])
    fused = fuse(graph)
    task = Task(fused.operations[0], this_cpu())
    plan = ExecutionPlan(EngineConfig(fused, this_cpu(), (Choice(task, engine, engine.defaults()),)))
    bindings: dict[int, Any] = {}
    for spec in graph.bound:
        bindings[spec.uid] = empty(spec)
        if spec.uid in inputs:
            bindings[spec.uid][...] = 0
            store(cast(inputs[spec.uid], spec.data_type), bindings[spec.uid], spec)
        else:
            poison(bindings[spec.uid])
    workspace = plan.new_workspace()
    if workspace is not None:
        workspace[...] = 0xA5
    plan.execute(bindings, workspace)
    return {spec.uid: load(bindings[spec.uid], spec) for spec in graph.outputs}


def poison(array: np.ndarray) -> None:
    if array.dtype.kind in "fV":
        array[...] = np.nan
    else:
        array[...] = True if array.dtype == np.bool_ else np.iinfo(array.dtype).max


# Convolutions.


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes of a small convolution, in either group form, and how its tensors lie in memory."""
    s = draw(st.integers(1, 3))
    axis = st.integers(1, 5 if s < 3 else 3)
    sizes = {
        "n": draw(st.integers(1, 2)), "g": draw(st.integers(1, 3)), "c": draw(st.integers(1, 3)),
        "k": draw(st.integers(1, 3)), "filter": [draw(st.integers(1, 3)) for _ in range(s)],
        "stride": [draw(st.integers(1, 3)) for _ in range(s)], "dilation": [draw(st.integers(1, 2)) for _ in range(s)],
        "pre": [draw(st.integers(0, 2)) for _ in range(s)], "post": [draw(st.integers(0, 2)) for _ in range(s)],
        "output": [draw(axis) for _ in range(s)], "group_axis": draw(st.booleans()), "flip": draw(st.booleans()),
        "layouts": [draw(st.sampled_from(("packed", "channels_last", "gaps"))) for _ in range(3)],
        "extra": [draw(st.integers(0, 1)) for _ in range(s)],
    }  # fmt: skip
    sizes["input"] = [
        (p - 1) * u + d * (f - 1) + 1 - a - b + (e if u > e else 0)
        for p, u, d, f, a, b, e in zip(
            *(sizes[x] for x in ("output", "stride", "dilation", "filter", "pre", "post", "extra")), strict=True
        )
    ]
    # Where padding swallowed the input, pad less instead.
    for i, extent in enumerate(sizes["input"]):
        if extent < 1:
            sizes["input"][i] = extent + sizes["pre"][i] + sizes["post"][i]
            sizes["pre"][i] = sizes["post"][i] = 0
    return sizes


def tensor(uid: int, dims: tuple[int, ...], kind: str, layout: str) -> TensorSpec:
    strides = channels_last_strides(dims) if layout == "channels_last" else packed_strides(dims)
    if layout == "gaps":
        strides = packed_strides([d + 1 for d in dims])
    return TensorSpec(uid=uid, data_type=kind, dims=dims, strides=strides)


def build(p: dict[str, Any], direction: str, kinds: tuple[str, str, str], compute: str, **scale: float) -> Operation:
    """The operation with x, w and y as uids 1, 2 and 3, of types ``kinds``."""
    n, g, c, k = (p[name] for name in "ngck")
    head = ((n, g, c), (g, k, c), (n, g, k)) if p["group_axis"] else ((n, g * c), (g * k, c), (n, g * k))
    spatial = (p["input"], p["filter"], p["output"])
    x, w, y = (
        tensor(uid, (*h, *s), kind, layout)
        for uid, h, s, kind, layout in zip((1, 2, 3), head, spatial, kinds, p["layouts"], strict=True)
    )
    conv = ConvolutionSpec(
        compute_type=compute, spatial_dims=len(p["filter"]), dilations=p["dilation"], filter_strides=p["stride"],
        pre_paddings=p["pre"], post_paddings=p["post"],
        mode=ConvolutionMode.CONVOLUTION if p["flip"] else ConvolutionMode.CROSS_CORRELATION,
    )  # fmt: skip
    if direction == "fprop":
        return ConvForward(x=x, w=w, y=y, conv=conv, **scale)
    if direction == "dgrad":
        return ConvBackwardData(dx=x, w=w, dy=y, conv=conv, **scale)
    return ConvBackwardFilter(x=x, dw=w, dy=y, conv=conv, **scale)


OUTPUT = {"fprop": 3, "dgrad": 1, "wgrad": 2}


def loops(p: dict[str, Any], direction: str, x: Any, w: Any, y: Any) -> np.ndarray:
    """The definition, one product at a time, in Python numbers; the array of the output role only gives its extents."""
    n, g, c, k = (p[name] for name in "ngck")
    x, w, y = (
        a.reshape((*head, *s)).astype(object)
        for a, head, s in zip(
            (x, w, y), ((n, g, c), (g, k, c), (n, g, k)), (p["input"], p["filter"], p["output"]), strict=True
        )
    )
    result = np.zeros({"fprop": y, "dgrad": x, "wgrad": w}[direction].shape, object)
    for out in product(*map(range, p["output"])):
        for tap in product(*map(range, p["filter"])):
            at = tuple(
                o * u + t * d - a for o, u, t, d, a in zip(out, p["stride"], tap, p["dilation"], p["pre"], strict=True)
            )
            if not all(0 <= i < extent for i, extent in zip(at, p["input"], strict=True)):
                continue
            used = tuple(f - 1 - t for f, t in zip(p["filter"], tap, strict=True)) if p["flip"] else tap
            for b, q, i, o in product(range(n), range(g), range(c), range(k)):
                px, pw, py = (b, q, i, *at), (q, o, i, *used), (b, q, o, *out)
                if direction == "fprop":
                    result[py] += x[px] * w[pw]
                elif direction == "dgrad":
                    result[px] += y[py] * w[pw]
                else:
                    result[pw] += x[px] * y[py]
    return result


def operands(op: Operation, rng: np.random.Generator, *, extreme: bool = False) -> dict[int, np.ndarray]:
    """Random values of each operand's type, rounded to it."""
    found = {}
    for spec in op.tensors().values():
        element = ELEMENTS[spec.data_type]
        if element.kind == "float":
            values = rng.standard_normal(spec.extents)
        else:
            low, high = int(element.smallest), int(element.largest)
            ends = rng.choice([low, high, low + 1, high - 1], spec.extents)
            small = rng.integers(max(low, -9), min(high, 9), spec.extents, endpoint=True)
            values = np.where(rng.random(spec.extents) < (0.6 if extreme else 0.0), ends, small)
        found[spec.uid] = cast(np.asarray(values), spec.data_type)
    return found


def wrapped(values: np.ndarray, bits: int) -> np.ndarray:
    half = 1 << (bits - 1)
    return np.array([(int(v) + half) % (1 << bits) - half for v in values.reshape(-1)], np.int64).reshape(values.shape)


CONV_ENGINES = [e for e in ENGINES if e.name in ("numpy", "numpy_blocked")]
BOUNDED = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def ran(check: Callable[[], None], kind: str) -> None:
    """Run a drawn test and see that it executed most of what it drew."""
    before = sum(count for name, count in PROBLEMS.items() if name.startswith(kind))
    check()
    assert sum(count for name, count in PROBLEMS.items() if name.startswith(kind)) - before >= 30


@pytest.mark.parametrize("engine", CONV_ENGINES, ids=lambda e: e.name)
@pytest.mark.parametrize("direction", OUTPUT)
def test_floating_convolutions_against_loops(direction: str, engine: Engine) -> None:
    @BOUNDED
    @given(convolutions(), st.tuples(*[st.sampled_from(FLOATS)] * 3), st.integers(0, 2**32 - 1))
    def check(p: dict[str, Any], kinds: tuple[str, str, str], seed: int) -> None:
        compute = "f64" if "f64" in kinds else "f32"
        op = build(p, direction, kinds, compute)
        data = operands(op, np.random.default_rng(seed))
        uid = OUTPUT[direction]
        found = execute(op, {u: v for u, v in data.items() if u != uid}, engine)[uid].astype(np.float64)
        exact = loops(p, direction, *(data[u].astype(np.float64) for u in (1, 2, 3))).astype(np.float64)
        target = op.tensors()[next(port for port, t in op.tensors().items() if t.uid == uid)].data_type
        element = ELEMENTS[target]
        exact = np.clip(exact.reshape(found.shape), element.smallest, element.largest)
        unit = float(np.finfo(np.float32).eps) * 16 + float(_eps(target))
        np.testing.assert_allclose(found, exact, rtol=0, atol=unit * max(1.0, np.abs(exact).max()) * 2)
        PROBLEMS[f"float {direction} {len(p['filter'])}-d"] += 1

    ran(check, "float")


def _eps(target: DataType) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(ELEMENTS[target].numpy).eps


@pytest.mark.parametrize("engine", CONV_ENGINES, ids=lambda e: e.name)
@pytest.mark.parametrize("direction", OUTPUT)
def test_integer_convolutions_are_exact(direction: str, engine: Engine) -> None:
    @BOUNDED
    @given(
        convolutions(), st.tuples(*[st.sampled_from(INTEGERS)] * 2), st.sampled_from(("i32", "i64")),
        st.sampled_from(("i8", "i32", "i64")), st.integers(0, 2**32 - 1),
    )  # fmt: skip
    def check(p: dict[str, Any], kinds: tuple[str, str], compute: str, out: str, seed: int) -> None:
        if compute == "i32":
            kinds = tuple("i32" if kind == "i64" else kind for kind in kinds)  # type: ignore[assignment]
        order = {"fprop": (*kinds, out), "dgrad": (out, *kinds), "wgrad": (kinds[0], out, kinds[1])}[direction]
        op = build(p, direction, order, compute)
        data = operands(op, np.random.default_rng(seed), extreme=True)
        uid = OUTPUT[direction]
        found = execute(op, {u: v for u, v in data.items() if u != uid}, engine)[uid]
        sums = wrapped(loops(p, direction, *(data[u] for u in (1, 2, 3))), 32 if compute == "i32" else 64)
        info = np.iinfo(found.dtype)
        np.testing.assert_array_equal(found, np.clip(sums.reshape(found.shape), info.min, info.max))
        PROBLEMS[f"integer {direction} {compute}"] += 1

    ran(check, "integer")


@pytest.mark.parametrize("engine", CONV_ENGINES, ids=lambda e: e.name)
def test_alpha_and_beta(engine: Engine) -> None:
    @BOUNDED
    @given(convolutions(), st.sampled_from(list(OUTPUT)), st.sampled_from((2.0, -0.5)), st.sampled_from((1.0, 3.0)))
    def check(p: dict[str, Any], direction: str, alpha: float, beta: float) -> None:
        op = build(p, direction, ("f64",) * 3, "f64", alpha=alpha, beta=beta)
        data = operands(op, np.random.default_rng(1))
        uid = OUTPUT[direction]
        found = execute(op, data, engine)[uid]
        plain = loops(p, direction, *(data[u] for u in (1, 2, 3))).astype(np.float64).reshape(found.shape)
        np.testing.assert_allclose(found, alpha * plain + beta * data[uid], rtol=1e-12, atol=1e-12)
        PROBLEMS["alpha and beta"] += 1

    ran(check, "alpha")


@pytest.mark.parametrize("engine", CONV_ENGINES, ids=lambda e: e.name)
def test_the_three_directions_are_adjoint(engine: Engine) -> None:
    """<conv(x, w), dy> = <x, dgrad(dy, w)> = <w, wgrad(x, dy)>."""

    @BOUNDED
    @given(convolutions(), st.integers(0, 2**32 - 1))
    def check(p: dict[str, Any], seed: int) -> None:
        rng = np.random.default_rng(seed)
        data = operands(build(p, "fprop", ("f64",) * 3, "f64"), rng)
        products = []
        for direction, uid in OUTPUT.items():
            op = build(p, direction, ("f64",) * 3, "f64")
            result = execute(op, {u: v for u, v in data.items() if u != uid}, engine)[uid]
            products.append(float((result * data[uid]).sum()))
        np.testing.assert_allclose(products[1:], products[0], rtol=1e-9, atol=1e-9)
        PROBLEMS["adjoint"] += 1

    ran(check, "adjoint")


@pytest.mark.torch
@pytest.mark.parametrize("engine", CONV_ENGINES, ids=lambda e: e.name)
def test_convolutions_against_pytorch(engine: Engine) -> None:
    torch = pytest.importorskip("torch")

    @BOUNDED
    @given(convolutions(), st.integers(0, 2**32 - 1))
    def check(p: dict[str, Any], seed: int) -> None:
        p = {**p, "flip": False, "group_axis": False, "post": p["pre"]}
        p["output"] = [
            1 + (h + 2 * a - d * (f - 1) - 1) // u
            for h, a, d, f, u in zip(p["input"], p["pre"], p["dilation"], p["filter"], p["stride"], strict=True)
        ]
        if min(p["output"]) < 1:
            return
        data = operands(build(p, "fprop", ("f64",) * 3, "f64"), np.random.default_rng(seed))
        x, w, dy = (torch.from_numpy(np.ascontiguousarray(data[u])).requires_grad_() for u in (1, 2, 3))
        convolve = getattr(torch.nn.functional, f"conv{len(p['filter'])}d")
        y = convolve(x, w, stride=p["stride"], padding=p["pre"], dilation=p["dilation"], groups=p["g"])
        y.backward(dy.detach())
        for direction, wanted in (("fprop", y.detach()), ("dgrad", x.grad), ("wgrad", w.grad)):
            op = build(p, direction, ("f64",) * 3, "f64")
            uid = OUTPUT[direction]
            found = execute(op, {u: v for u, v in data.items() if u != uid}, engine)[uid]
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-10, atol=1e-10)
            PROBLEMS[f"torch {direction}"] += 1

    ran(check, "torch")


# Every operation.


@pytest.mark.parametrize("tag", LEGAL)
def test_every_operation_writes_every_element_and_agrees_with_float64(tag: str) -> None:
    op = operation(tag)
    graph = OperationGraph.of([op])
    (general,) = (e for e in HOST_ENGINES if e.is_general)
    rng = np.random.default_rng(3)
    inputs = {}
    for port, spec in op.inputs().items():
        values = (
            rng.random(spec.extents) + 0.5
            if ELEMENTS[spec.data_type].kind == "float"
            else rng.integers(0, 3, spec.extents)
        )
        if port == "accumulation_count":
            values = np.full(spec.extents, 40)
        if port == "y_sq_sum":
            values = values + 100.0
        inputs[spec.uid] = cast(np.asarray(values), spec.data_type)
    outputs = execute(op, inputs, general)
    assert set(outputs) == {t.uid for t in op.outputs().values()}
    for spec in graph.outputs:
        values = outputs[spec.uid]
        poisoned = (
            np.isnan(values.astype(np.float64)) if values.dtype.kind in "fV" else values == np.iinfo(values.dtype).max
        )
        assert not poisoned.any(), f"{spec.label()} was not written everywhere"
    bindings = {**inputs, **outputs}
    by_value = {t.uid for t in graph.inputs if t.is_by_value}
    bindings = {u: float(v.reshape(())[()]) if u in by_value else v for u, v in bindings.items()}
    for comparison in compare(graph, bindings):
        assert comparison.ok, str(comparison)
    PROBLEMS[tag] += 1
