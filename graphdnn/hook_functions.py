"""The functions of ``HOOKS``: errors, plans and log lines ask the layers after them, which load when they are asked.

Each function imports its layer, so ``import graphdnn`` loads none of them. Types are those of the layer that answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.errors import GraphdnnError
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig
from graphdnn.hooks import register
from graphdnn.plan import ExecutionPlan

if TYPE_CHECKING:
    from graphdnn.analysis.certificate import Certificate
    from graphdnn.analysis.cuts import Cuts
    from graphdnn.analysis.diagnostics import DiagnosticList
    from graphdnn.analysis.kernels import KernelView, Place
    from graphdnn.analysis.repairs import Repairs
    from graphdnn.analysis.trace import Trace


def _error_ledger(error: GraphdnnError) -> DiagnosticList:
    from graphdnn.analysis.diagnostics import of_error

    return of_error(error)


def _error_repairs(error: GraphdnnError, device: DeviceSpec | str | None) -> Repairs:
    from graphdnn.analysis.repairs import of_error

    return of_error(error, device)


def _error_repeat(error: GraphdnnError) -> str:
    from graphdnn.bundles import of_error

    return of_error(error)


def _graph_repeat(graph: OperationGraph, command: str, device: str) -> str:
    from graphdnn.bundles import of_graph

    return of_graph(graph, command, device)


def _config_repeat(config: EngineConfig) -> str:
    from graphdnn.bundles import of_plan

    return of_plan(config)


def _plan_refusals(
    plan: ExecutionPlan,
    engine: str | int | None,
    kind: str | None,
    rule: str | None,
    operation: str | int | None,
    uid: int | None,
) -> DiagnosticList:
    from graphdnn.analysis.diagnostics import of_plan

    return of_plan(plan, engine, kind, rule, operation, uid)


def _plan_repairs(plan: ExecutionPlan) -> Repairs:
    from graphdnn.analysis.repairs import of_plan

    return of_plan(plan)


def _plan_cuts(plan: ExecutionPlan, *, measure: bool, margin: float | None) -> Cuts:
    from graphdnn.analysis.cuts import of_plan

    return of_plan(plan, measure=measure, margin=margin)


def _plan_kernels(plan: ExecutionPlan) -> tuple[KernelView, ...]:
    from graphdnn.analysis.kernels import of_plan

    return of_plan(plan)


def _plan_where(plan: ExecutionPlan, subject: int | str) -> tuple[Place, ...]:
    from graphdnn.analysis.kernels import where

    return where(plan, subject)


def _plan_with_source(plan: ExecutionPlan, index: int, source: str, name: str | None) -> ExecutionPlan:
    from graphdnn.analysis.kernels import with_source

    return with_source(plan, index, source, name)


def _plan_trace(plan: ExecutionPlan, bindings: Mapping[int, Any]) -> Trace:
    from graphdnn.analysis.trace import of_plan

    return of_plan(plan, bindings)


def _plan_certificate(
    plan: ExecutionPlan,
    bindings: Mapping[int, Any] | None,
    ranges: Mapping[int, tuple[float, float]] | None,
) -> Certificate:
    from graphdnn.analysis.certificate import of_plan

    return of_plan(plan, bindings, ranges)


HOOK_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "error.ledger": _error_ledger,
    "error.repairs": _error_repairs,
    "error.repeat": _error_repeat,
    "graph.repeat": _graph_repeat,
    "config.repeat": _config_repeat,
    "plan.refusals": _plan_refusals,
    "plan.repairs": _plan_repairs,
    "plan.cuts": _plan_cuts,
    "plan.kernels": _plan_kernels,
    "plan.where": _plan_where,
    "plan.with_source": _plan_with_source,
    "plan.trace": _plan_trace,
    "plan.certificate": _plan_certificate,
}
for _name, _function in HOOK_FUNCTIONS.items():
    register(_name, _function)
