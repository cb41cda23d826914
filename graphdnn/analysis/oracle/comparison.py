"""Results beside their reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.analysis.oracle.reference import evaluate
from graphdnn.analysis.oracle.tolerances import NO_GROWTH, Bounds, bounds, decides
from graphdnn.dtypes import ELEMENTS, FLOATS, Array
from graphdnn.engines.host.memory import load
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.tensors import TensorSpec

_FLIPS = 0.01  # share of decisions that may tip over where rounded values are compared


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output beside its reference."""

    tensor: TensorSpec
    difference: float  # largest absolute one; of booleans and indices the share that differs
    bound: float  # 0 where the result is exact

    @property
    def ok(self) -> bool:
        return self.difference <= self.bound  # a NaN difference is not ok

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "FAILED"
        exact = "exact" if self.bound == 0 else f"bound {self.bound:.3g}"
        return f"{self.tensor.label()}: largest difference {self.difference:.3g}, {exact}: {verdict}"

    def to_json(self) -> dict[str, Any]:
        return {"uid": self.tensor.uid, "difference": self.difference, "bound": self.bound, "ok": self.ok}


def compare(
    graph: OperationGraph,
    bindings: Mapping[int, Any],
    before: Mapping[int, Any] | None = None,
    growth: Mapping[int, float] = NO_GROWTH,
) -> list[Comparison]:
    """Every output in ``bindings`` beside its reference. ``before`` holds the old outputs where beta reads them.

    ``growth``: ``EngineConfig.error_growth``, the factors of the engines that computed them.
    """
    values = evaluate(graph, {**bindings, **(before or {})})
    return compare_values(graph, values, bounds(graph, values, growth), bindings)


def compare_values(
    graph: OperationGraph, values: Mapping[int, Array], within: Bounds, bindings: Mapping[int, Any]
) -> list[Comparison]:
    """Like ``compare``, beside what ``evaluate`` and ``bounds`` gave: for several results of the same inputs."""
    errors, unclear = within
    found = []
    for spec in graph.outputs:
        actual, wanted, bound = load(bindings[spec.uid], spec), values[spec.uid], _allowed(graph, spec, errors)
        if spec.data_type in FLOATS:
            actual = actual.astype(np.float64)
        if spec.uid in unclear:
            actual = np.where(unclear[spec.uid], wanted, actual)
        if _is_decision(graph, spec):
            found.append(Comparison(spec, float(np.mean(actual != wanted)), bound))
        elif spec.data_type in FLOATS:
            found.append(Comparison(spec, _float_difference(spec, actual, wanted), bound))
        else:
            found.append(Comparison(spec, _integer_difference(actual, wanted), bound))
    return found


def allowances(
    graph: OperationGraph, values: Mapping[int, Array], growth: Mapping[int, float] = NO_GROWTH
) -> dict[int, float]:
    """What ``compare`` allows each output to differ by; of decisions the share."""
    errors, _ = bounds(graph, values, growth)
    return {spec.uid: _allowed(graph, spec, errors) for spec in graph.outputs}


def _allowed(graph: OperationGraph, spec: TensorSpec, errors: Mapping[int, float]) -> float:
    if _is_decision(graph, spec):
        return max(_FLIPS, 1 / spec.elements) if errors[spec.uid] else 0.0
    return errors[spec.uid]


def _float_difference(spec: TensorSpec, actual: Array, wanted: Array) -> float:
    """The largest one inside the range of the type; NaN when the NaNs are not in the same places."""
    if not np.array_equal(np.isnan(actual), np.isnan(wanted)):
        return float("nan")
    number = ~np.isnan(wanted)
    actual, wanted = _in_range(spec, actual[number]), _in_range(spec, wanted[number])
    with np.errstate(over="ignore"):
        return float(np.abs(actual - wanted).max(initial=0.0))


def _in_range(spec: TensorSpec, values: Array) -> Array:
    element = ELEMENTS[spec.data_type]
    return np.asarray(np.clip(values, element.smallest, element.largest))


def _integer_difference(actual: Array, wanted: Array) -> float:
    if (actual == wanted).all():
        return 0.0
    return max(float(np.abs(actual.astype(np.float64) - wanted.astype(np.float64)).max()), 1.0)


def _is_decision(graph: OperationGraph, spec: TensorSpec) -> bool:
    op = graph.operations[graph.producer[spec.uid]]
    port = next(p for p, t in op.outputs().items() if t.uid == spec.uid)
    return decides(op, port, spec)
