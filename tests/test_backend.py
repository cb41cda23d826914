"""The v8 face from raw descriptors to results: graphs, heuristics, engines, plans, variant packs, errors by thread."""
# ruff: noqa: F403, F405  the star import is what a client writes

from __future__ import annotations

import ctypes
import json
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from backend_tools import created, described, filled, graph_descriptor, made, put, put_text, read
from legal import operation, pointwise, tensor

from graphdnn import backend, device_spec
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import *
from graphdnn.backend.constants import CONSTANTS
from graphdnn.backend.descriptor import Descriptor
from graphdnn.backend.devices import DeviceProp
from graphdnn.engines import ENGINE_BY_ID, Knob
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.enums import AttributeType as T
from graphdnn.enums import CEnum, DataType, HeurMode, KnobType, OperationGraphMode, PointwiseMode, Status
from graphdnn.enums import DescriptorType as D
from graphdnn.errors import (
    BadParam,
    ExecutionFailed,
    GraphdnnError,
    InternalError,
    MalformedFile,
    NotInitialized,
    NotSupported,
)
from graphdnn.graph import OperationGraph

NESTED = T.BACKEND_DESCRIPTOR


# From nothing to a result, in C's words.


def raw_tensor(uid: int, dims: tuple[int, ...], data_type: int, virtual: bool = False) -> Descriptor:
    strides = [int(np.prod(dims[i + 1 :], dtype=int)) for i in range(len(dims))]
    t = cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
    cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, uid)
    cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, [data_type])
    cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, len(dims), dims)
    cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, len(dims), np.array(strides, np.int64))
    cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, (ctypes.c_int64 * 1)(8))
    cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, [virtual])
    cudnnBackendFinalize(t)
    return t


def raw_pointwise(mode: int, math_type: int, **tensors: Descriptor) -> Descriptor:
    setting = cudnnBackendCreateDescriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
    cudnnBackendSetAttribute(setting, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, [mode])
    cudnnBackendSetAttribute(setting, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, [math_type])
    cudnnBackendFinalize(setting)
    op = cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
    cudnnBackendSetAttribute(
        op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, [setting]
    )
    for port, t in tensors.items():
        put(op, A[f"OPERATION_POINTWISE_{port.upper()}DESC"], NESTED, t)
    cudnnBackendFinalize(op)
    cudnnBackendDestroyDescriptor(setting)
    return op


