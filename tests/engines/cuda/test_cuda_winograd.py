"""Winograd convolutions on the emulator against the general NumPy engine, and their text through NVRTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, device_kernel, emulated, fused, run_both
from emulator.kernels import run_fused
from legal_problems import convolution
from problems import bound, tensor, unit, values_of

from graphdnn.device.profiles import device_spec
from graphdnn.dtypes import Array, cast
from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.winograd.winograd_2x2 import ENGINE
from graphdnn.engines.cuda.winograd.winograd_4x4 import ENGINE as ENGINE_4X4
from graphdnn.engines.host.memory import load
from graphdnn.enums import KnobType
from graphdnn.operations import ConvBackwardData, ConvForward, ConvolutionOperation, Operation
from graphdnn.problem import parse

engines = pytest.mark.parametrize("engine", [ENGINE, ENGINE_4X4], ids=lambda e: e.name)
IMAGE = KnobType.LDGA
H200 = device_spec("h200")

# Of one result, in units of fp32's roundoff times the root of the number of terms, over normal data.
ERROR = {ENGINE.name: 32.0, ENGINE_4X4.name: 250.0}


def operations(text: str) -> Sequence[Operation]:
    return parse(text).build_operation_graph().operations


def anchor(ops: Sequence[Operation]) -> ConvolutionOperation:
    return next(op for op in ops if isinstance(op, ConvolutionOperation))


def check(
    ops: Operation | Sequence[Operation],
    engine: Engine,
    knobs: dict[KnobType, int] | None = None,
    old: Sequence[int] = (),
) -> None:
    ops = [ops] if isinstance(ops, Operation) else ops
    op, rng = fused(ops), np.random.default_rng(0)
    values = {t.uid: values_of(t, rng) for t in (*op.inputs, *op.outputs) if t in op.inputs or t.uid in old}
    got, expected = run_both(ops, engine, values, knobs)
    problem = anchor(ops).problem
    terms = problem.taps * (problem.k if anchor(ops).tag == "conv_dgrad" else problem.c)
    for spec in op.outputs:
        error = np.abs(got[spec.uid].astype(np.float64) - expected[spec.uid].astype(np.float64))
        own = 4 * unit(spec.data_type) * np.abs(expected[spec.uid].astype(np.float64))
        assert (error <= ERROR[engine.name] * unit("f32") * terms**0.5 + own).all(), error.max()


PROBLEMS = [
    "conv x=f32[1,4,6,6] w=f32[8,4,3,3] pad=1",
    "conv x=f32[2,5,9,11]nhwc w=f32[20,5,3,3]nhwc pad=1 + bias + relu",
    "conv x=f32[1,33,7,7]nhwc w=f32[40,33,3,3] pad=1",
    "conv x=f32[3,17,5,8] w=f32[130,17,3,3] + bias + residual + relu",
    "conv x=f16[2,9,8,12] w=f16[70,9,3,3] pre=0,2 post=1,0 mode=conv + bias",
    "conv x=bf16[1,16,3,3]nhwc w=bf16[16,16,3,3] pad=3",
    "conv x=f16[2,1,4,12,16]nhwc w=f16[1,68,4,3,3] pad=1 spatial=2",
    "conv x=f32[1,4,3,3] w=f32[3,4,3,3]",
    "conv x=f32[2,4,8,9]nhwc w=f32[8,4,3,3] pad=1 + relu -> reduce max [1,8,1,1]",
    "dgrad dy=f32[2,8,7,9]nhwc w=f32[8,6,3,3] dx=[2,6,7,9] pad=1",
    "dgrad dy=bf16[1,8,7,9] w=bf16[8,6,3,3] dx=[1,6,9,11]",
    "dgrad dy=f32[1,12,10,5] w=f32[12,65,3,3]nhwc dx=[1,65,6,5] pre=4,1 post=2,1 mode=conv",
]


@emulated
@engines
@pytest.mark.parametrize("text", PROBLEMS)
def test_agrees_with_numpy(text: str, engine: Engine) -> None:
    check(operations(text), engine)


@emulated
@pytest.mark.parametrize("text", PROBLEMS[:7])
def test_image_transformed_by_a_kernel_of_its_own(text: str) -> None:
    check(operations(text), ENGINE, {IMAGE: 1})


@emulated
@pytest.mark.parametrize("image", [0, 1])
@pytest.mark.parametrize("text", [PROBLEMS[1], PROBLEMS[3]])
def test_same_bits_however_many_turns_a_block_takes(text: str, image: int) -> None:
    """Few multiprocessors: several turns each; little shared memory: one, and the exchange in place of the stages."""
    op, rng = fused(operations(text)), np.random.default_rng(5)
    values = {t.uid: values_of(t, rng) for t in op.inputs}
    found = []
    for device in (H200, replace(H200, sm_count=1), replace(H200, shared_memory=100 * 1024)):
        arrays = {t.uid: bound(t, values.get(t.uid), 0xFF) for t in (*op.inputs, *op.outputs)}
        kernel = run_fused(op, ENGINE, arrays, {IMAGE: image}, device)
        assert kernel.steps[-1].grid[0] <= 8  # type: ignore[union-attr]
        found.append(load(arrays[op.outputs[0].uid], op.outputs[0]))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@emulated
@engines
@pytest.mark.parametrize("layout", ["gaps", "reversed", "rotated"])
def test_any_strides(layout: str, engine: Engine) -> None:
    conv = convolution(pre_paddings=(1, 1), post_paddings=(1, 1))
    x, w = tensor(1, (2, 6, 6, 7), "f16", layout), tensor(2, (9, 6, 3, 3), "f32", layout)
    check(ConvForward(x=x, w=w, y=tensor(3, (2, 9, 6, 7), "f32", layout), conv=conv), engine)
    check(
        ConvBackwardData(dy=tensor(3, (2, 9, 6, 7), "f16", layout), w=w, dx=tensor(1, (2, 6, 6, 7)), conv=conv), engine
    )


@emulated
@engines
def test_blends_with_what_the_result_held(engine: Engine) -> None:
    x, w, y = tensor(1, (1, 4, 6, 6)), tensor(2, (8, 4, 3, 3)), tensor(3, (1, 8, 4, 4))
    check(ConvForward(x=x, w=w, y=y, conv=convolution(), alpha=-0.5, beta=2.0), engine, old=[3])


@emulated
@engines
@pytest.mark.parametrize("layout", ["packed", "channels_last"])
def test_a_chain_before_the_image(layout: str, engine: Engine) -> None:
    from graphdnn.enums import PointwiseMode
    from graphdnn.operations import PointwiseOperation, PointwiseSpec

    x, scale = tensor(1, (2, 5, 6, 7), "f16", layout), tensor(2, (1, 5, 1, 1))
    before, w = tensor(3, (2, 5, 6, 7), is_virtual=True), tensor(4, (9, 5, 3, 3))
    spec = PointwiseSpec(mode=PointwiseMode.MUL, math_type="f32")
    conv = convolution(pre_paddings=(1, 1), post_paddings=(1, 1))
    y = tensor(5, (2, 9, 6, 7), "f32", layout)
    check([PointwiseOperation(spec=spec, x=x, b=scale, y=before), ConvForward(x=before, w=w, y=y, conv=conv)], engine)


@emulated
@engines
def test_small_whole_numbers_of_the_image_are_exact_where_the_filter_is_one_tap(engine: Engine) -> None:
    """The identity filter: each channel comes back, rounded to nothing but a few units."""
    x, w = tensor(1, (1, 4, 9, 10)), tensor(2, (4, 4, 3, 3))
    y = tensor(3, (1, 4, 9, 10))
    image = np.random.default_rng(0).integers(-8, 8, x.extents).astype(np.float32)
    filter: Array = np.zeros(w.extents, np.float32)
    filter[range(4), range(4), 1, 1] = 1
    op = ConvForward(x=x, w=w, y=y, conv=convolution(pre_paddings=(1, 1), post_paddings=(1, 1)))
    got, _ = run_both(op, engine, {1: image, 2: filter})
    np.testing.assert_allclose(got[3], image, atol=1e-4)


@emulated
def test_2x2_errs_less_than_a_running_sum() -> None:
    """Root-mean-square error over normal data, of many channels: the claim of the engine's text."""
    ops = operations("conv x=f32[1,192,12,12]nhwc w=f32[8,192,3,3]nhwc pad=1")
    rng = np.random.default_rng(1)
    x, w = (cast(rng.standard_normal(t.extents), t.data_type) for t in fused(ops).inputs)
    exact = np.zeros((8, 12, 12))
    running = np.zeros((8, 12, 12), np.float32)
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    for c in range(192):
        for r in range(3):
            for s in range(3):
                window = padded[c, r : r + 12, s : s + 12]
                term = w[:, c, r, s, None, None] * window
                exact += w[:, c, r, s, None, None].astype(np.float64) * window
                running += term
    errors = {}
    for engine in (ENGINE, ENGINE_4X4):
        got, _ = run_both(ops, engine, dict(zip((t.uid for t in fused(ops).inputs), (x, w), strict=True)))
        (y,) = got.values()
        errors[engine.name] = float(np.sqrt(np.mean((y[0].astype(np.float64) - exact) ** 2)))
    direct = float(np.sqrt(np.mean((running - exact) ** 2)))
    assert errors[ENGINE.name] < direct
    assert errors[ENGINE_4X4.name] < 4 * direct


