"""Convolutions end to end on every engine, against loops in float64 and Python integers, and PyTorch's operators."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from legal_problems import pointwise
from problems import (
    EXAMPLES,
    FLOATS,
    HOST_ENGINES,
    INTEGERS,
    LAYOUTS,
    Tally,
    drawn,
    engines,
    execute,
    one,
    saturated,
    stored,
    tensor,
    tiny,
    unit,
    values_for,
    wrapped,
)

from graphdnn import ConvolutionMode, DataType, KnobType, PointwiseMode
from graphdnn.dtypes import COMPUTE, ELEMENTS, Array, data_type_of
from graphdnn.engines import Engine
from graphdnn.operations import (
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionOperation,
    ConvolutionSpec,
    PointwiseOperation,
)
from graphdnn.operations.conv_problem import output_extent

Problem = dict[str, Any]
OUTPUT = {"fprop": 3, "dgrad": 1, "wgrad": 2}  # uids: x 1, w 2, y 3
directions = pytest.mark.parametrize("direction", OUTPUT)
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Sizes of a small convolution in either group form, and how its tensors lie in memory."""
    s = draw(st.integers(1, 3))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(s)]

    p: Problem = {
        "n": draw(st.integers(1, 2)), "g": draw(st.integers(1, 3)),
        "c": draw(st.integers(1, 3)), "k": draw(st.integers(1, 3)),
        "filter": each(1, 3 if s < 3 else 2), "stride": each(1, 3), "dilation": each(1, 3),
        "pre": each(0, 3), "post": each(0, 3), "input": each(1, 7 if s < 3 else 4),
        "group_axis": draw(st.booleans()), "flip": draw(st.booleans()),
        "layouts": [draw(st.sampled_from(list(LAYOUTS))) for _ in range(3)],
    }  # fmt: skip
    axes = zip(*(p[name] for name in ("input", "filter", "pre", "post", "stride", "dilation")), strict=True)
    p["output"] = [output_extent(*axis) for axis in axes]
    assume(min(p["output"]) >= 1)
    return p


def heads(p: Problem) -> tuple[tuple[int, ...], ...]:
    """Leading extents of x, w and y with groups on an axis of their own."""
    n, g, c, k = (p[name] for name in "ngck")
    return (n, g, c), (g, k, c), (n, g, k)


