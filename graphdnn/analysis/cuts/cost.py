"""What graphs take on a device: each kernel by its best engine, as the heuristics predict it or as measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphdnn.analysis.cuts.cut import RunCost, total
from graphdnn.analysis.cuts.timing import Bench
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.engines.renames import matches_name
from graphdnn.enums import HeurMode, Status
from graphdnn.errors import NotSupported
from graphdnn.fusion import FusedGraph, FusedOp, FusionLimits, fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Choice, EngineConfig, Filters, Ranking
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule

BARRED = Rule(
    id="cuts.engines",
    expected="an engine whose name has none of {words}",
    reason="every engine that serves this part of the graph was deselected by name",
    fix="deselect fewer engines",
    status=Status.NOT_SUPPORTED,
)


class CostEvaluator:
    """Prices on one device. Kernels that parts of a graph have in common are looked at once.

    Configurations with one of the words ``without`` in their name are passed over; ``limits`` are those of the whole.
    """

    def __init__(
        self, device: DeviceSpec, filters: Filters, without: Sequence[str], limits: FusionLimits, *, measure: bool
    ) -> None:
        self.device, self._filters, self._without, self._limits = device, filters, without, limits
        self._bench = Bench() if measure else None
        self._kernels: dict[tuple[object, ...], tuple[FusedOp, RunCost]] = {}

    def of(self, graph: OperationGraph, fused: FusedGraph | None = None) -> RunCost:
        """Fused as well as rules and limits allow. Raises ``NotSupported`` where a device to measure on is not here."""
        fused = fused or self.fused(graph)
        predicted = total(map(self.of_kernel, fused))
        if self._bench is None:
            return predicted
        return replace(predicted, timed=(self._bench.enter(ExecutionPlan(self._best(fused))),))

    def measure(self) -> None:
        """Fill in the times of all costs, if they are to be measured."""
        if self._bench is not None:
            self._bench.measure()

    def fused(self, part: OperationGraph) -> FusedGraph:
        return fuse(part, self._limits.within(part))

    def of_kernel(self, op: FusedOp) -> RunCost:
        """As predicted. Parts share what no cut touches, so the operations themselves say which kernel it is."""
        key = (op.rule, len(op.prologue), *map(id, op.operations), *(t.uid for t in op.outputs))
        if key not in self._kernels:
            alone = FusedGraph(OperationGraph((), {}, {}, {}), (op,), ())
            (choice,) = self._best(alone).choices
            self._kernels[key] = op, self._price(choice)  # the operation is kept, so that ids stay its own
        return self._kernels[key][1]

    def _best(self, fused: FusedGraph) -> EngineConfig:
        ranking = Ranking(fused, self.device, HeurMode.A, self._filters)
        best = ranking.best  # which raises when there is none
        if not self._without:
            return best
        for config in ranking:
            if not any(matches_name(word, config.name) for word in self._without):
                return config
        words = ", ".join(self._without)
        raise NotSupported(BARRED.reject(f"cuts on {self.device.name}", "engine", best.name, words=words))

    def _price(self, choice: Choice) -> RunCost:
        cost = choice.cost
        starting = cost.parts.get("launch")
        launches = 1 if starting is None else round(starting / self.device.launch)
        return RunCost(cost.seconds, bytes_moved(choice.task.op), 1, launches)  # as explain counts them
