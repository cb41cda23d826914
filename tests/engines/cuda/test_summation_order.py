"""Sums of floats, fused and apart: kernels that divide them alike have the same bits; where they do not, a note says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_comparison import emulated
from emulator.runtime import EmulatedRuntime
from problems import pointwise, tensor

from graphdnn import OperationGraph, rank
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.enums import PointwiseMode, ReductionOperator
from graphdnn.fusion import FusionLimits
from graphdnn.heuristics import EngineConfig
from graphdnn.operations import Reduction, ReductionSpec
from graphdnn.plan import DevicePlan, ExecutionPlan

M = PointwiseMode
APART = FusionLimits.of(bound=1)


def sums_of(mode: PointwiseMode, kind: str, dims: tuple[int, ...], kept: tuple[int, ...]) -> OperationGraph:
    """Sums of products, or of functions."""
    operands = [tensor(1 + i, dims, kind) for i in range(2 if mode is M.MUL else 1)]
    between, y = tensor(8, dims, kind, is_virtual=True), tensor(9, kept, kind)
    spec = ReductionSpec(operator=ReductionOperator.ADD, compute_type=kind)
    return OperationGraph.of([pointwise(mode, kind, operands, between), Reduction(x=between, y=y, spec=spec)])


def division(config: EngineConfig) -> str:
    """How the kernel of the sum divides it, by its name."""
    choice = config.choices[-1]
    kernel = choice.engine.compile(choice.task, choice.knobs)
    assert isinstance(kernel, DeviceKernel)
    return kernel.name.split("__")[1]


def result(config: EngineConfig) -> Any:
    graph, rng = config.fused.graph, np.random.default_rng(0)
    plan = DevicePlan(config, EmulatedRuntime())
    types = {t.uid: ELEMENTS[t.data_type].numpy for t in graph.bound}
    arrays = {t.uid: rng.standard_normal(t.dims).astype(types[t.uid]) for t in graph.inputs}
    arrays[9] = np.zeros(graph.tensors[9].dims, types[9])
    plan.execute(arrays, plan.new_workspace())
    return arrays[9]


@emulated
@pytest.mark.parametrize("mode", [M.MUL, M.EXP, M.IDENTITY], ids=str)
@pytest.mark.parametrize(("dims", "kept"), [((1000,), (1,)), ((6, 20, 9), (6, 20, 1)), ((7, 12), (7, 1))])
def test_sums_divided_alike_have_the_same_bits(
    mode: PointwiseMode, dims: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    graph = sums_of(mode, "f32", dims, kept)
    together, apart = rank(graph, "h200").best, rank(graph, "h200", limits=APART).best
    assert (len(together.choices), len(apart.choices)) == (1, 2)
    assert division(together) == division(apart)
    assert np.array_equal(result(together), result(apart))


def notes(graph: OperationGraph, device: str, **rest: Any) -> list[str]:
    plan = ExecutionPlan(rank(graph, device, **rest).best)
    return [note for note in plan.certificate().notes if note.startswith("sums are divided")]


def test_fused_sums_are_named() -> None:
    graph = sums_of(M.MUL, "f32", (64, 257), (64, 1))
    together, apart = rank(graph, "h200").best, rank(graph, "h200", limits=APART).best
    assert division(together) != division(apart)
    (note,) = notes(graph, "h200")
    assert "(reduction)" in note
    assert not notes(graph, "h200", limits=APART)
    assert not notes(graph, "cpu")
    assert not notes(sums_of(M.MUL, "i32", (64, 257), (64, 1)), "h200")