def conv_bias_relu(operand: int, accumulator: int, handle: Any) -> Descriptor:
    """[N, G, C, H, W] with [G, K, C, R, S], bias per channel, ReLU; every child is destroyed after its last use.

    ReLU's parameters are fractions, so integers are clipped at the bias instead, with MAX.
    """
    x = raw_tensor(1, (2, 3, 4, 6, 5), operand)
    w = raw_tensor(2, (3, 2, 4, 3, 3), operand)
    bias = raw_tensor(3, (1, 3, 2, 1, 1), accumulator)
    y1 = raw_tensor(10, (2, 3, 2, 3, 5), accumulator, virtual=True)
    y2 = raw_tensor(11, (2, 3, 2, 3, 5), accumulator, virtual=True)
    y = raw_tensor(4, (2, 3, 2, 3, 5), accumulator)
    conv = cudnnBackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
    put(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, T.DATA_TYPE, accumulator)
    put(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, T.CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
    put(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, T.INT64, 2)
    put(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, T.INT64, 1, 1)
    put(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, T.INT64, 2, 1)
    put(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, T.INT64, 1, 1)
    put(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, T.INT64, 1, 1)
    cudnnBackendFinalize(conv)
    fprop = cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
    put(fprop, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, NESTED, x)
    put(fprop, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, NESTED, w)
    put(fprop, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, NESTED, y1)
    put(fprop, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, NESTED, conv)
    put(fprop, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, T.FLOAT, 1.0)
    put(fprop, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, T.DOUBLE, 0)
    cudnnBackendFinalize(fprop)
    add = raw_pointwise(CUDNN_POINTWISE_ADD, accumulator, x=y1, b=bias, y=y2)
    if accumulator == CUDNN_DATA_FLOAT:
        clip = raw_pointwise(CUDNN_POINTWISE_RELU_FWD, accumulator, x=y2, y=y)
    else:
        clip = raw_pointwise(CUDNN_POINTWISE_MAX, accumulator, x=y2, b=bias, y=y)
    graph = cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    put(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, T.HANDLE, handle)
    put(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, NESTED, clip, fprop, add)
    for child in (x, w, bias, y1, y2, y, conv, fprop, add, clip):
        cudnnBackendDestroyDescriptor(child)
    cudnnBackendFinalize(graph)
    return graph


def naive(x: Any, w: Any, bias: Any, lowest: Any = 0) -> Any:
    """Convolution by its definition, strides (2, 1), padding 1, then bias and clipping."""
    n, g, _, h, width = x.shape
    k = w.shape[1]
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1)))
    y = np.zeros((n, g, k, (h - 1) // 2 + 1, width), bias.dtype)
    for i in np.ndindex(y.shape):
        window = padded[i[0], i[1], :, 2 * i[3] : 2 * i[3] + 3, i[4] : i[4] + 3].astype(bias.dtype)
        y[i] = (window * w[i[1], i[2]]).sum(dtype=bias.dtype)
    return np.maximum(y + bias, lowest)


def heuristics(graph: Descriptor, mode: HeurMode = HeurMode.A, **elements: Any) -> list[Descriptor]:
    extra = {A[f"ENGINEHEUR_{name}"]: value for name, value in elements.items()}
    heur = made(
        D.ENGINEHEUR,
        {A.ENGINEHEUR_OPERATION_GRAPH: (NESTED, [graph]), A.ENGINEHEUR_MODE: (T.HEUR_MODE, [mode]), **extra},
    )
    return filled(heur, A.ENGINEHEUR_RESULTS, D.ENGINECFG)


def engine_descriptor(graph: Descriptor, index: int, **elements: Any) -> Descriptor:
    extra = {A[f"ENGINE_{name}"]: value for name, value in elements.items()}
    return made(
        D.ENGINE, {A.ENGINE_OPERATION_GRAPH: (NESTED, [graph]), A.ENGINE_GLOBAL_INDEX: (T.INT64, [index]), **extra}
    )


def knob(kind: KnobType, value: int) -> Descriptor:
    return made(
        D.KNOB_CHOICE,
        {A.KNOB_CHOICE_KNOB_TYPE: (T.KNOB_TYPE, [kind]), A.KNOB_CHOICE_KNOB_VALUE: (T.INT64, [value])},
    )


def config_descriptor(engine: Descriptor, *knobs: Descriptor) -> Descriptor:
    return made(D.ENGINECFG, {A.ENGINECFG_ENGINE: (NESTED, [engine]), A.ENGINECFG_KNOB_CHOICES: (NESTED, knobs)})


def plan_descriptor(config: Descriptor, **elements: Any) -> Descriptor:
    extra = {A[f"EXECUTION_PLAN_{name}"]: value for name, value in elements.items()}
    return made(D.EXECUTION_PLAN, {A.EXECUTION_PLAN_ENGINE_CONFIG: (NESTED, [config]), **extra})


def pack_descriptor(bindings: dict[int, Any], workspace: Any = None) -> Descriptor:
    pack = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    put(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, T.INT64, *bindings)
    put(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, T.VOID_PTR, *bindings.values())
    cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, T.VOID_PTR, 1, workspace)
    cudnnBackendFinalize(pack)
    return pack


def only(elements: list[Any]) -> Any:
    assert len(elements) == 1
    return elements[0]


def workspace_size(plan: Descriptor) -> int:
    return only(read(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, T.INT64))


def new_workspace(plan: Descriptor) -> Any:
    return np.empty(workspace_size(plan), np.uint8) if workspace_size(plan) else None


def execute(plan: Descriptor, bindings: dict[int, Any]) -> None:
    cudnnBackendExecute(cudnnCreate(), plan, pack_descriptor(bindings, new_workspace(plan)))


def as_array(array: Any) -> Any:
    return array


def as_address(array: Any) -> Any:
    return array.ctypes.data


def as_void_pointer(array: Any) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)


def as_typed_pointer(array: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_byte))


@pytest.mark.parametrize("pointer", [as_array, as_address, as_void_pointer, as_typed_pointer])
@pytest.mark.parametrize("mode", [m for m in HeurMode if m is not HeurMode.COUNT])
def test_convolution_bias_relu(mode: HeurMode, pointer: Any) -> None:
    handle = cudnnCreate()
    graph = conv_bias_relu(CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, handle)
    rng = np.random.default_rng(1)
    x, w, bias = (rng.standard_normal(s, np.float32) for s in ((2, 3, 4, 6, 5), (3, 2, 4, 3, 3), (1, 3, 2, 1, 1)))
    for config in heuristics(graph, mode):
        plan = plan_descriptor(config, HANDLE=(T.HANDLE, [handle]))
        y = np.full((2, 3, 2, 3, 5), np.nan, np.float32)
        bindings = {1: pointer(x), 2: pointer(w), 3: pointer(bias), 4: pointer(y)}
        pack = pack_descriptor(bindings, new_workspace(plan))
        cudnnBackendExecute(handle, plan, pack)
        np.testing.assert_allclose(y, naive(x, w, bias), rtol=1e-5, atol=1e-5)
        y[...] = np.nan
        cudnnBackendExecute(handle, plan, pack)  # both are reusable
        np.testing.assert_allclose(y, naive(x, w, bias), rtol=1e-5, atol=1e-5)
    cudnnDestroy(handle)


