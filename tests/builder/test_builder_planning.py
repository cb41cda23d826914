"""From a built graph to plans: life cycle, filters, configurations, keys, the cost of a call."""

from __future__ import annotations

import timeit
from typing import Any

import numpy as np
import pytest
from builder_fixtures import conv_bias_relu, graph, values
from test_builder_errors import _refused

from graphdnn import (
    BadParam,
    ConvolutionMode,
    Filters,
    Graph,
    HeurMode,
    NormPhase,
    NotSupported,
    NumericalNote,
    PaddingMode,
    PointwiseMode,
    ReductionOperator,
    ResampleMode,
    rank,
)
from graphdnn.tensors import packed_strides


def test_life_cycle_step_by_step() -> None:
    g = graph()
    conv_bias_relu(g)
    g.validate()
    g.validate()
    assert g.get_execution_plan_count() == 0
    g.create_execution_plans([HeurMode.A])
    assert g.get_execution_plan_count() == 2
    g.create_execution_plans([HeurMode.FALLBACK])
    names = [g.get_plan_name_at_index(i) for i in range(3)]
    assert sorted(names) == ["numpy", "numpy", "numpy_blocked"]
    assert names[2] == "numpy", "what FALLBACK appends"
    g.check_support()
    g.build_plan_at_index(2)
    assert g.plan.name == "numpy"
    assert g.get_workspace_size() == 0
    assert g.get_workspace_size_plan_at_index(names.index("numpy_blocked")) > 0
    assert g.key() == g.build_operation_graph().key
    assert g.query_tensor_attributes_of_uid(1).get_dim() == [2, 8, 6, 6]
    assert "numpy_blocked" in g.explain()
    assert list(g.get_numeric_notes()) == [NumericalNote.STRICT_NAN_PROP]
    assert g.get_behavior_notes() == []


def test_filters() -> None:
    g = graph()
    conv_bias_relu(g)
    g.create_execution_plans([HeurMode.A])
    g.deselect_engines(["blocked"])
    assert g.build().name == "numpy"
    h = graph()
    conv_bias_relu(h)
    h.deselect_workspace_greater_than(0)
    assert h.build().name == "numpy"
    h2 = graph()
    conv_bias_relu(h2)
    h2.deselect_numeric_notes([NumericalNote.STRICT_NAN_PROP])
    with pytest.raises(NotSupported, match=r"filter\.numerical_note"):
        h2.build()


def test_engines_that_round_are_asked_for() -> None:
    g = Graph(io_data_type="float32", compute_data_type="float32", device="h200")
    x, w = g.tensor([8, 64, 56, 56], name="x"), g.tensor([64, 64, 3, 3], name="w")
    g.conv_fprop(x, w, padding=[1, 1]).set_output(True)
    g.create_execution_plans([HeurMode.A])

    def names() -> list[str]:
        return [g.get_plan_name_at_index(i) for i in range(g.get_execution_plan_count())]

    assert "cuda_hopper_gemm_tf32" not in names()
    g.allow_numeric_notes([NumericalNote.DOWN_CONVERT_INPUTS])
    assert "cuda_hopper_gemm_tf32" in names()


def test_what_is_barred_or_chosen_by_name() -> None:
    """A word is one word, notes have names, and what would bar nothing is refused."""

    def layer() -> Graph:
        g = graph()
        conv_bias_relu(g)
        return g

    whole = layer()
    whole.deselect_engines("blocked")
    assert whole.build().name == "numpy"
    for wrong in ("hoper", ["numpy", "hoper"]):
        _refused(lambda wrong=wrong: layer().deselect_engines(wrong), "builder.deselect")
    by_name = layer()
    by_name.deselect_numeric_notes(["strict_nan_prop"])
    with pytest.raises(NotSupported, match=r"filter\.numerical_note"):
        by_name.build()
    for change in (by_name.deselect_numeric_notes, by_name.allow_numeric_notes, by_name.deselect_behavior_notes):
        _refused(lambda change=change: change(["TENSORCORE"]), "filter.note")
    assert Filters(without_numerical_notes="FFT") == Filters(without_numerical_notes=frozenset({NumericalNote.FFT}))
    chosen = layer()
    assert chosen.get_knobs_for_engine("numpy_blocked") == chosen.get_knobs_for_engine(2)
    chosen.create_execution_plan("numpy")
    chosen.build_plans()
    assert chosen.plan.name == "numpy"
    _refused(lambda: chosen.create_execution_plan("nothing"), "engine.index")


