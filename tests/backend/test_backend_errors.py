"""How calls of the v8 face end: statuses, messages, errors by thread; names and versions."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from backend_descriptors import put

from graphdnn import backend
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import (
    CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC,
    CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
    CUDNN_BACKEND_TENSOR_DESCRIPTOR,
    CUDNN_STATUS_ARCH_MISMATCH,
    CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH,
    CUDNN_STATUS_SUCCESS,
    cudnnBackendCreateDescriptor,
    cudnnBackendFinalize,
    cudnnBackendGetAttribute,
    cudnnBackendSetAttribute,
    cudnnCreate,
    cudnnDestroy,
    cudnnGetErrorString,
    cudnnGetLastErrorString,
    cudnnGetStream,
    cudnnGetVersion,
    returning_status,
)
from graphdnn.backend.constants import CONSTANTS
from graphdnn.backend.descriptor import Descriptor
from graphdnn.enums import AttributeType as T
from graphdnn.enums import CEnum, DataType, Status
from graphdnn.enums import DescriptorType as D
from graphdnn.errors import BadParam, InternalError, NotInitialized


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


@pytest.mark.parametrize("pointer", [ctypes.c_void_p(), ctypes.byref(ctypes.c_void_p())])
def test_results_are_not_written_through_pointers(pointer: Any) -> None:
    with pytest.raises(BadParam, match="results are returned"):
        cudnnCreate(pointer)


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
