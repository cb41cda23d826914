"""Tensors that a segment keeps narrow: expanded tensors, constants, and what is computed of them alone.

A tensor of the library has each element once, so an expanded tensor stays as it was, and elementwise operations
broadcast it. Other operations need all elements: PyTorch then expands the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch.fx import Node

from graphdnn.errors import Rejection
from graphdnn.torch.lowerings import ELEMENTWISE
from graphdnn.torch.lowerings.shape import CONSTANTS
from graphdnn.torch.rules import NARROW

aten = torch.ops.aten


def expanded_by_pytorch(
    nodes: Iterable[Node], reasons: Mapping[Node, tuple[Rejection, ...]]
) -> dict[Node, tuple[Rejection, ...]]:
    """The operators whose results have to be expanded, so that PyTorch computes them.

    Args:
        nodes: The operators in order.
        reasons: Why an operator is not served; empty if it is.

    Returns:
        The reasons of the operators that are to be left to PyTorch.
    """
    order = list(nodes)
    refused: dict[Node, tuple[Rejection, ...]] = {}
    while True:
        found = _read_by_others([node for node in order if not reasons[node] and node not in refused])
        if not found:
            return refused
        refused.update(found)


def _read_by_others(served: Iterable[Node]) -> dict[Node, tuple[Rejection, ...]]:
    """The narrow tensors that an operator reads which is not elementwise, or which reads constants alone."""
    extents: dict[Node, tuple[int, ...]] = {}  # of the narrow ones
    found: dict[Node, tuple[Rejection, ...]] = {}
    for node in served:
        operands = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
        narrow = [n for n in operands if n in extents]
        if node.target in CONSTANTS:
            extents[node] = ()
        elif node.target is aten.expand.default:
            found.update({n: _reason(n, node) for n in narrow})
            if operands[0].meta["val"].numel() != node.meta["val"].numel():
                extents[node] = tuple(operands[0].meta["val"].shape)
        elif node.target not in ELEMENTWISE or (
            operands and all(n.target in CONSTANTS for n in narrow) and narrow == operands
        ):
            found.update({n: _reason(n, node) for n in narrow})
        elif narrow:
            shape = torch.broadcast_shapes(*(extents.get(n, tuple(n.meta["val"].shape)) for n in operands))
            if shape != node.meta["val"].shape:
                extents[node] = tuple(shape)
    return found


def _reason(node: Node, reader: Node) -> tuple[Rejection, ...]:
    return (NARROW.reject(f"{node.target} ({node.name})", "readers", f"{reader.target} ({reader.name})"),)
