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
from graphdnn.v6.argument_slot import Place
from graphdnn.v6.errors import CudnnError


class Call(Protocol):
    """A call that became a graph (prepared.py)."""

    call: str  # the function's name
    places: tuple[Place, ...]
    plan: ExecutionPlan
    ranking: Ranking


class Listener(Protocol):
    """What is told of calls that run. ``arrays``: those of a call by uid; of a device, where they are."""

    def before(self, call: Call, arrays: dict[int, Any]) -> None:
        """A call is about to run."""

    def add(self, call: Call, arrays: dict[int, Any], data: Sequence[Any], scratch: Any) -> None:
        """The call ran. ``data``: its arguments; ``scratch``: where its workspace is, None without one."""


class _Thread(threading.local):
    last: Call | None = None
    listener: Listener | None = None
    stream = 0  # of the handle that a call was prepared for


thread = _Thread()


@contextmanager
def listening(listener: Listener | None) -> Iterator[Listener | None]:
    """Inside, ``listener`` is told of the thread's calls; nothing is where it is None.

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
    """The operation graph of this thread's last call that computed something.

    Raises:
        CudnnError: No call of this thread has computed anything.
    """
    return _last("last_graph").plan.config.fused.graph


def explain(*, every_reason: bool = False) -> str:
    """The graph, the fused operations and the ranking of this thread's last call that computed something, as text.

    Args:
        every_reason: True lists each engine that declined with all its reasons. Otherwise engines that decline for the
            same reason share a line.

    Returns:
        Several lines of text.

    Raises:
        CudnnError: No call of this thread has computed anything.
    """
    last = _last("explain")
    return f"{last_graph()}\n\n{last.plan.config.fused}\n\n{last.ranking.text(every_reason=every_reason)}"
