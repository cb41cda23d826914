"""Reference: what a graph should compute on the tuner's operands, worked out once for all candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphdnn.dtypes import Array
from graphdnn.engines.host.memory import binding_layout, empty
from graphdnn.graph import OperationGraph
from graphdnn.operands import blended, random_operands
from graphdnn.oracle import Bounds, bounds, compare_values, evaluate

Growth = tuple[tuple[int, float], ...]  # uid and factor, as ``EngineConfig.error_growth`` has them


@dataclass
class Reference:
    """The oracle's values for a graph and a seed. Computed when the first result is looked at, or by ``prepare``."""

    graph: OperationGraph
    seed: int
    _values: dict[int, Array] = field(default_factory=dict)
    _operands: dict[int, Any] = field(default_factory=dict)
    _bounds: dict[Growth, Bounds] = field(default_factory=dict)
    _verdicts: dict[tuple[str, Growth], str] = field(default_factory=dict)

    def prepare(self) -> None:
        if not self._values:
            self._operands = random_operands(self.graph, self.seed)
            before = blended(self.graph, self._operands)
            self._values = evaluate(self.graph, {**self._operands, **before})
            self._bounds[()] = bounds(self.graph, self._values)

    def known(self, digest: str, growth: Mapping[int, float]) -> str | None:
        """The verdict on a result of this digest, where one was looked at before."""
        return self._verdicts.get((digest, _hashable(growth)))

    def judge(self, digest: str, growth: Mapping[int, float], sizes: Sequence[int], payload: bytes) -> str:
        """What is wrong with a result, empty when nothing is. ``payload``: the outputs' arrays one after another."""
        self.prepare()
        results, start = {}, 0
        for spec, size in zip(self.graph.outputs, sizes, strict=True):
            dtype, shape, _ = binding_layout(spec)
            results[spec.uid] = empty(spec)
            results[spec.uid][...] = np.frombuffer(payload, dtype, size // dtype.itemsize, start).reshape(shape)
            start += size
        key = _hashable(growth)
        if key not in self._bounds:
            self._bounds[key] = bounds(self.graph, self._values, growth)
        found = compare_values(self.graph, self._values, self._bounds[key], {**self._operands, **results})
        verdict = self._verdicts[digest, key] = "; ".join(str(c) for c in found if not c.ok)
        return verdict


def _hashable(growth: Mapping[int, float]) -> Growth:
    return tuple(sorted(growth.items()))
