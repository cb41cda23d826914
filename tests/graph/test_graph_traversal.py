"""Orders, loops and parts against a graph library."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from graphdnn.graph.traversal import loop, parts, topological


def _drawn(seed: int, *, acyclic: bool) -> tuple[list[set[int]], nx.DiGraph]:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 14))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    label = rng.permutation(count)
    for a in range(count):
        for b in range(count):
            if rng.random() < 0.15 and (a < b or not acyclic):
                graph.add_edge(int(label[a]), int(label[b]))
    return [set(graph.successors(node)) for node in range(count)], graph


@pytest.mark.parametrize("seed", range(60))
def test_order(seed: int) -> None:
    successors, graph = _drawn(seed, acyclic=True)
    assert topological(successors) == list(nx.lexicographical_topological_sort(graph))
    rank = [int(r) for r in np.random.default_rng(seed).permutation(len(successors))]
    assert topological(successors, rank) == list(nx.lexicographical_topological_sort(graph, key=lambda n: rank[n]))
    assert loop(successors) == []
    assert parts(len(successors), graph.edges) == nx.number_connected_components(graph.to_undirected())


@pytest.mark.parametrize("seed", range(60))
def test_loop(seed: int) -> None:
    successors, graph = _drawn(seed, acyclic=False)
    found = loop(successors)
    assert bool(found) is not nx.is_directed_acyclic_graph(graph)
    assert all(b in successors[a] for a, b in zip(found, found[1:] + found[:1], strict=True))
    assert len(set(found)) == len(found)
