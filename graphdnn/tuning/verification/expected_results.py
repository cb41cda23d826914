"""Answers: the oracle's values for a graph, or for some of its images, on the tuner's operands; a result's verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphdnn.analysis.graph_slices import SlicedGraph
from graphdnn.analysis.oracle import FLOOR, Bounds, bounds, compare_values, coverage, evaluate
from graphdnn.dtypes import FLOATS, Array
from graphdnn.engines.host.memory import as_it_lies, binding_layout, empty, is_plain
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.tensors import TensorSpec

Growth = tuple[tuple[int, float], ...]  # uid and factor, as ``EngineConfig.error_growth`` has them
_CHUNK = 1 << 18  # elements that are compared at a time: they stay in the cache


@dataclass(slots=True)
class ExpectedResults:
    """What every tensor of ``graph`` should be."""

    graph: OperationGraph
    operands: Mapping[int, Any]
    values: Mapping[int, Array]
    _bounds: dict[Growth, Bounds] = field(default_factory=dict)
    _compared: dict[Growth, dict[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: OperationGraph, operands: Mapping[int, Any], thin: SlicedGraph | None) -> ExpectedResults:
        """``operands`` are those of the whole graph."""
        if thin is not None:
            graph, operands = thin.graph, thin.bindings(operands)
        found = cls(graph, operands, evaluate(graph, operands))
        found._bounds[()] = bounds(graph, found.values)
        return found

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(value.nbytes for value in self.values.values())

    def compared(self, growth: Growth = ()) -> dict[int, int]:
        """By uid, how many elements of an output are compared."""
        if growth not in self._compared:
            if growth not in self._bounds:
                self._bounds[growth] = bounds(self.graph, self.values, dict(growth))
            within = self._bounds[growth]
            outputs = self.graph.outputs
            self._compared[growth] = {t.uid: coverage(self.graph, t, self.values, within)[0] for t in outputs}
        return self._compared[growth]

    def judged(self, growth: Growth, sizes: Sequence[int], payload: bytes) -> str:
        """What is wrong with outputs, given as they lie in memory one after another; empty when nothing is."""
        compared = self.compared(growth)
        lying, start = {}, 0
        for spec, size in zip(self.graph.outputs, sizes, strict=True):
            dtype, shape, _ = binding_layout(spec)
            found = np.frombuffer(payload, dtype, size // dtype.itemsize, start)
            lying[spec.uid] = found.reshape([shape[axis] for axis in _axes(spec)])
            start += size
        within = self._bounds[growth]
        outputs = self.graph.outputs
        is_covered = all(compared[t.uid] >= FLOOR * t.elements for t in outputs)
        if is_covered and all(self._is_clearly_right(t, lying[t.uid], within) for t in outputs):
            return ""
        results = {}
        for spec in self.graph.outputs:
            results[spec.uid] = empty(spec)
            as_it_lies(results[spec.uid])[...] = lying[spec.uid]
        verdicts = compare_values(self.graph, self.values, within, {**self.operands, **results})
        return "; ".join(str(c) for c in verdicts if not c.ok)

    def _is_clearly_right(self, spec: TensorSpec, found: Array, within: Bounds) -> bool:
        """True when every element is within the bound as it is: the quick way for what is mostly the case."""
        errors, swings = within
        if spec.data_type not in FLOATS or not is_plain(spec) or spec.uid in swings:
            return False
        wanted, bound = self.values[spec.uid].transpose(_axes(spec)), errors[spec.uid]
        if found.ndim == 0:
            return bool(abs(float(found) - float(wanted)) <= bound)
        rows = max(1, _CHUNK * len(found) // max(found.size, 1))
        return all(
            bool((np.abs(found[i : i + rows].astype(np.float64) - wanted[i : i + rows]) <= bound).all())
            for i in range(0, len(found), rows)
        )


def _axes(spec: TensorSpec) -> list[int]:
    """Of a tensor's binding, from the outermost in memory to the innermost."""
    _, _, strides = binding_layout(spec)
    return sorted(range(len(strides)), key=lambda axis: (-strides[axis], axis))
