"""Results beside their reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.analysis.oracle.reference import evaluate
from graphdnn.analysis.oracle.tolerances import NO_GROWTH, SMALLEST, Bounds, bounds, decides, scale_of
from graphdnn.dtypes import ELEMENTS, FLOATS, Array
from graphdnn.engines.host.memory import load
from graphdnn.errors import Rejection
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec

_FLIPS = 0.01  # share of decisions that may tip over where rounded values are compared
_FEWEST = 8  # decisions that one may tip over of
FLOOR = 0.5  # share of an output's elements that have to be compared: most of them
_PART = 1 << 18  # elements that are compared at a time
_SMALL = 1 / 8  # of an output's largest magnitude: swings above it leave an element as good as not compared

NOT_COMPARED = Rule(
    id="oracle.compared",
    expected="at least {floor} of the elements compared",
    reason="{why}: a result of zeros, or one that is off, would pass",
    fix="{fix}",
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output beside its reference."""

    tensor: TensorSpec
    difference: float  # largest absolute one; of booleans and indices the share that differs
    bound: float  # 0 where the result is exact
    compared: int | None = None  # elements that were; None: all
    why: str = ""  # the others were not

    @property
    def elements(self) -> int:
        return self.tensor.elements

    @property
    def share(self) -> float:
        """Of the elements, how many were compared."""
        return 1.0 if self.compared is None or not self.elements else self.compared / self.elements

    @property
    def is_compared(self) -> bool:
        """False where so few elements were compared that the verdict says nothing."""
        return self.share >= FLOOR

    @property
    def ok(self) -> bool:
        return self.difference <= self.bound and self.is_compared  # a NaN difference is not ok

    @property
    def rejection(self) -> Rejection | None:
        """Why too few elements were compared; None where enough were."""
        if self.is_compared:
            return None
        fix = FIXES[self.why]
        floor = f"{FLOOR:.0%}"
        return NOT_COMPARED.reject("oracle", self.tensor.label(), self.counted, floor=floor, why=self.why, fix=fix)

    @property
    def counted(self) -> str:
        """How many elements were compared."""
        return counted(self.elements if self.compared is None else self.compared, self.elements)

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "FAILED"
        exact = "exact" if self.bound == 0 else f"bound {self.bound:.3g}"
        said = f"{self.tensor.label()}: largest difference {self.difference:.3g}, {exact}, {self.counted}: {verdict}"
        return said if self.rejection is None else f"{said}; {in_words(self.rejection)}"

    def to_json(self) -> dict[str, Any]:
        rejection = self.rejection
        return {
            "uid": self.tensor.uid, "difference": self.difference, "bound": self.bound, "ok": self.ok,
            "elements": self.elements, "compared": self.elements if self.compared is None else self.compared,
            "share": self.share, "reason": None if rejection is None else in_words(rejection),
        }  # fmt: skip


def counted(compared: int, elements: int) -> str:
    """In words, as each verdict has it."""
    if compared == elements:
        return "all compared"
    return f"{compared} of {elements} elements compared ({compared / max(elements, 1):.1%})"


def in_words(rejection: Rejection) -> str:
    """A rejection in one line."""
    r = rejection
    said = f"{r.attribute} = {r.shown_value}; expected {r.expected}"
    return f"{said}; why: {r.reason}; fix: {r.fix} [{r.rule}]"


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
    return [_compared(graph, spec, values, within, load(bindings[spec.uid], spec)) for spec in graph.outputs]


def _compared(
    graph: OperationGraph, spec: TensorSpec, values: Mapping[int, Array], within: Bounds, actual: Array
) -> Comparison:
    wanted, bound = values[spec.uid], _allowed(graph, spec, within)
    compared, why = coverage(graph, spec, values, within)
    swing = within.swings.get(spec.uid)
    if swing is not None:
        actual = np.where(np.isinf(swing), wanted, actual.astype(wanted.dtype, copy=False))
    if spec.data_type in FLOATS:
        difference = _float_difference(spec, actual, wanted, swing)
    elif decided(graph, spec):
        differs = actual != wanted if swing is None else (actual != wanted) & (swing == 0)
        difference = float(np.mean(differs)) if differs.size else 0.0
    else:
        difference = _integer_difference(actual, wanted, swing)
    return Comparison(spec, difference, bound, compared, why)


_UNDECIDED = "its elements hang on decisions between values that are too close to call"
_LOOSE = "its bound is as large as its largest value"
_NO_NUMBER = "its reference is NaN everywhere"
FIXES = {
    _UNDECIDED: "compare values that are farther apart than their errors, or make the compared ones outputs as well",
    _LOOSE: "take wider types, or make tensors before it outputs as well; graphdnn trace shows each",
    _NO_NUMBER: "give data that the graph has numbers for",
    "": "",
}


