"""Hostile calls of the builder end in a result or in an error of the library; a short drawn run, and a long one."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import builder_calls
import numpy as np
import pytest
from builder_calls import GRAPH, TENSOR, attack, graph

from graphdnn import BadParam, Graph, GraphdnnError, plan_to_json
from graphdnn.builder.border import ELSEWHERE, READERS
from graphdnn.builder.tensor import Tensor
from graphdnn.enums import HeurMode


def _run(count: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some arguments are names of files
    endings, found = attack(count, seed)
    assert not found, "\n".join(f"{f.method}({f.arguments}): {f.error}" for f in found[:20])
    assert endings["refused"] > count / 2
    assert endings["accepted"] > count / 100


def test_hostile_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(2500, 0, tmp_path, monkeypatch)


@pytest.mark.long
def test_very_many_hostile_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(150_000, 1, tmp_path, monkeypatch)


def test_an_exception_of_a_call_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack itself: a method that hands on what an object raises is named."""
    monkeypatch.setattr(Graph, "get_plan_name_at_index", lambda self, index: [][index])
    assert any(f.method == "Graph.get_plan_name_at_index" for f in attack(14_000, 0)[1])


def test_every_parameter_has_a_reader() -> None:
    """A new annotation needs a row: a reader at the border, or its place among those that are read where they are used."""
    known = {*READERS, *ELSEWHERE, inspect.Parameter.empty}
    signatures = [*GRAPH.values(), *TENSOR.values(), inspect.signature(Graph)]
    found = {p.annotation for s in signatures for p in s.parameters.values() if p.kind is not p.VAR_KEYWORD}
    assert not found - known


MISUSE: dict[str, Any] = {
    "pack of nothing": lambda g, x: g.execute(None), "pack of a number": lambda g, x: g.execute(0),
    "plan of nothing": lambda g, x: g.build(None), "plan of a number": lambda g, x: g.build(5),
    "plan of a mode": lambda g, x: g.build(HeurMode.B), "plans of nothing": lambda g, x: g.create_execution_plans(None),
    **{f"{m} {v!r}": (lambda g, x, m=m, v=v: getattr(g, m)(v)) for m in GRAPH if m.endswith("_at_index") for v in ("x", 1.5, None)},
    **{f"deselect {v!r}": (lambda g, x, v=v: g.deselect_engines(v)) for v in (None, [5], b"x")},
    "force": lambda g, x: g.limit_fusion(force=[5]), "forbid": lambda g, x: g.limit_fusion(forbid=None),
    "notes": lambda g, x: g.allow_numeric_notes(None),
    "knobs": lambda g, x: g.create_execution_plan("numpy_blocked", [(1, 1)]),
    **{
        f"resample {p}": (lambda g, x, p=p: g.resample(**{"input": x, "mode": "MAXPOOL", "window": [2, 2]} | {p: [float("inf"), 1]}))
        for p in ("window", "stride", "pre_padding", "post_padding")
    },
    "padding": lambda g, x: g.conv_fprop(x, g.tensor([4, 4, 3, 3]), padding=np.ones((2, 2))),
    "rnn": lambda g, x: g.rnn_forward(None, x, x), "rnn data": lambda g, x: g.rnn_backward_data(None, x, x, x),
    "rnn weights": lambda g, x: g.rnn_backward_weights(None, x, x, x),
    "graph of a list": lambda g, x: Graph([1]), "graph of bytes": lambda g, x: plan_to_json(Graph(b"a").build()),
    "vector": lambda g, x: x.set_vector_count_and_dimension(len, 1), "device": lambda g, x: Graph(device=np.zeros(2)),
    "name": lambda g, x: g.relu(x, name=np.zeros(2)), "flag": lambda g, x: g.tensor([1], is_virtual=np.zeros(2)),
    "uid": lambda g, x: g.query_tensor_attributes_of_uid(99), "stream": lambda g, x: _built(g, x).execute({}, handle=3),
    "key": lambda g, x: _built(g, x).execute({True: 1}),
    "bool for a uid": lambda g, x: g.tensor([1], uid=True), "text for a flag": lambda g, x: x.set_output("no"),
    "text for an index": lambda g, x: g.resample(x, "MAXPOOL", [2, 2], generate_index="x"),
}  # fmt: skip


def _built(g: Graph, x: Tensor) -> Graph:
    g.relu(x).set_output(True)
    g.build()
    return g


@pytest.mark.parametrize("case", MISUSE)
def test_plausible_misuse(case: str) -> None:
    """Each raised an error of Python's, or was taken for something else."""
    g, x = graph()
    with pytest.raises(GraphdnnError) as caught:
        MISUSE[case](g, x)
    for rejection in caught.value.rejections:
        assert rejection.reason
        assert rejection.fix
        assert "{" not in rejection.reason + rejection.fix


def test_one_number_as_an_array_is_a_number() -> None:
    g, x = graph()
    assert g.conv_fprop(x, g.tensor([4, 4, 3, 3]), padding=np.array(1)).get_dim() == [2, 4, 6, 6]


def test_errors_of_the_border_name_the_place() -> None:
    g, x = graph()
    with pytest.raises(BadParam) as caught:
        g.relu(x, name=5)
    (found,) = caught.value.rejections
    assert (found.attribute, found.value) == ("name", 5)
    assert "test_attack_builder.py" in found.where
    with pytest.raises(BadParam) as caught:
        x.set_output("no")
    assert caught.value.rejections[0].where.startswith("tensor 'x'")
    assert builder_calls.LEFT_OUT == ("autotune",)
