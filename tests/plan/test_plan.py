"""Plans: bindings, workspace, reuse, threads, files, and what a call costs."""

from __future__ import annotations

import copy
import json
import pickle
import random
import threading
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from legal_problems import CHANNEL, IMAGE, LEGAL, operation, pointwise, tensor

from graphdnn import (
    BadParam,
    ExecutionPlan,
    GraphdnnError,
    MalformedFile,
    OperationGraph,
    build,
    graph_from_json,
    graph_to_json,
    plan_from_json,
    plan_to_json,
)
from graphdnn.engines.host.memory import binding_layout, empty, from_pointer, load, store
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.tensors import TensorSpec, channels_last_strides

SUM = OperationGraph.of([operation("pointwise")])


def arrays(graph: OperationGraph, seed: int = 0) -> dict[int, Any]:
    rng = np.random.default_rng(seed)
    found = {}
    for spec in graph.bound:
        found[spec.uid] = empty(spec)
        dtype = found[spec.uid].dtype
        found[spec.uid][...] = rng.integers(-3, 4, found[spec.uid].shape).astype(dtype)
    return found


def test_executes_and_says_what_it_is() -> None:
    plan = build(SUM)
    bound = arrays(SUM)
    plan.execute(bound)
    np.testing.assert_array_equal(bound[3], bound[1] + bound[2])
    assert plan.fused_operations == (("add",),)
    assert plan.name == "numpy"
    assert "add" in str(plan)
    assert "1 kernel," in repr(plan)


def test_by_value_tensors_take_numbers() -> None:
    scalar = tensor(2, (1, 1, 1, 1), is_by_value=True)
    graph = OperationGraph.of([operation("pointwise", b=scalar)])
    plan = build(graph)
    for value in (2.5, np.float32(2.5), np.array([2.5]), np.full((1, 1, 1, 1), 2.5, np.float32)):
        y, x = np.zeros(IMAGE, np.float32), np.ones(IMAGE, np.float32)
        plan.execute({1: x, 2: value, 3: y})
        assert (y == 3.5).all()


def test_scalars_are_read_on_every_call() -> None:
    """Also when the arrays are the ones of the call before, and when the scalar's array is changed in place."""
    scalar = tensor(0, (1, 1, 1, 1), is_by_value=True)
    plan = build(OperationGraph.of([operation("pointwise", b=scalar)]))
    x, y, held = np.ones(IMAGE, np.float32), np.zeros(IMAGE, np.float32), np.array([1.0])
    for value in (1.0, 2.0):
        held[0] = value
        for given in (value, held):
            plan.execute({1: x, 0: given, 3: y})
            assert (y == 1 + value).all()
    with pytest.raises(BadParam, match=r"binding\.missing"):
        plan.execute({1: x, 7: 1.0, 3: y})
    with pytest.raises(BadParam, match=r"binding\.scalar"):
        plan.execute({1: x, 0: "text", 3: y})


def test_constants_need_no_binding_and_change_the_key() -> None:
    graphs = [
        OperationGraph.of(
            [operation("pointwise", b=tensor(2, (1, 1, 1, 1), is_by_value=True, constant_value=float(value)))]
        )
        for value in (2, 3)
    ]
    y = np.zeros(IMAGE, np.float32)
    for graph, value in zip(graphs, (2, 3), strict=True):
        build(graph).execute({1: np.ones(IMAGE, np.float32), 3: y})
        assert (y == 1 + value).all()
    assert graphs[0].key != graphs[1].key


def test_strides_of_single_elements_do_not_matter() -> None:
    plan = build(SUM)
    bound = arrays(SUM)
    bound[2] = np.ascontiguousarray(bound[2].reshape(4)).reshape(1, 1, 4, 1).transpose(0, 2, 1, 3)
    plan.execute(bound)
    np.testing.assert_array_equal(bound[3], bound[1] + bound[2])


def test_any_dlpack_producer_is_read_in_place() -> None:
    torch = pytest.importorskip("torch")
    plan = build(SUM)
    x, b, y = torch.ones(IMAGE), torch.full(CHANNEL, 2.0), torch.zeros(IMAGE)
    plan.execute({1: x, 2: b, 3: y})
    assert bool((y == 3).all())


def test_a_refused_call_writes_nothing_and_the_plan_stays_usable() -> None:
    plan, bound = build(SUM), arrays(SUM)
    before = bound[3].copy()
    with pytest.raises(BadParam) as caught:
        plan.execute({1: bound[1].astype(np.float64), 2: bound[2].reshape(4), 3: bound[3]})
    assert [r.rule for r in caught.value.rejections] == ["binding.data_type", "binding.shape"]
    np.testing.assert_array_equal(bound[3], before)
    plan.execute(bound)


def test_an_array_changed_in_place_is_noticed() -> None:
    plan, bound = build(SUM), arrays(SUM)
    plan.execute(bound)
    x = bound[1]
    bound[1] = x.reshape(-1)
    with pytest.raises(BadParam):
        plan.execute(bound)
    bound[1] = x.view(np.int32)
    with pytest.raises(BadParam):
        plan.execute(bound)


