"""Attention as graphs: two products and a softmax, with what may stand around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from graphdnn import Graph, OperationGraph, packed_strides
from graphdnn.dtypes import Array
from graphdnn.enums import ReductionOperator


@dataclass(frozen=True)
class Shape:
    """Extents; ``shared``: heads of q for each one of k and v. ``between``: elements between heads, for strides."""

    batch: int = 2
    heads: int = 2
    rows: int = 48
    keys: int = 80
    depth: int = 32
    columns: int = 32
    shared: int = 1
    between: int = 0

    @property
    def scores(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.rows, self.keys


def attention(
    shape: Shape = Shape(),
    kind: str = "f16",
    *,
    scale: float | None = None,
    bias: Sequence[int] | None = None,
    causal: int | None = None,
    window: int | None = None,
    cap: float | None = None,
    padded: bool = False,
    statistics: bool = False,
    behind: bool = False,
    scores: str = "f32",
    probabilities: str = "",
    result: str = "",
    hidden: float = -inf,
    index: str = "i32",
) -> OperationGraph:
    """q, k, v, then bias or lengths; o, then statistics. ``causal``: rows see keys up to their own index and so many
    more; ``window``: down to so many less. ``padded``: lengths say how many keys there are. ``behind``: o is scaled.
    """
    s = shape
    graph = Graph(io_data_type=kind, intermediate_data_type="f32", compute_data_type="f32")
    held = s.heads // s.shared

    def lying(heads: int, lines: int, length: int) -> tuple[int, int, int, int]:
        head = lines * length + s.between
        return heads * head, head, length, 1

    a, b, c, _ = lying(held, s.keys, s.depth)
    q = graph.tensor(name="q", dim=(s.batch, s.heads, s.rows, s.depth), stride=lying(s.heads, s.rows, s.depth))
    k = graph.tensor(name="k", dim=(s.batch, held, s.depth, s.keys), stride=(a, b, 1, c))
    v = graph.tensor(name="v", dim=(s.batch, held, s.keys, s.columns), stride=lying(held, s.keys, s.columns))

    def constant(value: float, data_type: str) -> Any:
        return graph.tensor_scalar(value, data_type)

    x = graph.matmul(q, k)
    x.set_data_type(scores)
    if scale is not None:
        x = graph.mul(x, constant(scale, "f32"))
    if cap is not None:
        x = graph.mul(graph.tanh(graph.mul(x, constant(1 / cap, "f32"))), constant(cap, "f32"))
    if bias is not None:
        x = graph.add(x, graph.tensor(name="bias", dim=tuple(bias)))
    seen = []
    if causal is not None or window is not None or padded:
        key = graph.gen_index(x, axis=3, compute_data_type=index)
        key.set_data_type(index)
        if causal is not None or window is not None:
            row = graph.gen_index(x, axis=2, compute_data_type=index)
            row.set_data_type(index)
        if causal is not None:
            moved = row if not causal else graph.add(row, constant(causal, index), compute_data_type=index)
            moved.set_data_type(index)
            seen.append(graph.cmp_ge(moved, key, compute_data_type=index))
        if window is not None:
            moved = graph.add(key, constant(window, index), compute_data_type=index)
            moved.set_data_type(index)
            seen.append(graph.cmp_gt(moved, row, compute_data_type=index))
        if padded:
            lengths = graph.tensor(name="lengths", dim=(s.batch, 1, 1, 1), data_type="i32")
            seen.append(graph.cmp_lt(key, lengths, compute_data_type=index))
    for mask in seen:
        mask.set_data_type("bool")
        x = graph.binary_select(x, constant(hidden, "f32"), mask)
    most = graph.reduction(x, ReductionOperator.MAX)
    most.set_dim((*s.scores[:-1], 1))
    power = graph.exp(graph.sub(x, most))
    total = graph.reduction(power, ReductionOperator.ADD)
    total.set_dim((*s.scores[:-1], 1))
    p = graph.div(power, total)
    p.set_data_type(probabilities or kind)
    o = graph.matmul(p, v)
    if behind:
        o = graph.relu(graph.mul(o, constant(0.5, "f32")))
    o.set_output(True).set_data_type(result or kind)
    if statistics:
        graph.add(most, graph.log(total)).set_output(True).set_data_type("f32")
    return graph.build_operation_graph()


def values(graph: OperationGraph, seed: int = 0, keys: int = 80) -> dict[int, Array]:
    rng = np.random.default_rng(seed)
    found = {}
    for t in graph.inputs:
        if t.is_constant:
            continue
        if t.name == "lengths":
            found[t.uid] = rng.integers(1, keys + 1, t.dims).astype(np.int32)
        else:
            found[t.uid] = rng.standard_normal(t.dims).astype(np.float32)
    return found


def stacked(batch: tuple[int, ...], rows: int = 32) -> OperationGraph:
    """Nothing but the softmax between products, of any batch axes."""
    keys, depth = 32, 16
    graph = Graph(io_data_type="f16", intermediate_data_type="f32", compute_data_type="f32")
    q = graph.tensor(name="q", dim=(*batch, rows, depth))
    k = graph.tensor(name="k", dim=(*batch, depth, keys))
    k.set_stride((*packed_strides((*batch, keys, depth))[:-2], 1, depth))
    x = graph.matmul(q, k)
    most = graph.reduction(x, ReductionOperator.MAX)
    most.set_dim((*batch, rows, 1))
    power = graph.exp(graph.sub(x, most))
    total = graph.reduction(power, ReductionOperator.ADD)
    total.set_dim((*batch, rows, 1))
    p = graph.div(power, total)
    p.set_data_type("f16")
    o = graph.matmul(p, graph.tensor(name="v", dim=(*batch, keys, depth)))
    o.set_output(True).set_data_type("f16")
    return graph.build_operation_graph()
