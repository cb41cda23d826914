"""The whole pipeline in one function: graph -> fusion -> heuristics -> engine -> plan."""

from __future__ import annotations

import threading
from collections import OrderedDict

from graphdnn.device import DeviceSpec
from graphdnn.enums import HeurMode
from graphdnn.fusion import fuse
from graphdnn.graph import OperationGraph
from graphdnn.heuristics import EngineConfig, Filters, Ranking
from graphdnn.machine import device_spec
from graphdnn.plan import ExecutionPlan

# The configurations that were chosen last: building the plan of an equal graph again neither fuses nor ranks.
# The spec is kept with its configuration, so that its identity stays its own.
_MOST = 256
_chosen: OrderedDict[tuple[object, ...], tuple[DeviceSpec, EngineConfig]] = OrderedDict()
_guard = threading.Lock()


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
    spec = device_spec(device)
    names = tuple((op.name, op.origin, *(t.uid for t in op.tensors().values())) for op in graph.operations)
    key = graph.key, names, id(spec), mode, filters
    with _guard:
        kept = _chosen.get(key)
    if kept is None:
        kept = spec, rank(graph, spec, mode, filters).best
        with _guard:
            _chosen[key] = kept
            while len(_chosen) > _MOST:
                _chosen.popitem(last=False)
    return ExecutionPlan(kept[1])
