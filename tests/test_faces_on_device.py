"""The three faces on a CUDA device, end to end without one: arrays are NumPy's, kernels run in the emulator."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from backend_calls import (
    config_descriptor,
    device_prop,
    engine_descriptor,
    execute,
    heuristics,
    only,
    pack_descriptor,
    plan_descriptor,
    workspace_size,
)
from backend_tools import filled, graph_descriptor, made, read
from emulator import MISSING
from emulator.runtime import EmulatedRuntime
from legal import IMAGE, operation, tensor

from graphdnn import BadParam, Graph, GraphdnnError, HeurMode, NotSupported, OperationGraph, build, device_spec
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import cudnnBackendExecute, cudnnCreate, cudnnSetStream
from graphdnn.backend.descriptor import Descriptor
from graphdnn.cli import main
from graphdnn.cli.outcome import Exit
from graphdnn.cuda import debug, nvrtc
from graphdnn.cuda.cache import KernelCache
from graphdnn.engines import ENGINE_BY_NAME
from graphdnn.engines.host.memory import empty
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.enums import KnobType, LayoutType, ReductionOperator
from graphdnn.operations import Operation
from graphdnn.plan import DevicePlan, HostPlan
from graphdnn.plan.runtime import CudaRuntime
from graphdnn.tensors import channels_last_strides

emulated = pytest.mark.skipif(bool(MISSING), reason=MISSING)
H200, SUM = "h200", "pointwise x=f32[4,6] + residual"


def _has_nvrtc() -> bool:
    try:
        nvrtc.loaded_version()
    except NotSupported:
        return False
    return True


compiled = pytest.mark.skipif(not _has_nvrtc(), reason="no NVRTC")


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> EmulatedRuntime:
    """What every device plan runs on in this test."""
    made = EmulatedRuntime()
    monkeypatch.setattr("graphdnn.plan.device.CudaRuntime", lambda device: made)
    return made


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> KernelCache:
    """A kernel cache of this test's own, in memory."""
    kept = KernelCache(None)
    monkeypatch.setattr("graphdnn.cuda.cache.default_cache", lambda: kept)
    return kept


