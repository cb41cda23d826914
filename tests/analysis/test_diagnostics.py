"""The ledger: one record for every refusal, whoever refused it."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace
from typing import Any

import pytest
from legal_problems import operation, tensor
from repository import ROOT

import graphdnn
from graphdnn import Filters, Graph, HeurMode, KnobType, OperationGraph, Ranking, device_spec, rank
from graphdnn.analysis.diagnostics import (
    ENTRY_FIELDS,
    KINDS,
    LEDGER_FIELDS,
    SUBJECT_FIELDS,
    DiagnosticList,
    of_error,
    of_ranking,
)
from graphdnn.engines import Knob
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.enums import PointwiseMode, ReductionOperator, Status
from graphdnn.errors import GraphdnnError
from graphdnn.operations import PointwiseOperation, PointwiseSpec
from graphdnn.rules import RULES

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "integer or null": (int, type(None)),
    "object": (dict,),
    "array of string": (list,),
    "array of integer": (list,),
    "array of object": (list,),
}


def centred(device: str | None = None) -> Graph:
    """A graph that does not fuse: what follows a reduction is the next kernel."""
    graph = Graph("centred", io_data_type="float16", device=device)
    y = graph.conv_fprop(graph.tensor([2, 64, 14, 14]), graph.tensor([64, 64, 3, 3]), name="conv")
    mean = graph.reduction(y, ReductionOperator.AVG).set_dim([1, 64, 1, 1])
    graph.sub(y, mean, name="centre").set_output(True)
    return graph


def complete(ledger: DiagnosticList) -> None:
    """Every field says something, and every address exists."""
    sections = set(re.findall(r"^## (\S+)$", (ROOT / "docs" / "errors.md").read_text(encoding="utf-8"), re.M))
    for entry in ledger:
        assert entry.kind in KINDS
        assert entry.rule in RULES
        for text in (entry.attribute, entry.actual, entry.required, entry.reason, entry.fix, entry.subject.text):
            assert text, entry
        page, anchor = entry.documented.split("#")
        assert (ROOT / page).exists()
        assert anchor in sections
        assert entry.rule in str(entry)
        assert (entry.status is Status.SUCCESS) == entry.rule.startswith("fuse.")


def test_a_plan_says_why_edges_and_engines_were_refused() -> None:
    plan = centred("h200").build()
    ledger = plan.refusals()
    complete(ledger)
    assert {"edge", "pattern", "engine", "filter"} <= {e.kind for e in ledger}
    stopped = plan.config.fused.stopped_by
    assert [(e.rule, e.subject.uids) for e in plan.refusals(kind="edge")] == [
        (s.rule, (s.tensor.uid,)) for s in stopped
    ]
    declined = graphdnn.rank(plan.config.fused.graph, "h200").declined
    said = {(d.operation.index, d.engine.id, r.rule) for d in declined for r in d.rejections}
    assert {(e.subject.fused, e.subject.engine_id, e.rule) for e in ledger if e.subject.engine} == said


def test_an_edge_names_both_operations_the_tensor_and_where_they_were_created() -> None:
    (entry,) = centred().refusals(kind="edge", operation="conv")
    assert entry.rule == "fuse.after_exit"
    assert entry.subject.operations == ("conv_fprop 'conv'", "sub 'centre'")
    assert len(entry.subject.uids) == 1
    assert all(re.fullmatch(r"test_diagnostics\.py:\d+", origin) for origin in entry.subject.origins)


def test_filters_of_a_ledger() -> None:
    ledger = centred("h200").refusals()
    assert {e.rule for e in ledger.only(rule="fuse")} == {"fuse.after_exit"}
    assert {e.subject.engine for e in ledger.only(engine=54)} == {"cuda_hopper_halo"}
    assert ledger.only(engine=54) == ledger.only(engine="cuda_hopper_halo")
    assert {e.subject.fused for e in ledger.only(operation=1)} == {1}
    assert {e.kind for e in ledger.only(kind="filter", operation="conv_fprop 'conv'")} == {"filter"}
    (uid,) = ledger.only(kind="edge", operation="conv")[0].subject.uids
    assert all(uid in e.subject.uids for e in ledger.only(uid=uid))
    assert len(ledger.only(uid=uid)) > 1
    assert len(ledger.only(uid=4711)) == 0
    assert ledger.only() == ledger
    assert str(ledger.only(uid=4711)) == "nothing was refused"
    assert "edge" in repr(ledger)


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ({"engine": "numpi"}, "numpy"),
        ({"engine": 4711}, "numpy"),
        ({"engine": "cuda_direct"}, "numpy"),
        ({"kind": "edges"}, "edge"),
        ({"rule": "fuse.after_exits"}, "fuse.after_exit"),
        ({"rule": "zzz"}, "fuse"),
        ({"operation": 9}, "0, 1"),
        ({"operation": "relu"}, "conv_fprop 'conv'"),
        ({"uid": 4711}, "1, 2"),
    ],
    ids=str,
)
def test_what_nothing_is_called_is_refused(asked: dict[str, Any], known: str) -> None:
    """An empty answer means that nothing was refused."""
    graph = centred("cpu")
    for refusals in (graph.refusals, graph.build().refusals):
        with pytest.raises(GraphdnnError) as caught:
            refusals(**asked)
        (rejection,) = caught.value.rejections
        assert rejection.rule == "ledger.unknown"
        assert known in rejection.expected


def test_a_plan_knows_the_filters_it_was_ranked_with() -> None:
    graph = OperationGraph.of([operation("conv_fprop")])
    limited = graphdnn.ExecutionPlan(rank(graph, filters=Filters(workspace_limit=0)).best)
    (entry,) = limited.refusals(kind="filter")
    assert entry.rule == "filter.workspace"
    assert entry.subject.engine == "numpy_blocked"
    assert len(graphdnn.build(graph).refusals()) == 0


def test_knob_values_that_a_filter_excludes() -> None:
    """An engine that serves within the limit, with other knob values than its defaults."""
    stages = KnobType.STAGES
    engine = replace(
        NUMPY, id=900, name="custom", knobs=(Knob(stages, 2, 8, 2, 4, "stages"),), frugal={stages: 2},
        workspace=lambda task, knobs: knobs[stages] * 100,
    )  # fmt: skip
    fused = graphdnn.fuse(OperationGraph.of([operation("conv_fprop")]))
    cpu, limit = device_spec("cpu"), Filters(workspace_limit=250)
    ledger = of_ranking(Ranking(fused, cpu, HeurMode.A, limit, (engine,)))
    (entry,) = ledger
    assert (entry.kind, entry.rule, entry.subject.engine_id) == ("knob", "filter.workspace", 900)
    assert entry.subject.text == "custom for [0] conv_fprop with STAGES=4"
    assert entry.actual == "400"
    every = of_ranking(Ranking(fused, cpu, HeurMode.B, limit, (engine,)))
    assert [e.actual for e in every.only(kind="knob")] == ["400", "600", "800"]


def test_an_engine_deselected_by_name_is_in_the_ledger() -> None:
    graph = Graph("one", io_data_type="float32")
    graph.relu(graph.tensor([2, 3])).set_output(True)
    graph.deselect_engines(["numpy"])
    with pytest.raises(GraphdnnError) as raised:
        graph.build()
    for ledger in (graph.refusals(), raised.value.ledger):
        complete(ledger)
        assert "builder.deselected" in {e.rule for e in ledger.only(kind="filter")}
    assert {e.rule for e in raised.value.ledger} >= {"numpy_blocked.operation"}


def test_no_engine_is_an_error_with_the_whole_ledger() -> None:
    graph = OperationGraph.of([operation("conv_fprop")])
    with pytest.raises(GraphdnnError) as raised:
        graphdnn.build(
            graph, filters=Filters(without_numerical_notes=frozenset({graphdnn.NumericalNote.STRICT_NAN_PROP}))
        )
    ledger = raised.value.ledger
    complete(ledger)
    assert {e.subject.engine for e in ledger.only(kind="filter")} == {"numpy", "numpy_blocked"}
    assert all(e.subject.uids for e in ledger)


def test_a_refused_description_is_an_entry_too() -> None:
    def refused(**changes: Any) -> DiagnosticList:
        with pytest.raises(GraphdnnError) as raised:
            operation("conv_fprop", name="layer", origin="model.py:12", **changes)
        ledger = raised.value.ledger
        assert isinstance(ledger, DiagnosticList)
        complete(ledger)
        again = pickle.loads(pickle.dumps(raised.value)).ledger  # the subject stays behind, the refusal does not
        assert again.rules == ledger.rules
        return ledger

    (entry,) = refused(y=tensor(3, (2, 4, 5, 4)))
    assert (entry.kind, entry.rule) == ("value", "conv.y.extents")
    assert entry.subject.operations == ("conv_fprop 'layer'",)
    assert entry.subject.uids == (1, 2, 3)
    assert entry.subject.origins == ("model.py:12",)
    with pytest.raises(GraphdnnError) as raised:
        tensor(7, (2, 3), strides=(1,))
    assert raised.value.ledger[0].subject.uids == (7,)


def test_a_refused_graph_names_its_tensors() -> None:
    x, y = tensor(1, (2, 4, 6, 6), is_virtual=True, name="x"), tensor(2, (2, 4, 6, 6))
    relu = PointwiseSpec(mode=PointwiseMode.RELU_FWD, math_type="f32")
    with pytest.raises(GraphdnnError) as raised:
        OperationGraph.of([PointwiseOperation(spec=relu, x=x, y=y, name="act", origin="net.py:3")])
    (entry,) = raised.value.ledger
    assert (entry.rule, entry.subject.uids, entry.subject.origins) == ("graph.virtual.dangling", (1,), ("net.py:3",))


def test_a_graph_that_cannot_be_built_still_answers() -> None:
    graph = Graph("open")
    graph.relu(graph.tensor([2, 3])).set_output(True)  # nothing says what the elements are
    ledger = graph.refusals()
    complete(ledger)
    assert ledger.rules == ("builder.data_type.open",)
    settings = Graph("settings", io_data_type="float32")
    with pytest.raises(GraphdnnError) as raised:
        settings.conv_fprop(settings.tensor([1, 4, 6, 6]), settings.tensor([4, 4, 3, 3]), padding=[-1, 0])
    (entry, *_) = raised.value.ledger
    assert entry.rule == "convolution.pre_paddings.minimum"
    assert entry.subject.origins[0].startswith("test_diagnostics.py:")


def test_a_declined_chain_is_a_pattern() -> None:
    from rule_cases import softmax

    ledger = of_ranking(rank(OperationGraph.of(softmax(total=(2, 4, 6, 1)))))
    (entry,) = {e.rule: e for e in ledger.only(kind="pattern", rule="fuse.softmax")}.values()
    assert entry.rule == "fuse.softmax.rows"
    complete(ledger)


def test_the_format_is_the_documented_one() -> None:
    data = json.loads(json.dumps(centred("h200").refusals().to_json()))
    assert (data["format"], data["version"]) == ("graphdnn.ledger", 1)
    for entry in data["entries"]:
        _agrees(entry, ENTRY_FIELDS)
        _agrees(entry["subject"], SUBJECT_FIELDS)
    _agrees(data, LEDGER_FIELDS)
    page = (ROOT / "docs" / "refusals.md").read_text(encoding="utf-8")
    for fields in (LEDGER_FIELDS, ENTRY_FIELDS, SUBJECT_FIELDS):
        rows = "\n".join(f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in fields)
        assert rows in page, f"docs/refusals.md lacks\n{rows}"
    assert "\n".join(f"| `{kind}` | {meaning} |" for kind, meaning in KINDS.items()) in page


def _agrees(data: dict[str, Any], fields: tuple[tuple[str, str, str], ...]) -> None:
    assert list(data) == [name for name, _, _ in fields]
    for name, kind, _ in fields:
        assert isinstance(data[name], TYPES[kind]), f"{name} = {data[name]!r}"
        if kind.startswith("array of "):
            assert all(isinstance(item, TYPES[kind.removeprefix("array of ")]) for item in data[name])


def test_an_error_without_a_subject() -> None:
    error = graphdnn.BadParam(RULES["graph.empty"].reject("OPERATIONGRAPH", "operations", "none"))
    assert of_error(error).rules == ("graph.empty",)
