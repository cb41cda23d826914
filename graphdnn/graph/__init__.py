"""The operation graph: frozen, checked on creation; how it is traversed; the key of its structure."""

from graphdnn.graph.operation_graph import OperationGraph

__all__ = ["OperationGraph"]
