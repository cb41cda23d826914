"""Calling convention: arguments, results, statuses, descriptors; and bad arguments, generated from the function table."""

from __future__ import annotations

import ctypes
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from v6_tools import convolution, filter_of, good_arguments, tensor

from graphdnn import v6
from graphdnn.v6.descriptor_values import DESCRIPTORS
from graphdnn.v6.enums import ENUMS
from graphdnn.v6.functions import PLAIN, functions

BAD = v6.CUDNN_STATUS_BAD_PARAM
ENUM_KINDS = {e.__name__.removeprefix("cudnn").removesuffix("_t") for e in ENUMS}
DATA = ("data", "inout", "out", "scalar")


def refused(name: str, *args: Any) -> v6.CudnnError:
    with pytest.raises(v6.CudnnError) as error:
        getattr(v6, name)(*args)
    first = error.value.rejections[0]
    assert all((first.attribute, first.expected, first.reason, first.fix))
    with v6.returning_status():
        result = getattr(v6, name)(*args)
    assert (result[0] if isinstance(result, tuple) else result) is error.value.status
    return error.value


def test_versions_and_names() -> None:
    assert v6.cudnnGetVersion() == 6021
    assert [v6.cudnnGetProperty(p) for p in ("MAJOR_VERSION", 1, v6.PATCH_LEVEL)] == [6, 0, 21]
    assert v6.cudnnGetErrorString(9) == v6.cudnnGetErrorString(v6.CUDNN_STATUS_NOT_SUPPORTED)
    assert v6.cudnnGetErrorString(9) == "CUDNN_STATUS_NOT_SUPPORTED"
    assert v6.cudnnGetErrorString(99) == "CUDNN_UNKNOWN_STATUS"


def test_handle_and_stream() -> None:
    handle = v6.cudnnCreate()
    v6.cudnnSetStream(handle, 0)
    assert v6.cudnnGetStream(handle) == 0
    assert refused("cudnnSetStream", handle, 1 << 20).status is v6.CUDNN_STATUS_MAPPING_ERROR
    v6.cudnnDestroy(handle)
    assert refused("cudnnGetStream", handle).rejections[0].rule == "v6.destroyed"


def test_destroying_what_is_no_handle() -> None:
    for wrong in (None, tensor((1, 1, 1, 1))):
        assert refused("cudnnDestroy", wrong).status is v6.CUDNN_STATUS_NOT_INITIALIZED
    handle = v6.cudnnCreate()
    v6.cudnnDestroy(handle)
    assert refused("cudnnDestroy", handle).status is v6.CUDNN_STATUS_NOT_INITIALIZED


def test_statuses_are_returned_as_in_c() -> None:
    desc = tensor((2, 3, 4, 5))
    with v6.returning_status():
        status, handle = v6.cudnnCreate()
        assert status is v6.CUDNN_STATUS_SUCCESS
        assert v6.cudnnDestroy(handle) is status
        assert v6.cudnnGetTensorSizeInBytes(desc) == (status, 480)
        assert v6.cudnnGetConvolution2dDescriptor(None) == (BAD, *(None,) * 8)
        assert v6.cudnnGetVersion() == 6021
    assert v6.cudnnGetTensorSizeInBytes(desc) == 480


def test_arguments_by_name() -> None:
    desc = v6.cudnnCreateActivationDescriptor()
    v6.cudnnSetActivationDescriptor(desc, coef=6, mode="CUDNN_ACTIVATION_CLIPPED_RELU", reluNanOpt=1)
    found = v6.cudnnGetActivationDescriptor(desc)
    assert found == (v6.CUDNN_ACTIVATION_CLIPPED_RELU, v6.CUDNN_PROPAGATE_NAN, 6.0)
    for args, named in (((desc,), {}), ((desc, 0, 0, 0, 0), {}), ((desc, 0), {"mode": 0}), ((desc,), {"modus": 0})):
        with pytest.raises(TypeError, match=r"^cudnnSetActivationDescriptor\(activationDesc, mode, reluNanOpt, coef\)"):
            v6.cudnnSetActivationDescriptor(*args, **named)
    with pytest.raises(TypeError, match="results are returned"):
        v6.cudnnCreate(ctypes.byref(ctypes.c_void_p()))