@pytest.mark.parametrize("operand", [CUDNN_DATA_INT8, GRAPHDNN_DATA_INT16, CUDNN_DATA_INT32])
def test_integers_are_exact(operand: Any) -> None:
    dtype = {DataType.INT8: np.int8, DataType.INT16: np.int16, DataType.INT32: np.int32}[operand]
    limits, rng = np.iinfo(dtype), np.random.default_rng(2)
    x, w = (
        rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        for shape in ((2, 3, 4, 6, 5), (3, 2, 4, 3, 3))
    )
    bias = rng.integers(-(10**6), 10**6, (1, 3, 2, 1, 1), np.int64)
    graph = conv_bias_relu(operand, CUDNN_DATA_INT64, cudnnCreate())
    y = np.zeros((2, 3, 2, 3, 5), np.int64)
    execute(plan_descriptor(heuristics(graph)[0]), {1: x, 2: w, 3: bias, 4: y})
    np.testing.assert_array_equal(y, naive(x, w, bias, lowest=bias))


def test_the_graph_is_the_one_of_the_python_api() -> None:
    """All faces make one thing: equal graphs have equal keys."""
    op = operation("conv_fprop")
    assert graph_descriptor(op).content.fused.graph.key == OperationGraph.of([op]).key


def test_a_failed_finalize_leaves_the_descriptor_editable() -> None:
    t = created(D.TENSOR, {A.TENSOR_UNIQUE_ID: (T.INT64, [1]), A.TENSOR_DATA_TYPE: (T.DATA_TYPE, [DataType.HALF])})
    put(t, A.TENSOR_DIMENSIONS, T.INT64, 0, 3)
    put(t, A.TENSOR_STRIDES, T.INT64, 3)
    with pytest.raises(BadParam) as caught:
        cudnnBackendFinalize(t)
    assert [r.rule for r in caught.value.rejections] == ["tensor.dims.positive", "tensor.strides.length"]
    assert all("CUDNN_ATTR_TENSOR_" in r.attribute for r in caught.value.rejections)
    assert not t.finalized
    put(t, A.TENSOR_DIMENSIONS, T.INT64, 2, 3)
    put(t, A.TENSOR_STRIDES, T.INT64, 3, 1)
    cudnnBackendFinalize(t)
    assert read(t, A.TENSOR_DIMENSIONS, T.INT64) == [2, 3]


def test_operations_are_read_back_into_descriptors_of_their_types() -> None:
    y = tensor(3, (2, 3, 5), is_virtual=True)
    relu = operation("pointwise", x=y, b=..., y=tensor(4, (2, 3, 5)), spec=pointwise(PointwiseMode.RELU_FWD))
    graph = graph_descriptor(operation("matmul", c=y), relu)
    targets = [cudnnBackendCreateDescriptor(k) for k in (D.OPERATION_MATMUL, D.OPERATION_POINTWISE)]
    with pytest.raises(BadParam) as caught:
        cudnnBackendGetAttribute(graph, A.OPERATIONGRAPH_OPS, NESTED, 2, targets[::-1])
    assert [r.rule for r in caught.value.rejections] == ["attribute.nested.type"] * 2
    assert cudnnBackendGetAttribute(graph, A.OPERATIONGRAPH_OPS, NESTED, np.int64(2), targets) == (2, targets)
    assert targets[1].content == relu


def test_float_attributes_keep_what_a_c_float_keeps() -> None:
    spec = pointwise(PointwiseMode.ELU_FWD)
    setting = created(D.POINTWISE, {A.POINTWISE_MODE: (T.POINTWISE_MODE, [spec.mode])})
    put(setting, A.POINTWISE_MATH_PREC, T.DATA_TYPE, DataType.FLOAT)
    put(setting, A.POINTWISE_ELU_ALPHA, T.FLOAT, 0.1)
    cudnnBackendFinalize(setting)
    assert setting.content.elu_alpha == float(np.float32(0.1))
    assert read(setting, A.POINTWISE_ELU_ALPHA, T.DOUBLE) == [float(np.float32(0.1))]


def test_an_unset_optional_attribute_reads_as_nothing_or_its_default() -> None:
    op = described(operation("pointwise"))
    assert read(op, A.OPERATION_POINTWISE_ALPHA1, T.FLOAT) == [1.0]
    assert read(op, A.OPERATION_POINTWISE_TDESC, NESTED) == []


