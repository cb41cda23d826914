"""Every rule of the v8 face is raised by a case of this table, says everything, and has the status C clients look for."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from backend_calls import (
    device_prop,
    engine_descriptor,
    execute,
    heuristics,
    matmul_arrays,
    matmul_plan,
    pack_descriptor,
    plan_descriptor,
    two_products,
)
from backend_descriptors import complete, created, described, graph_descriptor, made, put, put_text
from legal_problems import operation, pointwise, tensor

from graphdnn import backend
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import rules
from graphdnn.backend.descriptor import Descriptor
from graphdnn.backend.descriptor_spec import DescriptorSpec
from graphdnn.backend.descriptor_types import KINDS
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.enums import OperationGraphMode, Status
from graphdnn.errors import GraphdnnError
from graphdnn.heuristics import engine_index
from graphdnn.plan import HostPlan
from graphdnn.rules import Rule

ON, NESTED = (T.BOOLEAN, [True]), T.BACKEND_DESCRIPTOR


def new(kind: D = D.TENSOR) -> Descriptor:
    return backend.cudnnBackendCreateDescriptor(kind)


def set_(name: A, kind: T, count: int, values: Any, of: D = D.TENSOR) -> Callable[[], Any]:
    return lambda: backend.cudnnBackendSetAttribute(new(of), name, kind, count, values)


def get(name: A, kind: T, count: int, values: Any = None) -> Callable[[], Any]:
    return lambda: backend.cudnnBackendGetAttribute(described(tensor(1, (2,))), name, kind, count, values)


def destroyed() -> Descriptor:
    gone = new()
    backend.cudnnBackendDestroyDescriptor(gone)
    return gone


def destroyed_handle() -> Any:
    handle = backend.cudnnCreate()
    backend.cudnnDestroy(handle)
    return handle


def matmul_graph(**elements: Any) -> Descriptor:
    return graph_descriptor(operation("matmul"), **elements)


def fill_twice() -> None:
    op, target = described(operation("matmul")), new()
    for _ in range(2):
        backend.cudnnBackendGetAttribute(op, A.OPERATION_MATMUL_ADESC, NESTED, 1, [target])


def constant_before_type() -> None:
    backend.cudnnBackendSetAttribute(new(), A.TENSOR_CONSTANT_VALUE, T.VOID_PTR, 1, np.zeros(1))


def conflict() -> None:
    graph = matmul_graph(HANDLE=(T.HANDLE, [backend.cudnnCreate("a100")]))
    heuristics(graph, DEVICEPROP=(NESTED, [device_prop("h200")]))


def json_plan(text: str, *configs: Descriptor) -> None:
    plan = new(D.EXECUTION_PLAN)
    put_text(plan, A.EXECUTION_PLAN_JSON_REPRESENTATION, text)
    for config in configs:
        put(plan, A.EXECUTION_PLAN_ENGINE_CONFIG, NESTED, config)
    backend.cudnnBackendFinalize(plan)


def on_stream() -> None:
    handle = backend.cudnnCreate("h200")
    backend.cudnnSetStream(handle, 8192)
    backend.cudnnBackendExecute(handle, matmul_plan(), pack_descriptor(matmul_arrays()))


def broken(*_: Any) -> None:
    raise OSError("broken")


def native_cuda_graph() -> None:
    backend.cudnnBackendPopulateCudaGraph(backend.cudnnCreate(), matmul_plan(), pack_descriptor(matmul_arrays()), 0)


def second_device() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphdnn.backend.device_descriptor.available", lambda: "the driver finds no device")
        device(DEVICE_ID=(T.INT32, [1]))()


def failing_kernel() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostPlan, "execute", broken)
        execute(matmul_plan(), matmul_arrays())


def defect() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Descriptor, "finalize", broken)
        backend.cudnnBackendFinalize(new())


def pack(uids: list[int], pointers: list[Any]) -> Callable[[], Any]:
    return lambda: made(
        D.VARIANT_PACK,
        {A.VARIANT_PACK_UNIQUE_IDS: (T.INT64, uids), A.VARIANT_PACK_DATA_POINTERS: (T.VOID_PTR, pointers)},
    )


def engine(index: int, graph: Callable[[], Descriptor] = matmul_graph, **elements: Any) -> Callable[[], Any]:
    return lambda: engine_descriptor(graph(), index, **elements)


def device(**elements: Any) -> Callable[[], Any]:
    return lambda: made(D.DEVICEPROP, {A[f"DEVICEPROP_{name}"]: value for name, value in elements.items()})


def on_h200(**limits: Any) -> Callable[[], Any]:
    return lambda: engine_descriptor(matmul_graph(), 21, DEVICEPROP=(NESTED, [device_prop("h200")]), **limits)


def pointwise_child() -> None:
    put(new(D.OPERATION_MATMUL), A.OPERATION_MATMUL_ADESC, NESTED, described(pointwise()))


DIMS, UID = A.TENSOR_DIMENSIONS, A.TENSOR_UNIQUE_ID
CASES: dict[str, tuple[Status, Callable[[], Any]]] = {
    "descriptor.type": (Status.NOT_SUPPORTED, lambda: new(D.KERNEL_CACHE)),
    "descriptor.null": (Status.BAD_PARAM_NULL_POINTER, lambda: backend.cudnnBackendFinalize(None)),
    "descriptor.kind": (Status.BAD_PARAM, lambda: backend.cudnnBackendFinalize(tensor(1, (2,)))),
    "descriptor.destroyed": (Status.BAD_PARAM, lambda: backend.cudnnBackendFinalize(destroyed())),
    "descriptor.finalized": (Status.NOT_INITIALIZED, lambda: backend.cudnnBackendFinalize(described(tensor(1, (2,))))),
    "descriptor.not_finalized": (
        Status.NOT_INITIALIZED,
        lambda: backend.cudnnBackendGetAttribute(new(), UID, T.INT64, 1),
    ),
    "descriptor.filled_only": (Status.NOT_SUPPORTED, lambda: backend.cudnnBackendFinalize(new(D.KNOB_INFO))),
    "handle.null": (Status.BAD_PARAM_NULL_POINTER, lambda: backend.cudnnGetStream(None)),
    "handle.out_pointer": (Status.BAD_PARAM, lambda: backend.cudnnCreate(ctypes.c_void_p())),
    "handle.kind": (Status.BAD_PARAM, lambda: backend.cudnnBackendExecute("handle", None, None)),
    "handle.destroyed": (Status.BAD_PARAM, lambda: backend.cudnnSetStream(destroyed_handle(), 0)),
    "handle.stream": (Status.NOT_SUPPORTED, lambda: backend.cudnnSetStream(backend.cudnnCreate(), "stream")),
    "attribute.name": (Status.BAD_PARAM, set_(4711, T.INT64, 1, 1)),
    "attribute.foreign": (Status.BAD_PARAM, set_(A.POINTWISE_MODE, T.POINTWISE_MODE, 1, 0)),
    "attribute.get_only": (
        Status.BAD_PARAM,
        set_(A.OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, T.INT64, 1, 1, of=D.OPERATIONGRAPH),
    ),
    "attribute.type": (Status.BAD_PARAM_ATTRIBUTE_TYPE, set_(DIMS, T.INT32, 1, 1)),
    "attribute.count": (Status.BAD_PARAM, set_(DIMS, T.INT64, 9, [1] * 9)),
    "attribute.null": (Status.BAD_PARAM_NULL_POINTER, set_(DIMS, T.INT64, 1, None)),
    "attribute.value": (Status.BAD_PARAM, set_(DIMS, T.INT64, 2, [1, 2.0])),
    "attribute.nested.type": (Status.BAD_PARAM_DESCRIPTOR_TYPE, pointwise_child),
    "attribute.nested.not_finalized": (
        Status.BAD_PARAM_NOT_FINALIZED,
        lambda: backend.cudnnBackendExecute(backend.cudnnCreate(), new(D.EXECUTION_PLAN), new(D.VARIANT_PACK)),
    ),
    "attribute.get.values": (Status.BAD_PARAM, get(UID, T.INT64, 1, [0])),
    "attribute.get.target": (Status.NOT_INITIALIZED, fill_twice),
    "tensor.constant.data_type": (Status.BAD_PARAM, constant_before_type),
    "device.conflict": (Status.BAD_PARAM, conflict),
    "device.sm_count_target": (Status.NOT_SUPPORTED, on_h200(SM_COUNT_TARGET=(T.INT32, [133]))),
    "device.shared_memory_limit": (Status.NOT_SUPPORTED, on_h200(SHARED_MEMORY_LIMIT=(T.INT32, [-1]))),
    "deviceprop.source": (Status.BAD_PARAM, device()),
    "deviceprop.device_id": (Status.NOT_SUPPORTED_ARCH_MISMATCH, second_device),
    "deviceprop.json": (Status.BAD_PARAM, device(JSON_REPRESENTATION=(T.CHAR, "[1]"))),
    "engine.index": (Status.NOT_SUPPORTED, engine(4711)),
    "engine.composed": (Status.NOT_SUPPORTED, engine(0)),
    "engine.several_kernels": (Status.NOT_SUPPORTED_GRAPH_PATTERN, engine(1, two_products)),
    "engine.cluster_cooperative": (Status.NOT_SUPPORTED, engine(1, DISABLE_CLUSTER_COOPERATIVE=ON)),
    "operationgraph.is_dynamic_shape_enabled": (
        Status.NOT_SUPPORTED,
        lambda: matmul_graph(IS_DYNAMIC_SHAPE_ENABLED=ON),
    ),
    "operationgraph.is_override_shape_enabled": (
        Status.NOT_SUPPORTED,
        lambda: matmul_graph(IS_OVERRIDE_SHAPE_ENABLED=ON),
    ),
    "operationgraph.mode": (
        Status.NOT_SUPPORTED_GRAPH_PATTERN,
        lambda: matmul_graph(MODE=(T.OPERATIONGRAPH_MODE, [OperationGraphMode.SDPA_FWD])),
    ),
    "plan.source": (Status.BAD_PARAM, lambda: json_plan("{}", heuristics(matmul_graph())[0])),
    "variant_pack.length": (Status.BAD_PARAM, pack([1, 2], [4096])),
    "variant_pack.duplicate": (Status.BAD_PARAM_DUPLICATED_ENTRIES, pack([1, 1], [4096, 8192])),
    "variant_pack.pointer.null": (Status.BAD_PARAM_NULL_POINTER, pack([1, 2], [4096, 0])),
    "variant_pack.memory.small": (
        Status.BAD_PARAM_SIZE_INSUFFICIENT,
        lambda: execute(matmul_plan(), matmul_arrays() | {1: np.ctypeslib.as_ctypes(np.zeros(3, np.float32))}),
    ),
    "variant_pack.memory.unreadable": (Status.BAD_PARAM, lambda: execute(matmul_plan(), matmul_arrays() | {1: 123456})),
    "execute.stream": (Status.BAD_PARAM_STREAM_MISMATCH, on_stream),
    "execute.cuda_graph": (Status.NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API, native_cuda_graph),
    "execute.failed": (Status.EXECUTION_FAILED, failing_kernel),
    "call.unexpected": (Status.INTERNAL_ERROR, defect),
}


def own_rules() -> set[str]:
    rows = {v.id for module in (rules, engine_index) for v in vars(module).values() if isinstance(v, Rule)}
    faces = [k.settings for k in KINDS.values() if k.settings is not None and issubclass(k.settings, DescriptorSpec)]
    return rows | {constraint.id for face in faces for stage in face.constraints for constraint in stage}


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == own_rules()


@pytest.mark.parametrize("id", CASES)
def test_rule(id: str) -> None:
    status, case = CASES[id]
    with pytest.raises(GraphdnnError) as caught:
        case()
    mine = [r for r in caught.value.rejections if r.rule == id]
    assert mine, str(caught.value)
    for rejection in mine:
        complete(rejection)
        assert rejection.status is status
    assert caught.value.status is status


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        (engine(1, SM_COUNT_TARGET=(T.INT32, [1])), "device.sm_count_target"),
        (engine(1, SHARED_MEMORY_LIMIT=(T.INT32, [1])), "device.shared_memory_limit"),
        (device(JSON_REPRESENTATION=(T.CHAR, "{")), "deviceprop.json"),
        (device(JSON_REPRESENTATION=(T.CHAR, "[" * 100_000)), "deviceprop.json"),
        (device(JSON_REPRESENTATION=(T.CHAR, json.dumps({"name": "x"}))), "device.entry"),
        (device(DEVICE_ID=(T.INT32, [0]), JSON_REPRESENTATION=(T.CHAR, "{}")), "deviceprop.source"),
        (lambda: backend.cudnnBackendFinalize(created(D.EXECUTION_PLAN, {})), "plan.source"),
        (
            lambda: plan_descriptor(heuristics(matmul_graph())[0], HANDLE=(T.HANDLE, [backend.cudnnCreate("a100")])),
            "device.conflict",
        ),
        (lambda: backend.cudnnCreate("tpu"), "device.unknown"),
        (lambda: heuristics(matmul_graph(), 4), "heuristics.mode"),
        (lambda: graph_descriptor(operation("matmul"), operation("matmul")), "graph.producer.duplicate"),
    ],
)
def test_other_ways(case: Callable[[], Any], rule: str) -> None:
    with pytest.raises(GraphdnnError) as caught:
        case()
    assert caught.value.rejections[0].rule == rule
    complete(caught.value.rejections[0])


def test_operations_without_names_are_told_apart() -> None:
    with pytest.raises(GraphdnnError, match=r"operation 0 and operation 1 \(both matmul\) write it"):
        graph_descriptor(operation("matmul"), operation("matmul"))
