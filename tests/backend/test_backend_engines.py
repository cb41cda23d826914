"""Engines, knobs and configurations of the v8 face, of one kernel and of several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from backend_calls import (
    NESTED,
    config_descriptor,
    engine_descriptor,
    execute,
    heuristics,
    knob,
    only,
    plan_descriptor,
    product_arrays,
    two_products,
    workspace_size,
)
from backend_descriptors import created, filled, graph_descriptor, put, read
from legal_problems import operation

from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, cudnnBackendFinalize, returning_status
from graphdnn.engines import ENGINE_BY_ID, Knob
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D
from graphdnn.enums import HeurMode, KnobType, Status
from graphdnn.errors import GraphdnnError, NotSupported


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
    monkeypatch.setattr("graphdnn.heuristics.engine_index.ENGINE_BY_ID", {**ENGINE_BY_ID, number: row})
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
