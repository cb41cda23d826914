"""cuts_of: from a graph to its cuts, priced on a device."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf

from graphdnn.analysis.cuts.cost import CostEvaluator
from graphdnn.analysis.cuts.cut import Cut, Cuts, Side, total
from graphdnn.analysis.cuts.enumeration import Place, places, split_here
from graphdnn.analysis.cuts.incremental_cost import IncrementalCost
from graphdnn.analysis.cuts.subgraphs import SubgraphBuilder, connected
from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.errors import BadParam
from graphdnn.fusion import NO_LIMITS, FusedGraph, FusionLimits, fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Filters
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule

MARGIN = Rule(
    id="cuts.margin",
    expected="a share of at least 0",
    reason="two times are called neutral if they differ by less than this share of the faster time",
    fix="leave it out, or pass a number such as 0.1",
)
FUSED_AGAIN = 64  # operations; of larger graphs only the kernels near a cut are looked at again
PREDICTED_MARGIN, MEASURED_MARGIN = 0.1, 0.05  # differences below this share say nothing


def cuts_of(
    graph: OperationGraph,
    device: DeviceSpec | str | None = None,
    *,
    measure: bool = False,
    margin: float | None = None,
    filters: Filters | None = None,
    without: Sequence[str] = (),
    limits: FusionLimits = NO_LIMITS,
) -> Cuts:
    """Every cut of a graph in order of execution, with the time of both sides and of the whole.

    Args:
        graph: The operation graph.
        device: A profile, its name, or None for the default device.
        measure: True executes the whole graph and all sides. That needs the device.
        margin: The share of the time below which a difference counts as none. None takes the default.
        filters: What configurations must not be or cost.
        without: Words that no engine's name may contain.
        limits: Kernels that the fusion is forced or forbidden to make.

    Returns:
        The cuts.

    Raises:
        NotSupported: No engine serves an operation, or the device is not present and ``measure`` is set.
    """
    spec, fused = device_spec(device), fuse(graph, limits)
    if margin is None:
        margin = MEASURED_MARGIN if measure else PREDICTED_MARGIN
    elif isinstance(margin, bool) or not isinstance(margin, (int, float)) or not 0 <= margin < inf:
        raise BadParam(MARGIN.reject("CUTS", "margin", margin))
    costs = CostEvaluator(spec, filters or Filters(), without, limits, measure=measure)
    survey = _Survey(fused, costs, measure=measure)

    def cut(place: Place) -> Cut:
        tensors = tuple(graph.tensors[uid] for uid in place.uids)
        before, after = (survey.side(members, place.uids) for members in (place.before, place.after))
        return Cut(tensors, split_here(graph, place, limits), before, after, survey.whole, margin)

    cuts = Cuts(graph, spec, survey.whole, margin, tuple(map(cut, places(fused))))
    costs.measure()
    return cuts


def of_plan(plan: ExecutionPlan, *, measure: bool = False, margin: float | None = None) -> Cuts:
    """The cuts of a plan's graph on its device, with the limits of its fusion.

    Args:
        plan: The plan.
        measure: True executes the whole graph and all sides. That needs the device.
        margin: The share of the time below which a difference counts as none. None takes the default.

    Returns:
        The cuts.

    Raises:
        NotSupported: The device is not present and ``measure`` is set.
    """
    config = plan.config
    notes = Filters(allowed_numerical_notes=frozenset(config.numerical_notes))
    graph, limits = config.fused.graph, config.fused.limits
    return cuts_of(graph, config.device, measure=measure, margin=margin, filters=notes, limits=limits)


class _Survey:
    """What the sides of all cuts have in common."""

    def __init__(self, fused: FusedGraph, prices: CostEvaluator, *, measure: bool) -> None:
        graph = self._graph = fused.graph
        self._prices, self._carver = prices, SubgraphBuilder(graph)
        self.whole = prices.of(graph, fused)
        virtual = {uid for uid, tensor in graph.tensors.items() if tensor.is_virtual}
        alone = (self._carver.part((i,), virtual) for i in range(len(graph.operations)))
        self._unfused = [prices.of(each) for each in alone]
        is_small = len(graph.operations) <= FUSED_AGAIN
        self._nearby = None if measure or is_small else IncrementalCost(fused, self._carver, prices)

    def side(self, members: frozenset[int], bound: Collection[int]) -> Side:
        order = sorted(members)
        steps, unfused = tuple(self._graph.operations[i] for i in order), total(self._unfused[i] for i in order)

        def carve() -> tuple[OperationGraph, ...]:
            return tuple(self._carver.part(part, bound) for part in connected(self._graph, members))

        if self._nearby is not None:
            return Side(steps, self._nearby.price(members, bound), unfused, carve)
        graphs = carve()
        return Side(steps, total(map(self._prices.of, graphs)), unfused, lambda: graphs)
