"""Graphs as files: tensors and operations; tensors are referred to by uid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from graphdnn.files.json_documents import CONTENT, VERSION, guarded, malformed, parse_document, placed
from graphdnn.files.spec_fields import decoded, fields_of
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import EXTENSIONS, OPERATIONS
from graphdnn.tensors import TensorSpec

GRAPH_FORMAT = "graphdnn.graph"
KNOWN_OPERATIONS = {**OPERATIONS, **EXTENSIONS}


def graph_to_dict(graph: OperationGraph) -> dict[str, Any]:
    """The graph as plain data."""
    return {
        "format": GRAPH_FORMAT,
        "version": VERSION,
        "name": graph.name,
        "tensors": [fields_of(graph.tensors[uid]) for uid in sorted(graph.tensors)],
        "operations": [{"operation": op.tag, **fields_of(op)} for op in graph.operations],
    }


def graph_to_json(graph: OperationGraph) -> str:
    """Write a graph as JSON text.

    Args:
        graph: The operation graph.

    Returns:
        The text of a graph file.
    """
    return json.dumps(graph_to_dict(graph), indent=1)


def graph_from_json(text: str | bytes) -> OperationGraph:
    """Read a graph from JSON text.

    Args:
        text: The text of a graph file.

    Returns:
        The operation graph.

    Raises:
        MalformedFile: The text is not a graph, or a newer version wrote it. The rejections say what is wrong.
    """
    return guarded(lambda: graph_from_dict(parse_document(text, GRAPH_FORMAT)))


def graph_from_dict(data: Mapping[str, Any]) -> OperationGraph:
    """What ``graph_to_dict`` made; to be called inside ``guarded``."""
    tensors: dict[int, TensorSpec] = {}
    for i, entry in enumerate(data["tensors"]):
        with placed(f"tensors[{i}]"):
            tensor = TensorSpec(**decoded(TensorSpec, entry, {}))
        if tensors.setdefault(tensor.uid, tensor) != tensor:
            raise malformed(
                CONTENT, "tensors", tensor.label(), expected="one entry for one uid", detail="two tensors share a uid"
            )
    operations = []
    for i, entry in enumerate(data["operations"]):
        with placed(f"operations[{i}]"):
            fields = dict(entry)
            tag = fields.pop("operation")
            if tag not in KNOWN_OPERATIONS:
                known = ", ".join(KNOWN_OPERATIONS)
                raise malformed(CONTENT, "operation", tag, expected=f"one of {known}", detail="unknown operation")
            cls = KNOWN_OPERATIONS[tag]
            operations.append(cls(**decoded(cls, fields, tensors)))
    return OperationGraph.of(operations, name=str(data.get("name", "")))
