"""Combinations of one choice from each of several lists, best first, each list worked out only as far as it is read."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

from graphdnn.heuristics.engine_config import Choice


class Lazy:
    """A list that is filled from an iterator as far as it is read."""

    def __init__(self, source: Iterator[Choice]) -> None:
        self._source = source
        self._items: list[Choice] = []

    def has(self, index: int) -> bool:
        while len(self._items) <= index:
            item = next(self._source, None)
            if item is None:
                return False
            self._items.append(item)
        return True

    def __getitem__(self, index: int) -> Choice:
        return self._items[index]


def best_first(candidates: Sequence[Lazy], rank: Callable[[Choice], float] | None) -> Iterator[tuple[Choice, ...]]:
    """One choice from each list, smallest total first (total position when ``rank`` is None)."""

    def worth(axis: int, index: int) -> float:
        return index if rank is None else rank(candidates[axis][index])

    start = (0,) * len(candidates)
    heap, seen = [(sum([worth(axis, 0) for axis in range(len(start))]), start)], {start}
    while heap:
        _, indices = heapq.heappop(heap)
        yield tuple(c[i] for c, i in zip(candidates, indices, strict=True))
        here = [worth(axis, index) for axis, index in enumerate(indices)]
        for axis, candidate in enumerate(candidates):
            following = (*indices[:axis], indices[axis] + 1, *indices[axis + 1 :])
            if following not in seen and candidate.has(following[axis]):
                seen.add(following)
                # Added up anew: totals that are worked out from others would come to other digits, and another order.
                there = [*here[:axis], worth(axis, following[axis]), *here[axis + 1 :]]
                heapq.heappush(heap, (sum(there), following))
