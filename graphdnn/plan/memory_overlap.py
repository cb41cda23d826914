"""Which spans of memory overlap: found in the order of addresses, so that each is compared with its neighbours only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence


def are_apart(spans: Iterable[tuple[int, int, bool]]) -> bool:
    """Whether no span (first byte, end, is written) that is written shares a byte with any other."""
    end = written_end = 0
    for start, stop, is_written in sorted(spans):
        if start < (end if is_written else written_end):
            return False
        end = max(end, stop)
        if is_written and stop > written_end:
            written_end = stop
    return True


class FixedSpans:
    """Spans that do not change. A new span is compared with its neighbours only.

    Args:
        spans: The first byte and the end of each.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def shares(self, start: int, end: int) -> bool:
        """Whether a span shares a byte with one of these."""
        before = bisect_left(self._starts, end) - 1  # the last span that begins before the end
        return before >= 0 and self._ends[before] > start


def overlapping(spans: Sequence[tuple[int, int, bool]]) -> list[tuple[int, int]]:
    """Places (of a written span, of another one that shares bytes with it), in order; of two written ones once."""
    found = []
    reaching: dict[bool, list[int]] = {False: [], True: []}  # spans that may still share bytes, by whether written
    for i in sorted(range(len(spans)), key=spans.__getitem__):
        start, _, is_written = spans[i]
        for kind in (True, False) if is_written else (True,):
            reaching[kind] = [j for j in reaching[kind] if spans[j][1] > start]
            for j in reaching[kind]:
                found.append((i, j) if is_written and not (kind and j < i) else (j, i))
        reaching[is_written].append(i)
    return sorted(found)
