"""Cut points: every place in a graph, sides that can be built and give the same bits, prices, verdicts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import answer, refused
from legal_problems import operation, pointwise, tensor
from problems import EXAMPLES
from random_problems.families import Case, draw

import graphdnn
from graphdnn import BadParam, Graph, HeurMode, NotSupported, OperationGraph, build, graph_to_json, rank
from graphdnn.analysis.cuts import Cut, RunCost, Verdict, cuts_of, timing
from graphdnn.analysis.median_statistics import Interval
from graphdnn.analysis.random_operands import random_operands
from graphdnn.cli.commands.cuts import as_text
from graphdnn.cli.exit_codes import Exit
from graphdnn.enums import PointwiseMode
from graphdnn.fusion import FusionLimits
from graphdnn.problem import parse

LAYER = "conv x=f16[64,128,28,28]nhwc w=f16[128,128,3,3] pad=1 + bias + relu"
SMALL = "conv x=f32[2,8,9,9] w=f32[4,8,3,3] pad=1 + bias + relu"


def graph_of(text: str) -> OperationGraph:
    return parse(text).build_operation_graph()


def unary(mode: PointwiseMode, x: Any, y: Any) -> Any:
    return operation("pointwise", x=x, b=..., y=y, spec=pointwise(mode))


def image(uid: int, *, virtual: bool = True) -> Any:
    return tensor(uid, (2, 4, 6, 6), is_virtual=virtual)


def names(cut: Cut) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return cut.before.operations, cut.after.operations


# Places.


def test_each_edge_of_a_chain_is_a_cut() -> None:
    cuts = cuts_of(graph_of(LAYER), "h200")
    assert "0. conv_fprop | add + relu_fwd: pays (+" in str(cuts)
    assert [names(cut) for cut in cuts] == [
        (("conv_fprop",), ("add", "relu_fwd")),
        (("conv_fprop", "add"), ("relu_fwd",)),
    ]
    first = cuts[0]
    assert cuts.at(*(t.uid for t in first.tensors)) is first
    assert cuts.at(12345) is None


def test_branches_are_cut_one_by_one_and_together() -> None:
    """x -> exp -> {relu -> y1, sigmoid -> y2}: either branch may go, or both."""
    graph = OperationGraph.of([
        unary(PointwiseMode.EXP, image(1, virtual=False), image(10)),
        unary(PointwiseMode.RELU_FWD, image(10), image(2, virtual=False)),
        unary(PointwiseMode.SIGMOID_FWD, image(10), image(3, virtual=False)),
    ])  # fmt: skip
    found = {cut.after.operations for cut in cuts_of(graph)}
    assert found == {("relu_fwd", "sigmoid_fwd"), ("sigmoid_fwd",), ("relu_fwd",)}


def test_a_side_of_several_graphs() -> None:
    """Two chains that only meet at the end: what comes before the cut is two graphs."""
    graph = OperationGraph.of([
        unary(PointwiseMode.EXP, image(1, virtual=False), image(10)),
        unary(PointwiseMode.RELU_FWD, image(2, virtual=False), image(11)),
        operation("pointwise", x=image(10), b=image(11), y=image(3, virtual=False)),
    ])  # fmt: skip
    cut = cuts_of(graph).at(10, 11)
    assert cut is not None
    assert [len(side.graphs) for side in (cut.before, cut.after)] == [2, 1]
    assert cut.second.inputs == tuple(t.model_copy(update={"is_virtual": False}) for t in cut.tensors)
    with pytest.raises(BadParam, match=r"cuts\.parts"):
        _ = cut.first


def test_one_operation_has_no_cuts() -> None:
    assert len(cuts_of(OperationGraph.of([operation("conv_fprop")]))) == 0


# Sides.


def _same_bits(graph: OperationGraph, seed: int) -> int:
    """Execute both sides of each cut and compare with the whole; how many cuts there were."""
    operands = random_operands(graph, seed)
    whole = build(graph, mode=HeurMode.FALLBACK)
    whole.execute(operands, whole.new_workspace())
    wanted = {t.uid: operands[t.uid].copy() for t in graph.outputs}
    cuts = cuts_of(graph)
    for cut in cuts:
        memory = random_operands(graph, seed)
        for part in (*cut.before.graphs, *cut.after.graphs):
            checked = OperationGraph.of(part.operations)  # a part is as legal as the whole
            assert checked.operations == part.operations
            assert (checked.producer, checked.consumers) == (part.producer, part.consumers)
            plan = build(part, mode=HeurMode.FALLBACK)
            for spec in part.bound:
                if spec.uid not in memory:
                    memory[spec.uid] = plan.new_array(spec)
            plan.execute({t.uid: memory[t.uid] for t in part.bound}, plan.new_workspace())
        for uid, values in wanted.items():
            assert memory[uid].tobytes() == values.tobytes(), names(cut)
    return len(cuts)


@pytest.mark.parametrize("family", ["graph", "pointwise_graph", "statistics", "conv_fprop", "softmax"])
@EXAMPLES
def test_first_then_second_gives_the_bits_of_the_whole(family: str, examples: int) -> None:
    for seed in range(3 * examples):
        _same_bits(draw(Case(family, seed, large=False)).graph, seed)


def test_names_and_uids_stay() -> None:
    g = Graph("layer", io_data_type="float32")
    x, w = g.tensor([2, 4, 6, 6], name="x"), g.tensor([4, 4, 3, 3], name="w")
    g.relu(g.conv_fprop(x, w, padding=[1, 1], name="conv")).set_output(True).set_uid(77)
    (cut,) = g.cuts()
    assert cut.first.name == cut.second.name == "layer"
    assert cut.before.operations == ("conv_fprop 'conv'",)
    assert cut.second.outputs[0].uid == 77
    assert cut.first.operations[0].origin == g.build_operation_graph().operations[0].origin != ""
    assert not cut.first.outputs[0].is_virtual
    assert cut.tensors[0].is_virtual


# Prices and verdicts.


@pytest.mark.parametrize("device", ["h200", "cpu"])
@pytest.mark.parametrize("family", ["graph", "statistics", "norm"])
def test_prices_are_the_rankings(family: str, device: str) -> None:
    graph = draw(Case(family, 1, large=False)).graph
    cuts = cuts_of(graph, device)
    assert cuts.whole.predicted == pytest.approx(rank(graph, device).best.predicted_seconds)
    assert cuts.whole.kernels == len(graphdnn.fuse(graph))
    for cut in cuts:
        for side in (cut.before, cut.after):
            assert side.fused.predicted == pytest.approx(
                sum(rank(part, device).best.predicted_seconds for part in side.graphs)
            )


@pytest.mark.parametrize("device", ["h200", "cpu"])
@pytest.mark.parametrize("family", ["graph", "pointwise_graph", "statistics", "softmax"])
def test_large_graphs_are_priced_by_the_kernels_near_a_cut(
    family: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(4):
        graph = draw(Case(family, 20 + seed, large=False)).graph
        _same_prices(graph, device, monkeypatch)


def _same_prices(graph: OperationGraph, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As predicted from all of both sides."""
    monkeypatch.setattr("graphdnn.analysis.cuts.evaluate.FUSED_AGAIN", 10**6)
    wanted = cuts_of(graph, device)
    monkeypatch.setattr("graphdnn.analysis.cuts.evaluate.FUSED_AGAIN", 0)
    for cut, full in zip(cuts_of(graph, device), wanted, strict=True):
        for side, other in ((cut.before, full.before), (cut.after, full.after)):
            assert side.fused.predicted == pytest.approx(other.fused.predicted), str(cut)
            assert (side.fused.kernels, side.fused.bytes) == (other.fused.kernels, other.fused.bytes)
            assert [g.operations for g in side.graphs] == [g.operations for g in other.graphs]


def residual_network(blocks: int) -> OperationGraph:
    """Convolution, bias and ReLU, then the same with a residual, again and again."""
    g = Graph("network", io_data_type="float16", intermediate_data_type="float16", compute_data_type="float32")
    x = g.tensor([8, 64, 28, 28])
    for _ in range(blocks):
        y = x
        for last in (False, True):
            y = g.bias(g.conv_fprop(y, g.tensor([64, 64, 3, 3]), padding=[1, 1]), g.tensor([1, 64, 1, 1]))
            y = g.relu(g.add(y, x) if last else y)
        x = y
    x.set_output(True)
    return g.build_operation_graph()


def test_network(monkeypatch: pytest.MonkeyPatch) -> None:
    _same_prices(residual_network(4), "h200", monkeypatch)


def test_a_tail_in_memory_is_what_the_whole_saves() -> None:
    graph = graph_of(LAYER)
    first, _ = cuts_of(graph, "h200")
    (through,) = first.tensors
    assert first.bytes_saved == 2 * through.bytes  # written, and read again
    assert first.launches_saved == 1
    assert first.after.unfused.launches == 2
    assert first.verdict.word == first.unfused_after.word == "pays"
    assert first.unfused_after.gain > first.verdict.gain > 0.1
    assert first.against(0.0).word == "neutral"
    assert first.against(1.0).word == "pays"


def prologue() -> OperationGraph:
    """scale, bias and ReLU before a 3x3 convolution, channels last in fp16: what tensor cores take as it lies only."""
    g = Graph("prologue", io_data_type="float16", intermediate_data_type="float16", compute_data_type="float32")
    x = g.tensor([64, 256, 28, 28], stride=[256 * 28 * 28, 1, 28 * 256, 256])
    w = g.tensor([256, 256, 3, 3], stride=[256 * 9, 1, 3 * 256, 256])
    scale, shift = g.tensor([1, 256, 1, 1]), g.tensor([1, 256, 1, 1])
    g.conv_fprop(g.relu(g.add(g.mul(x, scale), shift)), w, padding=[1, 1]).set_output(True)
    return g.build_operation_graph()


WITHOUT = ("cuda_materialized_prologue",)  # the engine that computes such chains in a launch of their own


def test_a_fusion_that_hurts_is_found() -> None:
    graph = prologue()
    assert cuts_of(graph, "h200").best is None
    cuts = cuts_of(graph, "h200", without=WITHOUT)
    best = cuts.best
    assert best is not None
    assert best.after.operations == ("conv_fprop",)
    assert (best.verdict.word, best.verdict.gain < -0.1) == ("hurts", True)
    split = rank(graph, "h200", limits=best.limits).best
    assert [op.name for op in split.fused] == ["mul+add+relu_fwd", "conv_fprop"]
    assert split.predicted_seconds == pytest.approx(best.split.predicted)


@pytest.mark.parametrize("family", ["graph", "pointwise_graph", "statistics", "softmax"])
def test_limits_of_a_cut_keep_both_sides_apart(family: str) -> None:
    for seed in range(4):
        graph = draw(Case(family, seed, large=False)).graph
        for cut in cuts_of(graph):
            before = {t.uid for part in cut.before.graphs for t in part.tensors.values() if t.uid in part.producer}
            for op in graphdnn.fuse(graph, cut.limits):
                made = {t.uid in before for step in op.operations for t in step.outputs().values()}
                assert len(made) == 1


def test_an_exit_is_launches_of_its_own() -> None:
    """The reduction reads finished values from memory in both cases, so splitting there neither saves nor costs much."""
    graph = graph_of("conv x=f16[64,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1 + relu -> reduce add [1,64,1,1]")
    cuts = cuts_of(graph, "h200")
    (kernel,) = rank(graph, "h200").best.choices
    compiled: Any = kernel.engine.compile(kernel.task, kernel.knobs)
    assert cuts.whole.launches == len(compiled.steps) == 3
    last = cuts[1]
    assert last.after.operations == ("reduction",)
    assert (last.launches_saved, last.verdict.word) == (0, "neutral")


def test_operands_that_are_computed_ahead_are_paid_for() -> None:
    cuts, second = cuts_of(prologue(), "h200", without=WITHOUT), 2 * 64 * 256 * 28 * 28
    whole, first = cuts.whole, cuts[2].before.fused
    assert whole.launches == 3  # the chain, the columns, the product
    assert whole.predicted > first.predicted
    assert whole.bytes > 2 * second


def test_verdict() -> None:
    def word(whole: float, split: float) -> str:
        return Verdict(whole, split, 0.1, False).word

    assert [word(1.0, 1.2), word(1.0, 1.05), word(1.05, 1.0), word(1.2, 1.0)] == ["pays", "neutral", "neutral", "hurts"]
    assert str(Verdict(1.0, 1.25, 0.1, False)) == "pays (+25%)"
    assert Verdict(0.0, 0.0, 0.1, False).gain == 0


def test_a_difference_within_the_intervals_is_neutral() -> None:
    def word(whole: float, split: float) -> str:
        return Verdict(whole, split, 0.1, True, uncertainty=0.2).word

    assert [word(1.0, 1.35), word(1.0, 1.25), word(1.25, 1.0), word(1.35, 1.0)] == [
        "pays",
        "neutral",
        "neutral",
        "hurts",
    ]
    assert str(Verdict(1.0, 1.35, 0.1, True, 0.2)) == "pays (+35% +/- 20%)"


@dataclass
class Samples:
    interval: Interval


def test_prices_add_up() -> None:
    first, second = Samples(Interval(3.0, 2.5, 3.1)), Samples(Interval(5.0, 4.0, 6.0))
    total = RunCost(1.0, 10, 1, 2, (first,)) + RunCost(2.0, 20, 3, 4, (second,))
    assert (total.predicted, total.bytes, total.kernels, total.launches, total.seconds) == (3.0, 30, 4, 6, 8.0)
    assert total.uncertainty == pytest.approx(0.3 + 1.0)
    assert (total + RunCost(1.0, 0, 1, 1)).seconds == 4.0  # nothing is measured unless all of it is


def test_filters_and_names_hold_for_the_parts() -> None:
    g = Graph("layer", device="h200")
    x, w = g.tensor([8, 64, 28, 28], data_type="float16"), g.tensor([64, 64, 3, 3], data_type="float16")
    y = g.relu(g.conv_fprop(x, w, padding=[1, 1], compute_data_type="float32"))
    y.set_data_type("float16").set_output(True)
    fast = g.cuts().whole.predicted
    g.deselect_engines(["hopper", "mma"])
    assert g.cuts().whole.predicted > fast
    g.deselect_engines(["cuda"])
    with pytest.raises(NotSupported, match=r"cuts\.engines"):
        g.cuts()


def test_a_plan_is_asked_for_its_cuts() -> None:
    graph = graph_of(SMALL)
    plan = build(graph, limits=FusionLimits.of(bound=2))
    assert plan.cuts().to_json() == cuts_of(graph, limits=FusionLimits.of(bound=2)).to_json()
    assert plan.cuts(measure=True).whole.measured is not None


def test_measured_on_the_host() -> None:
    cuts = cuts_of(graph_of(SMALL), measure=True, margin=0.5)
    assert cuts.whole.measured is not None
    for cut in cuts:
        assert cut.verdict.is_measured
        assert cut.verdict.margin == 0.5
        assert cut.split.seconds == pytest.approx(cut.before.fused.measured + cut.after.fused.measured)  # type: ignore[operator]
        assert cut.after.unfused.measured is not None


def test_plans_that_are_measured_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that slows down slows all of them: the verdict of equal work stays neutral."""
    calls: list[int] = []
    monkeypatch.setattr(timing.Timed, "sample", lambda one: (calls.append(id(one)), one.samples.append(len(calls))))
    cuts_of(graph_of(SMALL), measure=True)
    plans = len(set(calls))
    assert plans > 2
    assert len(calls) == timing.MOST_ROUNDS * plans
    assert all(calls[i] == calls[i % plans] for i in range(len(calls)))


def test_measuring_ends_when_there_are_enough_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(10**6))
    monkeypatch.setattr(timing, "perf_counter", lambda: float(next(seconds)))
    cuts = cuts_of(graph_of(SMALL), measure=True)
    assert cuts.whole.timed is not None
    assert {len(one.samples) for one in cuts.whole.timed} == {timing.FEWEST}  # type: ignore[attr-defined]


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf"), "0.1", True])
def test_a_margin_that_is_none(margin: Any) -> None:
    with pytest.raises(BadParam, match=r"cuts\.margin"):
        cuts_of(graph_of(SMALL), margin=margin)


# The command.


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, _ = answer(capsys, "cuts", LAYER, "--device", "h200")
    assert "conv_fprop+add" in out
    assert "pays (+" in out
    assert "keep it whole" in out
    file = tmp_path / "prologue.json"
    file.write_text(graph_to_json(prologue()), encoding="utf-8")
    out, _ = answer(capsys, "cuts", str(file), "--device", "h200")
    assert "keep it whole" in out
    out = as_text(cuts_of(prologue(), "h200", without=WITHOUT))
    assert "split it at [2]" in out
    assert "in one plan: graphdnn run GRAPH --forbid " in out
    out, _ = answer(capsys, "cuts", "conv x=f32[1,2,5,5] w=f32[2,2,3,3]")
    assert "nothing to cut" in out


def test_command_measures(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = answer(capsys, "cuts", SMALL, "--measure", "--margin", "1000", code=Exit.USAGE)
    out, _ = answer(capsys, "cuts", SMALL, "--measure", "--margin", "9")
    assert "measured" in out
    assert "keep it whole: no split is faster by more than 900%" in out


def test_command_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(answer(capsys, "cuts", LAYER, "--device", "h200", "--json")[0])
    assert (found["format"], found["version"], found["device"]) == ("graphdnn.cuts", 1, "h200")
    first = found["cuts"][0]
    assert first["verdict"] == "pays"
    assert first["split_us"] == pytest.approx(
        first["before"]["fused"]["predicted_us"] + first["after"]["fused"]["predicted_us"]
    )


def test_command_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert "problem.word" in refused(capsys, "cuts", "nothing x=f32[1]", code=Exit.USAGE)
    assert "device.unknown" in refused(capsys, "cuts", SMALL, "--device", "abacus", code=Exit.USAGE)
    assert "device_absent" in refused(
        capsys,
        "cuts",
        "pointwise x=f32[2,4,8,8] + exp + relu",
        "--device",
        "l40s",
        "--measure",
        code=Exit.NOT_EXECUTED,
    )
