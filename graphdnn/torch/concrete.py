"""Concrete extents in place of symbolic ones, so that a lowering asks nothing of the symbols."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

SYMBOLIC = "symbolic"  # the key of the former value in ``node.meta``


def has_symbols(module: GraphModule) -> bool:
    """Whether an extent of a tensor, or a number, is symbolic."""
    return any(_is_symbolic(node.meta.get(SYMBOLIC, node.meta.get("val"))) for node in module.graph.nodes)


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_symbolic, value))
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride()))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def make_concrete(module: GraphModule) -> None:
    """Replace symbolic fake tensors of a graph by those of the extents that it was traced with.

    A question about a symbol (``size == 1``) would become a guard, and the module would be compiled again for each
    extent.
    """
    mode = FakeTensorMode(static_shapes=True)
    inputs = [_concrete(node.meta["val"], mode) for node in module.graph.find_nodes(op="placeholder")]
    for node in module.graph.nodes:
        if "val" in node.meta:
            node.meta[SYMBOLIC] = node.meta.pop("val")
    FakeTensorProp(module, mode).propagate_dont_convert_inputs(*inputs)


def _concrete(value: Any, mode: FakeTensorMode) -> Any:
    if isinstance(value, torch.Tensor):
        size, stride = ([_hint(n) for n in numbers] for numbers in (value.shape, value.stride()))
        with mode:
            return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)
    return _hint(value)


def _hint(number: Any) -> Any:
    """The value that a symbol had when the graph was traced."""
    return number.node.hint if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)) else number


def propagated(module: GraphModule, args: Any) -> None:
    """Give the nodes of a part the fake tensors of a call.

    Args:
        module: The part, which is changed.
        args: The arguments of the call.
    """
    mode = FakeTensorMode(static_shapes=True)
    fakes = [mode.from_tensor(a.detach(), static_shapes=True) if isinstance(a, torch.Tensor) else a for a in args]
    for node in module.graph.nodes:
        node.meta.pop("val", None)
    FakeTensorProp(module, mode).propagate_dont_convert_inputs(*fakes)