def test_everything_deselected() -> None:
    g = graph()
    conv_bias_relu(g)
    g.deselect_engines(["numpy"])
    with pytest.raises(NotSupported) as caught:
        g.build()
    barred = {str(r.value) for r in caught.value.rejections if r.rule == "builder.deselected"}
    assert "numpy" in barred
    assert any(name.startswith("numpy_blocked") for name in barred)


def test_indices_of_configurations() -> None:
    g = graph()
    conv_bias_relu(g)
    g.create_execution_plans()
    for call in (g.get_plan_name_at_index, g.get_workspace_size_plan_at_index, g.build_plan_at_index):
        for index in (-1, 2):
            _refused(lambda call=call, index=index: call(index), "builder.plan.index")


def test_keys_may_be_tensors_uids_names_and_none() -> None:
    g = graph()
    x, b = g.tensor([2, 3], name="x"), g.tensor([2, 3])
    y = g.add(x, b).set_output()
    g.build()
    a, c, out = values(2, 3), values(2, 3), np.empty((2, 3), np.float32)
    for pack in (
        {x: a, b: c, y: out},
        {"x": a, b.get_uid(): c, y: out},
        {1: a, 2: c, 3: out},
        {x: a, b: c, y: out, None: 1},
    ):
        out[...] = np.nan
        g.execute(pack)
        np.testing.assert_array_equal(out, a + c)


def test_members_by_name() -> None:
    """A setting is a member of its enum or the member's name, as an element type is."""
    graphs = []
    for is_named in (True, False):

        def member(value: Any, is_named: bool = is_named) -> Any:
            return value.name.lower() if is_named else value

        g = Graph(io_data_type="float32")
        x, one = g.tensor([2, 4, 6, 6]), g.tensor([1, 4, 1, 1])
        y = g.conv_fprop(x, g.tensor([4, 4, 3, 3]), convolution_mode=member(ConvolutionMode.CONVOLUTION))
        y, mean, _ = g.instancenorm(member(NormPhase.TRAINING), y, one, one, g.tensor_scalar(1e-5))
        assert mean is not None
        pooled, _ = g.resample(
            y, member(ResampleMode.AVGPOOL_INCLUDE_PADDING), [2, 2], padding_mode=member(PaddingMode.ZERO_PAD)
        )
        assert pooled is not None
        sums = g.reduction(g.pointwise(member(PointwiseMode.RELU_FWD), x=pooled), member(ReductionOperator.AVG))
        sums.set_dim([1, 4, 1, 1]).set_output(True)
        graphs.append(g.build_operation_graph())
        assert rank(graphs[-1], mode=member(HeurMode.B)).mode is HeurMode.B
    assert graphs[0].operations == graphs[1].operations


@pytest.mark.parametrize("mode", ["relu", "", 3, None])
def test_modes_that_are_none(mode: Any) -> None:
    g = Graph(io_data_type="float32")
    with pytest.raises(BadParam) as error:
        g.pointwise(mode, x=g.tensor([2, 4]))
    assert error.value.rejections[0].rule == "attr.type"


@pytest.mark.parametrize("mode", ["C", 1, None, HeurMode.COUNT])
def test_heuristic_modes_that_are_none(mode: Any) -> None:
    g = Graph(io_data_type="float32")
    g.relu(g.tensor([2, 4])).set_output(True)
    for ask in (
        lambda: g.build([mode]),
        lambda: g.autotune(mode=mode),
        lambda: rank(g.build_operation_graph(), mode=mode),
    ):
        with pytest.raises(BadParam) as error:
            ask()
        assert error.value.rejections[0].rule == "heuristics.mode"


@pytest.mark.long
def test_execute_adds_little() -> None:
    g = graph()
    x, b = g.tensor([2, 3]), g.tensor([2, 3])
    y = g.add(x, b).set_output()
    plan = g.build()
    plan._launch = lambda arrays, workspace: None
    pack = {x.get_uid(): values(2, 3), b.get_uid(): values(2, 3), y.get_uid(): values(2, 3)}
    direct = min(timeit.repeat(lambda: plan.execute(pack), number=20000, repeat=5)) / 20000
    through = min(timeit.repeat(lambda: g.execute(pack), number=20000, repeat=5)) / 20000
    print(f"Graph.execute adds {(through - direct) * 1e6:.2f} us")
    assert through - direct < 1.5e-6


def test_packed_is_the_default() -> None:
    g = graph()
    x = g.tensor([2, 3, 4])
    g.relu(x).set_output()
    g.validate()
    assert tuple(x.get_stride()) == packed_strides((2, 3, 4))
