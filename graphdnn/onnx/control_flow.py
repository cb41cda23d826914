"""If, Loop and Scan whose conditions are known: the branch, or a copy of the body for each step, replaces the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphdnn.onnx.node import Node
from graphdnn.onnx.rules import VALUE

_MOST_STEPS = 4096


def _unknown(visitor: Any, node: Node, names: list[str], detail: str) -> None:
    visitor.want(names)
    visitor.refuse(node, VALUE.reject(node.where, "condition", names, detail=detail))


def _scope(visitor: Any, node: Node, graph: Any, bound: Mapping[str, str], label: str) -> dict[str, str]:
    """Outer names of what a subgraph reads: inputs as bound, initializers as constants."""
    ports = dict(bound)
    for tensor in (*graph.initializer, *(s.values for s in graph.sparse_initializer)):
        ports[tensor.name] = f"{label}/{tensor.name}"
    visitor.add_initializers(graph, f"{label}/")
    return ports


def _body(
    visitor: Any, node: Node, graph: Any, bound: Mapping[str, str], outputs: list[str], label: str, depth: int
) -> None:
    """Visit a subgraph whose results get the names ``outputs``."""
    ports = _scope(visitor, node, graph, bound, label)
    written = {name for proto in graph.node for name in proto.output}
    later = []
    for result, name in zip(graph.output, outputs, strict=True):
        if not name:
            continue
        if result.name in written and result.name not in ports:
            ports[result.name] = name
        else:  # an input, a constant, an outer name, or a result for the second time
            later.append((ports.get(result.name, result.name), name))
    visitor.visit_body(list(graph.node), ports, label, node.opsets, depth)
    for source, name in later:
        visitor.alias(source, name, node)


def _if(visitor: Any, node: Node, opsets: Mapping[str, int], depth: int) -> None:
    condition = node.constant(0)
    if condition is None:
        _unknown(visitor, node, [node.inputs[0]], "the condition decides which branch runs")
        return
    branch = node.attributes["then_branch" if condition.reshape(-1)[0] else "else_branch"]
    _body(visitor, node, branch, {}, node.outputs, f"{node.name}/{branch.name or 'branch'}", depth)


def _loop(visitor: Any, node: Node, opsets: Mapping[str, int], depth: int) -> None:
    given = [name for name in node.inputs[:2] if name]
    if any(visitor.found.values[name].constant is None for name in given):
        _unknown(visitor, node, given, "trip count and condition decide how often the body runs")
        return
    most = int(node.constant(0).reshape(-1)[0]) if node.has(0) else _MOST_STEPS  # type: ignore[union-attr]
    going = bool(node.constant(1).reshape(-1)[0]) if node.has(1) else True  # type: ignore[union-attr]
    body = node.attributes["body"]
    carried = list(node.inputs[2:])
    kept: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    step = 0
    while going and step < most:
        if step == _MOST_STEPS:
            _unknown(visitor, node, given, f"the body runs more than {_MOST_STEPS} times")
            return
        label = f"{node.name}/step{step}"
        names = [f"{label}/{i}" for i in range(len(body.output))]
        visitor.add_constant(f"{label}/i", np.array(step, np.int64))
        visitor.add_constant(f"{label}/condition", np.array(True))
        bound = dict(zip([i.name for i in body.input], [f"{label}/i", f"{label}/condition", *carried], strict=True))
        _body(visitor, node, body, bound, names, label, depth)
        condition = visitor.found.values[names[0]].constant
        if condition is None:
            _unknown(visitor, node, [names[0]], "the body computes the condition from data")
            return
        going = bool(condition.reshape(-1)[0])
        carried = names[1 : 1 + len(carried)]
        for parts, name in zip(kept, names[1 + len(carried) :], strict=True):
            parts.append(name)
        step += 1
    _finish(visitor, node, carried, kept)


def _finish(visitor: Any, node: Node, carried: list[str], kept: list[list[str]], axes: list[int] | None = None) -> None:
    """Names for the last states, and the outputs of all steps joined along a new axis."""
    make = visitor.onnx.helper.make_node
    for source, name in zip(carried, node.outputs, strict=False):
        if name:
            visitor.alias(source, name, node)
    for place, (parts, name) in enumerate(zip(kept, node.outputs[len(carried) :], strict=False)):
        if not name:
            continue
        if not parts or any(visitor.found.values[part].shape is None for part in parts):
            _unknown(visitor, node, [], "a scan output without steps has no shape")
            return
        rows: list[str] = []
        axis = (axes or [0] * len(kept))[place] % (len(visitor.found.values[parts[0]].shape) + 1)
        for part in parts:
            shape = visitor.found.values[part].shape
            rows.append(f"{part}/row")
            visitor.add_constant(f"{part}/extents", np.array((*shape[:axis], 1, *shape[axis:]), np.int64))
            visitor.visit(make("Reshape", [part, f"{part}/extents"], [rows[-1]]), node.opsets, 0)
        visitor.visit(make("Concat", rows, [name], axis=axis), node.opsets, 0)


def _scan(visitor: Any, node: Node, opsets: Mapping[str, int], depth: int) -> None:
    """Steps along an axis of the scanned inputs: each step reads one element of the axis."""
    if node.version < 9:  # has an axis for the batch, and lengths
        visitor.refuse(node, VALUE.reject(node.where, "version", node.version, detail="Scan has this form from 9 on"))
        return
    body, count = node.attributes["body"], node.attributes["num_scan_inputs"]
    carried, scanned = list(node.inputs[: len(node.inputs) - count]), list(node.inputs[len(node.inputs) - count :])
    shapes = [visitor.found.values[name].shape for name in scanned]
    if any(shape is None for shape in shapes):
        _unknown(visitor, node, [], "the extent of the scanned axis decides how often the body runs")
        return
    axes = [a % len(s) for a, s in zip(node.attribute("scan_input_axes", [0] * count), shapes, strict=True)]
    backward = node.attribute("scan_input_directions", [0] * count)
    steps = shapes[0][axes[0]]
    kept: list[list[str]] = [[] for _ in body.output[len(carried) :]]
    if steps > _MOST_STEPS:
        _unknown(visitor, node, [], f"the body runs more than {_MOST_STEPS} times")
        return
    for step in range(steps):
        label = f"{node.name}/step{step}"
        elements = []
        for name, axis, reverse in zip(scanned, axes, backward, strict=True):
            elements.append(f"{label}/of {name}")
            visitor.add_constant(f"{elements[-1]}/place", np.array(steps - 1 - step if reverse else step, np.int64))
            gather = visitor.onnx.helper.make_node("Gather", [name, f"{elements[-1]}/place"], elements[-1:], axis=axis)
            visitor.visit(gather, opsets, depth + 1)
        names = [f"{label}/{i}" for i in range(len(body.output))]
        bound = dict(zip([i.name for i in body.input], [*carried, *elements], strict=True))
        _body(visitor, node, body, bound, names, label, depth)
        carried = names[: len(carried)]
        for parts, name in zip(kept, names[len(carried) :], strict=True):
            parts.append(name)
    order = node.attribute("scan_output_directions", [0] * len(kept))
    kept = [parts[::-1] if reverse else parts for parts, reverse in zip(kept, order, strict=True)]
    _finish(visitor, node, carried, kept, node.attribute("scan_output_axes"))


CONTROL_FLOW: dict[str, Callable[[Any, Node, Mapping[str, int], int], None]] = {"If": _if, "Loop": _loop, "Scan": _scan}
