"""What a report shows, gathered once: ranking, plan, kernels, refusals, repairs, certificate, cuts, times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from time import perf_counter
from typing import Any

from graphdnn.analysis.certificate import Certificate
from graphdnn.analysis.certificate import of_plan as certificate_of
from graphdnn.analysis.cuts import Cuts
from graphdnn.analysis.cuts import of_plan as cuts_of
from graphdnn.analysis.diagnostics import DiagnosticList
from graphdnn.analysis.diagnostics.collectors import of_ranking
from graphdnn.analysis.kernels import KernelView
from graphdnn.analysis.kernels import of_plan as kernels_of
from graphdnn.analysis.repairs import Repairs
from graphdnn.analysis.repairs import of_graph as repairs_of
from graphdnn.errors import GraphdnnError
from graphdnn.heuristics import EngineConfig, Ranking
from graphdnn.plan import ExecutionPlan

MOST_CONFIGS = 12  # of the ranking
MOST_REPAIRED = 40  # operations of a graph for which repairs and cuts are looked for: both try many graphs
MOST_CERTIFIED = 120


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of single executions of one configuration."""

    name: str
    seconds: tuple[float, ...]

    @property
    def middle(self) -> float:
        """The median in seconds."""
        return median(self.seconds)

    @property
    def low(self) -> float:
        """The shortest time in seconds."""
        return min(self.seconds)

    @property
    def high(self) -> float:
        """The longest time in seconds."""
        return max(self.seconds)


@dataclass(frozen=True, eq=False)
class Contents:
    """What a report shows.

    ``plan`` is None if no engine serves the graph, or if this machine cannot compile the plan. ``not_compiled`` is
    then the error.
    """

    title: str
    ranking: Ranking
    plan: ExecutionPlan | None
    timings: tuple[Timing, ...] = ()
    not_compiled: GraphdnnError | None = None

    @cached_property
    def configs(self) -> tuple[EngineConfig, ...]:
        """The first ones of the ranking."""
        return tuple(config for config, _ in zip(self.ranking, range(MOST_CONFIGS), strict=False))

    @cached_property
    def kernels(self) -> tuple[KernelView, ...]:
        """The kernels of the plan."""
        return () if self.plan is None else tuple(kernels_of(self.plan))

    @cached_property
    def ledger(self) -> DiagnosticList:
        """The refusals of the ranking."""
        return of_ranking(self.ranking)

    @cached_property
    def repairs(self) -> Repairs | None:
        """None for graphs so large that looking would take long."""
        graph = self.ranking.fused.graph
        if len(graph.operations) > MOST_REPAIRED:
            return None
        return repairs_of(graph, self.ranking.device, self.ranking.mode)

    @cached_property
    def certificate(self) -> Certificate | None:
        """The error bounds of the plan; None without a plan, or for a large graph."""
        if self.plan is None or len(self.ranking.fused.graph.operations) > MOST_CERTIFIED:
            return None
        return certificate_of(self.plan)

    @cached_property
    def cuts(self) -> Cuts | None:
        """The cuts of the plan's graph; None without a plan, or for a large graph."""
        if self.plan is None or len(self.ranking.fused.graph.operations) > MOST_REPAIRED:
            return None
        return cuts_of(self.plan)

    @property
    def predicted_seconds(self) -> float | None:
        """The predicted time in seconds, or None if no engine serves the graph."""
        if self.plan is not None:
            return self.plan.config.predicted_seconds
        return None if self.not_compiled is None else self.configs[0].predicted_seconds

    @property
    def measured(self) -> Mapping[int, float]:
        """Seconds by the index of a kernel. They are known if the plan has one kernel, because whole executions are
        timed.
        """
        return {0: self.timings[-1].middle} if self.timings and len(self.kernels) == 1 else {}

    @property
    def floor_seconds(self) -> float | None:
        """The least time, in seconds, that the peaks of arithmetic and memory allow; None without a plan."""
        return None if self.plan is None else sum(kernel.floor_seconds for kernel in self.kernels)

    @property
    def missing(self) -> str:
        """What this machine lacks to compile the plan, and the remedy; empty if the plan was compiled."""
        if self.not_compiled is None:
            return ""
        reason = self.not_compiled.rejections[0]
        return f"{reason.where}: expected {reason.expected}; {reason.fix}"

    @property
    def plan_name(self) -> str:
        """The name of the plan, or of the best configuration if the plan was not compiled; empty if no engine serves
        the graph.
        """
        if self.plan is not None:
            return self.plan.name
        return "" if self.not_compiled is None else self.configs[0].name


def contents_of(
    ranking: Ranking,
    plan: ExecutionPlan | None = None,
    title: str = "",
    bindings: Mapping[int, Any] | None = None,
    repeats: int = 0,
    timings: Sequence[Timing] = (),
) -> Contents:
    """Collect the contents of a report.

    Args:
        ranking: The ranking of the graph.
        plan: A plan. None builds the ranking's best configuration.
        title: The title of the page.
        bindings: ``{uid: array}`` to execute the plan on.
        repeats: How often the plan is executed and timed.
        timings: Measured times to show as well.

    Returns:
        The contents.

    Raises:
        BadParam: An array does not fit.
    """
    not_compiled = None
    if plan is None and next(iter(ranking), None) is not None:
        try:
            plan = ExecutionPlan(ranking.best)
        except GraphdnnError as error:
            not_compiled = error
    if plan is not None and bindings is not None and repeats:
        timings = (*timings, Timing(plan.name, time_plan(plan, bindings, repeats)))
    return Contents(title or ranking.fused.graph.name or "graph", ranking, plan, tuple(timings), not_compiled)


def time_plan(plan: ExecutionPlan, bindings: Mapping[int, Any], repeats: int) -> tuple[float, ...]:
    """Seconds of each of ``repeats`` executions after a first one; on a device, of the device's work."""
    from graphdnn.plan import DevicePlan

    arrays, workspace = plan.to_device(bindings), plan.new_workspace()
    plan.execute(arrays, workspace)
    if isinstance(plan, DevicePlan):
        return tuple(plan.timings(lambda: plan.execute(arrays, workspace), repeats))
    found = []
    for _ in range(repeats):
        start = perf_counter()
        plan.execute(arrays, workspace)
        found.append(perf_counter() - start)
    return tuple(found)
