"""Which tensors of recorded graphs are one memory: what a caller has to know who binds arrays to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from numpy.lib.array_utils import byte_bounds

from graphdnn.dtypes import Array
from graphdnn.graph.operation_graph import OperationGraph


@dataclass(frozen=True, slots=True)
class Run:
    """The execution of a recorded graph. ``arrays``: the caller's memory by uid, of whose elements none is looked at.

    ``batch``: graphs with the same number ran together, each on what was there before all of them.
    """

    arrays: Mapping[int, Array]
    batch: int


@dataclass(frozen=True, slots=True)
class _Place:
    graph: int  # from 1
    name: str
    low: int
    high: int
    batch: int
    is_output: bool

    def meets(self, other: _Place) -> bool:
        return self.low < other.high and other.low < self.high

    @property
    def label(self) -> str:
        return f"graph_{self.graph} {self.name}"


def shared(
    graphs: Sequence[OperationGraph], runs: Sequence[Run], names: Sequence[Mapping[int, str]]
) -> list[str]:  # fmt: skip
    """A line for each memory that several tensors are, or are parts of. ``names``: of each graph's tensors, by uid."""
    places = [
        _Place(i, own[uid], *byte_bounds(array), run.batch, uid in graph.producer)
        for i, (graph, run, own) in enumerate(zip(graphs, runs, names, strict=False), start=1)
        for uid, array in run.arrays.items()
    ]
    return [_line(group) for group in sorted(_groups(places), key=lambda group: group[0].graph) if len(group) > 1]


def _groups(places: Sequence[_Place]) -> Iterator[list[_Place]]:
    """Places that meet, in the order of their graphs."""
    group: list[_Place] = []
    end = 0
    for place in sorted(places, key=lambda p: p.low):
        if group and place.low >= end:
            yield sorted(group, key=lambda p: p.graph)
            group = []
        end = max(end, place.high) if group else place.high
        group.append(place)
    if group:
        yield sorted(group, key=lambda p: p.graph)


def _line(group: Sequence[_Place]) -> str:
    """``graph_1 old_y, graph_1 y, graph_2 x``; with what ran before it had to see, where that is not what is there."""
    words = []
    for place in group:
        before = [
            p.graph
            for p in group
            if p.is_output and p.batch == place.batch and p.graph < place.graph and p.meets(place)
        ]
        stale = f" (as it was before graph_{min(before)})" if before and not place.is_output else ""
        words.append(place.label + stale)
    in_parts = len({(p.low, p.high) for p in group}) > 1
    return ", ".join(words) + (": parts of it" if in_parts else "")
