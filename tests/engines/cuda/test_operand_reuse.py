"""Kernels whose end reads an operand once more, as it lies: every engine that serves one, in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_comparison import emulated
from legal_problems import convolution
from random_problems.execution_targets import Emulated
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import binary
from random_problems.run_and_compare import Prepared, check

from graphdnn import TensorSpec
from graphdnn.engines import ENGINE_BY_NAME, Task, engines_of
from graphdnn.enums import NormMode, NormPhase, PointwiseMode
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.operations import BnBackwardWeights, ConvForward, Matmul, MatmulSpec, NormForward

PLACE = Emulated()
M = PointwiseMode


def given(s: Sketch, dims: tuple[int, ...], kind: str, strides: tuple[int, ...]) -> TensorSpec:
    spec = s.tensor(dims, kind, "packed").model_copy(update={"strides": strides})
    s.values[spec.uid] = s.drawn(spec)
    return spec


def on_every_engine(problem: Problem) -> list[str]:
    """The engines that serve it; each result is that of NumPy."""
    prepared = Prepared.of(problem)
    (op,) = prepared.fused
    task, names = Task(op, PLACE.device), []
    for engine in engines_of("cuda"):
        if engine.serves(task):
            config = EngineConfig(prepared.fused, PLACE.device, (Choice(task, engine, engine.defaults()),))
            if PLACE.admits(config):
                assert not check(prepared, PLACE.plan(config), PLACE), engine.name
                names.append(engine.name)
    return names


def sketch() -> Sketch:
    return Sketch(np.random.default_rng(0), large=False, quarters=True)


@emulated
@pytest.mark.parametrize("strides", [(768, 256, 16, 1), (256, 512, 16, 1), (16, 32, 96, 1)])
def test_matrices_of_a_stack(strides: tuple[int, ...]) -> None:
    """The axes of the stack are one in the result, and in the matrices or not."""
    s, dims = sketch(), (2, 3, 16, 16)
    a, b = given(s, dims, "f16", strides), s.input(dims, "f16", "packed")
    c, y = s.virtual(dims, "f32"), s.tensor(dims, "f16", "packed")
    s.add(Matmul(a=a, b=b, c=c, spec=MatmulSpec(compute_type="f32")))
    binary(s, M.ADD, c, a, y, "f32")
    names = on_every_engine(s.problem(exact=True))
    assert ("cuda_hopper_matmul" in names) == (strides[0] == 3 * strides[1])


@emulated
@pytest.mark.parametrize("strides", [(9, 9, 3, 1), (1, 1, 48, 16)])
def test_filters_of_joined_groups(strides: tuple[int, ...]) -> None:
    """Images and their pixels are as many as filters and their taps, whose taps lie in a row or apart."""
    s, dims = sketch(), (16, 16, 3, 3)
    x, w = given(s, dims, "f16", (144, 1, 48, 16)), given(s, (16, 1, 3, 3), "f16", strides)
    y, z = s.virtual(dims, "f32"), s.tensor(dims, "f16", "packed")
    s.add(ConvForward(x=x, w=w, y=y, conv=convolution(pre_paddings=(1, 1), post_paddings=(1, 1))))
    binary(s, M.ADD, y, w, z, "f32")
    assert "cuda_group_packing" in on_every_engine(s.problem(exact=True))


@emulated
@pytest.mark.parametrize("again", ["scale", "bias", "x"])
def test_norms_of_short_planes(again: str) -> None:
    s, dims, channels = sketch(), (8, 600, 7, 7), (1, 600, 1, 1)
    ports: dict[str, Any] = {
        "x": s.input(dims, "f16", "packed"), "scale": s.input(channels, "f32", "packed"),
        "bias": s.input(channels, "f32", "packed"), "epsilon": s.scalar(4, 1e-3),
    }  # fmt: skip
    y, z = s.virtual(dims, "f32"), s.tensor(dims, "f16", "packed")
    s.add(NormForward(mode=NormMode.BATCH_NORM, phase=NormPhase.TRAINING, math_type="f32", y=y, **ports))
    binary(s, M.ADD, y, ports[again], z, "f32")
    assert on_every_engine(s.problem()) == ["cuda_norm_forward"]


@emulated
@pytest.mark.parametrize("taps", [1, 3])
def test_an_image_that_is_its_own_residual(taps: int) -> None:
    """The copy unit brings it twice, by two maps."""
    s, dims = sketch(), (2, 64, 9, 9)
    lying = (64 * 81, 1, 64 * 9, 64)
    x, w = given(s, dims, "f16", lying), s.input((64, 64, taps, taps), "f16", "channels_last")
    y, z = s.virtual(dims, "f32"), s.tensor(dims, "f16").model_copy(update={"strides": lying})
    around = (taps // 2, taps // 2)
    s.add(ConvForward(x=x, w=w, y=y, conv=convolution(pre_paddings=around, post_paddings=around)))
    binary(s, M.ADD, y, x, z, "f32")
    problem = s.problem(exact=True)
    assert "cuda_hopper_gemm" in on_every_engine(problem)
    (op,) = Prepared.of(problem).fused
    engine = ENGINE_BY_NAME["cuda_hopper_gemm"]
    kernel = engine.compile(Task(op, PLACE.device), engine.defaults())
    assert "column_operands.residual" in (kernel.source or "")


@emulated
@pytest.mark.parametrize("is_virtual", [True, False])
def test_an_exit_that_reads_one_value_twice(is_virtual: bool) -> None:
    s, dims, channels = sketch(), (2, 8, 4, 4), (1, 8, 1, 1)
    x, w, y = s.input(dims, "f32", "channels_last"), s.input((8, 8, 1, 1), "f32", "packed"), s.virtual(dims, "f32")
    z = s.virtual(dims, "f32") if is_virtual else s.tensor(dims, "f32", "channels_last")
    s.add(ConvForward(x=x, w=w, y=y, conv=convolution()))
    binary(s, M.ADD, y, x, z, "f32")
    given = {name: s.positive(channels, "f32") for name in ("mean", "inv_std", "scale")}
    made = {name: s.tensor(channels, "f32") for name in ("dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias")}
    s.add(BnBackwardWeights(math_type="f32", x=z, dy=z, **given, **made))
    assert "cuda_implicit_gemm" in on_every_engine(s.problem())
