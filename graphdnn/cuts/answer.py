"""cuts_of: from a graph to its cuts, priced on a device."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from graphdnn.cuts.parts import Carver, connected
from graphdnn.cuts.places import crossing, places, split_here
from graphdnn.cuts.prices import Prices
from graphdnn.cuts.records import Cut, Cuts, Side, total
from graphdnn.device import DeviceSpec
from graphdnn.fusion import NO_LIMITS, Limits, fuse
from graphdnn.graph import OperationGraph
from graphdnn.heuristics import Filters
from graphdnn.machine import device_spec

PREDICTED_MARGIN, MEASURED_MARGIN = 0.1, 0.05  # differences below this share say nothing


def cuts_of(
    graph: OperationGraph,
    device: DeviceSpec | str | None = None,
    *,
    measure: bool = False,
    margin: float | None = None,
    filters: Filters | None = None,
    without: Sequence[str] = (),
    limits: Limits = NO_LIMITS,
) -> Cuts:
    """Every cut in execution order, with what both sides and the whole take on a device.

    ``measure`` executes the whole and all sides, which needs the device. ``without``: words that no engine's name has.
    Raises ``NotSupported`` when the device is not here, or when no engine serves an operation.
    """
    spec, fused = device_spec(device), fuse(graph, limits)
    if margin is None:
        margin = MEASURED_MARGIN if measure else PREDICTED_MARGIN
    survey = _Survey(graph, Prices(spec, filters or Filters(), without, limits, measure=measure))
    whole = survey.prices.of(graph, fused)
    everything = frozenset(range(len(graph.operations)))

    def cut(before: frozenset[int]) -> Cut:
        uids = tuple(crossing(graph, before))
        after = everything - before
        tensors = tuple(graph.tensors[uid] for uid in uids)
        apart = split_here(graph, after, uids, limits)
        return Cut(tensors, apart, survey.side(before, uids), survey.side(after, uids), whole, margin)

    return Cuts(graph, spec, whole, margin, tuple(map(cut, places(fused))))


class _Survey:
    """What the sides of all cuts have in common."""

    def __init__(self, graph: OperationGraph, prices: Prices) -> None:
        self._graph, self.prices = graph, prices
        self._carver = Carver(graph)
        virtual = {uid for uid, tensor in graph.tensors.items() if tensor.is_virtual}
        alone = (self._carver.part((i,), virtual) for i in range(len(graph.operations)))
        self._unfused = [prices.of(each) for each in alone]

    def side(self, members: frozenset[int], bound: Collection[int]) -> Side:
        graphs = tuple(self._carver.part(part, bound) for part in connected(self._graph, members))
        return Side(graphs, total(map(self.prices.of, graphs)), total(self._unfused[i] for i in members))