def test_slices_of_one_buffer_do_not_overlap() -> None:
    """Channel halves of a channels-last buffer interleave in memory and share no element."""
    buffer = np.zeros((2, 6, 6, 8), np.float32)
    left, right = (buffer[..., i : i + 4].transpose(0, 3, 1, 2) for i in (0, 4))
    strides = tuple(s // 4 for s in left.strides)
    x, y = tensor(1, IMAGE, strides=strides, byte_alignment=4), tensor(3, IMAGE, strides=strides, byte_alignment=4)
    graph = OperationGraph.of([operation("pointwise", x=x, y=y)])
    left[...] = 1
    build(graph).execute({1: left, 2: np.ones(CHANNEL, np.float32), 3: right})
    assert (buffer[..., 4:] == 2).all()
    assert (buffer[..., :4] == 1).all()


def test_gaps_of_an_output_are_left_alone() -> None:
    y = tensor(3, IMAGE, strides=(4 * 6 * 8, 6 * 8, 8, 1))
    graph = OperationGraph.of([operation("pointwise", y=y)])
    memory = np.full(y.span + 2, 7, np.float32)
    out = np.lib.stride_tricks.as_strided(memory, IMAGE, [s * 4 for s in y.strides])
    build(graph).execute({1: np.ones(IMAGE, np.float32), 2: np.ones(CHANNEL, np.float32), 3: out})
    assert (out == 2).all()
    assert (memory == 7).sum() == memory.size - out.size


def test_one_plan_in_several_threads() -> None:
    plan = build(SUM)
    sets = [arrays(SUM, seed) for seed in range(4)]

    def work(bound: dict[int, Any]) -> None:
        for _ in range(200):
            plan.execute(bound)

    threads = [threading.Thread(target=work, args=(bound,)) for bound in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for bound in sets:
        np.testing.assert_array_equal(bound[3], bound[1] + bound[2])


def test_plan_keeps_no_array_alive() -> None:
    import gc
    import weakref

    plan, bound = build(SUM), arrays(SUM)
    plan.execute(bound)
    watched = weakref.ref(bound[1])
    del bound
    gc.collect()
    assert watched() is None


# Memory forms that are not plain arrays.


@pytest.mark.parametrize("vector", [4, 32])
def test_vectorised_int8(vector: int) -> None:
    dims = (2, 3, 2, 2)
    spec = tensor(1, dims, "i8", vector_count=vector, vectorized_dimension=1)
    binding = empty(spec)
    assert binding.shape == (*dims, vector)
    values = np.arange(np.prod(spec.extents)).astype(np.int8).reshape(spec.extents)
    store(values, binding, spec)
    np.testing.assert_array_equal(load(binding, spec), values)
    # channel c lies in vector c // v at lane c % v
    assert binding[1, 2, 0, 1, vector - 1] == values[1, 3 * vector - 1, 0, 1]


@pytest.mark.parametrize("dims", [(3, 5), (1, 8), (2, 3, 7)])
def test_packed_booleans(dims: tuple[int, ...]) -> None:
    spec = tensor(1, dims, DataType.BOOLEAN)
    binding = empty(spec)
    assert binding.nbytes == -(-int(np.prod(dims)) // 8)
    binding[...] = 0xFF
    values = np.random.default_rng(0).random(dims) < 0.5
    store(values, binding, spec)
    np.testing.assert_array_equal(load(binding, spec), values)
    assert bool(binding[0] & 1) == bool(values.reshape(-1)[0])


def test_packed_booleans_in_a_graph() -> None:
    y = tensor(3, IMAGE, DataType.BOOLEAN)
    graph = OperationGraph.of([operation("pointwise", y=y, spec=pointwise(PointwiseMode.CMP_GT))])
    bound = arrays(SUM) | {3: empty(y)}
    build(graph).execute(bound)
    np.testing.assert_array_equal(load(bound[3], y), bound[1] > bound[2])


@pytest.mark.parametrize("kind", ["f32", "bf16", "i8"])
def test_raw_pointers(kind: str) -> None:
    spec = tensor(1, IMAGE, kind, strides=channels_last_strides(IMAGE))
    owner = empty(spec)
    view = from_pointer(owner.__array_interface__["data"][0], spec)
    owner[...] = 3
    assert (view == owner).all()
    assert binding_layout(spec)[2] == view.strides


# Files.


@pytest.mark.parametrize("tag", LEGAL)
def test_graphs_round_trip(tag: str) -> None:
    graph = OperationGraph.of([operation(tag)], name=tag)
    again = graph_from_json(graph_to_json(graph))
    assert again.key == graph.key
    assert again.name == tag


def test_plans_round_trip_and_compute_the_same() -> None:
    plan, bound = build(SUM), arrays(SUM)
    again = plan_from_json(plan_to_json(plan))
    assert again.name == plan.name
    assert again.fused_operations == plan.fused_operations
    again.execute(bound)
    np.testing.assert_array_equal(bound[3], bound[1] + bound[2])
    assert json.loads(plan_to_json(plan))["version"] == 1


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kind", ["graph", "plan"])
def test_damaged_files_end_in_one_error(kind: str, seed: int) -> None:
    """Cut, flipped and reordered bytes: a graph that is still valid, or MalformedFile; never anything else."""
    rng = random.Random(seed)
    text = bytearray((graph_to_json(SUM) if kind == "graph" else plan_to_json(build(SUM))).encode())
    if seed % 4 == 0:
        text = text[: rng.randrange(len(text))]
    else:
        for _ in range(1 + seed % 3):
            text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)
    reader = graph_from_json if kind == "graph" else plan_from_json
    try:
        reader(bytes(text))
    except MalformedFile as error:
        assert error.rejections
    else:
        assert kind == "graph", "an altered plan must not pass"


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "3", '"x"', "{}", '{"format": "graphdnn.graph"}', '{"format":"graphdnn.graph","version":1}',
     '{"format":"graphdnn.graph","version":1,"tensors":[],"operations":[]}',
     '{"format":"graphdnn.graph","version":1,"tensors":{},"operations":3}',
     '{"format":"graphdnn.graph","version":1,"tensors":[1],"operations":[]}',
     '{"format":"graphdnn.graph","version":1,"tensors":[],"operations":[{"operation":"rng"}]}',
     '{"a":NaN}', "{" * 3000, "\x00", "\ud800"],
)  # fmt: skip
def test_nonsense_files(text: str) -> None:
    with pytest.raises(MalformedFile) as caught:
        graph_from_json(text)
    assert caught.value.rejections[0].fix


