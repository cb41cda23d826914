"""What the legacy calls of one thread know: the last one, who listens, and the stream of the handle that was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from graphdnn.heuristics import Ranking
from graphdnn.plan import ExecutionPlan


class Call(Protocol):
    """A call that became a graph (prepared.py)."""

    call: str  # the function's name
    plan: ExecutionPlan
    ranking: Ranking


# Takes a call, its arrays by uid (of a device: where they are) and its arguments; True: the call is not to run now.
Listener = Callable[[Call, dict[int, Any], Sequence[Any]], bool]


class _Thread(threading.local):
    last: Call | None = None
    listener: Listener | None = None
    stream = 0  # of the handle that a call was prepared for


thread = _Thread()


@contextmanager
def listening(listener: Listener | None) -> Iterator[Listener | None]:
    """Inside, the thread's calls are told to ``listener`` before they run, and to nobody where it is None.

    Gives the one that was told before.
    """
    before = thread.listener
    thread.listener = listener
    try:
        yield before
    finally:
        thread.listener = before


def current_stream() -> int:
    """The stream of the handle that the thread's last call was prepared for."""
    return thread.stream


def last_prepared() -> Call | None:
    """The thread's last call that became a graph."""
    return thread.last
