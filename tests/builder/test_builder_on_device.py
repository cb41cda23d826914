"""The builder on a CUDA device, and arrays of its plans, in the emulator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_comparison import emulated
from device_apis import H200, rules_of, scaled
from emulator.runtime import EmulatedRuntime
from legal_problems import IMAGE

from graphdnn import Graph, HeurMode, NotSupported, build
from graphdnn.backend import cudnnCreate, cudnnSetStream
from graphdnn.engines import ENGINE_BY_NAME
from graphdnn.enums import KnobType, ReductionOperator
from graphdnn.plan import DevicePlan


def layer(device: str = H200) -> tuple[Graph, Any, Any]:
    """A reduction and a sum over the full extents: two kernels, and a workspace."""
    g = Graph("layer", io_data_type="float32", device=device)
    x = g.tensor([2, 4, 6, 6], name="x")
    total = g.reduction(x, ReductionOperator.ADD).set_dim([1, 4, 1, 1])
    return g, x, g.add(x, total).set_output(True)


def values(seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-9, 9, (2, 4, 6, 6)).astype(np.float32)


def expected(x: Any) -> Any:
    return x + x.sum((0, 2, 3), keepdims=True)


@emulated
def test_builder_runs_where_the_device_is(runtime: EmulatedRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(
        EmulatedRuntime, "array", lambda self, spec: made.append(spec.uid) or np.empty(spec.dims, np.float32)
    )
    g, x, y = layer()
    out = g.run({x: values()}, stream=5)
    np.testing.assert_array_equal(out[y], expected(values()))
    assert made == [y.get_uid()]
    assert set(runtime.streams) == {5}


@emulated
def test_builder_streams_and_handles(runtime: EmulatedRuntime) -> None:
    g, x, y = layer()
    g.build()
    out = np.empty((2, 4, 6, 6), np.float32)
    handle = cudnnCreate(H200)
    cudnnSetStream(handle, 9)
    for call, stream in (({}, 0), ({"stream": 5}, 5), ({"handle": handle}, 9), ({"stream": SimpleNamespace(ptr=3)}, 3)):
        runtime.streams.clear()
        out[...] = np.nan
        g.execute({x: values(), y: out}, **call)
        np.testing.assert_array_equal(out, expected(values()))
        assert set(runtime.streams) == {stream}
    assert rules_of(lambda: g.execute({}, handle=handle, stream=5)) == ["builder.stream"]
    host, x, y = layer("cpu")
    host.build()
    assert rules_of(lambda: host.execute({x: values(), y: out}, stream=5)) == ["execute.host_stream"]


@emulated
def test_builder_keeps_a_workspace_for_each_stream(runtime: EmulatedRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executions in two streams overlap; in one stream they follow each other."""
    sizes = []
    memory = EmulatedRuntime.memory
    monkeypatch.setattr(EmulatedRuntime, "memory", lambda self, size: sizes.append(size) or memory(self, size))
    g, x, y = layer()
    g.build()
    out = np.empty((2, 4, 6, 6), np.float32)
    for stream in (5, 7, 5, None, 0):
        g.execute({x: values(), y: out}, stream=stream)
    assert sizes == [g.get_workspace_size()] * 3


def test_builder_forgets_the_workspace_of_another_plan() -> None:
    g, x, y = layer("cpu")
    g.create_execution_plans([HeurMode.A])
    out = np.empty((2, 4, 6, 6), np.float32)
    for index in range(g.get_execution_plan_count()):
        g.build_plan_at_index(index)
        g.execute({x: values(), y: out})
        np.testing.assert_array_equal(out, expected(values()))


