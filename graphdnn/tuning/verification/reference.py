"""Reference: what a graph should compute on the tuner's operands, worked out once for all candidates.

A long reference whose images or channels are independent (graphdnn/analysis/graph_slices.py) is computed in
slices. Every candidate is judged on the first slices; further slices are computed while there is time, and the winner
is judged once more on all of them. Where candidates run on a GPU this goes on in threads beside the search, for
the host is idle there; on a host that would disturb what is timed, so the oracle works before the first candidate does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

import numpy as np

from graphdnn.analysis.graph_slices import SlicedGraph, slices_of, thinned
from graphdnn.analysis.random_operands import REPEATED, blended, random_operands
from graphdnn.device.profiles import this_cpu
from graphdnn.engines import Task
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.fusion import fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.tuning.verification.expected_results import ExpectedResults, Growth

_Value = TypeVar("_Value")
Results = Callable[
    [SlicedGraph | None], tuple[Sequence[int], bytes]
]  # sizes and bytes of the outputs, or of a part of them
_DOUBLE = 4.0  # times the predicted seconds of the general engine that the oracle takes: its arithmetic is DOUBLE
_FIRST = 0.1  # share of the allowed seconds that the first part may take, as predicted
_ELEMENT = 3e-8  # seconds for each element of a tensor, whose value and bound are written in DOUBLE
_ELEMENTS = 1 << 20  # of a tensor in the first part, where its fewest slices are not more
_FEWEST, _MOST = 2, 4  # slices in the first part: more come while the search goes on
_PART = 0.2  # seconds that each further part should take
_LARGEST = 1 << 24  # bytes of a tensor's part in the oracle's arithmetic: memory of this size is used again and again
_JUDGES = 4  # parts of a result that are looked at beside each other
_BYTES = 1 << 30  # of all parts together


@dataclass
class Reference:
    """The oracle's values for a graph and a seed, and what was found of each result."""

    graph: OperationGraph
    seed: int
    is_beside: bool  # works in threads
    allowed: float  # seconds that the oracle goes on for; the first part is worked out whatever it takes
    first: SlicedGraph | None = None
    _order: list[int] = field(default_factory=list)  # slices that are not worked out yet
    _parts: list[tuple[SlicedGraph | None, ExpectedResults]] = field(default_factory=list)
    _begun: Future[ExpectedResults] = field(default_factory=Future)
    _growing: Future[None] | None = None
    _verdicts: dict[tuple[int, str, Growth], Future[str]] = field(default_factory=dict)
    _judge: ThreadPoolExecutor | None = None
    _is_settled: bool = False  # there will be no more parts
    _compared: int | None = None  # parts that whatever may win is compared with, once that is known

    def __post_init__(self) -> None:
        needed = _DOUBLE * sum(NUMPY.cost(Task(op, this_cpu()), {}).seconds for op in fuse(self.graph))
        needed += _ELEMENT * sum(t.elements for t in self.graph.tensors.values())
        found = slices_of(self.graph) if needed > _FIRST * self.allowed else None
        if found is not None:
            largest = max(self.graph.tensors[uid].elements for uid in found.axes) // found.count
            affordable = min(int(_FIRST * self.allowed / needed * found.count), _ELEMENTS // largest, _MOST)
            first = max(affordable, _FEWEST)
            if first < found.count:
                inner = [int(i) + 1 for i in np.random.default_rng(self.seed).permutation(found.count - 2)]
                self.first = thinned(self.graph, found, (0, *inner[: first - 2], found.count - 1))
                self._order = inner[first - 2 :]

    @property
    def checked(self) -> str:
        """What of the results is compared with the oracle."""
        if self.first is None:
            return "in full"
        slices = self.first.slices
        count = len(self.first.kept) + sum(len(thin.kept) for thin, _ in self._parts[1 : self._compared or 1] if thin)
        return "in full" if count == slices.count else f"on {count} of {slices.count} {slices.name}"

    @property
    def compared(self) -> dict[str, tuple[int, int]]:
        """For each output: elements that were compared, and how many there are in what was looked at."""
        parts = [answers for _, answers in self._parts[: self._compared or 1]]
        found = {}
        for tensor in self.graph.outputs:
            uid, label = tensor.uid, tensor.label()
            found[label] = (sum(a.compared()[uid] for a in parts), sum(a.graph.tensors[uid].elements for a in parts))
        return found

    def start(self) -> None:
        """Work out the values: now, or beside what follows."""
        if self.is_beside:
            self._judge, grower = ThreadPoolExecutor(_JUDGES), ThreadPoolExecutor(1)
            self._growing = grower.submit(self._grow)
            grower.shutdown(wait=False)
        else:
            self._grow()

    def settle(self, seconds: float) -> None:
        """Wait so long for parts that may still come, and begin with no more: they would slow down what is left."""
        if self._growing is not None and not self._is_settled:
            wait([self._growing], seconds)
        self._is_settled = True

    def close(self) -> None:
        self._is_settled = True
        if self._judge is not None:
            self._judge.shutdown(wait=True, cancel_futures=True)

    def judgement(self, digest: str, growth: Mapping[int, float], results: Results) -> Future[str]:
        """What is wrong with the first part of a result, empty when nothing is. Those of one digest are judged once."""
        return self._judgement(0, self.first, self._begun, digest, growth, results)

    def judgements(
        self, digest: str, growth: Mapping[int, float], results: Results, seconds: float
    ) -> list[Future[str]]:
        """The same for the other parts that are there. Asked for the first time it takes as many as ``seconds`` are
        enough for, one in any case; from then on those.
        """
        started = perf_counter()
        found = [self.judgement(digest, growth, results)]
        for i, (thin, answers) in enumerate(self._parts[1 : self._compared], 1):
            if self._compared is None and i > 1 and perf_counter() - started > seconds:
                break
            found.append(self._judgement(i, thin, _done(answers), digest, growth, results))
        self._compared = len(found)
        return found

    def _judgement(
        self,
        part: int,
        thin: SlicedGraph | None,
        answers: Future[ExpectedResults],
        digest: str,
        growth: Mapping[int, float],
        results: Results,
    ) -> Future[str]:
        key = part, digest, tuple(sorted(growth.items()))
        if key not in self._verdicts:
            sizes, payload = results(thin)
            if self._judge is not None:
                self._verdicts[key] = self._judge.submit(lambda: answers.result().judged(key[2], sizes, payload))
            else:
                self._verdicts[key] = _done(answers.result().judged(key[2], sizes, payload))
        return self._verdicts[key]

    def _grow(self) -> None:
        """The first part, and then others while there is time, as long as the last one says they take."""
        start = before = perf_counter()
        try:
            operands = random_operands(self.graph, self.seed, distinct=REPEATED, outputs=False)
            operands |= blended(self.graph, operands)
            before, answers = perf_counter(), ExpectedResults.of(self.graph, operands, self.first)
        except BaseException as error:
            self._begun.set_exception(error)
            return
        self._parts.append((self.first, answers))
        self._begun.set_result(answers)
        if self.first is None:
            return
        size, slices = len(self.first.kept), self.first.slices
        with suppress(MemoryError):  # what is there by then is enough to judge by
            while self._order and not self._is_settled:
                now = perf_counter()
                seconds = (now - before) / size
                largest = max(answers.values[uid].nbytes for uid in slices.axes) / size
                most = min((self.allowed - (now - start)) / seconds, max(_PART / seconds, size), _LARGEST / largest)
                size = max(1, min(2 * size, int(most), len(self._order)))
                held = sum(part.size for _, part in self._parts)
                if now - start + size * seconds > self.allowed or held > _BYTES:
                    break
                thin = thinned(self.graph, slices, sorted(self._order[:size]))
                before, answers = now, ExpectedResults.of(self.graph, operands, thin)
                if self._is_settled:
                    break  # too late: what is there was looked at
                self._parts.append((thin, answers))
                del self._order[:size]


def _done(value: _Value) -> Future[_Value]:
    found: Future[_Value] = Future()
    found.set_result(value)
    return found