REFUSED = {
    "direction": "wgrad x=f32[1,4,6,6] dy=f32[1,4,6,6] dw=[4,4,3,3] pad=1",
    "filter": "conv x=f32[1,4,6,6] w=f32[4,4,5,5] pad=1",
    "stride": "conv x=f32[1,4,6,6] w=f32[4,4,3,3] stride=2",
    "dilation": "conv x=f32[1,4,6,6] w=f32[4,4,3,3] dil=2",
    "groups": "conv x=f32[1,4,6,6] w=f32[4,2,3,3]",
    "operands": "conv x=i8[1,4,6,6] w=i8[4,4,3,3] compute=f32 out=f32",
    "compute_type": "conv x=f32[1,4,6,6] w=f32[4,4,3,3] compute=f64",
    "operation": "matmul a=f32[4,4] b=f32[4,4]",
}


@engines
@pytest.mark.parametrize("rule", REFUSED)
def test_refuses(rule: str, engine: Engine) -> None:
    reasons = engine.why_not(Task(fused(operations(REFUSED[rule])), H200))
    assert [r.rule for r in reasons] == [f"{engine.name}.{rule}"]
    assert all(r.reason and r.fix for r in reasons)


@engines
def test_volumes_are_refused(engine: Engine) -> None:
    reasons = engine.why_not(Task(fused(operations("conv x=f32[1,4,6,6,6] w=f32[4,4,3,3,3]")), H200))
    assert [r.rule for r in reasons] == [f"{engine.name}.filter"]


