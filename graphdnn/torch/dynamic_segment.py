"""DynamicSegment: a part with symbolic extents, which gets a plan for each set of extents that it meets."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from graphdnn.bounded_cache import BoundedCache
from graphdnn.device.profiles import DeviceSpec
from graphdnn.errors import GraphdnnError
from graphdnn.torch.planning import planned
from graphdnn.torch.segment import Segment

_MOST = 64  # sets of extents with plans


def has_symbols(module: GraphModule) -> bool:
    """Whether an extent of a tensor, or a number, is symbolic."""
    return any(_is_symbolic(node.meta.get("val")) for node in module.graph.nodes)


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_symbolic, value))
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride()))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


class DynamicSegment(torch.nn.Module):
    """A part of a module whose extents are known at each call only.

    Args:
        module: The part. PyTorch executes it for extents that the library does not serve.
        device: The device of the plans.
        static: The indices of arguments that are parameters or buffers.
    """

    def __init__(self, module: GraphModule, device: DeviceSpec | str, static: frozenset[int]) -> None:
        super().__init__()
        self.fallback = module
        self.failures: list[GraphdnnError] = []
        self._device, self._static = device, static
        self._segments: BoundedCache[Any, Any] = BoundedCache(_MOST)

    @property
    def segments(self) -> list[Segment]:
        """The segments with plans so far."""
        return [s for s in self._segments.values() if isinstance(s, Segment)]

    def forward(self, *args: Any) -> Any:
        """Execute the plan for the extents of these arguments, which is made at the first call with them."""
        key = tuple((tuple(a.shape), a.stride()) if isinstance(a, torch.Tensor) else a for a in args)
        found = self._segments.get(key)
        if found is None:
            found = self._segments.remember(key, self._segment(args))
        return found(*args)

    def _segment(self, args: Any) -> Any:
        mode = FakeTensorMode(static_shapes=True)
        fakes = [mode.from_tensor(a.detach(), static_shapes=True) if isinstance(a, torch.Tensor) else a for a in args]
        part = copy.deepcopy(self.fallback)
        for node in part.graph.nodes:
            node.meta.pop("val", None)
        FakeTensorProp(part, mode).propagate_dont_convert_inputs(*fakes)
        try:
            return Segment(self.fallback, planned(part, self._device, self._static), self._static)
        except GraphdnnError as error:
            self.failures.append(error)
            return self.fallback
