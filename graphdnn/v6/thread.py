"""What the legacy calls of one thread know: the last one, who listens, and the stream of the handle that was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from graphdnn.heuristics import Ranking
from graphdnn.plan import ExecutionPlan


class Call(Protocol):
    """A call that became a graph (prepared.py)."""

    call: str  # the function's name
    plan: ExecutionPlan
    ranking: Ranking


class Listener(Protocol):
    """What takes calls that are not to run now."""

    def add(self, call: Call, arrays: dict[int, Any], data: Sequence[Any]) -> None:
        """A call, its arrays by uid (of a device: where they are) and its arguments."""

    def run(self) -> None:
        """Let everything run that was taken."""


class _Thread(threading.local):
    last: Call | None = None
    listener: Listener | None = None
    stream = 0  # of the handle that a call was prepared for


thread = _Thread()


@contextmanager
def listening(listener: Listener | None) -> Iterator[Listener | None]:
    """Inside, the thread's calls are told to ``listener`` instead of being run, and run where it is None.

    Gives the one that was told before.
    """
    before = thread.listener
    thread.listener = listener
    try:
        yield before
    finally:
        thread.listener = before


def run_pending() -> None:
    """Before a call reads memory at once, or gives it away to be read."""
    if thread.listener is not None:
        thread.listener.run()


def current_stream() -> int:
    """The stream of the handle that the thread's last call was prepared for."""
    return thread.stream


def last_prepared() -> Call | None:
    """The thread's last call that became a graph."""
    return thread.last
