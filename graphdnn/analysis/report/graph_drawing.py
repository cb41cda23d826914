"""A graph drawn in layers, from top to bottom: operations as boxes, tensors as lines, kernels as frames.

A node stands one layer below the last node that it waits for. Within a layer nodes stand in the order of the
middle of what feeds them, which keeps most lines from crossing. Colours come from the page's style.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphdnn.analysis.report.html import Markup, element, joined, text
from graphdnn.fusion import FusedGraph
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.tensors import TensorSpec

MOST_DRAWN = 150  # operations
_MOST_KEPT = 6  # tensors that a kernel names
_CHARACTER, _LINE, _PADDING = 7.25, 17.0, 9.0  # of a text, in units of the drawing
_BETWEEN, _DOWN = 22.0, 46.0  # nodes of a layer, layers
_MARGIN = 10.0


@dataclass(slots=True)
class _Node:
    lines: list[str]
    look: str  # class of the style: operation, tensor, kernel
    title: str = ""
    feeds: list[int] = field(default_factory=list)
    fed_by: list[int] = field(default_factory=list)
    layer: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * _CHARACTER + 2 * _PADDING

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + _PADDING


@dataclass(frozen=True, slots=True)
class _Edge:
    start: int
    end: int
    look: str  # memory, virtual
    title: str


def draw_graph(graph: OperationGraph) -> Markup:
    """Every operation, with the tensors that an execution is given."""
    nodes = [_Node([op.label()], "operation", op.origin) for op in graph.operations]
    edges = [_Edge(a, b, _look(t), _described(t)) for a, b, t in graph.edges()]
    edges += _ends(graph, nodes, {i: i for i in range(len(nodes))})
    return _drawn(nodes, edges, "the graph as it was given")


def draw_fused(fused: FusedGraph) -> Markup:
    """A frame for each kernel with its operations inside; only what passes through memory is left as a line."""
    graph, home = fused.graph, {}
    nodes = []
    position = {id(op): i for i, op in enumerate(graph.operations)}
    for op in fused:
        steps = [("  " if len(op.operations) > 1 else "") + step.label() for step in op.operations]
        gone = [f"  keeps {t.label()}" for t in op.internal[:_MOST_KEPT]]
        gone += [f"  and {len(op.internal) - _MOST_KEPT} more"] if len(op.internal) > _MOST_KEPT else []
        nodes.append(_Node([f"kernel {op.index}", *steps, *gone], "kernel", f"rule {op.rule}"))
        home.update({position[id(step)]: len(nodes) - 1 for step in op.operations})
    edges = list(
        dict.fromkeys(
            _Edge(home[a], home[b], _look(t), _described(t)) for a, b, t in graph.edges() if home[a] != home[b]
        )
    )
    edges += _ends(graph, nodes, home)
    return _drawn(nodes, edges, "the kernels that it became")


def _look(tensor: TensorSpec) -> str:
    return "virtual" if tensor.is_virtual else "memory"


def _described(tensor: TensorSpec) -> str:
    extents = ", ".join(map(str, tensor.extents))
    return f"{tensor.label()} {tensor.data_type.name} [{extents}]" + (", virtual" if tensor.is_virtual else "")


def _ends(graph: OperationGraph, nodes: list[_Node], home: dict[int, int]) -> list[_Edge]:
    """Nodes and lines for bound tensors; inputs of one element are too many and too small."""
    found = []
    for tensor in graph.bound:
        if tensor.uid not in graph.producer and tensor.elements == 1:
            continue
        nodes.append(_Node([tensor.label()], "tensor", _described(tensor)))
        here = len(nodes) - 1
        if tensor.uid in graph.producer:
            found.append(_Edge(home[graph.producer[tensor.uid]], here, "memory", _described(tensor)))
        else:
            users = dict.fromkeys(home[i] for i in graph.consumers.get(tensor.uid, ()))
            found += [_Edge(here, user, "memory", _described(tensor)) for user in users]
    return found


def _drawn(nodes: list[_Node], edges: Sequence[_Edge], what: str) -> Markup:
    if len(nodes) > 2 * MOST_DRAWN:
        return element("p", f"{len(nodes)} nodes are too many to be drawn.", class_="note")
    for edge in edges:
        nodes[edge.start].feeds.append(edge.end)
        nodes[edge.end].fed_by.append(edge.start)
    width, height = _placed(nodes)
    aside = [_aside(nodes, edge) for edge in edges]
    width = max([width, *(x + _MARGIN for x in aside if x is not None)])
    lines = [_line(nodes, edge, x) for edge, x in zip(edges, aside, strict=True)]
    shapes = [*lines, *map(_box, nodes)]
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto-start-reverse"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
    )
    drawing = element(
        "svg", element("title", what), Markup(marker), joined(shapes), class_="graph", role="img",
        viewBox=f"0 0 {width:.0f} {height:.0f}", width=f"{width:.0f}", height=f"{height:.0f}",
    )  # fmt: skip
    return element("div", drawing, class_="scroll")


def _placed(nodes: list[_Node]) -> tuple[float, float]:
    """Gives every node its place; returns the size of the whole."""
    import networkx as nx

    digraph: nx.DiGraph[int] = nx.DiGraph()
    digraph.add_nodes_from(range(len(nodes)))
    digraph.add_edges_from((i, j) for i, node in enumerate(nodes) for j in node.feeds)
    order = list(nx.topological_sort(digraph))
    for i in order:
        nodes[i].layer = max((nodes[j].layer + 1 for j in nodes[i].fed_by), default=0)
    for i in reversed(order):  # what only feeds others stands right above them
        if not nodes[i].fed_by and nodes[i].feeds:
            nodes[i].layer = min(nodes[j].layer for j in nodes[i].feeds) - 1
    lowest = min(node.layer for node in nodes)
    layers: list[list[_Node]] = [[] for _ in range(max(node.layer for node in nodes) - lowest + 1)]
    for i in order:
        layers[nodes[i].layer - lowest].append(nodes[i])
    y = _MARGIN
    for layer in layers:
        layer.sort(key=lambda node: _middle(nodes, node))
        x = -(sum(node.width for node in layer) + _BETWEEN * (len(layer) - 1)) / 2
        for node in layer:
            node.x, node.y = x, y
            x += node.width + _BETWEEN
        y += max((node.height for node in layer), default=0) + _DOWN
    left = min(node.x for node in nodes) - _MARGIN
    for node in nodes:
        node.x -= left
    return max(node.x + node.width for node in nodes) + _MARGIN, y - _DOWN + _MARGIN


def _middle(nodes: list[_Node], node: _Node) -> float:
    """Of what feeds it; inputs stand beside what they meet there, in the order of the graph."""
    above = [nodes[i].x + nodes[i].width / 2 for i in node.fed_by]
    return sum(above) / len(above) if above else 1.0


def _aside(nodes: list[_Node], edge: _Edge) -> float | None:
    """Where a line passes that would cross nodes on its way down; None where none stands there."""
    start, end = nodes[edge.start], nodes[edge.end]
    left, right = sorted((start.x + start.width / 2, end.x + end.width / 2))
    crossed = [
        node
        for node in nodes
        if start.layer < node.layer < end.layer
        and node.x < right + _CHARACTER
        and node.x + node.width > left - _CHARACTER
    ]
    return max(node.x + node.width for node in crossed) + 2 * _CHARACTER if crossed else None


def _line(nodes: list[_Node], edge: _Edge, aside: float | None) -> Markup:
    start, end = nodes[edge.start], nodes[edge.end]
    x0, y0 = start.x + start.width / 2, start.y + start.height
    x1, y1 = end.x + end.width / 2, end.y
    bend = _DOWN / 2 if aside is not None else max(16.0, (y1 - y0) / 2)
    path = f"M{x0:.1f} {y0:.1f} C{x0:.1f} {y0 + bend:.1f} "
    if aside is not None:
        path += f"{aside:.1f} {y0:.1f} {aside:.1f} {y0 + _DOWN:.1f} V{y1 - _DOWN:.1f} C{aside:.1f} {y1:.1f} "
    path += f"{x1:.1f} {y1 - bend:.1f} {x1:.1f} {y1:.1f}"
    return element("path", element("title", edge.title), d=path, class_=f"edge {edge.look}", marker_end="url(#tip)")


def _box(node: _Node) -> Markup:
    corner = node.height / 2 if node.look == "tensor" else 5
    frame = (
        f'<rect class="{node.look}" x="{node.x:.1f}" y="{node.y:.1f}" width="{node.width:.1f}"'
        f' height="{node.height:.1f}" rx="{corner:.1f}"/>'
    )
    written = [
        Markup(
            f'<text x="{node.x + _PADDING:.1f}" y="{node.y + _PADDING / 2 + (i + 0.75) * _LINE:.1f}"'
            f' class="{"head" if i == 0 and node.look == "kernel" else "gone" if line.startswith("  keeps") else ""}"'
            f' xml:space="preserve">{text(line)}</text>'
        )
        for i, line in enumerate(node.lines)
    ]
    return element("g", element("title", node.title or node.lines[0]), Markup(frame), joined(written))
