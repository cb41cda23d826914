"""DynamicSegment: a part with symbolic extents, which gets a plan for each set of extents that it meets."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.fx import GraphModule

from graphdnn.bounded_cache import BoundedCache
from graphdnn.device.profiles import DeviceSpec
from graphdnn.errors import GraphdnnError
from graphdnn.torch.concrete import propagated
from graphdnn.torch.planning import Parameters, planned
from graphdnn.torch.segment import Segment

_MOST = 64  # sets of extents with plans


class DynamicSegment(torch.nn.Module):
    """A part of a module whose extents are known at each call only.

    Args:
        module: The part. PyTorch executes it for extents that the library does not serve.
        device: The device of the plans.
        parameters: The arguments that are parameters or buffers.
    """

    def __init__(self, module: GraphModule, device: DeviceSpec | str, parameters: Parameters) -> None:
        super().__init__()
        self.fallback = module
        self.failures: list[GraphdnnError] = []
        self._device, self._parameters = device, parameters
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
        part = copy.deepcopy(self.fallback)
        propagated(part, args)
        try:
            return Segment(self.fallback, planned(part, self._device, self._parameters), self._parameters)
        except GraphdnnError as error:
            self.failures.append(error)
            return self.fallback