def test_fractions_read_as_integers_where_they_are() -> None:
    setting = described(operation("resample_fwd").spec)
    assert read(setting, A.RESAMPLE_STRIDES, T.INT64) == [2, 2]
    assert read(setting, A.RESAMPLE_STRIDES, T.FRACTION) == [2, 2]


@pytest.mark.parametrize(
    "scalar",
    [0.25, np.float32(0.25), np.array([0.25], np.float32), ctypes.c_float(0.25), (ctypes.c_float * 1)(0.25)],
    ids=lambda v: type(v).__name__,
)
def test_constants_are_captured_when_they_are_set(scalar: Any) -> None:
    t = created(D.TENSOR, {A.TENSOR_UNIQUE_ID: (T.INT64, [1]), A.TENSOR_DATA_TYPE: (T.DATA_TYPE, [DataType.FLOAT])})
    for name in (A.TENSOR_DIMENSIONS, A.TENSOR_STRIDES):
        put(t, name, T.INT64, 1)
    put(t, A.TENSOR_IS_BY_VALUE, T.BOOLEAN, True)
    cudnnBackendSetAttribute(t, A.TENSOR_CONSTANT_VALUE, T.VOID_PTR, 1, scalar)
    if isinstance(scalar, ctypes.Array):
        scalar[0] = 7.0
    cudnnBackendFinalize(t)
    assert t.content.constant_value == 0.25
    assert only(read(t, A.TENSOR_CONSTANT_VALUE, T.VOID_PTR)).dtype == np.float32


# Engines, knobs, configurations.


@pytest.fixture
def knobby(monkeypatch: pytest.MonkeyPatch) -> int:
    """An engine with two knobs that change its workspace."""
    tile = Knob(KnobType.TILE_M, 16, 64, 16, 32, "rows")
    stages = Knob(KnobType.STAGES, 1, 2, 1, 1, "buffers")
    number = max(ENGINE_BY_ID) + 1
    row = replace(
        NUMPY, id=number, name="knobby", knobs=(tile, stages),
        workspace=lambda task, knobs: 100 * knobs[KnobType.TILE_M] + knobs[KnobType.STAGES],
    )  # fmt: skip
    monkeypatch.setattr("graphdnn.engine_index.ENGINE_BY_ID", {**ENGINE_BY_ID, number: row})
    return number


def test_engine_by_hand_with_knobs(knobby: int) -> None:
    graph = graph_descriptor(operation("matmul"))
    assert read(graph, A.OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, T.INT64) == [knobby + 1]
    engine = engine_descriptor(graph, knobby)
    infos = filled(engine, A.ENGINE_KNOB_INFO, D.KNOB_INFO)
    kinds = (A.KNOB_INFO_MINIMUM_VALUE, A.KNOB_INFO_MAXIMUM_VALUE, A.KNOB_INFO_STRIDE)
    assert [only(read(i, A.KNOB_INFO_TYPE, T.KNOB_TYPE)) for i in infos] == [KnobType.TILE_M, KnobType.STAGES]
    assert [[only(read(i, name, T.INT64)) for name in kinds] for i in infos] == [[16, 64, 16], [1, 2, 1]]
    default = config_descriptor(engine)
    assert read(default, A.ENGINECFG_WORKSPACE_SIZE, T.INT64) == [3201]
    config = config_descriptor(engine, knob(KnobType.TILE_M, 48), knob(KnobType.STAGES, 2))
    assert read(config, A.ENGINECFG_WORKSPACE_SIZE, T.INT64) == [4802]
    assert read(config, A.ENGINECFG_SHARED_MEMORY_USED, T.INT32) == [0]
    assert filled(config, A.ENGINECFG_INTERMEDIATE_INFO, D.INTERMEDIATE_INFO) == []
    choices = filled(config, A.ENGINECFG_KNOB_CHOICES, D.KNOB_CHOICE)
    assert [only(read(c, A.KNOB_CHOICE_KNOB_VALUE, T.INT64)) for c in choices] == [48, 2]
    plan = plan_descriptor(config)
    assert workspace_size(plan) == 4802
    a, b = np.ones((2, 3, 4), np.float32), np.ones((2, 4, 5), np.float32)
    c = np.zeros((2, 3, 5), np.float32)
    execute(plan, {1: a, 2: b, 3: c})
    np.testing.assert_array_equal(c, 4)


