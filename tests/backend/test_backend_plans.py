"""Plans of the v8 face: as text, and executed with variant packs."""

from __future__ import annotations

import ctypes
import json
from typing import Any

import numpy as np
import pytest
from backend_calls import (
    execute,
    heuristics,
    matmul_arrays,
    matmul_plan,
    only,
    pack_descriptor,
    plan_descriptor,
    product_arrays,
    two_products,
    workspace_size,
)
from backend_descriptors import filled, graph_descriptor, put, put_text, read
from legal_problems import operation, pointwise, tensor

from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import (
    CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
    CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
    CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH,
    cudnnBackendCreateDescriptor,
    cudnnBackendExecute,
    cudnnBackendFinalize,
    cudnnBackendGetAttribute,
    cudnnBackendSetAttribute,
    cudnnCreate,
)
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.enums import PointwiseMode, Status
from graphdnn.errors import BadParam, ExecutionFailed, MalformedFile, NotInitialized


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