def test_builder_captures(runtime: EmulatedRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(DevicePlan, "capture", lambda self, *arguments: found.append(arguments))
    g, x, y = layer()
    g.build()
    a, out = values(), np.empty((2, 4, 6, 6), np.float32)
    g.capture({x: a, y: out})
    ((bindings, workspace),) = found
    assert bindings[x.get_uid()] is a
    assert workspace is None, "the captured plan keeps one of its own"
    host, x, y = layer("cpu")
    host.build()
    assert rules_of(lambda: host.capture({x: a, y: out})) == ["capture.host"]


@emulated
def test_engines_and_knobs_by_hand(runtime: EmulatedRuntime) -> None:
    """The loop of cuDNN's clients: every engine, every knob; what is refused says why."""
    g = Graph("conv", io_data_type="float32", device=H200)
    x, w = g.tensor([1, 4, 6, 6], name="x"), g.tensor([8, 4, 3, 3], name="w")
    g.conv_fprop(x, w).set_output(True)
    serving = []
    for engine in range(g.get_engine_count()):
        try:
            knobs = g.get_knobs_for_engine(engine)
        except NotSupported:
            continue
        serving.append(engine)
        assert all(knob.default in knob.values for knob in knobs)
    gemm = ENGINE_BY_NAME["cuda_implicit_gemm"]
    assert gemm.id in serving
    kind = gemm.knobs[0].type
    value = gemm.knobs[0].maximum
    assert g.get_execution_plan_count() == 0
    g.create_execution_plan(gemm.id, {kind: value})
    g.create_execution_plans([HeurMode.A])
    assert g.get_plan_name_at_index(0) == f"cuda_implicit_gemm_k{int(kind)}={value}"
    engine, settings = g.get_engine_and_knobs_at_index(0)
    assert (engine, settings[kind]) == (gemm.id, value)
    g.deselect_workspace_greater_than(1 << 30)
    assert g.get_plan_name_at_index(0) == f"cuda_implicit_gemm_k{int(kind)}={value}", "what was chosen by hand stays"
    assert g.build().name == f"cuda_implicit_gemm_k{int(kind)}={value}"
    assert g.get_behavior_notes_for_plan_at_index(0) == g.get_behavior_notes()
    assert rules_of(lambda: g.create_execution_plan(gemm.id, {kind: value + 1})) == ["knob.value"]
    assert rules_of(lambda: g.create_execution_plan(gemm.id, {KnobType.SWIZZLE: 0})) == ["knob.unknown"]
    assert rules_of(lambda: g.create_execution_plan(4711)) == ["engine.index"]
    assert rules_of(lambda: g.create_execution_plan(0)) == ["engine.composed"]
    assert rules_of(lambda: g.get_knobs_for_engine(1)) == ["engine.place"]


def test_several_kernels_by_hand() -> None:
    g, x, y = layer("cpu")
    (knob,) = g.get_knobs_for_engine(0)
    assert knob.type is KnobType.KERNEL_CFG
    g.create_execution_plan(0, {KnobType.KERNEL_CFG: knob.maximum})
    assert g.get_engine_and_knobs_at_index(0) == (0, {KnobType.KERNEL_CFG: knob.maximum})
    g.build()
    out = np.empty((2, 4, 6, 6), np.float32)
    g.execute({x: values(), y: out})
    np.testing.assert_array_equal(out, expected(values()))
    assert rules_of(lambda: g.create_execution_plan(1)) == ["engine.several_kernels"]


def test_knobs_by_name() -> None:
    g = Graph()
    x, w = g.tensor([2, 4, 8, 8], data_type="float32"), g.tensor([4, 4, 3, 3], data_type="float32")
    g.conv_fprop(x, w).set_output(True)
    g.create_execution_plan(2, {"TILE_SIZE": 3})
    assert g.get_engine_and_knobs_at_index(0) == (2, {KnobType.TILE_SIZE: 3})
    assert rules_of(lambda: g.create_execution_plan(2, {"TILE": 3})) == ["knob.unknown"]
    assert rules_of(lambda: g.create_execution_plan(2, {"TILE_SIZE": 0})) == ["knob.value"]


@emulated
def test_plans_bring_arrays_to_the_device_and_back(runtime: EmulatedRuntime) -> None:
    graph = scaled()
    plan = build(graph, H200)
    x = np.arange(2 * 4 * 6 * 6, dtype=np.float32).reshape(IMAGE)
    host = {1: x, 2: 3.0, 3: np.zeros(IMAGE, np.float32)}
    device = plan.to_device(host)
    assert device[2] == 3.0
    assert device[1] is not x
    plan.execute(device)
    np.testing.assert_array_equal(plan.to_host(device)[3], x + 3)
    assert not host[3].any(), "the host's arrays are untouched"
    assert rules_of(lambda: plan.to_device({**host, 1: x.astype(np.float64)})) == ["binding.data_type"]
