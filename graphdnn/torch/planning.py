"""From a part of a module's graph to a graph with a plan."""

from __future__ import annotations

from torch.fx import GraphModule

from graphdnn.device.profiles import DeviceSpec
from graphdnn.torch.description import Described, Description


def planned(part: GraphModule, device: DeviceSpec | str, static: frozenset[int]) -> Described:
    """A segment with its plan.

    Args:
        part: The segment, with concrete fake tensors.
        device: The device of the graph.
        static: The indices of arguments that are parameters or buffers.

    Raises:
        GraphdnnError: The graph or the device refuses it.
    """
    described = Description(part, device, static).describe()
    described.graph.build()
    return described