def rules_of(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(GraphdnnError) as caught:
        call()
    return [r.rule for r in caught.value.rejections]


def two_kernels() -> tuple[Operation, Operation]:
    """A sum over each channel, and what follows it over the full extents: one tensor between them."""
    total = tensor(11, (1, 4, 1, 1), is_virtual=True)
    return (
        operation("reduction", x=tensor(10, IMAGE), y=total),
        operation("pointwise", x=tensor(10, IMAGE), b=total, y=tensor(12, IMAGE)),
    )


def scaled() -> OperationGraph:
    """x + s -> y with a by-value s."""
    scalar = tensor(2, (1, 1, 1, 1), is_by_value=True)
    return OperationGraph.of([operation("pointwise", b=scalar)])


# The v8 face.


def on_device(graph: Descriptor) -> Descriptor:
    prop = (T.BACKEND_DESCRIPTOR, [device_prop(H200)])
    return plan_descriptor(heuristics(graph, DEVICEPROP=prop)[0])


def _address(array: Any) -> int:
    return int(array.ctypes.data)


def _void_pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@emulated
@pytest.mark.parametrize("pointer", [_address, _void_pointer, lambda array: array])
def test_v8_addresses_go_through(runtime: EmulatedRuntime, pointer: Callable[[Any], Any]) -> None:
    graph = graph_descriptor(*two_kernels())
    plan = on_device(graph)
    assert isinstance(plan.content.plan, DevicePlan)
    x = np.random.default_rng(0).integers(-9, 9, IMAGE).astype(np.float32)
    y = np.full(IMAGE, np.nan, np.float32)
    memory = runtime.memory(workspace_size(plan))
    handle = cudnnCreate(H200)
    pack = pack_descriptor({10: pointer(x), 12: pointer(y)}, pointer(memory))
    for stream in (0, 77):
        cudnnSetStream(handle, stream)
        y[...] = np.nan
        cudnnBackendExecute(handle, plan, pack)
        np.testing.assert_array_equal(y, x + x.sum((0, 2, 3), keepdims=True))
        assert set(runtime.streams) == {stream}
        runtime.streams.clear()


@emulated
def test_v8_by_value_scalars_are_read_on_the_host_at_every_execution(runtime: EmulatedRuntime) -> None:
    graph = graph_descriptor(*scaled().operations)
    plan = on_device(graph)
    x, y, s = np.ones(IMAGE, np.float32), np.zeros(IMAGE, np.float32), np.array([2.5], np.float32)
    pack = pack_descriptor({1: _address(x), 2: _address(s), 3: _address(y)})
    for value in (2.5, -4.0):
        s[0] = value
        cudnnBackendExecute(cudnnCreate(H200), plan, pack)
        np.testing.assert_array_equal(y, 1 + value)


@emulated
def test_by_value_numbers_are_known_again_and_arrays_read_anew(runtime: EmulatedRuntime) -> None:
    plan = build(scaled(), H200)
    x, y, s = np.ones(IMAGE, np.float32), np.zeros(IMAGE, np.float32), np.array([2.5], np.float32)
    number = 1e-5
    for given, value in [
        (number, number),
        (number, number),
        (3, 3),
        (-0.0, -0.0),
        (s, 2.5),
        (s, -4.0),
        (number, number),
    ]:
        s[0] = value
        plan.execute({1: x, 2: given, 3: y})
        np.testing.assert_array_equal(y, x + np.float32(value))


def test_v8_streams_belong_to_devices(runtime: EmulatedRuntime) -> None:
    host, device = cudnnCreate("cpu"), cudnnCreate(H200)
    assert rules_of(lambda: cudnnSetStream(host, 77)) == ["handle.stream"]
    for stream in (77, SimpleNamespace(ptr=77), SimpleNamespace(cuda_stream=77)):
        cudnnSetStream(device, 0)
        cudnnSetStream(device, stream)
        assert device.stream == 77
    plan = plan_descriptor(heuristics(graph_descriptor(operation("pointwise")))[0])
    assert isinstance(plan.content.plan, HostPlan)
    arrays = {1: np.zeros(IMAGE, np.float32), 2: np.zeros((1, 4, 1, 1), np.float32), 3: np.zeros(IMAGE, np.float32)}
    assert rules_of(lambda: cudnnBackendExecute(device, plan, pack_descriptor(arrays))) == ["execute.stream"]
    execute(plan, arrays)


def test_v8_device_id_names_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def present(ordinal: int) -> Any:
        asked.append(ordinal)
        return device_spec("a100")

    monkeypatch.setattr("graphdnn.backend.devices.available", lambda: "")
    monkeypatch.setattr("graphdnn.backend.devices.present_device", present)
    prop = made(D.DEVICEPROP, {A.DEVICEPROP_DEVICE_ID: (T.INT32, [1])})
    assert prop.content.device == device_spec("a100")
    assert asked == [1]


def test_a_handle_for_cuda_needs_one() -> None:
    from graphdnn.cuda.driver import available

    if available():
        assert rules_of(lambda: cudnnCreate("cuda"))[0].startswith("cuda.")
    else:
        assert cudnnCreate("cuda").device.kind == "cuda"


@compiled
def test_v8_shared_memory_is_the_compilers_and_the_launchs(cache: KernelCache) -> None:
    """The tiles of the implicit GEMM are static, those of the direct convolution are part of the launch."""
    graph = graph_descriptor(operation("conv_fprop", x=tensor(1, (2, 16, 9, 9)), w=tensor(2, (8, 16, 3, 3)),
                                       y=tensor(3, (2, 8, 7, 7))))  # fmt: skip
    prop = (T.BACKEND_DESCRIPTOR, [device_prop(H200)])
    engine = engine_descriptor(graph, ENGINE_BY_NAME["cuda_implicit_gemm"].id, DEVICEPROP=prop)
    config = config_descriptor(engine)
    used = only(read(config, A.ENGINECFG_SHARED_MEMORY_USED, T.INT32))
    assert 1024 < used <= device_spec(H200).shared_memory
    assert only(read(config, A.ENGINECFG_SHARED_MEMORY_USED, T.INT32)) == used


def test_v8_layout_info_says_what_the_engine_takes() -> None:
    def image(uid: int, dims: tuple[int, ...]) -> Any:
        return tensor(uid, dims, "f16", strides=channels_last_strides(dims))

    def preferred(engine: str) -> set[tuple[LayoutType, ...]]:
        prop = (T.BACKEND_DESCRIPTOR, [device_prop(H200)])
        found = engine_descriptor(graph, ENGINE_BY_NAME[engine].id, DEVICEPROP=prop)
        infos = filled(found, A.ENGINE_LAYOUT_INFO, D.LAYOUT_INFO)
        assert [only(read(i, A.LAYOUT_INFO_TENSOR_UID, T.INT64)) for i in infos] == [1, 2, 3]
        return {tuple(read(i, A.LAYOUT_INFO_TYPES, T.LAYOUT_TYPE)) for i in infos}

    x, w, y = image(1, (2, 32, 9, 9)), image(2, (32, 1, 3, 3)), image(3, (2, 32, 7, 7))
    graph = graph_descriptor(operation("conv_fprop", x=x, w=w, y=y))
    assert preferred("cuda_direct") == {(LayoutType.PREFERRED_NHWC,)}
    assert preferred("cuda_implicit_gemm") == {()}


# The builder.


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


# Arrays of a plan.


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


# The command line.


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = Exit.OK) -> tuple[str, str]:
    ended = main(list(arguments))
    out, err = capsys.readouterr()
    assert ended == code, out + err
    assert "Traceback" not in out + err
    return out, err


