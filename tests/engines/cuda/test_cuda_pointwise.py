"""CUDA pointwise graphs whose threads take several turns: kernels run on the host against the general NumPy engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_comparison import compiled, compiler, device_kernel, fused, run_both
from disassembly import NO_DISASSEMBLER, instructions
from emulator import MISSING
from problems import tensor, values_of

from graphdnn.device.profiles import device_spec
from graphdnn.engines import Task
from graphdnn.engines.cuda.pointwise import pointwise
from graphdnn.engines.cuda.pointwise.pointwise import ENGINE
from graphdnn.enums import DataType
from graphdnn.enums import PointwiseMode as P
from graphdnn.operations import Operation, PointwiseOperation, PointwiseSpec

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
# So few multiprocessors that a small problem gives each thread several turns.
TINY = replace(device_spec("h200"), sm_count=1)


def chain(dims: tuple[int, ...], layout: str, kind: str, vectors: int, **vector: Any) -> list[Operation]:
    """((x * v0 + v1) * v2 + v3) ... with vectors of channels, all arithmetic in fp32."""
    steps: list[Operation] = []
    value = tensor(1, dims, kind, layout)
    for i in range(vectors):
        last = i == vectors - 1
        operand = tensor(10 + i, (1, dims[1], *(1 for _ in dims[2:])), vector.get("kind", "f32"), layout)
        result = tensor(2, dims, kind, layout) if last else tensor(100 + i, dims, "f32", layout, is_virtual=True)
        mode = P.ADD if i % 2 else P.MUL
        steps.append(PointwiseOperation(spec=PointwiseSpec(mode=mode, math_type="f32"), x=value, b=operand, y=result))
        value = result
    return steps


def values(steps: list[Operation], seed: int) -> dict[int, Any]:
    rng = np.random.default_rng(seed)
    tensors = {t.uid: t for step in steps for t in step.inputs().values() if not t.is_virtual}
    return {uid: values_of(spec, rng, extreme=True) for uid, spec in tensors.items()}


@pytest.mark.parametrize("channels", [8, 48, 72, 136])
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_vectors_are_kept_between_turns(channels: int, kind: str) -> None:
    dims = (5, channels, 13, 11)
    steps = chain(dims, "channels_last", kind, 4)
    ours, theirs = run_both(steps, ENGINE, values(steps, channels), device=TINY)
    np.testing.assert_array_equal(ours[2], theirs[2])


def text_of(steps: list[Operation]) -> tuple[str, int]:
    kernel = ENGINE.compile(Task(fused(steps), TINY), {})
    (launch,) = kernel.steps  # type: ignore[attr-defined]
    return launch.text.name, launch.grid[0] * launch.block


@pytest.mark.parametrize("channels", [48, 72, 136, 1000])
def test_threads_that_keep_vectors_stay_in_their_columns(channels: int) -> None:
    name, threads = text_of(chain((40, channels, 13, 11), "channels_last", "f16", 4))
    packs = channels // 8
    if packs // np.gcd(packs, 256) > pointwise._RESIDENT:
        assert "k__" not in name  # too many blocks would be needed
    else:
        assert "k__" in name
        assert threads % packs == 0


@pytest.mark.parametrize(
    "steps",
    [
        chain((40, 48, 13, 11), "channels_last", "f16", 1),  # little to keep
        chain((40, 48, 13, 11), "packed", "f16", 4),  # vectors do not lie along the last axis
        chain((1, 48, 2, 2), "channels_last", "f16", 4),  # one turn for each thread
    ],
    ids=["one vector", "nchw", "small"],
)
def test_nothing_is_kept_where_it_does_not_pay(steps: list[Operation]) -> None:
    assert "k__" not in text_of(steps)[0]


@pytest.mark.parametrize(
    ("dims", "layout"),
    [
        ((16, 33, 5, 7), "channels_last"),
        ((4, 3, 6, 8), "channels_last"),
        ((16, 25, 7, 7), "packed"),
        ((8, 6, 3, 5), "packed"),
    ],
    ids=["33 channels", "3 channels", "planes of 49", "planes of 15"],
)
@pytest.mark.parametrize("kind", ["f16", "f32", "i8"])
def test_packs_go_on_past_the_ends_of_rows(dims: tuple[int, ...], layout: str, kind: str) -> None:
    steps = chain(dims, layout, kind, 2)
    name, _ = text_of(steps)
    width = {"f16": 8, "f32": 4, "i8": 16}[kind]
    assert f"__v{width}r" in name
    assert "w__" in name
    ours, theirs = run_both(steps, ENGINE, values(steps, 7), device=TINY)
    np.testing.assert_array_equal(ours[2], theirs[2])


def test_rows_of_whole_packs_and_elements_that_are_none_have_ends() -> None:
    for dims in ((8, 32, 5, 7), (1, 33, 1, 3)):
        assert "w__" not in text_of(chain(dims, "channels_last", "f16", 2))[0]


@pytest.mark.parametrize("layout", ["packed", "channels_last"])
def test_an_identity_into_another_order_is_moved_once(layout: str) -> None:
    other = {"packed": "channels_last", "channels_last": "packed"}[layout]
    x, y = tensor(1, (64, 3, 40, 40), "f16", layout), tensor(2, (64, 3, 40, 40), "f16", other)
    steps = [PointwiseOperation(spec=PointwiseSpec(mode=P.IDENTITY, math_type="f32"), x=x, y=y)]
    name, _ = text_of(steps)
    assert name.startswith("movement__")
    ours, theirs = run_both(steps, ENGINE, values(steps, 3), device=TINY)
    np.testing.assert_array_equal(ours[2], theirs[2])


def bytes_of_floats(kind: str) -> list[Operation]:
    x, b = (tensor(uid, (2, 8, 9, 16), "f32", "channels_last") for uid in (1, 3))
    y = tensor(2, x.dims, kind, "channels_last")
    return [PointwiseOperation(spec=PointwiseSpec(mode=P.ADD, math_type="f32"), x=x, b=b, y=y)]


@pytest.mark.parametrize("kind", ["i8", "u8"])
def test_bytes_of_floats(kind: str) -> None:
    """Halves to even, saturated, NaN as 0, four at a time."""
    numbers = [*np.arange(-300, 300, 0.5), np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**31, -(2.0**31), 127.49999, 254.5]
    x = np.resize(np.array(numbers, np.float32), (2, 8, 9, 16))
    ours, theirs = run_both(bytes_of_floats(kind), ENGINE, {1: x, 3: np.zeros_like(x)}, device=TINY)
    np.testing.assert_array_equal(ours[2], theirs[2])


@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_bytes_are_packed_two_at_a_time(arch: str) -> None:
    (step,) = device_kernel(bytes_of_floats("i8"), ENGINE).steps
    found = instructions(compiled(step.text, arch).cubin)  # type: ignore[union-attr]
    assert found["F2IP"] + found["I2IP"] > 0, found


@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@compiler
def test_a_product_is_rounded_before_a_sum() -> None:
    """As the tensor between them says, also where the device would multiply and add at once."""
    (step,) = device_kernel(chain((2, 64, 8, 8), "packed", "f32", 2), ENGINE).steps
    found = instructions(compiled(step.text, "sm_90a").cubin)  # type: ignore[union-attr]
    assert found["FMUL"]
    assert found["FADD"]
    assert not found["FFMA"]


@pytest.mark.parametrize(("channels", "is_turned"), [(64, True), (24, True), (12, False)])
def test_packed_booleans_of_another_order_are_turned(
    channels: int, is_turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a launch before; where channels do not fill bytes, each bit is looked for."""
    monkeypatch.setattr(pointwise, "_LEAST_TURNED", 1)
    x, y = (tensor(uid, (2, channels, 5, 7), "f16", "channels_last") for uid in (1, 2))
    mask = tensor(3, x.dims, DataType.BOOLEAN, "packed")
    spec = PointwiseSpec(mode=P.BINARY_SELECT, math_type="f32")
    op = PointwiseOperation(spec=spec, x=x, b=x.model_copy(update={"uid": 4}), t=mask, y=y)
    assert len(device_kernel(op, ENGINE).steps) == 1 + is_turned
    rng = np.random.default_rng(0)
    ours, theirs = run_both(op, ENGINE, {t.uid: values_of(t, rng) for t in op.inputs().values()})
    np.testing.assert_array_equal(ours[2], theirs[2])


@pytest.mark.parametrize(("channels", "is_turned"), [(64, True), (9, True), (3, False)])
def test_images_of_another_order_are_turned(channels: int, is_turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a launch before; pixels of few channels share lines of memory as they are."""
    monkeypatch.setattr(pointwise, "_LEAST_TURNED", 1)
    dims = (2, channels, 5, 9)
    x, y = tensor(1, dims, "f16", "channels_last"), tensor(2, dims, "f16")
    spec = PointwiseSpec(mode=P.ADD, math_type="f32")
    op = PointwiseOperation(spec=spec, x=x, b=tensor(3, (1, channels, 1, 1), "f32"), y=y)
    assert len(device_kernel(op, ENGINE).steps) == 1 + is_turned
    rng = np.random.default_rng(0)
    ours, theirs = run_both(op, ENGINE, {t.uid: values_of(t, rng) for t in op.inputs().values()})
    np.testing.assert_array_equal(ours[2], theirs[2])
