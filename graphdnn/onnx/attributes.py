"""Attributes of nodes as Python values, and nodes with other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphdnn.onnx.package import onnx_package


def attributes_of(proto: Any) -> dict[str, Any]:
    """Attribute values by name; texts are ``str``."""
    onnx = onnx_package()
    found = {}
    for attribute in proto.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [item.decode("utf-8", "replace") for item in value]
        found[attribute.name] = value
    return found


def renamed(proto: Any, name_of: Callable[[str], str]) -> Any:
    """A copy of a node whose inputs, outputs and subgraphs read and write other names."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    copy.input[:] = [name_of(name) for name in proto.input]
    copy.output[:] = [name_of(name) for name in proto.output]
    for attribute in copy.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else [*attribute.graphs]:
            _rename_graph(graph, name_of)
    return copy


def _rename_graph(graph: Any, name_of: Callable[[str], str]) -> None:
    """Names of the outer graph only: names that the inner graph defines stay."""
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    own |= {name for node in graph.node for name in node.output}

    def outer(name: str) -> str:
        return name if name in own else name_of(name)

    nodes = [renamed(node, outer) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for output in graph.output:
        output.name = outer(output.name)


def outer_names(proto: Any) -> set[str]:
    """The names that the subgraphs of a node read from outside."""
    found: set[str] = set()
    for attribute in proto.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else [*attribute.graphs]:
            own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
            own |= {name for node in graph.node for name in node.output}
            read = {name for node in graph.node for name in (*node.input, *outer_names(node))}
            found |= (read | {o.name for o in graph.output}) - own - {""}
    return found


def with_arguments(proto: Any, given: Mapping[str, Any]) -> Any:
    """A node of a function's body, with references to the function's attributes resolved; ``given`` are protos."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    del copy.attribute[:]
    for attribute in proto.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                resolved = type(attribute)()
                resolved.CopyFrom(given[attribute.ref_attr_name])
                resolved.name = attribute.name
                copy.attribute.append(resolved)
            continue
        added = copy.attribute.add()
        added.CopyFrom(attribute)
        for graph in [added.g] if added.HasField("g") else [*added.graphs]:
            nodes = [with_arguments(node, given) for node in graph.node]
            del graph.node[:]
            graph.node.extend(nodes)
    return copy
