"""What the legacy calls of one thread know: the last one, who listens, and the stream of the handle that was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from graphdnn.enums import Status
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Ranking
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule
from graphdnn.v6.errors import CudnnError


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


NO_CALL = Rule(
    id="v6.report.none",
    expected="a call before it that became a graph",
    reason="nothing was computed in this thread yet; setting descriptors makes no graph",
    fix="ask after a call such as cudnnConvolutionForward",
    status=Status.NOT_INITIALIZED,
)


def _last(where: str) -> Call:
    found = last_prepared()
    if found is None:
        raise CudnnError(NO_CALL.reject(where, "last call", "none"))
    return found


def last_graph() -> OperationGraph:
    """The operation graph of the last call that computed something."""
    return _last("last_graph").plan.config.fused.graph


def explain() -> str:
    """Graph, fused operations and ranking of the last call that computed something, as text."""
    last = _last("explain")
    return f"{last_graph()}\n\n{last.plan.config.fused}\n\n{last.ranking}"
