"""Partition: the nodes of a specialization in groups. A group is one graph, or one run of the reference evaluator.

A node's level is the number of changes between served and refused nodes on the way to it. Connected nodes of one kind
and one level are a group. Every path out of a group leads to higher levels, so groups are convex: no path leaves a
group and enters it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from graphdnn.onnx.node import Node


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one kind in order, the values that they read from outside, and the values that are read later."""

    is_served: bool
    level: int
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def partition(
    nodes: Sequence[Node], served: Collection[Node], constants: Collection[str], wanted: Sequence[str]
) -> list[Group]:
    """Groups in an order in which each reads values of earlier ones.

    Args:
        nodes: The nodes in order, without nodes that nothing needs.
        served: The nodes that a lowering serves.
        constants: Names of constant values, which join no nodes.
        wanted: The names of the model's outputs.

    Returns:
        The groups.
    """
    import networkx

    producer = {name: node for node in nodes for name in node.outputs if name}
    level: dict[Node, int] = {}
    links = networkx.Graph()
    for node in nodes:
        links.add_node(node)
        before = [producer[name] for name in reads(node) if name in producer and name not in constants]
        level[node] = max((level[p] + ((p in served) != (node in served)) for p in before), default=0)
        links.add_edges_from((p, node) for p in before if level[p] == level[node] and (p in served) == (node in served))
    place = {node: i for i, node in enumerate(nodes)}
    groups = [sorted(found, key=place.__getitem__) for found in networkx.connected_components(links)]
    groups.sort(key=lambda group: (level[group[0]], place[group[0]]))
    readers = _readers(nodes)
    return [_group(group, level, served, readers, set(wanted)) for group in groups]


def reads(node: Node) -> list[str]:
    """The names that a node reads, its subgraphs included."""
    from graphdnn.onnx.attributes import outer_names

    inner = outer_names(node.proto) if node.op_type in ("If", "Loop", "Scan", "SequenceMap") else ()
    return [name for name in (*node.inputs, *inner) if name]


def needed(nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    """The nodes that the outputs depend on."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(reads(node))
    return kept[::-1]


def _readers(nodes: Sequence[Node]) -> Mapping[str, set[Node]]:
    found: dict[str, set[Node]] = {}
    for node in nodes:
        for name in reads(node):
            found.setdefault(name, set()).add(node)
    return found


def _group(
    nodes: Sequence[Node],
    level: Mapping[Node, int],
    served: Collection[Node],
    readers: Mapping[str, set[Node]],
    wanted: Collection[str],
) -> Group:
    inside = set(nodes)
    written = {name for node in nodes for name in node.outputs if name}
    inputs = [name for node in nodes for name in reads(node) if name not in written]
    outputs = [
        name
        for node in nodes
        for name in node.outputs
        if name and (name in wanted or readers.get(name, set()) - inside)
    ]
    return Group(
        nodes[0] in served, level[nodes[0]], tuple(nodes), tuple(dict.fromkeys(inputs)), tuple(dict.fromkeys(outputs))
    )
