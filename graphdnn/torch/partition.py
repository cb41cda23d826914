"""Partition: which operators of a module's graph the library executes, and where the segments end."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx
import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner, Partition
from torch.fx.passes.operator_support import OperatorSupportBase

from graphdnn.device.profiles import DeviceSpec
from graphdnn.errors import Rejection
from graphdnn.torch.broadcasting import expanded_by_pytorch
from graphdnn.torch.description import NUMBERS, refusals, view_root
from graphdnn.torch.lowerings import ELEMENTWISE
from graphdnn.torch.lowerings.shape import VIEWS
from graphdnn.torch.rules import ONE_OPERATOR, VIEWS_ONLY


@dataclass(frozen=True, slots=True)
class Fallback:
    """An operator that PyTorch runs, and why.

    Args:
        node: The name of the node.
        operator: The operator's name.
        source: The line of the module that called it; empty if PyTorch does not say.
        reasons: The reasons of the library.
    """

    node: str
    operator: str
    source: str
    reasons: tuple[Rejection, ...]


class _Served(OperatorSupportBase):
    def __init__(self, reasons: Mapping[Node, tuple[Rejection, ...]]) -> None:
        self._reasons = reasons

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:  # noqa: ARG002
        return node.op == "call_function" and not self._reasons[node]


def partitioned(module: GraphModule, device: DeviceSpec | str | None) -> tuple[GraphModule, list[str], list[Fallback]]:
    """Replace the largest parts that the library serves by calls of submodules.

    Args:
        module: A functional graph of ATen's operators with fake tensors in ``meta["val"]``.
        device: The device of the graphs.

    Returns:
        The module with the parts as submodules, the names of the submodules, and the operators that PyTorch keeps.
    """
    reasons = {node: _reasons(node, device) for node in module.graph.nodes if node.op == "call_function"}
    for node in reasons:
        if node.target is operator.getitem:
            reasons[node] = reasons.get(node.args[0], ())
    reasons.update(expanded_by_pytorch(reasons, reasons))
    partitioner = CapabilityBasedPartitioner(
        module, _Served(reasons), allows_single_node_partition=True, non_compute_ops=_NAMES_OF_VIEWS
    )
    proposed = [part for whole in partitioner.propose_partitions() for part in _connected(whole)]
    parts = [part for part in proposed if any(map(_computes, part.nodes)) and not _is_one_elementwise(part)]
    taken = {node for part in parts for node in part.nodes}
    left = [n for n in reasons if n not in taken and n.target is not operator.getitem]
    kept = [fallback(n, reasons[n] or _not_worth(n)) for n in left]
    fused = partitioner.fuse_partitions(parts, prefix="segment_") if parts else module
    return fused, [node.target for node in fused.graph.nodes if node.op == "call_module"], kept


def _connected(part: Partition) -> list[Partition]:
    """The parts of a partition that share no computed tensor: one graph is for each."""
    order = {node: i for i, node in enumerate(part.nodes)}
    # A graph reads a view of an argument as an input of its own, so such a view connects nothing.
    views = [node for node in part.nodes if view_root(node) not in order]
    edges = networkx.Graph()
    edges.add_nodes_from(node for node in part.nodes if node not in views)
    edges.add_edges_from((source, node) for node in edges for source in node.all_input_nodes if source in edges)
    groups = [set(group) for group in networkx.connected_components(edges)]
    for view in reversed(views):  # a view joins its only readers; PyTorch shows it to readers of several graphs
        reading = [group for group in groups if not group.isdisjoint(view.users)]
        if len(reading) == 1:
            reading[0].add(view)
    return [Partition(part.id, sorted(group, key=order.__getitem__)) for group in groups]


_NAMES_OF_VIEWS = tuple(str(view) for view in VIEWS)


def _not_worth(node: Node) -> tuple[Rejection, ...]:
    rule = ONE_OPERATOR if _computes(node) else VIEWS_ONLY
    return (rule.reject(str(node.target), "operator", node.name),)


def _is_one_elementwise(part: Partition) -> bool:
    """Whether a part is one elementwise operator, with views: there is nothing to fuse it with."""
    computing = [node for node in part.nodes if _computes(node)]
    return len(computing) == 1 and computing[0].target in ELEMENTWISE


def _computes(node: Node) -> bool:
    """Whether an operator moves or computes elements. Views and numbers do not."""
    is_number = isinstance(node.meta["val"], NUMBERS)
    return not is_number and node.target not in VIEWS and node.target is not operator.getitem


def _reasons(node: Node, device: DeviceSpec | str | None) -> tuple[Rejection, ...]:
    if node.target is operator.getitem:
        return ()  # its source decides
    return refusals(node, device)


def fallback(node: Node, reasons: tuple[Rejection, ...]) -> Fallback:
    """The record of an operator that PyTorch executes."""
    return Fallback(node.name, str(node.target), source_line(node), reasons)


def source_line(node: Any) -> str:
    """Where a node comes from: the last line of the caller's own text if PyTorch kept the stack, else the submodule."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    files = [line for line in lines if line.startswith("File ")]
    own = [line for line in files if "/torch/" not in line] or files
    if own:
        return own[-1].removeprefix("File ").replace('"', "")
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    if not modules:
        return ""
    path, kind = modules[-1]
    name = re.sub(r"^L\['\w+'\]\.?", "", path) or "the module"
    return f"{name} ({getattr(kind, '__name__', kind)})"
