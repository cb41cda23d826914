"""What tests of the v8 face have in common: engines, configurations, plans and packs as descriptors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from backend_descriptors import filled, graph_descriptor, made, put, read
from legal_problems import operation, tensor

from graphdnn import device_spec
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import (
    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
    CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
    CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
    CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
    CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
    cudnnBackendCreateDescriptor,
    cudnnBackendExecute,
    cudnnBackendFinalize,
    cudnnBackendSetAttribute,
    cudnnCreate,
)
from graphdnn.backend.descriptor import Descriptor
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.enums import HeurMode, KnobType

NESTED = T.BACKEND_DESCRIPTOR


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


def heuristics(graph: Descriptor, mode: HeurMode = HeurMode.A, **elements: Any) -> list[Descriptor]:
    extra = {A[f"ENGINEHEUR_{name}"]: value for name, value in elements.items()}
    heur = made(
        D.ENGINEHEUR,
        {A.ENGINEHEUR_OPERATION_GRAPH: (NESTED, [graph]), A.ENGINEHEUR_MODE: (T.HEUR_MODE, [mode]), **extra},
    )
    return filled(heur, A.ENGINEHEUR_RESULTS, D.ENGINECFG)


def two_products() -> Descriptor:
    middle = tensor(3, (2, 3, 5), is_virtual=True)
    first = operation("matmul", c=middle)
    second = operation("matmul", a=middle, b=tensor(4, (2, 5, 6)), c=tensor(5, (2, 3, 6)))
    return graph_descriptor(first, second)


def product_arrays() -> dict[int, Any]:
    rng = np.random.default_rng(3)
    a, b, d = (rng.standard_normal(s, np.float32) for s in ((2, 3, 4), (2, 4, 5), (2, 5, 6)))
    return {1: a, 2: b, 4: d, 5: np.zeros((2, 3, 6), np.float32)}


def matmul_plan() -> Descriptor:
    return plan_descriptor(config_descriptor(engine_descriptor(graph_descriptor(operation("matmul")), 1)))


def matmul_arrays() -> dict[int, Any]:
    return {1: np.ones((2, 3, 4), np.float32), 2: np.ones((2, 4, 5), np.float32), 3: np.zeros((2, 3, 5), np.float32)}


def device_prop(name: str) -> Descriptor:
    text = json.dumps(device_spec(name).to_json())
    return made(D.DEVICEPROP, {A.DEVICEPROP_JSON_REPRESENTATION: (T.CHAR, text)})