def test_signatures() -> None:
    """What help() and editors show are C's parameters."""
    for name, row in functions().items():
        call = getattr(v6, name)
        if "\nWith " not in call.__doc__:  # two signatures
            assert list(inspect.signature(call).parameters) == [p.name for p in row.inputs]


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.array([2.0]), ctypes.c_float(2), ctypes.c_double(2),
                                   ctypes.pointer(ctypes.c_float(2)), ctypes.byref(ctypes.c_float(2)),
                                   ctypes.byref((ctypes.c_float * 2)(1, 2), 4), (ctypes.c_double * 1)(2)])  # fmt: skip
def test_forms_of_scalars(value: Any) -> None:
    y = np.ones((1, 1, 1, 2), np.float32)
    v6.cudnnScaleTensor(v6.cudnnCreate(), tensor(y.shape), y, value)
    assert y.tolist() == [[[[2, 2]]]]


def test_scalars_that_are_none() -> None:
    y = np.ones((1, 1, 1, 2), np.float32)
    for wrong in ("2", ctypes.c_void_p(y.ctypes.data), np.ones(2)):
        assert (
            refused("cudnnScaleTensor", v6.cudnnCreate(), tensor(y.shape), y, wrong).rejections[0].rule == "v6.scalar"
        )


def memories(a: np.ndarray) -> Iterator[Any]:
    yield a
    yield a.reshape(-1)
    yield a.view(np.uint8)
    yield a.ctypes.data
    yield ctypes.c_void_p(a.ctypes.data)
    yield a.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    yield ctypes.byref(ctypes.c_char.from_address(a.ctypes.data))
    yield type("Foreign", (), {"__array_interface__": a.__array_interface__, "owner": a})()
    yield type("Foreign", (), {"__dlpack__": a.__dlpack__, "__dlpack_device__": a.__dlpack_device__})()


@pytest.mark.parametrize("form", range(9))
def test_forms_of_memory(form: int) -> None:
    y = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3)
    given = list(memories(y))[form]
    v6.cudnnScaleTensor(v6.cudnnCreate(), tensor(y.shape), given, 2.0)
    assert y.reshape(-1).tolist() == [0, 2, 4, 6, 8, 10]


def test_an_array_stands_for_its_memory() -> None:
    """An NHWC descriptor reads a packed array as NHWC memory, whatever the array's shape; a strided view of it as well."""
    memory = np.arange(12, dtype=np.float32)
    desc = tensor((1, 3, 2, 2), v6.CUDNN_TENSOR_NHWC)
    for x in (memory, memory.reshape(1, 2, 2, 3), memory.reshape(1, 2, 2, 3).transpose(0, 3, 1, 2)):
        y = np.empty((1, 3, 2, 2), np.float32)
        v6.cudnnTransformTensor(v6.cudnnCreate(), 1.0, desc, x, 0.0, tensor(y.shape), y)
        np.testing.assert_array_equal(y, memory.reshape(1, 2, 2, 3).transpose(0, 3, 1, 2))


def test_memory_that_does_not_fit() -> None:
    handle, desc = v6.cudnnCreate(), tensor((1, 1, 2, 3))
    small, read_only = np.ones(5, np.float32), np.ones(6, np.float32)
    read_only.flags.writeable = False
    for given, rule in (
        (small, "v6.memory.small"),
        ((ctypes.c_float * 5)(), "v6.memory.small"),
        (np.ones(6, np.float64), "v6.memory.data_type"),
        (np.ones((1, 1, 2, 6), np.float32)[..., ::2], "v6.memory.layout"),
        (np.ones((1, 1, 3, 2), np.float32), "v6.memory.order"),
        (np.ones((3, 2), np.float32), "v6.memory.order"),
        (np.ones((3, 2), np.float32).T, "v6.memory.order"),
        (np.ones((3, 2, 1, 1), np.float32).T, "v6.memory.order"),
        (np.asfortranarray(np.ones((1, 1, 2, 3), np.float32)), "v6.memory.order"),
        ("text", "v6.memory.kind"),
        (17, "v6.memory.kind"),
        (read_only, "binding.read_only"),
    ):
        error = refused("cudnnScaleTensor", handle, desc, given, 2.0)
        assert (error.status, error.rejections[0].rule) == (BAD, rule)
    assert small.tolist() == [1] * 5


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3), (1, 2, 3, 1), (2, 3, 1, 1), (6, 1)])
def test_memory_of_other_shapes(shape: tuple[int, ...]) -> None:
    memory = np.arange(6, dtype=np.float32).reshape(shape)
    for given in (memory, memory[None, None].reshape(shape)):
        v6.cudnnScaleTensor(v6.cudnnCreate(), tensor((1, 1, 2, 3)), given, 2.0)
    np.testing.assert_array_equal(memory.ravel(), 4 * np.arange(6))


