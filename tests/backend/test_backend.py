"""The v8 face from raw descriptors to results."""
# ruff: noqa: F403, F405  the star import is what a client writes

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from backend_calls import NESTED, execute, heuristics, new_workspace, only, pack_descriptor, plan_descriptor
from backend_descriptors import created, described, graph_descriptor, put, read
from legal_problems import operation, pointwise, tensor

from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import *
from graphdnn.backend.descriptor import Descriptor
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DataType, HeurMode, PointwiseMode
from graphdnn.enums import DescriptorType as D
from graphdnn.errors import BadParam
from graphdnn.graph.operation_graph import OperationGraph


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
