"""Delta debugging: try what could be left out, keep it out while the graph still fails, until nothing more can go.

Candidates come in a fixed order (operations, extents, attributes, types and layouts), a graph is never asked about
twice, and each one kept starts its family again; so the result is the same on every run, and locally minimal: every
single candidate of the result was tried and does not fail, unless the time ran out first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from graphdnn.errors import BadParam
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.reducer.attribute_reduction import plainer, plainer_tensors
from graphdnn.reducer.extent_reduction import smaller
from graphdnn.reducer.graph_rebuild import possible
from graphdnn.reducer.operation_reduction import Candidate, fewer
from graphdnn.rules import Rule

PASSES = Rule(
    id="reduce.passes",
    expected="a graph that fails",
    reason="the graph does not fail, so no part of it can be the cause",
    fix="name the failure with --still 'COMMAND {{}}' or --rule RULE",
)
FAMILIES: tuple[Callable[[OperationGraph], Iterator[Candidate]], ...] = (fewer, smaller, plainer, plainer_tensors)


@dataclass(frozen=True, slots=True)
class Step:
    """One successful step of a reduction."""

    what: str
    operations: int  # that are left
    elements: int  # of all tensors
    seconds: float  # since the search began

    def __str__(self) -> str:
        return f"{self.what}: {self.operations} operations, {self.elements} elements"


@dataclass(frozen=True, slots=True)
class Reduced:
    """The result of a reduction. ``is_minimal`` is True if every further candidate was tried, and False if the time
    ran out.
    """

    graph: OperationGraph
    steps: tuple[Step, ...]
    tried: int  # graphs
    is_minimal: bool


def reduce(
    graph: OperationGraph,
    still_fails: Callable[[OperationGraph], bool],
    seconds: float = 300.0,
    told: Callable[[Step], None] = lambda step: None,
) -> Reduced:
    """Search the smallest graph that still fails.

    Args:
        graph: The graph that fails.
        still_fails: Returns True for a graph that fails in the same way.
        seconds: The time after which the search ends.
        told: Called with each successful step.

    Returns:
        The smallest graph found, and the steps to it.

    Raises:
        BadParam: ``still_fails`` returns False for the graph itself.
    """
    if not still_fails(graph):
        raise BadParam(PASSES.reject("reduce", "graph", graph.name or "unnamed"))
    search = _Search(graph, still_fails, time.monotonic() + seconds, told)
    is_minimal = search.run()
    return Reduced(search.graph, tuple(search.steps), len(search.seen), is_minimal)


class _OutOfTime(Exception):
    """The bound is reached."""


class _Search:
    def __init__(
        self,
        graph: OperationGraph,
        still_fails: Callable[[OperationGraph], bool],
        deadline: float,
        told: Callable[[Step], None],
    ) -> None:
        self.graph, self.steps = graph, list[Step]()
        self._still_fails, self._deadline, self._told = still_fails, deadline, told
        self._start = time.monotonic()
        self.seen = {graph.key}

    def run(self) -> bool:
        """Until a whole round keeps nothing. False when the time ran out."""
        try:
            while True:
                went = [self._exhausted(family) for family in FAMILIES]
                if not any(went):
                    return True
        except _OutOfTime:
            return False

    def _exhausted(self, family: Callable[[OperationGraph], Iterator[Candidate]]) -> bool:
        """Take what can go until nothing of this family can; whether anything went."""
        went = False
        while self._one(family):
            went = True
        return went

    def _one(self, family: Callable[[OperationGraph], Iterator[Candidate]]) -> bool:
        for what, make in family(self.graph):
            if time.monotonic() > self._deadline:
                raise _OutOfTime
            candidate = possible(make)
            if candidate is None or candidate.key in self.seen:
                continue
            self.seen.add(candidate.key)
            if self._still_fails(candidate):
                self.graph = candidate
                elements = sum(t.elements for t in candidate.tensors.values())
                step = Step(what, len(candidate.operations), elements, time.monotonic() - self._start)
                self.steps.append(step)
                self._told(step)
                return True
        return False
