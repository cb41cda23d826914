"""Plans with inputs that are bound for good: the same results, the same checks, the other arrays at each call."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from emulator import MISSING
from emulator.runtime import EmulatedRuntime

import graphdnn
from graphdnn import BadParam, ExecutionPlan, rank
from graphdnn.plan import DevicePlan, HostPlan
from graphdnn.problem import parse

TEXT = "conv x=f32[1,8,6,6] w=f32[8,8,3,3] pad=1 + bias + relu"


def _plan(place: str) -> ExecutionPlan:
    graph = parse(TEXT).build_operation_graph()
    if place == "host":
        return HostPlan(rank(graph, "cpu").best)
    if MISSING:
        pytest.skip(MISSING)
    return DevicePlan(rank(graph, "h200").best, EmulatedRuntime())


@pytest.fixture(params=["host", "device"])
def plan(request: pytest.FixtureRequest) -> ExecutionPlan:
    return _plan(request.param)


def _arrays(plan: ExecutionPlan, seed: int) -> dict[int, Any]:
    rng = np.random.default_rng(seed)
    found = {}
    for want in plan._expected:
        found[want.spec.uid] = array = plan.new_array(want.spec)
        array[...] = np.nan if want.is_output else rng.standard_normal(array.shape)
    return found


def _parts(plan: ExecutionPlan) -> tuple[int, list[int], int]:
    """The uids of the image, of the weights, and of the output."""
    inputs = sorted((e for e in plan._expected if not e.is_output), key=lambda e: e.spec.dims[-1], reverse=True)
    (output,) = (e.spec.uid for e in plan._expected if e.is_output)
    return inputs[0].spec.uid, [e.spec.uid for e in inputs[1:]], output


def _run(plan: ExecutionPlan, bindings: dict[int, Any]) -> None:
    plan.execute(bindings, plan.new_workspace())


def test_a_bound_plan_computes_what_the_plan_computes(plan: ExecutionPlan) -> None:
    x, weights, y = _parts(plan)
    arrays = _arrays(plan, 1)
    bound = plan.bind({uid: arrays[uid] for uid in weights})
    assert set(bound.uids) == {x, y}
    for seed in (2, 3, 4):
        image = _arrays(plan, seed)[x]
        wanted, found = _arrays(plan, 5)[y], _arrays(plan, 6)[y]
        _run(plan, {**arrays, x: image, y: wanted})
        _run(bound, {x: image, y: found})
        assert not np.isnan(found).any()
        np.testing.assert_array_equal(found, wanted)


def test_values_of_bound_arrays_are_read_at_each_call(plan: ExecutionPlan) -> None:
    x, weights, y = _parts(plan)
    arrays = _arrays(plan, 1)
    bound = plan.bind({uid: arrays[uid] for uid in weights})
    _run(bound, {x: arrays[x], y: arrays[y]})
    before = arrays[y].copy()
    for uid in weights:
        arrays[uid][...] *= 2
    _run(bound, {x: arrays[x], y: arrays[y]})
    np.testing.assert_allclose(arrays[y], 2 * before, rtol=1e-5, atol=1e-5)


def test_inputs_can_be_bound_one_after_another(plan: ExecutionPlan) -> None:
    x, weights, y = _parts(plan)
    arrays = _arrays(plan, 1)
    bound = plan
    for uid in weights:
        bound = bound.bind({uid: arrays[uid]})
    _run(bound, {x: arrays[x], y: arrays[y]})
    wanted = _arrays(plan, 2)[y]
    _run(plan, {**arrays, y: wanted})
    np.testing.assert_array_equal(arrays[y], wanted)
    with pytest.raises(BadParam, match=r"plan\.bind\.input"):
        bound.bind({weights[0]: arrays[weights[0]]})


def test_outputs_and_unknown_uids_cannot_be_bound(plan: ExecutionPlan) -> None:
    y = _parts(plan)[2]
    for wrong in ({y: _arrays(plan, 1)[y]}, {987654: np.zeros(1)}):
        with pytest.raises(BadParam, match=r"plan\.bind\.input"):
            plan.bind(wrong)


def test_a_bound_array_that_does_not_fit_is_refused(plan: ExecutionPlan) -> None:
    weight = _parts(plan)[1][0]
    with pytest.raises(BadParam, match=r"binding\.shape"):
        plan.bind({weight: np.zeros((3, 3), np.float32)})


def test_a_call_passes_the_other_arrays_exactly(plan: ExecutionPlan) -> None:
    _, weights, y = _parts(plan)
    arrays = _arrays(plan, 1)
    bound = plan.bind({uid: arrays[uid] for uid in weights})
    with pytest.raises(BadParam, match=r"binding\.extra"):
        bound.execute(arrays, plan.new_workspace())
    with pytest.raises(BadParam, match=r"binding\.missing"):
        bound.execute({y: arrays[y]}, plan.new_workspace())
    assert np.isnan(arrays[y]).all()


def test_an_output_in_the_memory_of_a_bound_array_is_refused(plan: ExecutionPlan) -> None:
    """The output has the bytes of a part of the filter."""
    x, weights, y = _parts(plan)
    arrays = _arrays(plan, 1)
    (filters,) = (uid for uid in weights if arrays[uid].size == 8 * 8 * 9)
    bound = plan.bind({uid: arrays[uid] for uid in weights})
    inside = arrays[filters].reshape(-1)[: arrays[y].size].reshape(arrays[y].shape)
    _run(bound, {x: arrays[x], y: arrays[y]})  # a layout that is known by now
    before = arrays[filters].copy()
    for _ in range(2):
        with pytest.raises(BadParam, match=r"binding\.overlap"):
            _run(bound, {x: arrays[x], y: inside})
    np.testing.assert_array_equal(arrays[filters], before)


def test_bound_arrays_are_kept_alive(plan: ExecutionPlan) -> None:
    _, weights, y = _parts(plan)
    arrays = _arrays(plan, 1)
    wanted = _arrays(plan, 2)[y]
    _run(plan, {**arrays, y: wanted})
    bound = plan.bind({uid: arrays.pop(uid) for uid in weights})
    gc.collect()
    _run(bound, arrays)
    np.testing.assert_array_equal(arrays[y], wanted)
    plan_of_weights = weakref.ref(bound)
    del bound
    gc.collect()
    assert plan_of_weights() is None


def test_a_graph_binds_by_name() -> None:
    graph = graphdnn.Graph(io_data_type="float32", device="cpu")
    x, w = graph.tensor([1, 4, 5, 5]).set_name("x"), graph.tensor([2, 4, 1, 1]).set_name("w")
    y = graph.conv_fprop(x, w).set_name("y").set_output(True)
    graph.build()
    rng = np.random.default_rng(3)
    image, weight = (rng.standard_normal(s).astype(np.float32) for s in ((1, 4, 5, 5), (2, 4, 1, 1)))
    bound = graph.bind({"w": weight})
    np.testing.assert_array_equal(bound.run({"x": image})["y"], graph.run({"x": image, "w": weight})[y])
    with pytest.raises(BadParam, match="w"):
        graph.bind({"w": weight[:, :2]})