@pytest.mark.parametrize(
    ("engine", "knobs", "images", "filters"),
    [(ENGINE, {}, 0, 16), (ENGINE, {IMAGE: 1}, 4, 16), (ENGINE_4X4, {}, 2 * 36 / 16, 36)],
    ids=("2x2", "2x2_v", "4x4"),
)
def test_workspace(engine: Engine, knobs: dict[KnobType, int], images: float, filters: int) -> None:
    """The transformed image (and, of the larger tiles, the result) and the filter."""
    ops = operations("conv x=f32[64,128,56,56]nhwc w=f32[128,128,3,3]nhwc pad=1")
    image, filter = prod((64, 128, 56, 56)) * 4, 128 * 128 * 4
    kernel = device_kernel(ops, engine, knobs)
    assert kernel.workspace_bytes == pytest.approx(images * image + filters * filter, rel=0.01)
    assert engine.workspace(Task(fused(ops), H200), engine.settings(knobs)) == kernel.workspace_bytes


def test_the_model_prefers_fewer_products_on_large_problems() -> None:
    task = Task(fused(operations("conv x=f32[32,256,56,56]nhwc w=f32[256,256,3,3]nhwc pad=1")), H200)
    direct = 2 * 32 * 256 * 256 * 9 * 56 * 56 / 60e12
    assert ENGINE.cost(task, ENGINE.defaults()).seconds < 0.75 * direct
    assert ENGINE_4X4.cost(task, {}).seconds < ENGINE.cost(task, ENGINE.defaults()).seconds


COMPILED = [
    "conv x=f32[64,64,56,56]nhwc w=f32[64,64,3,3]nhwc pad=1",
    "conv x=f32[64,128,56,56] w=f32[128,128,3,3] pad=1 + bias + residual + relu",
    "conv x=f16[64,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + gelu",
    "dgrad dy=bf16[1,8,7,9] w=bf16[8,6,3,3] dx=[1,6,9,11]",
]


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("text", COMPILED)
@engines
def test_compiles(engine: Engine, text: str, arch: str) -> None:
    compiles_cleanly(operations(text), engine, arch)


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_with_the_image_transformed_before(arch: str) -> None:
    compiles_cleanly(operations(COMPILED[0]), ENGINE, arch, {IMAGE: 1})


@pytest.mark.parametrize(("name", "limit"), [("h200", 227), ("a100", 163), ("l40s", 99)])
def test_shared_memory_is_within_every_device(name: str, limit: int) -> None:
    op = fused(operations(COMPILED[0]))
    kernel: Any = ENGINE.compile(Task(op, device_spec(name)), ENGINE.defaults())
    assert max(step.shared for step in kernel.steps) <= limit * 1024