def test_tensor_descriptors() -> None:
    desc = tensor((2, 3, 4, 5))
    F = v6.CUDNN_DATA_FLOAT
    assert v6.cudnnGetTensor4dDescriptor(desc) == (F, 2, 3, 4, 5, 60, 20, 5, 1)
    v6.cudnnSetTensor4dDescriptor(desc, v6.CUDNN_TENSOR_NHWC, F, 2, 3, 4, 5)
    assert v6.cudnnGetTensor4dDescriptor(desc)[5:] == (60, 1, 15, 3)
    v6.cudnnSetTensor4dDescriptorEx(desc, F, 2, 3, 4, 5, 100, 30, 6, 1)
    assert v6.cudnnGetTensorSizeInBytes(desc) == 4 * (1 + 100 + 60 + 18 + 4)
    v6.cudnnSetTensorNdDescriptor(desc, F, 3, [2, 3, 4], np.array([12, 4, 1]))
    assert v6.cudnnGetTensorNdDescriptor(desc, 2) == (F, 3, (2, 3), (12, 4))
    v6.cudnnSetTensorNdDescriptorEx(desc, v6.CUDNN_TENSOR_NHWC, v6.CUDNN_DATA_HALF, 5, [2, 3, 4, 5, 6])
    assert v6.cudnnGetTensorNdDescriptor(desc, 8)[3] == (360, 1, 90, 18, 3)
    v6.cudnnSetTensor4dDescriptor(desc, v6.CUDNN_TENSOR_NCHW_VECT_C, v6.CUDNN_DATA_INT8x4, 2, 8, 3, 5)
    assert v6.cudnnGetTensor4dDescriptor(desc)[1:] == (2, 8, 3, 5, 30, 15, 5, 1)
    assert v6.cudnnGetTensorSizeInBytes(desc) == 240


def test_filter_descriptors() -> None:
    desc = filter_of((8, 3, 5, 7))
    F, N = v6.CUDNN_DATA_FLOAT, v6.CUDNN_TENSOR_NCHW
    assert v6.cudnnGetFilter4dDescriptor(desc) == v6.cudnnGetFilter4dDescriptor_v4(desc) == (F, N, 8, 3, 5, 7)
    assert v6.cudnnGetFilter4dDescriptor_v3(desc) == (F, 8, 3, 5, 7)
    v6.cudnnSetFilterNdDescriptor_v3(desc, F, 5, [8, 3, 2, 5, 7])
    assert v6.cudnnGetFilterNdDescriptor(desc, 3) == (F, N, 5, (8, 3, 2))
    v6.cudnnSetFilter4dDescriptor_v4(desc, F, v6.CUDNN_TENSOR_NHWC, 1, 2, 3, 4)
    assert v6.cudnnGetFilterNdDescriptor_v4(desc, 8) == (F, v6.CUDNN_TENSOR_NHWC, 4, (1, 2, 3, 4))


def test_convolution_descriptors() -> None:
    desc = v6.cudnnCreateConvolutionDescriptor()
    v6.cudnnSetConvolutionGroupCount(desc, 2)
    v6.cudnnSetConvolutionMathType(desc, v6.CUDNN_TENSOR_OP_MATH)
    v6.cudnnSetConvolution2dDescriptor(desc, 1, 2, 3, 4, 1, 1, v6.CUDNN_CROSS_CORRELATION)  # as in 5.1
    assert v6.cudnnGetConvolution2dDescriptor_v4(desc) == (1, 2, 3, 4, 1, 1, v6.CUDNN_CROSS_CORRELATION)
    v6.cudnnSetConvolution2dDescriptor(desc, 1, 2, 3, 4, 5, 6, v6.CUDNN_CONVOLUTION, v6.CUDNN_DATA_HALF)  # as in 6.0
    assert v6.cudnnGetConvolution2dDescriptor(desc) == (1, 2, 3, 4, 5, 6, v6.CUDNN_CONVOLUTION, v6.CUDNN_DATA_HALF)
    assert (v6.cudnnGetConvolutionGroupCount(desc), v6.cudnnGetConvolutionMathType(desc)) == (
        2,
        v6.CUDNN_TENSOR_OP_MATH,
    )
    error = refused("cudnnSetConvolution2dDescriptor", desc, 1, 2, 3, 4, 2, 1, v6.CUDNN_CONVOLUTION)
    assert (error.status, error.rejections[0].rule) == (v6.CUDNN_STATUS_NOT_SUPPORTED, "v6.convolution.upscale")
    v6.cudnnSetConvolutionNdDescriptor(desc, 3, [1] * 3, [2] * 3, [1] * 3, 0, 0)
    assert v6.cudnnGetConvolutionNdDescriptor(desc, 2)[:3] == (3, (1, 1), (2, 2))


