"""Nodes of damaged files: what Python raises for attributes that make no sense becomes a rejection of the node."""

from __future__ import annotations

from graphdnn.errors import Rejection
from graphdnn.onnx.node import Node
from graphdnn.onnx.rules import NODE

ARGUMENT_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, MemoryError)


def unreadable(node: Node, error: Exception) -> Rejection:
    """The rejection of a node.

    Args:
        node: The node.
        error: What its attributes raised.
    """
    detail = f"{type(error).__name__}: {error}"[:200]
    return NODE.reject(node.where, "attributes", str(sorted(node.attributes)), detail=detail)