def coverage(graph: OperationGraph, spec: TensorSpec, values: Mapping[int, Array], within: Bounds) -> tuple[int, str]:
    """How many elements of a result are compared, and why the others are not.

    An element is compared where it may not be off by as much as the output's largest magnitude, nor by much of that
    because of close decisions: with larger bounds zeros would pass. A NaN has to be one on both sides, which says
    nothing where all are.
    """
    wanted, bound, swing = values[spec.uid], _allowed(graph, spec, within), within.swings.get(spec.uid)
    if decided(graph, spec):
        if bound >= 1:
            return 0, _LOOSE
        return (wanted.size, "") if swing is None else (int(np.sum(swing == 0)), _UNDECIDED)
    if spec.data_type in FLOATS and wanted.size and np.isnan(wanted).all():
        return 0, _NO_NUMBER
    largest = scale_of(spec, wanted)
    if largest > SMALLEST and bound >= largest:
        outside = _outside(spec, wanted)
        return int(np.sum(outside)), _LOOSE
    if swing is None:
        return wanted.size, ""
    return int(np.sum(swing <= (_SMALL * largest if largest > SMALLEST else bound))), _UNDECIDED


def _outside(spec: TensorSpec, wanted: Array) -> Array:
    """Elements beyond the range of the type, which have to be at its end whatever the bound is."""
    element = ELEMENTS[spec.data_type]
    with np.errstate(invalid="ignore"):
        return np.asarray((wanted > element.largest) | (wanted < element.smallest))


def allowances(
    graph: OperationGraph, values: Mapping[int, Array], growth: Mapping[int, float] = NO_GROWTH
) -> dict[int, float]:
    """What ``compare`` allows each output to differ by; of decisions the share."""
    within = bounds(graph, values, growth)
    return {spec.uid: _allowed(graph, spec, within) for spec in graph.outputs}


def _allowed(graph: OperationGraph, spec: TensorSpec, within: Bounds) -> float:
    error = within.errors[spec.uid]
    if decided(graph, spec) and error:
        return max(_FLIPS, 1 / spec.elements) if spec.elements >= _FEWEST else 0.0
    return error


def _float_difference(spec: TensorSpec, actual: Array, wanted: Array, swing: Array | None) -> float:
    """The largest one inside the range of the type; NaN when the NaNs are not in the same places."""
    if actual.ndim == 0 or actual.size <= _PART:
        return _difference_of_part(spec, actual, wanted, swing)
    size = max(1, _PART * len(actual) // actual.size)
    parts = (slice(first, first + size) for first in range(0, len(actual), size))  # each stays in the cache
    found = (_difference_of_part(spec, actual[i], wanted[i], None if swing is None else swing[i]) for i in parts)
    return float(np.max(list(found)))


def _difference_of_part(spec: TensorSpec, actual: Array, wanted: Array, swing: Array | None) -> float:
    actual = actual.astype(np.float64, copy=False)
    no_number = np.isnan(wanted)
    if not np.array_equal(np.isnan(actual), no_number):
        return float("nan")
    if no_number.any():
        number = ~no_number
        actual, wanted, swing = actual[number], wanted[number], None if swing is None else swing[number]
    actual, wanted = _in_range(spec, actual), _in_range(spec, wanted)
    with np.errstate(over="ignore"):
        return _largest(np.abs(actual - wanted), swing)


def _largest(apart: Array, swing: Array | None) -> float:
    """All differences except the ones that a close decision explains."""
    if swing is not None:
        apart = np.maximum(apart - swing * (1 + 1e-9), 0.0)
    return float(apart.max(initial=0.0))


def _in_range(spec: TensorSpec, values: Array) -> Array:
    element = ELEMENTS[spec.data_type]
    return np.asarray(np.clip(values, element.smallest, element.largest))


def _integer_difference(actual: Array, wanted: Array, swing: Array | None) -> float:
    if (actual == wanted).all():
        return 0.0
    apart = np.abs(actual.astype(np.float64) - wanted.astype(np.float64))
    largest = _largest(apart, swing)
    # Of 64 bits, numbers that differ may be one number in double.
    return max(largest, 1.0) if swing is None or (largest > 0) else largest


def decided(graph: OperationGraph, spec: TensorSpec) -> bool:
    """True for an output whose elements are one thing or another: booleans, indices."""
    op = graph.operations[graph.producer[spec.uid]]
    port = next(p for p, t in op.outputs().items() if t.uid == spec.uid)
    return decides(op, port, spec)
