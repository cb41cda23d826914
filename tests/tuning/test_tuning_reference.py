"""What the tuner compares results with: slices of a graph, images of a result, operands that repeat."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from random_problems.families import FAMILIES, Case, draw
from random_problems.run_and_compare import Prepared
from tuning_records import CONV, graph_of

from graphdnn import Graph, OperationGraph
from graphdnn.analysis.graph_slices import SlicedGraph, Slices, slices_of, thinned
from graphdnn.analysis.oracle import evaluate
from graphdnn.analysis.random_operands import blended, random_operands
from graphdnn.dtypes import FLOATS, cast
from graphdnn.engines.host.memory import as_it_lies, empty, store
from graphdnn.tuning.verification.expected_results import ExpectedResults
from graphdnn.tuning.verification.reference import Reference
from graphdnn.tuning.workers.measurement_worker import Bench


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("conv x=f32[7,4,8,8] w=f32[7,4,3,3] pad=1 + bias + relu", "images"),
        ("conv x=i8[7,8,8,8]nhwc w=i8[7,8,3,3] pad=1 + residual", "images"),
        ("dgrad dy=f16[7,4,8,8] w=f16[4,4,3,3] dx=[7,4,8,8] pad=1", "images"),
        ("pool max x=f32[7,4,8,8] window=2 stride=2", "images"),
        ("matmul a=f32[7,4,8] b=f32[1,8,5] + bias", "images"),
        ("pointwise x=f32[7,4,8] + mul + tanh", "images"),
        ("norm layer x=f32[7,4,8]", "images"),
        ("conv x=f32[1,4,8,8] w=f32[7,4,3,3] + bias + relu", "channels"),
        ("dgrad dy=f16[1,4,8,8]nhwc w=f16[4,7,3,3]nhwc dx=[1,7,8,8] pad=1", "channels"),
        ("wgrad x=f32[5,7,8,8] dy=f32[5,4,8,8]nhwc dw=[4,7,3,3] pad=1 + relu", "channels"),
        ("reduce add x=f32[5,7,6,6]nhwc y=[1,7,1,1]", "channels"),
        ("norm batch x=f32[5,7,6,6]nhwc", "channels"),
        ("matmul a=f32[1,7,8] b=f32[1,8,5] + bias", "rows"),
        ("conv x=f32[1,8,8,8] w=f32[8,4,3,3]", None),
        ("wgrad x=f32[7,8,8,8] dy=f32[7,8,8,8] dw=[8,4,3,3] pad=1", None),
        ("reduce add x=f32[7,8,6,6] y=[1,1,1,1]", None),
    ],
)
def test_some_slices_are_what_the_whole_graph_computes_there(text: str, name: str | None) -> None:
    slices = slices_of(graph_of(text))
    assert (None if slices is None else (slices.name, slices.count)) == (None if name is None else (name, 7))
    if slices is not None:
        check_slices(graph_of(text), slices, (0, 4, 6))


@pytest.mark.parametrize("seed", [0, 1, pytest.param(range(2, 40), marks=pytest.mark.long)])
def test_drawn_graphs_in_slices(seed: int | range) -> None:
    found = 0
    for case in (Case(family, i, False) for family in FAMILIES for i in ([seed] if isinstance(seed, int) else seed)):
        graph = Prepared.of(draw(case)).fused.graph
        slices = slices_of(graph)
        if slices is not None:
            check_slices(graph, slices, sorted({0, slices.count // 2})[-2:])
            found += 1
    assert found > len(FAMILIES) / 3


def check_slices(graph: OperationGraph, slices: Slices, kept: Sequence[int]) -> None:
    """The oracle's values in them are those of the whole graph, and so are the bytes that a worker would send."""
    thin, operands = thinned(graph, slices, kept), random_operands(graph)
    operands |= blended(graph, operands)
    whole, part = evaluate(graph, operands), evaluate(thin.graph, thin.bindings(operands))
    for uid, value in part.items():
        wanted = np.take(whole[uid], kept, slices.axes[uid]) if uid in slices.axes else whole[uid]
        assert np.allclose(np.asarray(wanted, np.float64), np.asarray(value, np.float64), 1e-9, 1e-9, equal_nan=True)
    results: dict[int, Any] = {spec.uid: empty(spec) for spec in graph.outputs}
    for spec in graph.outputs:
        results[spec.uid][...] = 0
        store(cast(whole[spec.uid], spec.data_type), results[spec.uid], spec)
    bench: Any = SimpleNamespace(arrays=results, _fetched={}, _picked=None)
    plan: Any = SimpleNamespace(to_host=dict)
    cut = [bytes(Bench._result(bench, plan, t, slices.axes.get(t.uid), list(kept))) for t in graph.outputs]
    answers = ExpectedResults(thin.graph, thin.bindings(operands), part)
    judged = answers.judged((), [len(each) for each in cut], b"".join(cut))
    if all(np.isnan(part[t.uid]).all() for t in thin.graph.outputs if t.data_type in FLOATS and judged):
        assert judged == "" or "NaN everywhere" in judged
    else:
        assert judged == ""


