"""``Graph.sdpa``: what it computes, that it is one kernel, and what it refuses."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

from graphdnn import Graph, fuse
from graphdnn.dtypes import Array
from graphdnn.errors import BadParam, GraphdnnError, NotSupported


def drawn(graph: Graph, *shapes: tuple[int, ...]) -> tuple[list[Any], list[Array]]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return [graph.tensor(shape, data_type="float32") for shape in shapes], arrays


def expected(
    q: Array, k: Array, v: Array, scale: float = 1.0, bias: Any = 0.0, seen: Any = True
) -> tuple[Array, Array]:
    shared = q.shape[1] // k.shape[1]
    k, v = (np.repeat(t, shared, 1).astype(np.float64) for t in (k, v))
    x = np.where(seen, q @ np.swapaxes(k, -1, -2) * scale + bias, -inf)
    most = x.max(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        powers = np.exp(x - most)
    total = powers.sum(-1, keepdims=True)
    return powers / total @ v, most + np.log(total)


ROW, KEY = np.arange(5)[:, None], np.arange(7)[None]
CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "plain": ({}, True),
    "causal": ({"use_causal_mask": True}, KEY <= ROW),
    "bottom right": ({"use_causal_mask_bottom_right": True}, KEY <= ROW + 2),
    "window": ({"use_causal_mask": True, "sliding_window_length": 2}, (KEY <= ROW) & (KEY > ROW - 2)),
    "window, bottom right": (
        {"use_causal_mask_bottom_right": True, "sliding_window_length": 3}, (KEY <= ROW + 2) & (KEY > ROW + 2 - 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    settings, seen = CASES[name]
    graph = Graph(io_data_type="float32", device="cpu")
    (q, k, v), arrays = drawn(graph, (2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 3))
    o, statistics = graph.sdpa(q, k, v, attn_scale=0.5, generate_stats=True, **settings)
    assert o is not None
    assert statistics is not None
    o.set_output(True)
    statistics.set_output(True)
    graph.build()
    results = [np.empty(tensor.get_dim(), np.float32) for tensor in (o, statistics)]
    graph.execute(dict(zip((q, k, v, o, statistics), (*arrays, *results), strict=True)))
    for found, wanted in zip(results, expected(*arrays, scale=0.5, seen=seen), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_graph_of_float64_stays_in_it() -> None:
    graph = Graph(io_data_type="float64", intermediate_data_type="float64", compute_data_type="float64", device="cpu")
    shapes, rng = ((2, 2, 5, 8), (2, 2, 7, 8), (2, 2, 7, 3)), np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    q, k, v = (graph.tensor(shape) for shape in shapes)
    o, statistics = graph.sdpa(q, k, v, attn_scale=0.3, use_causal_mask=True, generate_stats=True)
    assert o is not None
    assert statistics is not None
    o.set_output(True)
    statistics.set_output(True)
    graph.build()
    results = [np.empty(tensor.get_dim()) for tensor in (o, statistics)]
    graph.execute(dict(zip((q, k, v, o, statistics), (*arrays, *results), strict=True)))
    for found, wanted in zip(results, expected(*arrays, scale=0.3, seen=KEY <= ROW), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-14)


def test_lengths_and_bias() -> None:
    graph = Graph(io_data_type="float32", device="cpu")
    (q, k, v, bias), arrays = drawn(graph, (2, 2, 5, 8), (2, 1, 7, 8), (2, 1, 7, 3), (1, 2, 5, 7))
    lengths, given = graph.tensor((2, 1, 1, 1), data_type="int32"), np.array([3, 7], np.int32).reshape(2, 1, 1, 1)
    o, _ = graph.sdpa(q, k, v, bias=bias, use_padding_mask=True, seq_len_kv=lengths)
    assert o is not None
    o.set_output(True)
    graph.build()
    found = np.empty(o.get_dim(), np.float32)
    graph.execute(dict(zip((q, k, v, bias, lengths, o), (*arrays, given, found), strict=True)))
    wanted, _ = expected(*arrays[:3], bias=arrays[3], seen=given > KEY)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_it_is_one_kernel_that_reads_keys_as_they_lie() -> None:
    graph = Graph(io_data_type="float16", device="h200")
    q, k, v = (graph.tensor((2, 4, 16, 64)) for _ in range(3))
    o, statistics = graph.sdpa(q, k, v, attn_scale=0.125, use_causal_mask=True, generate_stats=True, name="attention")
    assert o is not None
    assert statistics is not None
    o.set_output(True)
    statistics.set_output(True)
    fused = fuse(graph.build_operation_graph())
    assert [op.rule for op in fused] == ["movement", "attention"]
    graph.build()
    assert [kernel.name.split("__")[0] for kernel in graph.kernels][-1] == "attention"
    assert graph.plan.workspace_size == 0


@pytest.mark.parametrize(
    ("settings", "error", "names"),
    [
        ({"dropout": 0.5}, NotSupported, "dropout"),
        ({"use_alibi_mask": True}, NotSupported, "use_alibi_mask"),
        ({"use_padding_mask": True}, BadParam, r"seq_len_kv = None.*[\s\S]*builder\.sdpa\.masks"),
        ({"sliding_window_length": 0}, BadParam, r"sliding_window_length = 0.*[\s\S]*builder\.sdpa\.masks"),
        ({"sliding_window_length": "3"}, BadParam, r"sliding_window_length[\s\S]*attr\.type"),
        ({"q": 1.0}, BadParam, r"builder\.operand\.type"),
    ],
)
def test_refusals(settings: dict[str, Any], error: type[GraphdnnError], names: str) -> None:
    graph = Graph(io_data_type="float16")
    q, k, v = (graph.tensor((2, 4, 16, 64)) for _ in range(3))
    with pytest.raises(error, match=names):
        graph.sdpa(**{"q": q, "k": k, "v": v, **settings})
    with pytest.raises(BadParam, match=r"builder\.sdpa"):
        graph.sdpa(q, k, graph.tensor((2, 4)))
