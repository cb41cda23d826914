"""The whole pipeline in one function: graph -> fusion -> heuristics -> engine -> plan."""

from __future__ import annotations

from graphdnn.device import DeviceSpec
from graphdnn.enums import HeurMode
from graphdnn.fusion import fuse
from graphdnn.graph import OperationGraph
from graphdnn.heuristics import Filters, Ranking
from graphdnn.machine import device_spec
from graphdnn.plan import ExecutionPlan


def rank(
    graph: OperationGraph,
    device: DeviceSpec | str | None = None,
    mode: HeurMode = HeurMode.A,
    filters: Filters | None = None,
) -> Ranking:
    """Fuse a graph and rank its engine configurations on a device."""
    return Ranking(fuse(graph), device_spec(device), mode, filters)


def build(
    graph: OperationGraph,
    device: DeviceSpec | str | None = None,
    mode: HeurMode = HeurMode.A,
    filters: Filters | None = None,
) -> ExecutionPlan:
    """A plan for the best configuration. Raises ``NotSupported`` with every engine's reasons when there is none."""
    return ExecutionPlan(rank(graph, device, mode, filters).best)
