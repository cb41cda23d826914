"""If and Loop whose conditions are constants: the branch, or as many copies of the body, take the node's place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphdnn.onnx.node import Node
from graphdnn.onnx.rules import VALUE

_MOST_STEPS = 4096


def _unknown(visitor: Any, node: Node, names: list[str], detail: str) -> bool:
    visitor.want(names)
    visitor.refuse(node, VALUE.reject(node.where, "condition", names, detail=detail))
    return True


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


def _if(visitor: Any, node: Node, opsets: Mapping[str, int], depth: int) -> bool:
    condition = node.constant(0)
    if condition is None:
        return _unknown(visitor, node, [node.inputs[0]], "the condition decides which branch runs")
    branch = node.attributes["then_branch" if condition.reshape(-1)[0] else "else_branch"]
    _body(visitor, node, branch, {}, node.outputs, f"{node.name}/{branch.name or 'branch'}", depth)
    return True


def _loop(visitor: Any, node: Node, opsets: Mapping[str, int], depth: int) -> bool:
    given = [name for name in node.inputs[:2] if name]
    if any(visitor.found.values[name].constant is None for name in given):
        return _unknown(visitor, node, given, "trip count and condition decide how often the body runs")
    most = int(node.constant(0).reshape(-1)[0]) if node.has(0) else _MOST_STEPS  # type: ignore[union-attr]
    going = bool(node.constant(1).reshape(-1)[0]) if node.has(1) else True  # type: ignore[union-attr]
    body = node.attributes["body"]
    carried = list(node.inputs[2:])
    kept: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    step = 0
    while going and step < most:
        if step == _MOST_STEPS:
            return _unknown(visitor, node, given, f"the body runs more than {_MOST_STEPS} times")
        label = f"{node.name}/step{step}"
        names = [f"{label}/{i}" for i in range(len(body.output))]
        visitor.add_constant(f"{label}/i", np.array(step, np.int64))
        visitor.add_constant(f"{label}/condition", np.array(True))
        bound = dict(zip([i.name for i in body.input], [f"{label}/i", f"{label}/condition", *carried], strict=True))
        _body(visitor, node, body, bound, names, label, depth)
        condition = visitor.found.values[names[0]].constant
        if condition is None:
            return _unknown(visitor, node, [names[0]], "the body computes the condition from data")
        going = bool(condition.reshape(-1)[0])
        carried = names[1 : 1 + len(carried)]
        for parts, name in zip(kept, names[1 + len(carried) :], strict=True):
            parts.append(name)
        step += 1
    return _finish(visitor, node, carried, kept)


def _finish(visitor: Any, node: Node, carried: list[str], kept: list[list[str]]) -> bool:
    make = visitor.onnx.helper.make_node
    for source, name in zip(carried, node.outputs, strict=False):
        if name:
            visitor.alias(source, name, node)
    for parts, name in zip(kept, node.outputs[len(carried) :], strict=False):
        if not name:
            continue
        if not parts or any(visitor.found.values[part].shape is None for part in parts):
            return _unknown(visitor, node, [], "a scan output without steps has no shape")
        rows = []
        for part in parts:
            shape = visitor.found.values[part].shape
            rows.append(f"{part}/row")
            visitor.add_constant(f"{part}/extents", np.array((1, *shape), np.int64))
            visitor.visit(make("Reshape", [part, f"{part}/extents"], [rows[-1]]), node.opsets, 0)
        visitor.visit(make("Concat", rows, [name], axis=0), node.opsets, 0)
    return True


CONTROL_FLOW: dict[str, Callable[[Any, Node, Mapping[str, int], int], bool]] = {"If": _if, "Loop": _loop}
