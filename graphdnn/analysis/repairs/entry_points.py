"""What repairs are asked for: a graph, a plan, the entries of a file, an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphdnn.analysis.repairs.draft_validation import Problem
from graphdnn.analysis.repairs.graph_draft import Draft
from graphdnn.analysis.repairs.repair import Repairs
from graphdnn.analysis.repairs.repair_search import Target, repairs_of
from graphdnn.analysis.repairs.spec_repairs import repairs_of_part
from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.enums import HeurMode
from graphdnn.errors import GraphdnnError
from graphdnn.fusion import NO_LIMITS, FusionLimits
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Filters, Ranking
from graphdnn.operations import Operation
from graphdnn.plan import ExecutionPlan
from graphdnn.spec import Attempted


def of_draft(
    draft: Draft,
    device: DeviceSpec | str | None = None,
    mode: HeurMode = HeurMode.A,
    filters: Filters | None = None,
    limits: FusionLimits = NO_LIMITS,
) -> Repairs:
    return repairs_of(draft, Target(device_spec(device), mode, filters or Filters(), limits))


def of_graph(
    graph: OperationGraph,
    device: DeviceSpec | str | None = None,
    mode: HeurMode = HeurMode.A,
    filters: Filters | None = None,
    limits: FusionLimits = NO_LIMITS,
) -> Repairs:
    """Repairs that fuse a graph further, or that give it a faster engine.

    Args:
        graph: The operation graph.
        device: A profile, its name, or None for the default device.
        mode: The heuristic mode.
        filters: What configurations must not be or cost.
        limits: Kernels that the fusion is forced or forbidden to make.

    Returns:
        The repairs, smallest first.

    Raises:
        NotSupported: No fusion satisfies the limits.
    """
    return of_draft(Draft.of_graph(graph), device, mode, filters, limits)


def of_plan(plan: ExecutionPlan) -> Repairs:
    """Repairs for the graph of a plan, on its device and with its filters.

    Args:
        plan: The plan.

    Returns:
        The repairs, smallest first.
    """
    config = plan.config
    fused, mode = config.fused, HeurMode.A if config.mode is None else config.mode
    return of_graph(fused.graph, config.device, mode, config.filters, fused.limits)


def of_data(data: Mapping[str, Any], device: DeviceSpec | str | None = None, mode: HeurMode = HeurMode.A) -> Repairs:
    """Repairs for the content of a graph file, legal or not.

    Args:
        data: The parsed file.
        device: A profile, its name, or None for the default device.
        mode: The heuristic mode.

    Returns:
        The repairs, smallest first.

    Raises:
        MalformedFile: The content has not even the form of a graph.
    """
    return of_draft(Draft.of_data(data), device, mode)


def of_error(error: GraphdnnError, device: DeviceSpec | str | None = None) -> Repairs:
    """Repairs for what an error refused.

    Args:
        error: The error.
        device: A profile, its name, or None for the default device.

    Returns:
        The repairs, smallest first; none if the error is not about a graph or an operation.
    """
    subject = error.subject
    if isinstance(subject, Ranking):
        fused = subject.fused
        return of_graph(fused.graph, subject.device, subject.mode, subject.filters, fused.limits)
    if isinstance(subject, Attempted) and issubclass(subject.cls, Operation):
        return of_draft(Draft.of_attempt(subject), device).of_a_part()
    if isinstance(subject, tuple) and subject and all(isinstance(op, Operation) for op in subject):
        return of_draft(Draft.of_operations(subject), device)
    if isinstance(subject, Attempted):
        return repairs_of_part(subject, device_spec(device))
    problems = tuple(Problem(rejection) for rejection in error.rejections)
    return Repairs((), Draft("", {}, []), device_spec(device), problems)