def test_output_extents() -> None:
    conv = convolution(padding=(1, 2), stride=(2, 1), dilation=(2, 1))
    x, w = tensor((2, 4, 9, 8)), filter_of((6, 4, 3, 3))
    assert v6.cudnnGetConvolution2dForwardOutputDim(conv, x, w) == (2, 6, 4, 10)
    assert v6.cudnnGetConvolutionNdForwardOutputDim(conv, x, w, 4) == (2, 6, 4, 10)
    pool = v6.cudnnCreatePoolingDescriptor()
    v6.cudnnSetPooling2dDescriptor(pool, v6.CUDNN_POOLING_MAX, 0, 3, 2, 1, 0, 2, 2)
    assert v6.cudnnGetPooling2dDescriptor(pool) == (0, 0, 3, 2, 1, 0, 2, 2)
    assert v6.cudnnGetPooling2dDescriptor_v3(pool) == (0, 3, 2, 1, 0, 2, 2)
    assert v6.cudnnGetPooling2dForwardOutputDim(pool, x) == v6.cudnnGetPoolingNdForwardOutputDim(pool, x, 4)
    assert v6.cudnnGetPooling2dForwardOutputDim(pool, x) == (2, 4, 5, 4)


def test_batch_norm_descriptors_are_derived() -> None:
    derived = v6.cudnnCreateTensorDescriptor()
    x = tensor((2, 3, 4, 5), v6.CUDNN_TENSOR_NCHW, v6.CUDNN_DATA_HALF)
    v6.cudnnDeriveBNTensorDescriptor(derived, x, v6.CUDNN_BATCHNORM_SPATIAL)
    assert v6.cudnnGetTensor4dDescriptor(derived)[:5] == (v6.CUDNN_DATA_FLOAT, 1, 3, 1, 1)
    v6.cudnnDeriveBNTensorDescriptor(derived, x, v6.CUDNN_BATCHNORM_PER_ACTIVATION)
    assert v6.cudnnGetTensor4dDescriptor(derived)[:5] == (v6.CUDNN_DATA_FLOAT, 1, 3, 4, 5)


def test_lrn_descriptor_has_defaults() -> None:
    desc = v6.cudnnCreateLRNDescriptor()
    assert v6.cudnnGetLRNDescriptor(desc) == (5, 1e-4, 0.75, 2.0)
    for bad in ((0, 1, 1, 1), (17, 1, 1, 1), (5, 1, 0.001, 1), (5, 1, 1, 1e-6)):
        assert refused("cudnnSetLRNDescriptor", desc, *bad).status is BAD


def test_before_a_call_there_is_nothing_to_report() -> None:
    import threading

    found = []

    def ask() -> None:
        try:
            v6.explain()
        except v6.CudnnError as error:
            found.append(error.status)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [v6.CUDNN_STATUS_NOT_INITIALIZED]


# Bad arguments of every implemented function, from the table.

WRITTEN = {  # descriptors that a function writes, and that are not its first argument
    ("cudnnSetRNNDescriptor_v6", "rnnDesc"),
    ("cudnnGetRNNLinLayerMatrixParams", "linLayerMatDesc"),
    ("cudnnGetRNNLinLayerBiasParams", "linLayerBiasDesc"),
}


def _cases() -> Iterator[Any]:
    implemented = {line.function for line in v6.coverage() if line.implemented}
    for name, row in functions().items():
        if name not in implemented or name in PLAIN:
            continue
        for place, p in enumerate(row.inputs):
            kinds = []
            if p.kind == "Handle" or p.kind in DESCRIPTORS:
                kinds = ["destroyed", "kind", *(["unset"] if p.kind in DESCRIPTORS else [])]
                kinds += [] if p.nullable else ["null"]
            elif p.kind in ENUM_KINDS:
                kinds = ["enum", "enum name"]
            elif (p.kind in DATA and not p.nullable) or p.kind == "ints":
                kinds = ["null"]
            elif p.kind == "int":
                kinds = ["number"]
            for kind in kinds:
                yield pytest.param(name, place, kind, id=f"{name}-{p.name}-{kind}")


