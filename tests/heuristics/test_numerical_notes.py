"""Numerical notes of configurations, and the configurations of fewer digits that the v8 heuristics return."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from backend_calls import device_prop, heuristics, only
from backend_descriptors import filled, graph_descriptor, read

from graphdnn.attribute_names import AttributeName as A
from graphdnn.builder import Graph
from graphdnn.device.profiles import device_spec
from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.enums import HeurMode, NumericalNote
from graphdnn.fusion import FusedGraph, fuse
from graphdnn.heuristics import Choice, EngineConfig, Ranking
from graphdnn.heuristics.composed import down_converted
from graphdnn.problem import parse

DEVICE = device_spec("h200")
TF32 = "conv x=f32[2,64,12,12]nhwc w=f32[64,64,3,3]nhwc pad=1"
NOTE = NumericalNote.DOWN_CONVERT_INPUTS


def fused_of(text: str) -> FusedGraph:
    return fuse(parse(text).build_operation_graph())


def configurations(text: str, engine: str) -> Iterator[EngineConfig]:
    fused, row = fused_of(text), ENGINE_BY_NAME[engine]
    task = Task(fused.operations[0], DEVICE)
    for kernel in (1, 2):
        knobs = {knob.type: kernel if knob.type.name == "KERNEL_CFG" else knob.default for knob in row.knobs}
        yield EngineConfig(fused, DEVICE, (Choice(task, row, row.settings(knobs)),))


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("conv x=f16[2,48,9,11]nhwc w=f16[48,1,3,3] pad=1 + bias", "cuda_direct"),
        ("wgrad x=f16[2,48,9,11]nhwc dy=f16[2,48,9,11]nhwc dw=[48,1,3,3] pad=1", "cuda_direct_wgrad"),
    ],
)
def test_multiply_adds_have_no_note_of_tensor_cores(text: str, engine: str) -> None:
    plain, on_tensor_cores = configurations(text, engine)
    assert plain.numerical_notes == ()
    assert on_tensor_cores.numerical_notes == (NumericalNote.TENSOR_CORE,)


def test_cublas_multiplies_fp32_without_tensor_cores() -> None:
    for kind, notes in (("f32", ()), ("f16", (NumericalNote.TENSOR_CORE,))):
        fused, row = fused_of(f"matmul a={kind}[64,64] b={kind}[64,64]"), ENGINE_BY_NAME["cuda_matmul_cublas"]
        choice = Choice(Task(fused.operations[0], DEVICE), row, row.defaults())
        assert EngineConfig(fused, DEVICE, (choice,)).numerical_notes == notes


@pytest.mark.parametrize("mode", [HeurMode.A, HeurMode.B, HeurMode.FALLBACK])
def test_the_v8_heuristics_return_them_after_those_that_keep_the_digits(mode: HeurMode) -> None:
    graph = graph_descriptor(*parse(TF32).build_operation_graph().operations)
    results = heuristics(graph, mode, DEVICEPROP=(T.BACKEND_DESCRIPTOR, [device_prop("h200")]))
    are_noted = [NOTE in result.content.config.numerical_notes for result in results]
    assert not are_noted[0]
    assert are_noted[-1]
    assert are_noted == sorted(are_noted)
    engine = only(filled(results[-1], A.ENGINECFG_ENGINE, D.ENGINE))
    assert NOTE in read(engine, A.ENGINE_NUMERICAL_NOTE, T.NUMERICAL_NOTE)


@pytest.mark.parametrize("mode", [HeurMode.INSTANT, HeurMode.A, HeurMode.B, HeurMode.FALLBACK])
def test_configurations_of_tf32_have_their_notes(mode: HeurMode) -> None:
    found = down_converted(fused_of(TF32), DEVICE, mode)
    assert {config.choices[0].engine.name for config in found} >= {"cuda_hopper_gemm_tf32", "cuda_mma_gemm_tf32"}
    assert all({NOTE, NumericalNote.TENSOR_CORE} <= set(config.numerical_notes) for config in found)
    if mode is not HeurMode.INSTANT:
        times = [config.choices[0].rank for config in found]
        assert times == sorted(times)


def test_operands_that_lose_no_digits_have_no_such_configuration() -> None:
    assert down_converted(fused_of(TF32.replace("f32", "f16")), DEVICE, HeurMode.A) == []


def test_a_plain_ranking_keeps_the_digits() -> None:
    fused = fused_of(TF32)
    for mode in (HeurMode.INSTANT, HeurMode.A, HeurMode.B, HeurMode.FALLBACK):
        assert not any(NOTE in config.numerical_notes for config in Ranking(fused, DEVICE, mode))


def test_the_builder_keeps_the_digits() -> None:
    graph = Graph(device="h200")
    x = graph.tensor([2, 64, 12, 12], [9216, 1, 768, 64], data_type="float32")
    w = graph.tensor([64, 64, 3, 3], [576, 1, 192, 64], data_type="float32")
    graph.conv_fprop(x, w, padding=[1, 1]).set_output(True)
    graph.create_execution_plans([HeurMode.A])
    count = graph.get_execution_plan_count()
    assert count
    assert not any("tf32" in graph.get_plan_name_at_index(i) for i in range(count))
