"""Reference: what a graph should compute on the tuner's operands, worked out once for all candidates.

Where that would take too much of the time, it is worked out for a few images of the batch only
(graphdnn/tuning/thinning.py). Where candidates run on a GPU, results are judged in a thread beside the search, for the
host is idle there; on a host that would disturb what is timed, so the oracle works before the first candidate does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphdnn.device import this_cpu
from graphdnn.dtypes import FLOATS, Array
from graphdnn.engines import Task
from graphdnn.engines.host.memory import binding_layout, empty, is_plain
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.fusion import fuse
from graphdnn.graph import OperationGraph
from graphdnn.operands import blended, random_operands
from graphdnn.oracle import Bounds, bounds, compare_values, evaluate
from graphdnn.tensors import TensorSpec
from graphdnn.tuning.thinning import Thinned, batch_tensors, thinned

Growth = tuple[tuple[int, float], ...]  # uid and factor, as ``EngineConfig.error_growth`` has them
_DOUBLE = 4.0  # times the predicted seconds of the general engine that the oracle takes: its arithmetic is DOUBLE
_FEWEST, _MOST = 2, 16  # images
_CHUNK = 1 << 18  # elements that are compared at a time: they stay in the cache


@dataclass
class Reference:
    """The oracle's values for a graph and a seed, and what was found of each result."""

    graph: OperationGraph
    seed: int
    is_beside: bool  # judges in a thread
    allowed: float  # seconds that the oracle should take at most
    thin: Thinned | None = None
    _values: dict[int, Array] = field(default_factory=dict)
    _operands: dict[int, Any] = field(default_factory=dict)
    _bounds: dict[Growth, Bounds] = field(default_factory=dict)
    _verdicts: dict[tuple[str, Growth], Future[str]] = field(default_factory=dict)
    _thread: ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        needed = _DOUBLE * sum(NUMPY.cost(Task(op, this_cpu()), {}).seconds for op in fuse(self.graph))
        if needed > self.allowed:
            found = batch_tensors(self.graph)
            images = int(self.allowed / needed * found[0]) if found else 0
            self.thin = thinned(self.graph, min(max(images, _FEWEST), _MOST), self.seed)

    @property
    def checked(self) -> str:
        """What of the results is compared with the oracle."""
        return "in full" if self.thin is None else f"on {len(self.thin.kept)} of {self.thin.batch} images"

    @property
    def _compared(self) -> OperationGraph:
        return self.graph if self.thin is None else self.thin.graph

    def start(self) -> None:
        """Work out the values: now, or beside what follows."""
        if self.is_beside:
            self._thread = ThreadPoolExecutor(1)
            self._thread.submit(self._prepare)
        else:
            self._prepare()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def judgement(
        self, digest: str, growth: Mapping[int, float], results: Callable[[], tuple[Sequence[int], bytes]]
    ) -> Future[str]:
        """What is wrong with a result, empty when nothing is. ``results``: sizes and bytes of the outputs, of which
        those of one digest are asked for once.
        """
        key = digest, tuple(sorted(growth.items()))
        if key not in self._verdicts:
            sizes, payload = results()
            if self._thread is not None:
                self._verdicts[key] = self._thread.submit(self._judged, key[1], sizes, payload)
            else:
                self._verdicts[key] = done = Future[str]()
                done.set_result(self._judged(key[1], sizes, payload))
        return self._verdicts[key]

    def _prepare(self) -> None:
        if not self._values:
            operands = random_operands(self.graph, self.seed)
            operands |= blended(self.graph, operands)
            self._operands = operands if self.thin is None else self.thin.bindings(operands)
            self._values = evaluate(self._compared, self._operands)
            self._bounds[()] = bounds(self._compared, self._values)

    def _judged(self, growth: Growth, sizes: Sequence[int], payload: bytes) -> str:
        self._prepare()
        if growth not in self._bounds:
            self._bounds[growth] = bounds(self._compared, self._values, dict(growth))
        results, start = {}, 0
        for spec, size in zip(self._compared.outputs, sizes, strict=True):
            dtype, _, _ = binding_layout(spec)
            results[spec.uid] = empty(spec)
            target = as_it_lies(results[spec.uid])
            target[...] = np.frombuffer(payload, dtype, size // dtype.itemsize, start).reshape(target.shape)
            start += size
        within = self._bounds[growth]
        if all(self._is_clearly_right(spec, results[spec.uid], within) for spec in self._compared.outputs):
            return ""
        found = compare_values(self._compared, self._values, within, {**self._operands, **results})
        return "; ".join(str(c) for c in found if not c.ok)

    def _is_clearly_right(self, spec: TensorSpec, actual: Array, within: Bounds) -> bool:
        """True when every element is within the bound as it is: the quick way for what is mostly the case."""
        errors, unclear = within
        if spec.data_type not in FLOATS or not is_plain(spec) or spec.uid in unclear:
            return False
        found, wanted, bound = as_it_lies(actual), self._values[spec.uid], errors[spec.uid]
        wanted = wanted.transpose(_axes(actual))
        if found.ndim == 0:
            return bool(abs(float(found) - float(wanted)) <= bound)
        rows = max(1, _CHUNK * len(found) // max(found.size, 1))
        return all(
            bool((np.abs(found[i : i + rows].astype(np.float64) - wanted[i : i + rows]) <= bound).all())
            for i in range(0, len(found), rows)
        )


def as_it_lies(array: Array) -> Array:
    """The array with its axes in the order of memory: contiguous where there are no gaps."""
    return array.transpose(_axes(array))


def _axes(array: Array) -> list[int]:
    return sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], axis))