def test_unknown_fields_in_files_are_refused() -> None:
    data = json.loads(graph_to_json(SUM))
    data["operations"][0]["colour"] = "red"
    with pytest.raises(MalformedFile, match="colour"):
        graph_from_json(json.dumps(data))


# Cost of a call.


def _idle_plan() -> tuple[ExecutionPlan, dict[int, Any]]:
    """A plan over four tensors whose launch does nothing."""
    y, z = tensor(4, IMAGE), tensor(3, IMAGE, is_virtual=True)
    graph = OperationGraph.of([operation("pointwise", y=z), operation("pointwise", x=z, b=tensor(5, IMAGE), y=y)])
    plan = build(graph)
    plan._launch = lambda arrays, workspace: None
    bound = arrays(graph)
    assert len(bound) == 4
    return plan, bound


@pytest.mark.long
def test_call_overhead() -> None:
    plan, bound = _idle_plan()
    best = min(timeit.repeat(lambda: plan.execute(bound), number=20000, repeat=7)) / 20000
    print(f"execute: {best * 1e6:.2f} us")
    assert best <= 2.0e-6


@pytest.mark.long
def test_second_build_is_fast() -> None:
    def conv_bias_relu() -> OperationGraph:
        first, second = tensor(4, (2, 4, 4, 4), is_virtual=True), tensor(5, (2, 4, 4, 4), is_virtual=True)
        return OperationGraph.of(
            [
                operation("conv_fprop", y=first),
                operation("pointwise", x=first, b=tensor(6, CHANNEL), y=second),
                operation(
                    "pointwise", x=second, b=..., y=tensor(7, (2, 4, 4, 4)), spec=pointwise(PointwiseMode.RELU_FWD)
                ),
            ]
        )

    build(conv_bias_relu())
    best = min(timeit.repeat(lambda: build(conv_bias_relu()), number=1, repeat=20))
    print(f"graph and plan: {best * 1e3:.2f} ms")
    assert best <= 3e-3


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_plans_are_sent_as_text(copied: Callable[[Any], Any]) -> None:
    plan, _ = _idle_plan()
    with pytest.raises(TypeError, match="plan_to_json"):
        copied(plan)


def test_errors_survive_pickling() -> None:
    with pytest.raises(GraphdnnError) as caught:
        TensorSpec(uid=1, data_type="f32", dims=(0,), strides=(1,))
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert again.rejections == caught.value.rejections


def test_an_output_that_became_read_only() -> None:
    """The array is the one of the call before; what changed is that nobody may write to it."""
    plan = build(OperationGraph.of([operation("pointwise")]), "cpu")
    bound = {t.uid: np.ones(t.extents, np.float32) for t in plan.config.fused.graph.bound}
    (output,) = plan.config.fused.graph.outputs
    plan.execute(bound)
    kept = bound[output.uid].copy()
    bound[output.uid].flags.writeable = False
    for _ in range(2):
        with pytest.raises(BadParam) as caught:
            plan.execute(bound)
        assert [r.rule for r in caught.value.rejections] == ["binding.read_only"]
    assert (bound[output.uid] == kept).all()