def build(
    p: Problem,
    direction: str,
    kinds: tuple[str, str, str],
    compute: str | DataType,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> ConvolutionOperation:
    """The operation with x, w and y as uids 1, 2 and 3, of types ``kinds``."""
    joined = heads(p) if p["group_axis"] else [(h[0], h[1] * h[2]) for h in heads(p)]
    if not p["group_axis"]:
        joined[1] = (p["g"] * p["k"], p["c"])
    spatial = (p["input"], p["filter"], p["output"])
    x, w, y = (
        tensor(uid, (*h, *s), kind, layout)
        for uid, h, s, kind, layout in zip((1, 2, 3), joined, spatial, kinds, p["layouts"], strict=True)
    )
    conv = ConvolutionSpec(
        compute_type=compute, spatial_dims=len(p["filter"]), dilations=p["dilation"], filter_strides=p["stride"],
        pre_paddings=p["pre"], post_paddings=p["post"],
        mode=ConvolutionMode.CONVOLUTION if p["flip"] else ConvolutionMode.CROSS_CORRELATION,
    )  # fmt: skip
    if direction == "fprop":
        return ConvForward(x=x, w=w, y=y, conv=conv, alpha=alpha, beta=beta)
    if direction == "dgrad":
        return ConvBackwardData(dx=x, w=w, dy=y, conv=conv, alpha=alpha, beta=beta)
    return ConvBackwardFilter(x=x, dw=w, dy=y, conv=conv, alpha=alpha, beta=beta)


def in_place(direction: str, operands: tuple[str, str], output: str) -> tuple[str, str, str]:
    """Types of x, w and y from those of the two operands and the output."""
    kinds = list(operands)
    kinds.insert(OUTPUT[direction] - 1, output)
    return kinds[0], kinds[1], kinds[2]


def explicit(p: Problem, data: dict[int, Array]) -> list[Array]:
    """x, w and y with an axis of groups; zeros for the one that is not given."""
    spatial = (p["input"], p["filter"], p["output"])
    shapes = [(*head, *s) for head, s in zip(heads(p), spatial, strict=True)]
    return [
        data[u].reshape(shape) if u in data else np.zeros(shape) for u, shape in zip((1, 2, 3), shapes, strict=True)
    ]


def loops(p: Problem, direction: str, data: dict[int, Array], dtype: Any) -> Array:
    """The definition, one output position and one tap at a time; with ``object`` in Python integers."""
    x, w, y = (values.astype(dtype) for values in explicit(p, data))
    result = np.zeros_like({"fprop": y, "dgrad": x, "wgrad": w}[direction])
    for out, tap in product(np.ndindex(*p["output"]), np.ndindex(*p["filter"])):
        at = tuple(
            o * u + t * d - a for o, u, t, d, a in zip(out, p["stride"], tap, p["dilation"], p["pre"], strict=True)
        )
        if not all(0 <= i < extent for i, extent in zip(at, p["input"], strict=True)):
            continue
        used = tuple(f - 1 - t for f, t in zip(p["filter"], tap, strict=True)) if p["flip"] else tap
        for g in range(p["g"]):
            px, pw, py = (slice(None), g, slice(None), *at), (g, ..., *used), (slice(None), g, slice(None), *out)
            if direction == "fprop":
                result[py] += x[px] @ w[pw].T
            elif direction == "dgrad":
                result[px] += y[py] @ w[pw]
            else:
                result[pw] += y[py].T @ x[px]
    return result


def terms(p: Problem, direction: str) -> int:
    """The most products summed for one element."""
    taps = int(np.prod(p["filter"]))
    return {"fprop": p["c"] * taps, "dgrad": p["k"] * taps, "wgrad": p["n"] * int(np.prod(p["output"]))}[direction]


def split(data: dict[int, Array], uid: int) -> tuple[dict[int, Array], Array]:
    return {u: v for u, v in data.items() if u != uid}, data[uid]


# Floating point.


FLOAT_ARITHMETIC = (DataType.FLOAT, DataType.DOUBLE, DataType.HALF, DataType.BFLOAT16)


@st.composite
def floating(draw: st.DrawFn) -> tuple[tuple[str, str], str, DataType]:
    """(operand types, output type, compute type); one operand may be an integer, and so may the output."""
    floats = st.sampled_from(FLOATS)
    operands = draw(floats), draw(floats | floats | st.sampled_from(("i8", "u8", "i16")))
    output = draw(floats | floats | st.sampled_from(("i8", "u8", "i32")))
    return operands, output, draw(st.sampled_from(FLOAT_ARITHMETIC))


@EXAMPLES
@engines
@directions
def test_floating_convolutions_stay_within_the_bound_of_their_types(
    direction: str, engine: Engine, examples: int
) -> None:
    """|found - exact| <= (n + 12) u_compute sum|products| + u_output |exact|, for each element."""
    tally = Tally(f"conv_{direction} in floats")

    @drawn(120 * examples)
    @given(problems(), floating(), st.sampled_from((1.0, -0.5, 200.0)), st.sampled_from((0.0, 1.0, -0.75)), SEEDS)
    def check(p: Problem, kinds: Any, alpha: float, beta: float, seed: int) -> None:
        operands, output, compute = kinds
        op = build(p, direction, in_place(direction, operands, output), compute, alpha, beta)
        data, old = split(values_for(op, np.random.default_rng(seed), ports=op.tensors()), OUTPUT[direction])
        given_data = data if beta == 0 else data | {OUTPUT[direction]: old}
        found = one(op, given_data, engine).astype(np.float64)

        blended = beta * old.astype(np.float64)
        exact = alpha * loops(p, direction, data, np.float64).reshape(found.shape) + blended
        magnitudes = {u: np.abs(v.astype(np.float64)) for u, v in data.items()}
        scale = abs(alpha) * loops(p, direction, magnitudes, np.float64).reshape(found.shape) + np.abs(blended)
        u_compute = float(np.finfo(COMPUTE[compute]).eps) / 2
        error = (terms(p, direction) + 12) * u_compute * scale + (unit(output) * np.abs(exact) + tiny(output)) * 1.001
        difference = np.abs(found - stored(exact, output))
        assert (difference <= error).all(), f"{difference.max()} where at most {error[difference > error]} is due"
        tally.add(
            *operands, output, f"compute {compute.name}", f"{len(p['filter'])}-D", f"group axis {p['group_axis']}"
        )

    check()
    tally.expect(["problems"], at_least=80)
    tally.expect([*FLOATS, "i8", "u8", "i32", "1-D", "2-D", "3-D", "group axis True", "group axis False"])
    tally.expect([f"compute {kind}" for kind in ("FLOAT", "DOUBLE", "HALF", "BFLOAT16")])


@engines
@directions
def test_fast_accumulation_of_fp8(direction: str, engine: Engine) -> None:
    op = build(_image(), direction, in_place(direction, ("e4m3", "e5m2"), "f32"), DataType.FAST_FLOAT_FOR_FP8)
    data = values_for(op, np.random.default_rng(0))
    expected = loops(_image(), direction, data, np.float64)
    np.testing.assert_allclose(one(op, data, engine).ravel(), expected.ravel(), rtol=1e-5, atol=1e-5)


def _image(**sizes: Any) -> Problem:
    """A plain 3x3 convolution of an image."""
    plain: Problem = {
        "n": 2, "g": 1, "c": 3, "k": 4, "filter": [3, 3], "stride": [1, 1], "dilation": [1, 1], "pre": [1, 1],
        "post": [1, 1], "input": [5, 6], "output": [5, 6], "group_axis": False, "flip": False, "layouts": ["packed"] * 3,
    }  # fmt: skip
    return plain | sizes


@directions
def test_padding_contributes_nothing_to_an_infinite_filter(direction: str) -> None:
    """On the general engine taps outside x are left out; an engine that multiplies zeros gets NaN."""
    p = _image(input=[1, 1], output=[1, 1])
    op = build(p, direction, ("f32",) * 3, "f32")
    data, _ = split(values_for(op, np.random.default_rng(0), ports=op.tensors()), OUTPUT[direction])
    if 2 in data:
        data[2] = np.full_like(data[2], np.inf)
        data[2][..., 1, 1] = 1.0
    assert np.isfinite(one(op, data)).all()


# Integers.


@st.composite
def exact_types(draw: st.DrawFn) -> tuple[tuple[str, str], str, str]:
    """(operand types, output type, compute type) of an integer convolution."""
    compute = draw(st.sampled_from(("i32", "i64")))
    held = st.sampled_from(INTEGERS if compute == "i64" else INTEGERS[:-1])
    return (draw(held), draw(held)), draw(st.sampled_from(INTEGERS)), compute


@EXAMPLES
@engines
@directions
def test_integer_convolutions_are_exact(direction: str, engine: Engine, examples: int) -> None:
    """INT32 sums wrap at 2**32, INT64 sums at 2**64, and the output saturates; bit for bit."""
    tally = Tally(f"conv_{direction} in integers")

    @drawn(120 * examples)
    @given(problems(), exact_types(), st.sampled_from((1, 2, -3)), st.sampled_from((0, 1, -2)), SEEDS, st.booleans())
    def check(p: Problem, kinds: Any, alpha: int, beta: int, seed: int, extreme: bool) -> None:
        operands, output, compute = kinds
        op = build(p, direction, in_place(direction, operands, output), compute, alpha, beta)
        rng = np.random.default_rng(seed)
        data, old = split(values_for(op, rng, ports=op.tensors(), extreme=extreme), OUTPUT[direction])
        given_data = data if beta == 0 else data | {OUTPUT[direction]: old}
        found = one(op, given_data, engine)

        bits = 32 if compute == "i32" else 64
        plain = loops(p, direction, data, object).reshape(found.shape)
        sums = wrapped(plain, bits)
        blended = alpha * sums + beta * old.astype(object)
        # An old output of 64 bits is blended in 64 bits.
        expected = saturated(wrapped(blended, 64 if beta and output == "i64" else bits), output)
        np.testing.assert_array_equal(found, expected)
        wraps = bool((sums != plain).any())
        tally.add(*operands, output, f"compute {compute}", f"{len(p['filter'])}-D", f"wraps {wraps} in {compute}")

    check()
    tally.expect(["problems"], at_least=80)
    tally.expect([*INTEGERS, "1-D", "2-D", "3-D", "compute i32", "compute i64"])
    tally.expect(["wraps True in i32", "wraps True in i64", "wraps False in i32"])


@engines
@pytest.mark.parametrize("output", ["i8", "f32", "f64"])
def test_fractional_factors_of_integer_sums_round_once(output: str, engine: Engine) -> None:
    p = _image()
    op = build(p, "fprop", ("i8", "i8", output), "i32", alpha=0.375, beta=0.5)
    data = values_for(op, np.random.default_rng(1), ports=op.tensors())
    inputs, old = split(data, 3)
    exact = 0.375 * loops(p, "fprop", inputs, np.float64)[:, 0] + 0.5 * old.astype(np.float64)
    whole = np.clip(np.rint(exact), -128, 127) if output == "i8" else exact
    np.testing.assert_array_equal(one(op, data, engine), whole.astype(ELEMENTS[data_type_of(output)].numpy))


@engines
@pytest.mark.parametrize("vector", [4, 32])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_vectorised_channels_equal_plain_ones(beta: float, vector: int, engine: Engine) -> None:
    """NC/4HW4 and NC/32HW32 tensors hold the same numbers as plain int8."""
    n, c, k, size = 2, vector, 2 * vector, 5
    x, w, y = (n, c, size, size), (k, c, 3, 3), (n, k, size, size)
    conv = build(_image(), "fprop", ("i8",) * 3, "i32").conv
    plain = ConvForward(x=tensor(1, x, "i8"), w=tensor(2, w, "i8"), y=tensor(3, y, "i8"), conv=conv, beta=beta)
    data = values_for(plain, np.random.default_rng(vector), ports=plain.tensors())
    packs = [
        tensor(uid, (d[0], d[1] // vector, *d[2:]), "i8", layout, vector_count=vector, vectorized_dimension=1)
        for uid, d, layout in ((1, x, "packed"), (2, w, "gaps"), (3, y, "channels_last"))
    ]
    vectors = ConvForward(x=packs[0], w=packs[1], y=packs[2], conv=conv, beta=beta)
    inputs = data if beta else split(data, 3)[0]
    np.testing.assert_array_equal(one(vectors, inputs, engine), one(plain, inputs, engine))


# Relations.


@EXAMPLES
@engines
def test_the_three_directions_are_adjoint(engine: Engine, examples: int) -> None:
    """<conv(x, w), dy> = <x, dgrad(dy, w)> = <w, wgrad(x, dy)>."""
    tally = Tally("adjointness")

    @drawn(40 * examples)
    @given(problems(), SEEDS)
    def check(p: Problem, seed: int) -> None:
        op = build(p, "fprop", ("f64",) * 3, "f64")
        data = values_for(op, np.random.default_rng(seed), ports=op.tensors())
        found = []
        for direction, uid in OUTPUT.items():
            inputs, other = split(data, uid)
            found.append(float((one(build(p, direction, ("f64",) * 3, "f64"), inputs, engine) * other).sum()))
        scale = sum(float(np.abs(v).sum()) for v in data.values())
        np.testing.assert_allclose(found[1:], found[0], rtol=1e-12, atol=1e-14 * scale)
        tally.add()

    check()
    tally.expect(["problems"], at_least=30)


@EXAMPLES
@engines
@directions
def test_both_group_forms_give_the_same_bits(direction: str, engine: Engine, examples: int) -> None:
    tally = Tally("group forms")

    @drawn(15 * examples)
    @given(problems(), SEEDS)
    def check(p: Problem, seed: int) -> None:
        packed = p | {"layouts": ["packed"] * 3}
        op = build(packed | {"group_axis": True}, direction, ("f32",) * 3, "f32")
        data, _ = split(values_for(op, np.random.default_rng(seed), ports=op.tensors()), OUTPUT[direction])
        joined = one(build(packed | {"group_axis": False}, direction, ("f32",) * 3, "f32"), data, engine)
        np.testing.assert_array_equal(joined.ravel(), one(op, data, engine).ravel())
        tally.add()

    check()
    tally.expect(["problems"], at_least=10)


# PyTorch.


def torch_convolution(p: Problem, data: dict[int, Array]) -> dict[str, Array]:
    """fprop, dgrad and wgrad by PyTorch, in float64; asymmetric padding and flipping by its own operators."""
    import torch

    s = len(p["filter"])
    n, g, c, k = (p[name] for name in "ngck")
    shapes = ((n, g * c, *p["input"]), (g * k, c, *p["filter"]), (n, g * k, *p["output"]))
    x, w, dy = (
        torch.from_numpy(data[u].astype(np.float64).reshape(shape)) for u, shape in zip((1, 2, 3), shapes, strict=True)
    )
    x.requires_grad_()
    w.requires_grad_()
    padding = [amount for pair in zip(reversed(p["pre"]), reversed(p["post"]), strict=True) for amount in pair]
    padded = torch.nn.functional.pad(x, padding)
    taps = torch.flip(w, dims=tuple(range(2, 2 + s))) if p["flip"] else w
    convolve = getattr(torch.nn.functional, f"conv{s}d")
    y = convolve(padded, taps, stride=p["stride"], dilation=p["dilation"], groups=g)
    y.backward(dy)
    assert x.grad is not None
    assert w.grad is not None
    return {"fprop": y.detach().numpy(), "dgrad": x.grad.numpy(), "wgrad": w.grad.numpy()}


@pytest.mark.torch
@EXAMPLES
@engines
@pytest.mark.parametrize("compute", ["f64", "f32", "i32", "i64"])
def test_convolutions_equal_pytorch(compute: str, engine: Engine, examples: int) -> None:
    """Floats to rounding, small integers exactly (their sums are exact in PyTorch's float64)."""
    pytest.importorskip("torch")
    tally = Tally("conv against PyTorch")
    kind = {"i32": "i8", "i64": "i16"}.get(compute, compute)
    tolerance = {"f64": 1e-12, "f32": 1e-4}.get(compute, 0.0)

    @drawn(25 * examples)
    @given(problems(), SEEDS)
    def check(p: Problem, seed: int) -> None:
        op = build(p, "fprop", (kind,) * 3, compute)
        data = values_for(op, np.random.default_rng(seed), ports=op.tensors())
        for direction, wanted in torch_convolution(p, data).items():
            uid = OUTPUT[direction]
            kinds = in_place(direction, (kind, kind), compute)
            found = one(build(p, direction, kinds, compute), split(data, uid)[0], engine)
            np.testing.assert_allclose(found.ravel(), wanted.ravel(), rtol=tolerance, atol=tolerance)
            tally.add(direction, f"{len(p['filter'])}-D")

    check()
    tally.expect([*OUTPUT, "1-D", "2-D", "3-D"])


@pytest.mark.torch
@engines
@pytest.mark.parametrize("kind", ["f64", "i8"])
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
def test_problems_of_many_blocks_equal_pytorch(layout: str, kind: str, engine: Engine) -> None:
    """Patches of several MiB, so that an engine that works in blocks has several of them, also at the smallest size."""
    pytest.importorskip("torch")
    p = _image(
        n=3,
        g=2,
        c=9,
        k=7,
        input=[33, 40],
        output=[17, 39],
        stride=[2, 1],
        pre=[2, 0],
        post=[1, 1],
        layouts=[layout] * 3,
    )
    compute = "f64" if kind == "f64" else "i32"
    op = build(p, "fprop", (kind,) * 3, compute)
    data = values_for(op, np.random.default_rng(5), ports=op.tensors())
    smallest = {knob.type: knob.minimum for knob in engine.knobs}
    for direction, wanted in torch_convolution(p, data).items():
        operation = build(p, direction, in_place(direction, (kind, kind), compute), compute)
        inputs, _ = split(data, OUTPUT[direction])
        for knobs in ({}, smallest):
            found = one(operation, inputs, engine, knobs=knobs)
            np.testing.assert_allclose(found.ravel(), wanted.ravel(), rtol=1e-11, atol=1e-11 if kind == "f64" else 0)


def test_the_block_size_is_a_knob_of_an_engine() -> None:
    """What the test before relies on."""
    assert any(knob.type is KnobType.TILE_SIZE for engine in HOST_ENGINES for knob in engine.knobs)


# Graphs.


@engines
def test_a_prologue_and_an_epilogue_run_on_each_engine(engine: Engine) -> None:
    """scale -> conv -> bias -> ReLU, one kernel, equals its steps one after another."""
    p = _image()
    conv = build(p, "fprop", ("f32",) * 3, "f32")
    plain_x, w, plain_y = conv.roles
    inner, outer, biased = (
        tensor(uid, dims, is_virtual=True) for uid, dims in ((1, plain_x.dims), (3, plain_y.dims), (6, plain_y.dims))
    )
    x, factor, bias, y = tensor(4, inner.dims), tensor(5, (1, 3, 1, 1)), tensor(7, (1, 4, 1, 1)), tensor(8, outer.dims)
    operations = [
        PointwiseOperation(spec=pointwise(PointwiseMode.MUL), x=x, b=factor, y=inner),
        conv.model_copy(update={"x": inner, "y": outer}),
        PointwiseOperation(spec=pointwise(PointwiseMode.ADD), x=outer, b=bias, y=biased),
        PointwiseOperation(spec=pointwise(PointwiseMode.RELU_FWD), x=biased, y=y),
    ]
    rng = np.random.default_rng(2)
    data = {t.uid: rng.standard_normal(t.dims).astype(np.float32) for t in (x, factor, bias, w)}
    scaled = {1: data[4] * data[5], 2: data[2]}
    expected = np.maximum(loops(p, "fprop", scaled, np.float64)[:, 0] + data[7], 0)
    np.testing.assert_allclose(execute(operations, data, engine)[8], expected, rtol=1e-5, atol=1e-5)
