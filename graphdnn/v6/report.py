"""What the last call of this thread became."""

from __future__ import annotations

from graphdnn.enums import Status
from graphdnn.graph import OperationGraph
from graphdnn.rules import Rule
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.thread import Call, last_prepared

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
