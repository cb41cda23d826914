"""Every value inside a plan's kernels: the plan's own, bit for bit, and where it first differs from the oracle."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_comparison import emulated
from emulator.runtime import EmulatedRuntime
from random_problems.families import FAMILIES, Case, draw

from graphdnn import Graph, build, fuse
from graphdnn.analysis.random_operands import blended, random_operands
from graphdnn.cli import main
from graphdnn.cli.exit_codes import Exit
from graphdnn.device.profiles import device_spec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines import ENGINE_BY_NAME, Engine, Kernel, Knobs, Task
from graphdnn.engines.host.kernel import Call, compile_on_host
from graphdnn.engines.host.semantics import SEMANTICS
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.errors import BadParam, NotInitialized, NotSupported
from graphdnn.fusion.limits import FusionLimits
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Choice, EngineConfig, Ranking
from graphdnn.operations import PointwiseOperation
from graphdnn.plan import DevicePlan, ExecutionPlan
from graphdnn.problem import parse

CONV = "conv x=f16[2,16,8,8]nhwc w=f16[32,16,3,3]nhwc pad=1 + bias + relu + tanh"


def on_emulator(graph: OperationGraph) -> DevicePlan:
    return DevicePlan(Ranking(fuse(graph), device_spec("h200")).best, EmulatedRuntime())


def prologue() -> OperationGraph:
    """relu(x) enters a convolution in registers."""
    graph = Graph(io_data_type="float32")
    x, w = graph.tensor([2, 8, 6, 6], name="x"), graph.tensor([8, 8, 3, 3], name="w")
    graph.conv_fprop(graph.relu(x), w, padding=[1, 1]).set_output(True)
    return graph.build_operation_graph()


def test_every_value_is_there() -> None:
    graph = parse(CONV).build_operation_graph()
    plan = build(graph, "cpu")
    data = random_operands(graph)
    trace = plan.trace(data)
    assert list(trace) == [t.uid for op in graph.operations for t in op.outputs().values()]
    assert trace.ok
    assert trace.has_same_bits
    assert trace.notes == ()
    assert trace.first_difference is None
    for uid, values in trace.items():
        assert values.dtype == ELEMENTS[graph.tensors[uid].data_type].numpy
        assert values.shape == graph.tensors[uid].extents
    y = graph.outputs[0]
    plan.execute(data, plan.new_workspace())
    assert np.array_equal(trace[y.uid], data[y.uid])
    assert np.array_equal(np.tanh(trace[graph.operations[2].outputs()["y"].uid]).astype(np.float16), trace[y.uid])
    assert "oracle" in str(trace)
    json.dumps(trace.to_json(), allow_nan=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_seeing_changes_no_number_on_the_host(family: str) -> None:
    for seed in range(3):
        drawn = draw(Case(family, seed, large=False))
        plan = build(drawn.graph, "cpu")
        data = random_operands(drawn.graph, seed)
        blended(drawn.graph, data)
        given = {uid: np.copy(value) for uid, value in data.items()}
        trace = plan.trace(data)
        assert trace.has_same_bits
        assert trace.ok, trace.first_difference
        assert all(
            np.array_equal(given[uid], data[uid], equal_nan=True) for uid in given if given[uid].dtype.kind == "f"
        )


@emulated
@pytest.mark.parametrize(
    "text",
    [CONV, "matmul a=f32[2,16,24] b=f32[2,24,16] + bias + gelu", "norm batch x=f16[4,8,6,6]nhwc + relu",
     "conv x=i8[1,32,6,6]nhwc w=i8[16,32,3,3]nhwc pad=1 + relu -> reduce add [1,16,1,1]"],
)  # fmt: skip
def test_seeing_changes_no_number_on_a_device(text: str) -> None:
    graph = parse(text).build_operation_graph()
    trace = on_emulator(graph).trace(random_operands(graph))
    assert trace.ok, trace.first_difference
    assert trace.has_same_bits
    assert {t.tensor.uid for t in trace.tensors if t.tensor.is_virtual} == {
        u for u, t in graph.tensors.items() if t.is_virtual
    }


@emulated
def test_a_rewritten_kernel_is_noted() -> None:
    graph = parse("conv x=f16[1,16,4,4]nhwc w=f16[16,16,2,2]nhwc stride=2").build_operation_graph()
    fused, engine = fuse(graph), ENGINE_BY_NAME["cuda_space_to_depth"]
    choice = Choice(Task(fused.operations[0], device_spec("h200")), engine, engine.defaults())
    plan = DevicePlan(EngineConfig(fused, device_spec("h200"), (choice,)), EmulatedRuntime())
    trace = plan.trace(random_operands(graph))
    assert trace.ok
    assert trace.notes == (
        "conv_fprop: rewrite: space_to_depth (windows do not overlap) -> conv_fprop of [2, 32, 2, 2] and"
        " [16, 32, 2, 1] by cuda_hopper_weight_stationary, weight_stationary_2x64x8",
    )


@emulated
def test_what_feeds_an_anchor_in_registers_is_a_kernel_of_its_own_here() -> None:
    graph = prologue()
    for plan in (on_emulator(graph), build(graph, "cpu")):
        trace = plan.trace(random_operands(graph))
        assert trace.has_same_bits
        assert trace.ok
        (note,) = trace.notes
        assert "relu_fwd" in note


def wrong_at(label: str, element: tuple[int, ...]) -> Engine:
    """The general engine with a fault in one operation."""

    def faulty(op: PointwiseOperation, call: Call) -> Any:
        results = {port: np.array(values) for port, values in SEMANTICS[PointwiseOperation](op, call).items()}
        if op.label() == label:
            results["y"][element] += 1.0
        return results

    def compile(task: Task, knobs: Knobs) -> Kernel:
        return compile_on_host(task.op, {**SEMANTICS, PointwiseOperation: faulty}, "faulty")

    return replace(NUMPY, name="faulty", compile=compile)


@pytest.mark.parametrize(
    ("label", "element"), [("add", (1, 3, 5, 7)), ("relu_fwd", (0, 31, 0, 2)), ("tanh_fwd", (0, 0, 0, 0))]
)
def test_the_first_difference(label: str, element: tuple[int, ...]) -> None:
    graph = parse(CONV).build_operation_graph()
    fused = fuse(graph)
    engine = wrong_at(label, element)
    (op,) = fused
    config = EngineConfig(fused, device_spec("cpu"), (Choice(Task(op, device_spec("cpu")), engine, engine.defaults()),))
    trace = ExecutionPlan(config).trace(random_operands(graph))
    first = trace.first_difference
    assert first is not None
    assert first.operation == label
    assert first.index == element
    value, wanted = first.at
    assert abs(value - wanted - 1) < 1e-2
    assert first.engine == "faulty"
    assert f"element {list(element)}" in str(first)
    assert not trace.ok
    assert trace.to_json()["first_difference"] == first.tensor.uid


def test_a_graph_asks_its_plan() -> None:
    graph = Graph(io_data_type="float16", compute_data_type="float32")
    x, w = graph.tensor([2, 8, 6, 6], name="x"), graph.tensor([8, 8, 3, 3], name="w")
    sums = graph.conv_fprop(x, w, padding=[1, 1], name="conv")
    graph.relu(sums).set_output(True)
    with pytest.raises(NotInitialized, match="not_built"):
        graph.trace({})
    graph.build()
    data = {t: np.ones(t.get_dim(), np.float16) for t in (x, w)}
    by_tensor, by_name = graph.trace(data), graph.trace({"x": data[x], w.get_uid(): data[w]})
    assert by_tensor.ok
    assert np.array_equal(by_tensor[sums.get_uid()], by_name[sums.get_uid()])
    assert graph.where(sums) == graph.where(sums.get_uid())
    assert [place.role for place in graph.where(sums)] == ["writes", "reads"]
    assert graph.kernels[0].vanished == (sums.get_uid(),)
    assert graph.certificate(data).holds
    (output,) = graph.certificate(ranges={x: (-1, 1), "w": (-1, 1)}).outputs
    assert output.worst < 1
    with pytest.raises(BadParam, match=r"builder\.binding\.unknown"):
        graph.certificate(ranges={"nobody": (0, 1)})


@emulated
def test_an_edited_text_is_told_apart() -> None:
    graph = parse("pointwise x=f32[4,64] + relu + tanh").build_operation_graph()
    plan = on_emulator(graph)
    edited = plan.with_source(0, plan.kernels[0].source.replace("tanhf(", "expf("))
    trace = edited.trace(random_operands(graph))
    assert not trace.has_same_bits
    assert "edited" in trace.notes[0]
    assert plan.trace(random_operands(graph)).notes == ()


def test_limits_of_a_plan_are_kept() -> None:
    graph = parse(CONV).build_operation_graph()
    fused = fuse(graph, FusionLimits(bound=2))
    assert len(fused) == 2
    trace = ExecutionPlan(Ranking(fused, device_spec("cpu")).best).trace(random_operands(graph))
    assert trace.has_same_bits
    assert {t.kernel for t in trace.tensors} == {0, 1}


def test_what_feeds_an_anchor_can_be_forced_into_its_kernel() -> None:
    graph = prologue()
    fused = fuse(graph, FusionLimits(force=(tuple(sorted(graph.producer)),)))
    trace = ExecutionPlan(Ranking(fused, device_spec("cpu")).best).trace(random_operands(graph))
    assert trace.has_same_bits
    assert trace.notes


def test_what_cannot_be_traced() -> None:
    graph = parse(CONV).build_operation_graph()
    plan, data = build(graph, "cpu"), random_operands(graph)
    x, *_ = graph.inputs
    wrong = (
        {},
        {**data, 99: data[x.uid]},
        {**data, x.uid: data[x.uid].astype(np.float64)},
        {**data, x.uid: data[x.uid][:1]},
        {**data, x.uid: [1.0]},
    )
    for bindings in wrong:
        for question in (plan.trace, plan.certificate):
            with pytest.raises(BadParam, match="binding"):
                question(bindings)
    assert plan.trace({t.uid: data[t.uid] for t in graph.inputs}).ok, "outputs need not be bound"
    with pytest.raises(NotSupported, match=r"execute\.device_absent"):
        build(graph, "h200").trace(random_operands(graph))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", CONV]) == Exit.OK
    out = capsys.readouterr().out
    for word in ("conv_fprop", "FLOAT, virtual", "the same bits", "verdict   ok"):
        assert word in out
    assert main(["trace", CONV, "--json", "--seed", "3", "--engine", "numpy"]) == Exit.OK
    data = json.loads(capsys.readouterr().out)
    assert (data["format"], data["version"], data["first_difference"]) == ("graphdnn.trace", 1, None)
    assert main(["trace", CONV, "--device", "h200"]) == Exit.NOT_EXECUTED
    assert "execute.device_absent" in capsys.readouterr().err
    assert main(["trace", "no such file.json"]) == Exit.USAGE