@emulated
@pytest.mark.parametrize("problem", [SUM, "reduce add x=f32[40,6] y=[1,6] + relu"])
def test_run_on_a_device(capsys: pytest.CaptureFixture[str], runtime: EmulatedRuntime, problem: str) -> None:
    data = json.loads(answer(capsys, "run", problem, "--device", H200, "--repeat", "2", "--json")[0])
    assert data["verdict"] == "ok"
    assert data["device"] == H200
    assert all(name.startswith("cuda_") for name in data["engines"])
    assert len(data["times_us"]) == len(data["device_times_us"]) == 2
    out, _ = answer(capsys, "run", problem, "--device", H200, "--repeat", "2")
    for fact in ("device     h200", "until it returns", "median of 2", "verdict    ok"):
        assert fact in out


@compiled
def test_run_for_a_device_that_is_not_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cache: KernelCache, tmp_path: Any
) -> None:
    """The plan is built and saved, which needs no device; then the refusal is a clear one."""
    monkeypatch.setattr("graphdnn.cuda.driver.available", lambda: "the driver finds no device")
    file = tmp_path / "plan.json"
    out, err = answer(capsys, "run", SUM, "--device", H200, "--save-plan", str(file), code=Exit.NOT_EXECUTED)
    assert out == ""
    assert "execute.device_absent" in err
    assert file.exists()
    with pytest.raises(NotSupported):
        build(OperationGraph.of([operation("pointwise")]), H200).new_workspace()


def test_explain_for_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    problem = "conv x=f16[2,8,9,9] w=f16[4,8,3,3] pad=1 + bias + relu"
    out, _ = answer(capsys, "explain", problem, "--device", H200)
    assert "kernels of cuda_" in out
    assert "numpy" not in out
    out, _ = answer(capsys, "explain", problem, "--device", H200, "--source")
    assert "// operation 0: conv_fprop" in out
    _, _, text = out.partition("source of ")
    head, _, source = text.partition("\n\n")
    assert head.count("// operation ") == 3
    for i, tag in enumerate(("conv_fprop", "add", "relu_fwd")):
        assert f"// operation {i}: {tag}" in head
        assert f"// operation {i}: " in source
    assert "__global__" in source
    data = json.loads(answer(capsys, "explain", problem, "--device", H200, "--source", "--json")[0])
    (kernel,) = data["kernels"]
    assert {step["kernel"] for step in kernel["steps"]} == set(kernel["source"])
    assert all(step["block"] for step in kernel["steps"])


def test_explain_on_the_host_has_no_source(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = answer(capsys, "explain", SUM, "--device", "cpu", "--source")
    assert "no generated text, NumPy computes it" in out


# What is printed when the environment asks for it.


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., None]]:
    """``asked(VERBOSE="1", DEBUG="fusion")``."""

    def ask(**variables: str) -> None:
        for name in ("VERBOSE", "DEBUG"):
            monkeypatch.setenv(f"GRAPHDNN_{name}", variables.get(name, ""))
        debug._named.clear()
        debug.read_environment()

    yield ask
    monkeypatch.undo()
    debug.read_environment()


def events(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    lines = [line.split(",") for line in capsys.readouterr().err.splitlines()]
    assert all(line[0] == "graphdnn" for line in lines)
    return [line[1:] for line in lines if line[1] != "template"]


@emulated
@pytest.mark.parametrize(("device", "cache_state"), [(H200, "hit"), ("cpu", "none")])
def test_plans_report_what_they_do(
    asked: Callable[..., None],
    runtime: EmulatedRuntime,
    capsys: pytest.CaptureFixture[str],
    device: str,
    cache_state: str,
) -> None:
    asked(VERBOSE="1")
    g, x, y = layer(device)
    out = np.empty((2, 4, 6, 6), np.float32)
    g.build()
    g.execute({x: values(), y: out})
    np.testing.assert_array_equal(out, expected(values()))
    built, executed = events(capsys)
    assert built[0] == "build"
    assert built[2:4] == [g.plan.config.device.name, cache_state]
    assert executed[:3] == ["execute", g.plan.name, g.plan.config.device.name]
    assert float(built[4]) >= 0 <= float(executed[3])
    assert built[5:] == executed[4:]  # the command that repeats it
    assert ",".join(built[5:]).startswith(("graphdnn run 'pointwise ", "key "))
    asked()
    g.execute({x: values(), y: out})
    quiet, x, y = layer(device)
    quiet.build()
    quiet.execute({x: values(), y: out})
    assert [line for line in events(capsys) if line[1] != g.plan.name] == []


def test_fusion_and_ranking_are_printed_on_request(
    asked: Callable[..., None], runtime: EmulatedRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(DEBUG="fusion,rank")
    g, *_ = layer()
    g.build()
    found = events(capsys)
    kinds = {line[0] for line in found}
    assert {"fusion", "unfused", "rank", "declined"} <= kinds
    assert "build" not in kinds
    (first, *_) = (line for line in found if line[0] == "rank")
    assert first[1:5] == ["layer", H200, "A", "0"]
    assert [line[4] for line in found if line[0] == "fusion"] == ["reduction", "add"]
    with pytest.raises(BadParam):
        g.execute({})


# What CUDA's runtime asks of CuPy, with a CuPy that is pretended.


class _Pointer:
    """CuPy's MemoryPointer over host memory that starts anywhere."""

    def __init__(self, size: int) -> None:
        self._memory = np.full(size, 0xA5, np.uint8)
        self.ptr = int(self._memory.ctypes.data)

    def __iadd__(self, offset: int) -> _Pointer:
        self.ptr += offset
        return self

    def copy_from_host_async(self, address: int, size: int) -> None:
        ctypes.memmove(self.ptr, address, size)

    def copy_to_host_async(self, address: int, size: int) -> None:
        ctypes.memmove(address, self.ptr, size)


class _Event:
    clock = 0.0
    streams: list[Any] = []

    def record(self, stream: Any) -> None:
        _Event.clock += 1.0
        _Event.streams.append(stream)
        self.time = _Event.clock

    def synchronize(self) -> None:
        pass


def test_cudas_runtime_allocates_copies_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def ndarray(shape: Any, dtype: Any, memptr: Any, strides: Any) -> Any:
        return SimpleNamespace(shape=shape, dtype=np.dtype(dtype), data=memptr, strides=strides)

    waited: list[int] = []
    cuda = SimpleNamespace(
        alloc=_Pointer,
        get_current_stream=lambda: SimpleNamespace(ptr=7),
        Event=_Event,
        ExternalStream=lambda number: f"stream {number}",
        get_elapsed_time=lambda start, end: end.time - start.time,
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, ndarray=ndarray))
    monkeypatch.setattr("graphdnn.cuda.driver.is_capturing", lambda stream: False)
    monkeypatch.setattr("graphdnn.cuda.driver.synchronize", waited.append)
    runtime = CudaRuntime(device_spec(H200))
    for kind, carrier in (("f32", np.float32), ("bf16", np.uint16), ("e4m3", np.uint8), ("bool", np.bool_)):
        spec = tensor(1, (3, 4), kind, strides=(7, 1), byte_alignment=256)
        array = runtime.array(spec)
        assert array.dtype == carrier
        assert array.data.ptr % 256 == 0
        assert array.strides == (7 * array.dtype.itemsize, array.dtype.itemsize)
        host, back = empty(spec), empty(spec)
        host[...] = np.arange(12).reshape(3, 4).astype(host.dtype)
        back[...] = 0
        runtime.copy_in(host, array, spec.bytes)
        runtime.copy_out(array, back, spec.bytes)
        assert back.tobytes() == host.tobytes()
    assert set(waited) == {7}
    calls: list[int] = []
    assert runtime.timings(lambda: calls.append(1), 3) == runtime.timings(lambda: calls.append(1), 3, 5) == [1e-3] * 3
    assert len(calls) == 6
    assert _Event.streams == [None] * 4 + ["stream 5"] * 4