def test_engine_attributes() -> None:
    engine = engine_descriptor(graph_descriptor(operation("conv_fprop")), 1)
    assert read(engine, A.ENGINE_NUMERICAL_NOTE, T.NUMERICAL_NOTE) == [CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP]
    assert read(engine, A.ENGINE_BEHAVIOR_NOTE, T.BEHAVIOR_NOTE) == []
    layouts = filled(engine, A.ENGINE_LAYOUT_INFO, D.LAYOUT_INFO)
    assert [only(read(i, A.LAYOUT_INFO_TENSOR_UID, T.INT64)) for i in layouts] == [1, 2, 3]
    assert all(read(i, A.LAYOUT_INFO_TYPES, T.LAYOUT_TYPE) == [] for i in layouts)
    assert filled(engine, A.ENGINE_KNOB_INFO, D.KNOB_INFO) == []


def test_an_engine_that_declines_says_why() -> None:
    graph = graph_descriptor(operation("matmul"))
    with pytest.raises(NotSupported) as caught:
        engine_descriptor(graph, 2)
    assert {r.rule for r in caught.value.rejections} == {"numpy_blocked.operation"}


def test_every_index_below_the_count_can_be_tried() -> None:
    """The loop of C clients: create every engine, skip what is refused."""
    graph = graph_descriptor(operation("conv_fprop"))
    working = []
    for index in range(only(read(graph, A.OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, T.INT64))):
        engine = created(D.ENGINE, {A.ENGINE_OPERATION_GRAPH: (NESTED, [graph])})
        put(engine, A.ENGINE_GLOBAL_INDEX, T.INT64, index)
        with returning_status():
            status = cudnnBackendFinalize(engine)
        if status is Status.SUCCESS:
            working.append(index)
        else:
            assert int(status) // 1000 == 3
    ranked = {only(read(only(filled(c, A.ENGINECFG_ENGINE, D.ENGINE)), A.ENGINE_GLOBAL_INDEX, T.INT64))
              for c in heuristics(graph)}  # fmt: skip
    assert set(working) == ranked


# Graphs of several kernels.


def two_products() -> Descriptor:
    middle = tensor(3, (2, 3, 5), is_virtual=True)
    first = operation("matmul", c=middle)
    second = operation("matmul", a=middle, b=tensor(4, (2, 5, 6)), c=tensor(5, (2, 3, 6)))
    return graph_descriptor(first, second)


def product_arrays() -> dict[int, Any]:
    rng = np.random.default_rng(3)
    a, b, d = (rng.standard_normal(s, np.float32) for s in ((2, 3, 4), (2, 4, 5), (2, 5, 6)))
    return {1: a, 2: b, 4: d, 5: np.zeros((2, 3, 6), np.float32)}


@pytest.mark.parametrize("mode", [m for m in HeurMode if m is not HeurMode.COUNT])
def test_composed_configurations(mode: HeurMode) -> None:
    configs = heuristics(two_products(), mode)
    assert configs
    for config in configs:
        engine = only(filled(config, A.ENGINECFG_ENGINE, D.ENGINE))
        assert read(engine, A.ENGINE_GLOBAL_INDEX, T.INT64) == [0]
        info = only(filled(engine, A.ENGINE_KNOB_INFO, D.KNOB_INFO))
        assert read(info, A.KNOB_INFO_TYPE, T.KNOB_TYPE) == [KnobType.KERNEL_CFG]
        position = only(filled(config, A.ENGINECFG_KNOB_CHOICES, D.KNOB_CHOICE)).content
        assert position.knob_type is KnobType.KERNEL_CFG
        by_hand = config_descriptor(
            engine_descriptor(two_products(), 0), knob(KnobType.KERNEL_CFG, position.knob_value)
        )
        assert by_hand.content.config.name == config.content.config.name
        arrays = product_arrays()
        execute(plan_descriptor(by_hand), arrays)
        np.testing.assert_allclose(arrays[5], arrays[1] @ arrays[2] @ arrays[4], rtol=1e-5, atol=1e-5)


def test_composed_default_is_the_best() -> None:
    graph = two_products()
    default = config_descriptor(engine_descriptor(graph, 0))
    assert default.content.config.name == heuristics(graph, HeurMode.B)[0].content.config.name


def test_composed_knob_positions_end_with_the_list() -> None:
    engine = engine_descriptor(two_products(), 0)
    last = only(read(only(filled(engine, A.ENGINE_KNOB_INFO, D.KNOB_INFO)), A.KNOB_INFO_MAXIMUM_VALUE, T.INT64))
    config_descriptor(engine, knob(KnobType.KERNEL_CFG, last))
    for bad, rule in (
        ([knob(KnobType.KERNEL_CFG, last + 1)], "knob.value"),
        ([knob(KnobType.TILE_M, 0)], "knob.unknown"),
        ([knob(KnobType.KERNEL_CFG, 0)] * 2, "knob.twice"),
    ):
        with pytest.raises(GraphdnnError) as caught:
            config_descriptor(engine, *bad)
        assert caught.value.rejections[0].rule == rule


