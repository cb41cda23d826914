"""Fusion of attention: what becomes one kernel, and what keeps its parts apart."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from attention_graphs import Shape, attention

from graphdnn import Graph, OperationGraph, fuse
from graphdnn.builder.tensor import Tensor
from graphdnn.fusion import FusedGraph, FusionLimits
from graphdnn.locks.kernel_patterns import kernels_like


def rules(fused: FusedGraph) -> list[str]:
    return [op.rule for op in fused]


def test_products_and_what_is_between_them_are_one_kernel() -> None:
    fused = fuse(attention(scale=0.5, cap=3.0, causal=0, padded=True, statistics=True, behind=True))
    assert rules(fused) == ["attention"]
    assert fused.stopped_by == ()
    (op,) = fused
    assert {t.name for t in op.inputs if t.is_bound} == {"q", "k", "v", "lengths"}
    assert len(op.outputs) == 2
    assert op.anchor is fused.graph.operations[0]
    assert op.operations == fused.graph.operations, "in the graph's order"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"probabilities": "f32"}, "fuse.attention.types"),
        ({"shape": Shape(depth=20)}, "fuse.attention.layout"),
        ({"shape": Shape(depth=320)}, "fuse.attention.head"),
        ({"shape": Shape(batch=1), "bias": (2, 2, 48, 80)}, "fuse.attention.extents"),
    ],
)
def test_otherwise_they_are_three_kernels_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    fused = fuse(attention(**fields))
    assert rules(fused) == ["matmul", "softmax", "matmul"]
    assert reason in {stop.rule for stop in (*fused.stopped_by, *fused.declined_patterns)}


def test_types_of_doubles_and_floats_are_as_they_were() -> None:
    graph = attention(kind="f32")
    assert rules(fuse(graph)) == ["matmul", "softmax", "matmul"]


def test_limits_keep_it_apart() -> None:
    graph = attention()
    scores = next(iter(graph.operations[0].outputs().values()))
    assert rules(fuse(graph, FusionLimits.of(forbid=[(scores.uid,)]))) == ["matmul", "softmax", "matmul"]
    assert rules(fuse(graph, FusionLimits.of(bound=7))) == ["attention"]
    assert rules(fuse(graph, FusionLimits.of(bound=6))) == ["matmul", "softmax", "matmul"]


class Drawing:
    """Attention of rows of one length, step by step."""

    def __init__(self) -> None:
        self.graph = Graph(io_data_type="f16", intermediate_data_type="f32", compute_data_type="f32")

    def operand(self, *dims: int) -> Tensor:
        return self.graph.tensor(dims)

    def softmax(self, x: Tensor) -> Tensor:
        most = self.graph.reduction(x, "MAX").set_dim((2, 32, 1))
        powers = self.graph.exp(self.graph.sub(x, most))
        return self.graph.div(powers, self.graph.reduction(powers, "ADD").set_dim((2, 32, 1))).set_data_type("f16")

    def keys(self) -> Tensor:
        return self.graph.tensor((2, 16, 32), (512, 1, 16))

    def built(self, *results: Tensor) -> OperationGraph:
        for result in results:
            result.set_output(True)
        return self.graph.build_operation_graph()


def test_masks_of_several_are_computed_once() -> None:
    d = Drawing()
    row, key = (d.graph.gen_index(d.operand(2, 32, 32), axis=axis).set_data_type("i32") for axis in (1, 2))
    mask = d.graph.cmp_ge(row, key).set_data_type("bool")
    results = []
    for _ in range(2):
        scores = d.graph.matmul(d.operand(2, 32, 16), d.keys())
        hidden = d.graph.tensor_scalar(-inf)
        results.append(d.graph.matmul(d.softmax(d.graph.binary_select(scores, hidden, mask)), d.operand(2, 32, 16)))
    assert rules(fuse(d.built(*results))) == ["pointwise", "attention", "attention"]


def test_values_may_be_computed_behind_the_scores() -> None:
    d = Drawing()
    scores = d.graph.matmul(d.operand(2, 32, 16), d.keys())
    powers = d.softmax(scores)
    values = d.graph.matmul(d.operand(2, 32, 24), d.operand(2, 24, 16)).set_data_type("f16")
    assert rules(fuse(d.built(d.graph.matmul(powers, values)))) == ["matmul", "attention"]


def _written(d: Drawing, scores: Tensor, powers: Tensor) -> list[Tensor]:
    return [powers]


def _read(d: Drawing, scores: Tensor, powers: Tensor) -> list[Tensor]:
    return [d.graph.relu(scores)]


@pytest.mark.parametrize(
    ("others", "reason"), [(_written, "fuse.attention.virtual"), (_read, "fuse.attention.readers")]
)
def test_what_others_see_is_in_memory(others: Callable[..., list[Tensor]], reason: str) -> None:
    d = Drawing()
    scores = d.graph.matmul(d.operand(2, 32, 16), d.keys())
    powers = d.softmax(scores)
    o = d.graph.matmul(powers, d.operand(2, 32, 16))
    fused = fuse(d.built(o, *others(d, scores, powers)))
    assert "attention" not in rules(fused)
    assert reason in {stop.rule for stop in fused.declined_patterns}


def test_the_probabilities_are_the_left_operand() -> None:
    d = Drawing()
    scores = d.graph.matmul(d.operand(2, 32, 16), d.keys())
    turned = d.graph.matmul(d.operand(2, 16, 32), d.softmax(scores))
    assert "attention" not in rules(fuse(d.built(turned)))


def test_a_softmax_of_two_products_is_no_attention() -> None:
    d = Drawing()
    scores = [d.graph.matmul(d.operand(2, 32, 16), d.keys()) for _ in range(2)]
    o = d.graph.matmul(d.softmax(d.graph.add(*scores)), d.operand(2, 32, 16))
    assert "attention" not in rules(fuse(d.built(o)))


def test_locks_call_what_is_between_the_products_a_softmax() -> None:
    fused = fuse(attention(causal=0, scale=0.5, statistics=True))
    pattern = "matmul + mul + gen_index + gen_index + cmp_ge + binary_select + softmax + matmul"
    assert [op.rule for op in kernels_like(fused, pattern)] == ["attention"]
    assert not kernels_like(fused, "matmul + softmax")
