"""From a part of a module's graph to a graph with a plan."""

from __future__ import annotations

from typing import NamedTuple

from torch.fx import GraphModule

from graphdnn.device.profiles import DeviceSpec
from graphdnn.torch.description import Described, Description


class Parameters(NamedTuple):
    """The arguments of a part that are parameters or buffers.

    Args:
        indices: The indices of the arguments.
        is_frozen: Their values change in place only, never through ``Parameter.data``, so that values can be prepared
            from them once.
    """

    indices: frozenset[int]
    is_frozen: bool = False


def planned(part: GraphModule, device: DeviceSpec | str, parameters: Parameters) -> Described:
    """A segment with its plan.

    Args:
        part: The segment, with concrete fake tensors.
        device: The device of the graph.
        parameters: The arguments that are parameters or buffers.

    Raises:
        GraphdnnError: The graph or the device refuses it.
    """
    described = Description(part, device, parameters.indices, is_frozen=parameters.is_frozen).describe()
    described.graph.build()
    return described