# Plans as text.


@pytest.mark.parametrize("graph", [two_products, lambda: graph_descriptor(operation("matmul"))])
def test_json_round_trip(graph: Any) -> None:
    handle = cudnnCreate()
    plan = plan_descriptor(heuristics(graph())[0])
    text = read(plan, A.EXECUTION_PLAN_JSON_REPRESENTATION, T.CHAR)
    count, _ = cudnnBackendGetAttribute(plan, A.EXECUTION_PLAN_JSON_REPRESENTATION, T.CHAR, 0)
    assert count == len(text) + 1
    for elements in (text, text.encode() + b"\0", [*text, "\0"], np.frombuffer(text.encode() + b"\0", np.uint8)):
        again = cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
        cudnnBackendSetAttribute(again, A.EXECUTION_PLAN_JSON_REPRESENTATION, T.CHAR, count, elements)
        put(again, A.EXECUTION_PLAN_HANDLE, T.HANDLE, handle)
        cudnnBackendFinalize(again)
        assert read(again, A.EXECUTION_PLAN_JSON_REPRESENTATION, T.CHAR) == text
        assert workspace_size(again) == workspace_size(plan)
    config = only(filled(again, A.EXECUTION_PLAN_ENGINE_CONFIG, D.ENGINECFG))
    engine = only(filled(config, A.ENGINECFG_ENGINE, D.ENGINE))
    original = only(filled(plan, A.EXECUTION_PLAN_ENGINE_CONFIG, D.ENGINECFG))
    assert config.content.config.name == original.content.config.name
    assert engine.content.row.id == original.content.settings.engine.row.id
    cut, part = cudnnBackendGetAttribute(plan, A.EXECUTION_PLAN_JSON_REPRESENTATION, T.CHAR, 10)
    assert (cut, part) == (count, text[:10])


def test_json_of_another_version_has_its_own_status() -> None:
    plan = plan_descriptor(heuristics(graph_descriptor(operation("matmul")))[0])
    data = json.loads(read(plan, A.EXECUTION_PLAN_JSON_REPRESENTATION, T.CHAR)) | {"version": 2}
    again = cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    put_text(again, A.EXECUTION_PLAN_JSON_REPRESENTATION, json.dumps(data))
    with pytest.raises(NotInitialized) as caught:
        cudnnBackendFinalize(again)
    assert caught.value.status is CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH
    put_text(again, A.EXECUTION_PLAN_JSON_REPRESENTATION, "{")
    with pytest.raises(MalformedFile):
        cudnnBackendFinalize(again)


# Variant packs.


def matmul_plan() -> Descriptor:
    return plan_descriptor(config_descriptor(engine_descriptor(graph_descriptor(operation("matmul")), 1)))


def matmul_arrays() -> dict[int, Any]:
    return {1: np.ones((2, 3, 4), np.float32), 2: np.ones((2, 4, 5), np.float32), 3: np.zeros((2, 3, 5), np.float32)}


@pytest.mark.parametrize(
    ("change", "status", "rule"),
    [
        (lambda a: a.pop(2), Status.BAD_PARAM, "binding.missing"),
        (lambda a: a.update({9: np.ones(1)}), Status.BAD_PARAM, "binding.extra"),
        (lambda a: a.update({9: 2**40}), Status.BAD_PARAM, "binding.extra"),
        (lambda a: a.update({1: np.ones((2, 3, 4))}), Status.BAD_PARAM, "binding.data_type"),
        (lambda a: a.update({1: np.ones((3, 2, 4), np.float32)}), Status.BAD_PARAM_SHAPE_MISMATCH, "binding.shape"),
        (lambda a: a.update({1: 1.0}), Status.BAD_PARAM, "binding.kind"),
        (
            lambda a: a.update({1: np.ones(25, np.float32).ctypes.data + 1}),
            Status.BAD_PARAM_MISALIGNED_POINTER,
            "binding.alignment",
        ),
        (lambda a: a.update({3: a[3].ctypes.data, 2: a[3].ctypes.data}), Status.BAD_PARAM, "binding.overlap"),
        (
            lambda a: a.update({1: (ctypes.c_float * 23)()}),
            Status.BAD_PARAM_SIZE_INSUFFICIENT,
            "variant_pack.memory.small",
        ),
    ],
)
def test_execute_refuses_bindings(change: Any, status: Status, rule: str) -> None:
    plan, arrays = matmul_plan(), matmul_arrays()
    result = arrays[3]
    change(arrays)
    with pytest.raises(BadParam) as caught:
        execute(plan, arrays)
    assert caught.value.status is status
    assert caught.value.rejections[0].rule == rule
    np.testing.assert_array_equal(result, 0)