@pytest.mark.parametrize(("name", "place", "kind"), list(_cases()))
def test_bad_argument(name: str, place: int, kind: str) -> None:
    row = functions()[name]
    p = row.inputs[place]
    args = good_arguments(row)
    begins = name.startswith(("cudnnSet", "cudnnDestroy", "cudnnDerive", "cudnnRestore")) and place == 0
    may_be_unset = (begins and name != "cudnnSetPersistentRNNPlan") or (name, p.name) in WRITTEN
    if kind == "unset" and (may_be_unset or "MathType" in name or "GroupCount" in name or p.kind == "LRNDescriptor"):
        args[place] = DESCRIPTORS[p.kind]()
        getattr(v6, name)(*args)
        return
    if kind == "destroyed":
        args[place] = good_arguments(row)[place]
        getattr(v6, "cudnnDestroy" + (p.kind if p.kind != "Handle" else ""))(args[place])
    else:
        args[place] = {
            "null": None, "kind": object(), "unset": DESCRIPTORS[p.kind]() if p.kind in DESCRIPTORS else None,
            "enum": 1000, "enum name": "CUDNN_NO_SUCH_NAME", "number": "1",
        }[kind]  # fmt: skip
    before = [a.copy() if isinstance(a, np.ndarray) else None for a in args]
    expected = BAD
    if name == "cudnnDestroy":
        expected = v6.CUDNN_STATUS_NOT_INITIALIZED
    elif name == "cudnnGetProperty":
        expected = v6.CUDNN_STATUS_INVALID_VALUE
    elif "CTCLoss" in name and kind.startswith("enum") and p.kind == "CTCLossAlgo":
        expected = v6.CUDNN_STATUS_NOT_SUPPORTED
    error = refused(name, *args)
    assert error.status is expected
    assert error.rejections[0].attribute == p.name
    for old, new in zip(before, args, strict=True):
        assert old is None or np.array_equal(old, new), "something was written"


class _Raises:
    """An object whose every question raises."""

    def __len__(self) -> int:
        raise RuntimeError("len")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    __hash__ = None  # type: ignore[assignment]


def test_arguments_that_are_no_numbers_are_refused_by_name(handle: Any) -> None:
    """Pointers without a length, integers beyond a float, objects that raise, memory of objects and text."""
    desc, x = tensor((1, 1, 1, 1)), np.ones((1, 1, 1, 1), np.float32)
    made = v6.cudnnCreateTensorDescriptor()
    for entries in (ctypes.pointer(ctypes.c_int(1)), itertools.repeat(1), _Raises(), {1.5: 2}):
        with pytest.raises(v6.CudnnError, match=r"v6\.number"):
            v6.cudnnSetTensorNdDescriptor(made, v6.CUDNN_DATA_FLOAT, 4, entries, (1, 1, 1, 1))
    with pytest.raises(v6.CudnnError, match=r"v6\.scalar"):
        v6.cudnnScaleTensor(handle, desc, x, 10**400)
    with pytest.raises(v6.CudnnError, match=r"v6\.number"):
        v6.cudnnSetActivationDescriptor(v6.cudnnCreateActivationDescriptor(), 0, 0, 10**400)
    for memory in (np.array([None]), np.array("x"), np.array(["2020"], np.datetime64)):
        with pytest.raises(v6.CudnnError, match=r"v6\.memory\.kind"):
            v6.cudnnScaleTensor(handle, desc, memory, 2.0)
    for status in (_Raises(), np.void(b"ab"), None, 10**400, True):
        assert v6.cudnnGetErrorString(status) == "CUDNN_UNKNOWN_STATUS"
    assert v6.cudnnGetErrorString(np.int64(3)) == "CUDNN_STATUS_BAD_PARAM"


def test_an_address_that_is_no_memory() -> None:
    t, y = tensor((1, 2, 3, 4)), np.zeros((1, 2, 3, 4), np.float32)
    for x in (123456, 2**47 - 4096):
        error = refused("cudnnTransformTensor", v6.cudnnCreate(), 1.0, t, x, 0.0, t, y)
        assert error.rejections[0].rule == "v6.memory.unreadable"
