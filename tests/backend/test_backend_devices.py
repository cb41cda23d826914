"""Devices, handles and streams of the v8 face."""

from __future__ import annotations

import json

import pytest
from backend_calls import (
    NESTED,
    device_prop,
    engine_descriptor,
    heuristics,
    matmul_arrays,
    matmul_plan,
    only,
    pack_descriptor,
    plan_descriptor,
)
from backend_descriptors import filled, graph_descriptor, made, read
from legal_problems import operation

from graphdnn import device_spec
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import cudnnBackendExecute, cudnnCreate, cudnnGetStream, cudnnSetStream
from graphdnn.backend.device_descriptor import DeviceProp
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.enums import OperationGraphMode, Status
from graphdnn.errors import BadParam, NotSupported


def test_device_properties_replace_the_device() -> None:
    graph, prop = graph_descriptor(operation("conv_fprop")), device_prop("h200")
    assert prop.content.device == device_spec("h200")
    text = read(prop, A.DEVICEPROP_JSON_REPRESENTATION, T.CHAR)
    assert json.loads(text)["name"] == "h200"
    config = heuristics(graph, DEVICEPROP=(NESTED, [prop]))[0]
    assert config.content.config.device == device_spec("h200")
    engine = only(filled(config, A.ENGINECFG_ENGINE, D.ENGINE))
    assert isinstance(only(filled(engine, A.ENGINE_DEVICEPROP, D.DEVICEPROP)).content, DeviceProp)
    plan = plan_descriptor(config, DEVICEPROP=(NESTED, [prop]))
    assert plan.content.plan.config.device.name == "h200"
    with pytest.raises(BadParam) as caught:
        plan_descriptor(config, HANDLE=(T.HANDLE, [cudnnCreate()]))
    assert caught.value.rejections[0].rule == "device.conflict"


def test_device_properties_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdnn.backend.device_descriptor.available", lambda: "the driver finds no device")
    for elements in ({A.DEVICEPROP_DEVICE_ID: (T.INT32, [0])}, {A.DEVICEPROP_HANDLE: (T.HANDLE, [cudnnCreate()])}):
        assert made(D.DEVICEPROP, elements).content.device == device_spec()


def test_limits_change_the_device_that_engines_see() -> None:
    graph, whole = graph_descriptor(operation("conv_fprop")), device_spec("h200")
    limits = {"SM_COUNT_TARGET": (T.INT32, [66]), "SHARED_MEMORY_LIMIT": (T.INT32, [100_000])}
    prop = (NESTED, [device_prop("h200")])
    config = heuristics(graph, DEVICEPROP=prop, **limits)[0]
    engine = only(filled(config, A.ENGINECFG_ENGINE, D.ENGINE))
    assert read(engine, A.ENGINE_SM_COUNT_TARGET, T.INT32) == [66]
    for device in (
        config.content.config.device,
        engine_descriptor(graph, 10, DEVICEPROP=prop, **limits).content.device,
    ):
        assert device.sm_count == 66
        assert device.shared_memory == 100_000
        assert device.rates["HALF"] == whole.rates["HALF"] / 2
        assert device.bandwidth == whole.bandwidth
    assert whole == device_spec("h200")
    plan_descriptor(config, DEVICEPROP=prop)  # the limits are not a conflict


def test_graph_mode_is_an_assertion() -> None:
    mode = {"MODE": (T.OPERATIONGRAPH_MODE, [OperationGraphMode.CONV_FORWARD])}
    graph = graph_descriptor(operation("conv_fprop"), **mode)
    assert read(graph, A.OPERATIONGRAPH_MODE, T.OPERATIONGRAPH_MODE) == [OperationGraphMode.CONV_FORWARD]
    with pytest.raises(NotSupported) as caught:
        graph_descriptor(operation("conv_dgrad"), **mode)
    assert caught.value.status is Status.NOT_SUPPORTED_GRAPH_PATTERN


def test_flags_that_are_off_are_fine() -> None:
    off = (T.BOOLEAN, [False])
    graph = graph_descriptor(operation("matmul"), IS_DYNAMIC_SHAPE_ENABLED=off, IS_OVERRIDE_SHAPE_ENABLED=off)
    engine_descriptor(graph, 1, DISABLE_CLUSTER_COOPERATIVE=off, SM_COUNT_TARGET=(T.INT32, [0]))


def test_streams() -> None:
    host, gpu = cudnnCreate(), cudnnCreate("h200")
    cudnnSetStream(host, None)
    assert cudnnGetStream(host) == 0
    cudnnSetStream(gpu, 4096)
    assert cudnnGetStream(gpu) == 4096
    assert "4096" in repr(gpu)
    with pytest.raises(NotSupported):
        cudnnSetStream(host, 4096)
    with pytest.raises(BadParam) as caught:
        cudnnBackendExecute(gpu, matmul_plan(), pack_descriptor(matmul_arrays()))
    assert caught.value.status is Status.BAD_PARAM_STREAM_MISMATCH