@pytest.mark.parametrize(
    ("workspace", "status"),
    [
        (None, Status.BAD_PARAM_NULL_POINTER),
        (0, Status.BAD_PARAM_NULL_POINTER),
        (ctypes.c_void_p(), Status.BAD_PARAM_NULL_POINTER),
        (np.empty(1, np.uint8), Status.BAD_PARAM_SIZE_INSUFFICIENT),
        ((ctypes.c_byte * 1)(), Status.BAD_PARAM_SIZE_INSUFFICIENT),
        (1.0, Status.BAD_PARAM),
    ],
    ids=lambda v: v.name if isinstance(v, Status) else type(v).__name__,
)
def test_execute_refuses_workspaces(workspace: Any, status: Status) -> None:
    plan = plan_descriptor(heuristics(two_products())[0])
    assert workspace_size(plan) > 1
    with pytest.raises(BadParam) as caught:
        cudnnBackendExecute(cudnnCreate(), plan, pack_descriptor(product_arrays(), workspace))
    assert caught.value.status is status


@pytest.mark.parametrize("kind", [ctypes.c_char, ctypes.c_uint8])
def test_workspace_as_memory_and_as_address(kind: Any) -> None:
    plan, arrays = plan_descriptor(heuristics(two_products())[0]), product_arrays()
    memory = (kind * workspace_size(plan))()
    for workspace in (memory, ctypes.addressof(memory)):
        arrays[5][...] = 0
        cudnnBackendExecute(cudnnCreate(), plan, pack_descriptor(arrays, workspace))
        np.testing.assert_allclose(arrays[5], arrays[1] @ arrays[2] @ arrays[4], rtol=1e-5, atol=1e-5)


def test_pointers_in_a_table() -> None:
    """C's own form: an array of void*."""
    plan, arrays = matmul_plan(), matmul_arrays()
    pack = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    table = (ctypes.c_void_p * 3)(*(a.ctypes.data for a in arrays.values()))
    cudnnBackendSetAttribute(pack, A.VARIANT_PACK_UNIQUE_IDS, T.INT64, 3, np.array([*arrays], np.int64))
    cudnnBackendSetAttribute(pack, A.VARIANT_PACK_DATA_POINTERS, T.VOID_PTR, 3, table)
    cudnnBackendFinalize(pack)
    cudnnBackendExecute(cudnnCreate(), plan, pack)
    np.testing.assert_array_equal(arrays[3], 4)
    assert read(pack, A.VARIANT_PACK_DATA_POINTERS, T.VOID_PTR) == [a.ctypes.data for a in arrays.values()]


@pytest.mark.parametrize(
    "scalar",
    [3.0, np.float32(3), np.array([3.0], np.float32), ctypes.c_float(3.0), ctypes.pointer(ctypes.c_float(3.0))],
    ids=lambda v: type(v).__name__,
)
def test_by_value_operands(scalar: Any) -> None:
    factor = tensor(2, (1, 1, 1, 1), is_by_value=True, byte_alignment=4)
    graph = graph_descriptor(operation("pointwise", b=factor, spec=pointwise(PointwiseMode.MUL)))
    x, y = np.ones((2, 4, 6, 6), np.float32), np.zeros((2, 4, 6, 6), np.float32)
    plan = plan_descriptor(heuristics(graph)[0])
    pack = pack_descriptor({1: x, 2: scalar, 3: y})
    cudnnBackendExecute(cudnnCreate(), plan, pack)
    np.testing.assert_array_equal(y, 3)
    if isinstance(scalar, ctypes.c_float):
        scalar.value = 5.0  # the host memory is read at each execution
        cudnnBackendExecute(cudnnCreate(), plan, pack)
        np.testing.assert_array_equal(y, 5)


def test_a_kernel_that_fails_is_an_execution_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = matmul_plan()

    def broken(*_: Any) -> None:
        raise FloatingPointError("no such luck")

    monkeypatch.setattr(type(plan.content.plan), "execute", broken)
    with pytest.raises(ExecutionFailed, match="no such luck"):
        execute(plan, matmul_arrays())


# Devices, handles, streams.


def device_prop(name: str) -> Descriptor:
    text = json.dumps(device_spec(name).to_json())
    return made(D.DEVICEPROP, {A.DEVICEPROP_JSON_REPRESENTATION: (T.CHAR, text)})


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
    monkeypatch.setattr("graphdnn.backend.devices.available", lambda: "the driver finds no device")
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


