"""CapturedPlan: an execution recorded as a CUDA graph. A launch of it is one call, whatever the plan holds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from graphdnn.cuda.driver_library import error_of
from graphdnn.cuda.stream_order import BareStream
from graphdnn.enums import Status
from graphdnn.errors import BadParam
from graphdnn.plan.execution_plan import ExecutionPlan
from graphdnn.plan.streams import stream_number
from graphdnn.rules import Rule

CAPTURING = Rule(
    id="capture.nested",
    expected="a stream that is not being captured",
    reason="CUDA records one graph at a time on a stream",
    fix="inside your own capture call plan.execute: it is recorded into your graph",
    status=Status.BAD_PARAM,
)


class CapturedPlan:
    """An execution that is recorded as a CUDA graph. It keeps the arrays of the recording alive."""

    __slots__ = ("_alive", "_graph", "name")

    def __init__(self, graph: Any, alive: tuple[Any, ...], name: str) -> None:
        self._graph, self._alive, self.name = graph, alive, name

    def launch(self, stream: Any = None) -> None:
        """Put the recorded work into a stream. The call does not wait for the work.

        Args:
            stream: A stream as ``execute`` takes it. None takes CuPy's current one.

        Raises:
            CudaError: The launch failed, or an earlier launch did.
        """
        try:
            self._graph.launch(stream if stream is None or hasattr(stream, "ptr") else _stream_of(stream))
        except RuntimeError as error:  # CuPy's
            code = getattr(error, "status", None)
            if code is None:
                raise
            raise error_of("cuGraphLaunch", int(code), plan=self.name) from error

    def __repr__(self) -> str:
        return f"<CapturedPlan {self.name}>"


def capture(plan: ExecutionPlan, bindings: Mapping[int, Any], workspace: Any = None) -> CapturedPlan:
    """Record one execution. Nothing runs; raises ``BadParam`` as ``execute`` does, and inside another capture."""
    plan.load()  # modules cannot be loaded while a stream is captured
    import cupy  # which is there where the device is

    from graphdnn.cuda.driver_api import is_capturing

    if is_capturing(cupy.cuda.get_current_stream().ptr):
        raise BadParam(CAPTURING.reject("EXECUTION_PLAN", "stream", "capturing"))
    if workspace is None and plan.workspace_size:
        workspace = plan.new_workspace()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        try:
            stream.begin_capture()
            plan.execute(bindings, workspace, stream.ptr)
        except BaseException:
            with suppress(Exception):  # a capture that has failed ends in an error of its own
                stream.end_capture()
            raise
        graph = stream.end_capture()
    return CapturedPlan(graph, (dict(bindings), workspace, plan), plan.name)


def _stream_of(stream: Any) -> Any:
    """The stream as one of CuPy's."""
    import cupy

    return cupy.cuda.Stream.from_external(BareStream(stream_number(stream)))
