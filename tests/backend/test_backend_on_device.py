"""The v8 face on a CUDA device, end to end without one: arrays are NumPy's, kernels run in the emulator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
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
from backend_descriptors import filled, graph_descriptor, made, read
from cuda_comparison import emulated
from device_apis import H200, compiled, rules_of, scaled, two_kernels
from emulator.runtime import EmulatedRuntime
from legal_problems import IMAGE, operation, tensor

from graphdnn import build, device_spec
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import cudnnBackendExecute, cudnnCreate, cudnnSetStream
from graphdnn.backend.descriptor import Descriptor
from graphdnn.cuda.kernel_cache import KernelCache
from graphdnn.engines import ENGINE_BY_NAME
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.enums import LayoutType
from graphdnn.plan import DevicePlan, HostPlan
from graphdnn.tensors import channels_last_strides


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

    monkeypatch.setattr("graphdnn.backend.device_descriptor.available", lambda: "")
    monkeypatch.setattr("graphdnn.backend.device_descriptor.present_device", present)
    prop = made(D.DEVICEPROP, {A.DEVICEPROP_DEVICE_ID: (T.INT32, [1])})
    assert prop.content.device == device_spec("a100")
    assert asked == [1]


def test_a_handle_for_cuda_needs_one() -> None:
    from graphdnn.cuda.driver_api import available

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