# How calls end.


def test_returning_status() -> None:
    with returning_status():
        status, t = cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        assert status is CUDNN_STATUS_SUCCESS
        assert cudnnBackendSetAttribute(t, A.TENSOR_UNIQUE_ID, T.INT64, 1, [3]) is Status.SUCCESS
        assert cudnnBackendFinalize(t) is Status.BAD_PARAM
        assert cudnnBackendGetAttribute(t, A.TENSOR_UNIQUE_ID, T.INT64, 1) == (Status.NOT_INITIALIZED, None, None)
        assert cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR) == (Status.NOT_SUPPORTED, None)
        with returning_status():
            assert cudnnDestroy(None) is Status.BAD_PARAM_NULL_POINTER
        status, handle = cudnnCreate()
        assert cudnnGetStream(handle) == (Status.SUCCESS, 0)
    with pytest.raises(NotInitialized):
        cudnnBackendGetAttribute(t, A.TENSOR_UNIQUE_ID, T.INT64, 1)
    put(t, A.TENSOR_DATA_TYPE, T.DATA_TYPE, DataType.FLOAT)
    for name in (A.TENSOR_DIMENSIONS, A.TENSOR_STRIDES):
        put(t, name, T.INT64, 1)
    cudnnBackendFinalize(t)
    with returning_status():
        assert cudnnBackendGetAttribute(t, A.TENSOR_UNIQUE_ID, T.INT64, 1) == (Status.SUCCESS, 1, [3])


def test_last_error_belongs_to_the_thread() -> None:
    seen: dict[str, str] = {}
    ready = threading.Barrier(2)

    def work(name: str, kind: Any) -> None:
        assert cudnnGetLastErrorString() == ""
        with returning_status():  # of this thread only
            ready.wait()
            assert cudnnBackendCreateDescriptor(kind)[0] is Status.NOT_SUPPORTED
            ready.wait()
            seen[name] = cudnnGetLastErrorString()

    threads = [
        threading.Thread(target=work, args=("a", D.OPERATION_SDPA_FWD)),
        threading.Thread(target=work, args=("b", D.KERNEL_CACHE)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "OPERATION_SDPA_FWD" in seen["a"]
    assert "KERNEL_CACHE" in seen["b"]
    assert "cudnnBackendCreateDescriptor" in seen["a"]


def test_last_error_stays_and_can_be_cut() -> None:
    with pytest.raises(BadParam):
        cudnnDestroy(None)
    text = cudnnGetLastErrorString()
    assert text.startswith("CUDNN_STATUS_BAD_PARAM_NULL_POINTER (2002) in cudnnDestroy\n")
    cudnnCreate()
    assert cudnnGetLastErrorString() == text
    assert cudnnGetLastErrorString(6) == text[:5]
    assert cudnnGetLastErrorString(0) == ""


def test_wrong_python_arguments_are_type_errors() -> None:
    with pytest.raises(TypeError):
        cudnnBackendFinalize()
    with returning_status(), pytest.raises(TypeError):
        cudnnBackendCreateDescriptor(1, 2)


@pytest.mark.parametrize(
    ("failure", "status"),
    [(MemoryError("full"), Status.INTERNAL_ERROR_HOST_ALLOCATION_FAILED), (KeyError("x"), Status.INTERNAL_ERROR)],
)
def test_defects_keep_a_status(monkeypatch: pytest.MonkeyPatch, failure: Exception, status: Status) -> None:
    def broken(self: Descriptor) -> None:
        raise failure

    monkeypatch.setattr(Descriptor, "finalize", broken)
    t = cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
    with pytest.raises(InternalError) as caught:
        cudnnBackendFinalize(t)
    assert caught.value.status is status
    assert caught.value.__cause__ is failure
    with returning_status():
        assert cudnnBackendFinalize(t) is status


def test_names_and_versions() -> None:
    assert cudnnGetErrorString(Status.SUCCESS) == "CUDNN_STATUS_SUCCESS"
    assert cudnnGetErrorString(3007) == "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH"
    assert cudnnGetErrorString(1) == "CUDNN_UNKNOWN_STATUS"
    assert cudnnGetVersion() == 92800


def test_every_c_name_is_a_constant() -> None:
    assert len(CONSTANTS) > 700
    for name, member in CONSTANTS.items():
        assert getattr(backend, name) is member
        assert isinstance(member, CEnum)
    assert set(CONSTANTS) < set(backend.__all__)
    assert int(CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC) == 796
    assert CUDNN_STATUS_ARCH_MISMATCH is CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH
