"""Limits of the fusion: kernels forced, forbidden and bounded, in the pass, in plans, in files and on the command line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from time import process_time
from typing import Any

import networkx as nx
import pytest
from command_line import answer, refused
from legal_problems import CHANNEL, IMAGE, operation, pointwise, tensor
from problems import EXAMPLES
from random_problems.families import Case, draw
from test_fusion import M, binary, conv, image, names, softmax, unary, virtual

import graphdnn
from graphdnn import BadParam, Graph, HeurMode, MalformedFile, NotSupported, OperationGraph, build, fuse, rank
from graphdnn.analysis.cuts import cuts_of
from graphdnn.analysis.random_operands import random_operands
from graphdnn.cli.exit_codes import Exit
from graphdnn.files import digest_of, plan_from_json, plan_to_json
from graphdnn.fusion import FusedGraph, FusionLimits
from graphdnn.fusion.limits import closed, joined_up, limits_from_json

LAYER = OperationGraph.of([
    conv(virtual(10), image(1)),
    binary(M.ADD, virtual(10), tensor(2, CHANNEL), virtual(11)),
    unary(M.RELU_FWD, virtual(11), image(3)),
])  # fmt: skip


def limited(*operations: Any, **limits: Any) -> FusedGraph:
    return fuse(OperationGraph.of(operations), FusionLimits.of(**limits))


def test_no_limits_are_no_limits() -> None:
    assert not FusionLimits()
    assert str(FusionLimits()) == "none"
    assert fuse(LAYER).limits == FusionLimits.of()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"forbid": [(10,)]}, ["conv_fprop", "add+relu_fwd"]),
        ({"forbid": [(11, 3)]}, ["conv_fprop+add", "relu_fwd"]),
        ({"forbid": [(10, 3)]}, ["conv_fprop+add", "relu_fwd"]),  # also through the operation between
        ({"forbid": [(10,), (11,)]}, ["conv_fprop", "add", "relu_fwd"]),
        ({"bound": 1}, ["conv_fprop", "add", "relu_fwd"]),
        ({"bound": 2}, ["conv_fprop+add", "relu_fwd"]),
        ({"bound": 3}, ["conv_fprop+add+relu_fwd"]),
        ({"force": [(11, 3)], "forbid": [(10,)]}, ["conv_fprop", "add+relu_fwd"]),
    ],
)
def test_kernels_of_a_chain(limits: dict[str, Any], expected: list[str]) -> None:
    graph = fuse(LAYER, FusionLimits.of(**limits))
    assert names(graph) == expected
    assert len(graph.stopped_by) == len(expected) - 1
    assert {stop.rule for stop in graph.stopped_by} <= {"fuse.limits.forbid", "fuse.limits.bound"}
    assert (f"limits: {graph.limits}" in str(graph)) is (len(expected) > 1 or "bound" in limits)


@pytest.mark.parametrize(
    ("forbidden", "expected"),
    [
        ([], ["abs+exp+cmp_gt+binary_select"]),
        ([(10,)], ["abs", "exp+cmp_gt+binary_select"]),
        ([(11,)], ["exp", "abs+cmp_gt+binary_select"]),
        ([(12,)], ["cmp_gt", "abs+exp+binary_select"]),
    ],
)
def test_one_of_three_branches_stays_apart(forbidden: list[tuple[int, ...]], expected: list[str]) -> None:
    """What keeps one branch out of the kernel where they meet keeps out no other."""
    mask = tensor(12, IMAGE, "bool", is_virtual=True)
    branches = (unary(M.ABS, image(1), virtual(10)), unary(M.EXP, image(2), virtual(11)))
    spec = pointwise(M.BINARY_SELECT)
    meeting = operation("pointwise", x=virtual(10), b=virtual(11), t=mask, y=image(5), spec=spec)
    graph = limited(*branches, binary(M.CMP_GT, image(3), image(4), mask), meeting, forbid=forbidden)
    assert names(graph) == expected


def test_forced_into_the_next_kernel() -> None:
    """What the first convolution's epilogue would take becomes the second one's prologue."""
    operations = [
        conv(virtual(10), image(1)),
        unary(M.RELU_FWD, virtual(10), virtual(11)),
        unary(M.EXP, virtual(11), virtual(12)),
        conv(image(3), virtual(12), 101),
    ]
    assert names(limited(*operations)) == ["conv_fprop+relu_fwd+exp", "conv_fprop"]
    graph = limited(*operations, force=[(11, 3)])  # the operation between belongs to it
    assert names(graph) == ["conv_fprop", "relu_fwd+exp+conv_fprop"]
    assert [stop.rule for stop in graph.stopped_by] == ["fuse.limits.force"]


def test_forced_into_the_earlier_of_two_kernels() -> None:
    operations = [
        conv(virtual(10), image(1)),
        conv(virtual(11), image(2), 101),
        binary(M.ADD, virtual(10), virtual(11), image(3)),
    ]
    assert names(limited(*operations)) == ["conv_fprop", "conv_fprop+add"]
    graph = limited(*operations, force=[(10, 3)])
    assert [(op.anchor.w.uid, len(op.epilogue)) for op in graph] == [(101, 0), (100, 1)]  # type: ignore[union-attr]


def test_what_cannot_be_forced_is_refused_with_the_rules_reason() -> None:
    chain = [conv(virtual(10), image(1)), conv(image(3), virtual(10), 101)]
    with pytest.raises(NotSupported, match=r"limits\.force") as caught:
        limited(*chain, force=[(10, 3)])
    (found,) = caught.value.rejections
    assert "fuse.consumer.kind" in found.reason
    assert found.fix == "nothing to do: this operation starts its own kernel"
    siblings = [unary(M.EXP, image(1), image(2)), conv(image(3), image(1))]
    with pytest.raises(NotSupported, match="no value passes"):
        limited(*siblings, force=[(2, 3)])
    with pytest.raises(NotSupported, match=r"fuse\.limits\.bound"):
        fuse(LAYER, FusionLimits.of(force=[(10, 3)], bound=2))


def test_softmaxes_obey() -> None:
    operations = softmax(image(1), image(2))
    assert names(limited(*operations, bound=5)) == ["reduction+sub+exp+reduction+div"]
    assert len(limited(*operations, bound=4)) > 1
    pair = limited(*operations, forbid=[(23, 2)])  # the powers and the quotient
    assert all(not {"exp", "div"} <= set(op.name.split("+")) for op in pair)
    assert "fuse.limits.forbid" in {stop.rule for stop in pair.declined_patterns}


@pytest.mark.parametrize(
    "entries",
    [
        {"force": [(1,)]}, {"force": [1]}, {"force": ["ab"]}, {"force": [(3, 3)]}, {"forbid": [(1, 2, 3)]},
        {"forbid": [()]}, {"forbid": [(1.5,)]}, {"forbid": [(True,)]}, {"bound": 0}, {"bound": 2.0}, {"bound": True},
    ],
)  # fmt: skip
def test_entries_that_mean_nothing(entries: dict[str, Any]) -> None:
    with pytest.raises(BadParam, match=r"limits\.entry"):
        FusionLimits.of(**entries)


def test_uids_that_nothing_writes() -> None:
    for limits in ({"force": [(10, 1)]}, {"forbid": [(999,)]}):
        with pytest.raises(BadParam, match=r"limits\.uid"):
            fuse(LAYER, FusionLimits.of(**limits))


def test_json() -> None:
    limits = FusionLimits.of(force=[(10, 11)], forbid=[[3]], bound=7)
    assert limits_from_json(json.loads(json.dumps(limits.to_json()))) == limits
    with pytest.raises(BadParam, match=r"limits\.entry"):
        limits_from_json({"colour": 1})


def test_what_is_between_belongs_to_a_kernel() -> None:
    for seed in range(20):
        graph = draw(Case("graph", seed, large=False)).graph
        edges: nx.DiGraph[int] = nx.DiGraph((producer, consumer) for producer, consumer, _ in graph.edges())
        edges.add_nodes_from(range(len(graph.operations)))
        draw_of = random.Random(seed)
        groups = [draw_of.sample(range(len(edges)), min(len(edges), 2)) for _ in range(4)]
        for group, found in zip(groups, closed(graph, groups), strict=True):
            paths = (nx.descendants(edges, a) & nx.ancestors(edges, b) for a in group for b in group)
            assert found == set(group).union(*paths)
    assert set(joined_up([frozenset({1, 2}), frozenset({4, 5}), frozenset({2, 3}), frozenset({3, 4})])) == {
        frozenset({1, 2, 3, 4, 5})
    }


def test_many_entries_take_no_time() -> None:
    """A file may have thousands."""
    operations = [unary(M.ABS, image(1) if i == 0 else virtual(9 + i), virtual(10 + i)) for i in range(999)]
    graph = OperationGraph.of([*operations, unary(M.ABS, virtual(1008), image(2))])
    everything = FusionLimits.of(force=[(10, 1008 - i) for i in range(998)])
    start = process_time()
    assert len(fuse(graph, everything)) == 1
    with pytest.raises(NotSupported) as caught:
        fuse(graph, FusionLimits.of(everything.force, bound=2))
    assert len(caught.value.rejections) <= 256
    assert process_time() - start < 5
    with pytest.raises(BadParam, match="at most 4096 entries"):
        FusionLimits.of(forbid=[(1,)] * 5000)


# Everything computes the same.


@pytest.mark.parametrize("family", ["graph", "pointwise_graph", "softmax"])
@EXAMPLES
def test_limits_change_no_number(family: str, examples: int) -> None:
    for seed in range(2 * examples):
        graph = draw(Case(family, seed, large=False)).graph
        made = sorted(graph.producer)
        wanted = _bits(graph, FusionLimits())
        for limits in (
            FusionLimits.of(bound=1),
            FusionLimits.of(bound=2),
            FusionLimits.of(forbid=[(made[seed % len(made)],)]),
        ):
            fused = fuse(graph, limits)
            assert limits.bound is None or max(len(op.operations) for op in fused) <= limits.bound
            assert all(t.uid not in {u for (u,) in limits.forbid} for op in fused for t in op.internal)
            assert _bits(graph, limits) == wanted


def _bits(graph: OperationGraph, limits: FusionLimits) -> list[bytes]:
    operands = random_operands(graph)
    plan = build(graph, mode=HeurMode.FALLBACK, limits=limits)
    plan.execute(operands, plan.new_workspace())
    return [operands[t.uid].tobytes() for t in graph.outputs]


# Where they are asked for.


def test_rankings_are_kept_apart() -> None:
    assert rank(LAYER) is rank(LAYER)
    assert rank(LAYER, limits=FusionLimits.of(bound=1)) is not rank(LAYER)
    assert len(build(LAYER, limits=FusionLimits.of(bound=1)).kernels) == 3


def test_builder() -> None:
    g = Graph("layer", io_data_type="float32")
    x, w, b = g.tensor([2, 4, 6, 6]), g.tensor([4, 4, 1, 1]), g.tensor([1, 4, 1, 1])
    sums = g.bias(g.conv_fprop(x, w), b, name="sums")
    y = g.relu(sums).set_output(True)
    g.create_execution_plans()
    g.limit_fusion(forbid=[(sums,)])
    assert names(g.fused) == ["conv_fprop+add", "relu_fwd"]
    assert len(g.build().kernels) == 2
    g.limit_fusion(bound=1)
    assert len(g.fused) == len(g.ranking.fused) == g.cuts().whole.kernels == 3
    with pytest.raises(NotSupported, match=r"limits\.force"):
        g.limit_fusion(force=[(sums.name, y)])
    with pytest.raises(BadParam, match=r"limits\.uid"):
        g.limit_fusion(forbid=[("nothing",)])
    assert len(g.fused) == 3  # as before


def test_plan_files() -> None:
    limits = FusionLimits.of(forbid=[(10,)], bound=2)
    text = plan_to_json(build(LAYER, limits=limits))
    again = plan_from_json(text)
    assert again.config.fused.limits == limits
    assert names(again.config.fused) == ["conv_fprop", "add+relu_fwd"]
    assert "limits" not in json.loads(plan_to_json(build(LAYER)))
    for entry in ({"force": [[10, 3]], "bound": 1}, {"forbid": [[77]]}, {"bound": -1}, {"x": 1}, [], 3, {"force": 1}):
        data = {**json.loads(text), "limits": entry}
        data.pop("sha256")
        with pytest.raises(MalformedFile):
            plan_from_json(json.dumps({**data, "sha256": digest_of(data)}))


def test_a_trace_has_the_plans_kernels() -> None:
    from graphdnn.analysis.trace.materialize import visible

    config = build(LAYER, limits=FusionLimits.of(forbid=[(10,)])).config
    assert names(visible(config).config.fused) == ["conv_fprop", "add+relu_fwd"]


def test_parts_of_a_cut_keep_what_concerns_them() -> None:
    limits = FusionLimits.of(force=[(11, 3)], forbid=[(10,)])
    cuts = cuts_of(LAYER, limits=limits)
    assert cuts.whole.kernels == 2
    cut = cuts.at(11)
    assert cut is not None
    assert (cut.before.fused.kernels, cut.after.fused.kernels) == (2, 1)
    assert limits.within(cut.first) == FusionLimits.of(forbid=[(10,)])


CHAIN = "conv x=f32[2,8,9,9] w=f32[4,8,3,3] pad=1 + bias + relu"  # uids 3, 5, 6


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, _ = answer(capsys, "explain", CHAIN, "--forbid", "3", "--bound", "2")
    assert "limits: uid 3 in memory; at most 2 operations in a kernel" in out
    assert "fuse.limits.forbid" in out
    file = str(tmp_path / "plan.json")
    answer(capsys, "run", CHAIN, "--force", "5,6", "--forbid", "3", "--save-plan", file)
    out, _ = answer(capsys, "explain", file)
    assert "limits: one kernel for uid 5 and uid 6; uid 3 in memory" in out
    found = json.loads(answer(capsys, "explain", file, "--json")[0])
    assert found["fused"]["limits"] == {"force": [[5, 6]], "forbid": [[3]], "bound": None}
    assert "3 kernels" in answer(capsys, "cuts", CHAIN, "--bound", "1")[0]


def test_command_line_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "uids" in refused(capsys, "explain", CHAIN, "--force", "a,b", code=Exit.USAGE)
    assert "limits.entry" in refused(capsys, "explain", CHAIN, "--force", "3", code=Exit.USAGE)
    assert "limits.uid" in refused(capsys, "cuts", CHAIN, "--forbid", "99", code=Exit.USAGE)
    file = str(tmp_path / "plan.json")
    answer(capsys, "run", CHAIN, "--forbid", "3", "--save-plan", file)
    assert "limits.force" in refused(capsys, "explain", file, "--force", "3,5", code=Exit.NOT_SUPPORTED)
    assert "limits.force" in refused(capsys, "run", CHAIN, "--force", "3,6", "--bound", "2", code=Exit.NOT_SUPPORTED)


def test_the_former_name_remains() -> None:
    assert graphdnn.Limits is graphdnn.FusionLimits