@pytest.mark.parametrize(("allowed", "images"), [(0.0, 2), (60.0, 9)])
def test_a_wrong_image_is_found_where_it_was_compared(
    allowed: float, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two images at first, others from part to part; all that are there by then for the one that is to win."""
    monkeypatch.setattr("graphdnn.tuning.verification.reference._FIRST", 0.0)
    monkeypatch.setattr("graphdnn.tuning.verification.reference._LARGEST", 1)  # one image for each part
    graph = graph_of("conv x=f32[9,4,8,8]nhwc w=f32[4,4,3,3] pad=1 + relu")
    right = evaluate(graph, random_operands(graph))[graph.outputs[0].uid].astype(np.float32)
    reference = Reference(graph, 0, is_beside=True, allowed=allowed)
    reference.start()
    reference.settle(60.0)
    found = []
    for image in (None, 0, 8, 3):
        result = right.copy()
        if image is not None:
            result[image, 0, 0, 0] += 1

        def part(thin: SlicedGraph | None, result: Any = result) -> tuple[list[int], bytes]:
            assert thin is not None
            some = np.ascontiguousarray(result[list(thin.kept)].transpose(0, 2, 3, 1))
            return [some.nbytes], some.tobytes()

        found.append([v.result() for v in reference.judgements(str(image), {}, part, inf)])
        assert reference.judgement(str(image), {}, part).result() == found[-1][0]
    reference.close()
    assert reference.checked == ("in full" if images == 9 else "on 2 of 9 images")
    assert [[i for i, verdict in enumerate(each) if verdict] != [] for each in found] == [
        False,
        True,
        True,
        images == 9,
    ]
    assert [len(each) for each in found] == [images - 1] * 4


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (2, 0, 3, 1)])
def test_images_of_a_result_are_as_the_whole_lies(order: tuple[int, ...]) -> None:
    values = np.arange(5 * 3 * 4 * 2, dtype=np.int16).reshape(5, 3, 4, 2)
    lying = np.ascontiguousarray(values.transpose(order)).transpose(np.argsort(order))
    spec = SimpleNamespace(uid=1)
    plan: Any = SimpleNamespace(to_host=dict)
    wanted = np.ascontiguousarray(values[[4, 0, 2]].transpose(order)).tobytes()
    bench: Any = SimpleNamespace(arrays={1: lying}, _fetched={}, _picked=None)
    assert bytes(Bench._result(bench, plan, spec, 0, [4, 0, 2])) == wanted  # type: ignore[arg-type]


def test_large_operands_repeat_their_numbers() -> None:
    graph = graph_of("pointwise x=f16[2,4,8,8]nhwc + mul")
    whole, part = (random_operands(graph, distinct=n) for n in (512, 7))
    assert all(np.array_equal(whole[t.uid], random_operands(graph)[t.uid]) for t in graph.inputs)
    for spec in graph.inputs:
        flat = as_it_lies(part[spec.uid]).reshape(-1)  # in the order of memory
        assert len(set(flat.tolist())) == 7
        assert np.array_equal(flat[7:], flat[:-7])


def test_large_operands_with_gaps_repeat_their_numbers() -> None:
    """In the order of their extents; between the elements nothing is drawn."""
    graph = Graph(io_data_type="float32")
    x = graph.tensor([4, 5], stride=[8, 1])
    graph.relu(x).set_output(True)
    spec = graph.build_operation_graph().inputs[0]
    drawn = random_operands(graph.build_operation_graph(), distinct=7)[spec.uid]
    flat = np.asarray(drawn).reshape(-1)
    assert drawn.shape == (4, 5)
    assert len(set(flat.tolist())) == 7
    assert np.array_equal(flat[7:], flat[:-7])


def test_an_oracle_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise MemoryError("no memory for the oracle")

    monkeypatch.setattr("graphdnn.tuning.verification.reference.random_operands", fails)
    reference = Reference(graph_of(CONV), 0, is_beside=True, allowed=1.0)
    reference.start()
    with pytest.raises(MemoryError, match="for the oracle"):
        reference.judgement("", {}, lambda thin: ([], b"")).result(60.0)
    reference.close()
