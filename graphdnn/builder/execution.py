"""Running: a built graph executed, with arrays and streams of the plan's device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import get_ident
from typing import Any

from graphdnn.builder.bindings import by_uid, with_lines
from graphdnn.builder.description import Description
from graphdnn.builder.plan_selection import PlanSelection
from graphdnn.builder.tensor import Tensor
from graphdnn.enums import Status
from graphdnn.errors import BadParam
from graphdnn.plan import ExecutionPlan
from graphdnn.plan.array_libraries import library_of
from graphdnn.rules import Rule

STREAM = Rule(
    id="builder.stream",
    expected="a handle or a stream",
    reason="a handle has a stream of its own, and an execution runs in one stream",
    fix="pass one of the two",
    status=Status.BAD_PARAM_STREAM_MISMATCH,
)
HANDLE = Rule(
    id="builder.handle",
    expected="what cudnnCreate returned",
    reason="a handle has the stream that the execution runs in",
    fix="leave it out, or pass stream=... alone",
)

_ONLY_UIDS = frozenset({int})


class Results(dict[Tensor, Any]):
    """The arrays of a graph's outputs by tensor. A uid or a name finds an array as well."""

    def __init__(self, description: Description, arrays: Mapping[Tensor, Any]) -> None:
        super().__init__(arrays)
        self._description = description

    def __missing__(self, key: Any) -> Any:
        uid = self._description.uid_of(key)
        for tensor, array in self.items():
            if uid is not None and tensor.uid == uid:
                return array
        raise KeyError(key)


class Execution:
    """``execute`` and its relatives, on the plan of a selection."""

    def __init__(self, selection: PlanSelection) -> None:
        self._selection = selection
        self._description = selection.description

    @property
    def plan(self) -> ExecutionPlan:
        """The plan that is executed."""
        return self._selection.plan

    def execute(
        self, variant_pack: Mapping[Any, Any], workspace: Any = None, handle: Any = None, *, stream: Any = None
    ) -> None:
        """See ``Graph.execute``."""
        if handle is not None:
            stream = self._stream_of(handle, stream)
        plan = self.plan
        is_by_uid = type(variant_pack) is dict and _ONLY_UIDS.issuperset(map(type, variant_pack))
        bindings = variant_pack if is_by_uid else by_uid(self._description, variant_pack)
        if workspace is None and plan.workspace_size:
            workspace = self._own_workspace(stream, bindings)
        try:
            plan.execute(bindings, workspace, stream)
        except BadParam as error:
            raise with_lines(self._description, error) from None

    def capture(self, variant_pack: Mapping[Any, Any], workspace: Any = None) -> Any:
        """Record the execution on these arrays as a CUDA graph, which ``launch(stream)`` repeats in one call.

        Args:
            variant_pack: ``{tensor, uid or name: array}``; the recording keeps the arrays alive.
            workspace: A contiguous byte array, or None to allocate one.

        Returns:
            A ``CapturedPlan``.

        Raises:
            BadParam: An array is invalid, or the stream is being captured already.
            NotSupported: The plan does not run on a CUDA device.
            NotInitialized: The graph is not built.
        """
        try:
            return self.plan.capture(by_uid(self._description, variant_pack), workspace)
        except BadParam as error:
            raise with_lines(self._description, error) from None

    def run(self, inputs: Mapping[Any, Any], *, stream: Any = None) -> Results:
        """Build the graph, execute it with new arrays for the outputs, and return these arrays.

        Args:
            inputs: ``{tensor, uid or name: array}``. An output among them is written in place.
            stream: A stream. None takes PyTorch's current one if an output
                is a tensor of PyTorch, else CuPy's.

        Returns:
            ``{tensor: array}`` of the outputs; ``results[uid]`` and ``results[name]`` find them too. The new arrays
            are tensors of PyTorch if an input is one, else arrays of JAX if an input is one, else arrays of NumPy or,
            on a CUDA device, of CuPy.

        Raises:
            BadParam: The graph or an array is invalid.
            NotSupported: No engine serves the graph, or the device is not present.
        """
        graph = self._description.build_operation_graph()
        plan = self._built()
        given = by_uid(self._description, inputs)
        library = library_of(given.values())
        new = plan.new_array if library is None else partial(library.new, plan)
        made = {spec.uid: new(spec) for spec in graph.outputs if spec.uid not in given}
        bindings = {**given, **made}
        self.execute(bindings, stream=stream)
        if library is not None:
            bindings |= {uid: library.finished(array, graph.tensors[uid]) for uid, array in made.items()}
        tensors = {t.uid: t for t in self._description.tensors}
        return Results(self._description, {tensors[spec.uid]: bindings[spec.uid] for spec in graph.outputs})

    def bind(self, arrays: Mapping[Any, Any]) -> BoundGraph:
        """Bind inputs that stay, such as weights. Calls of the result pass the other arrays and take less time.

        The arrays are validated now and kept alive. If a tensor of PyTorch gets other memory later
        (``Parameter.data``), bind it again.

        Args:
            arrays: ``{tensor, uid or name: array}`` of inputs.

        Returns:
            A ``BoundGraph`` with ``execute``, ``run`` and ``capture``.

        Raises:
            BadParam: An array does not fit, or is no input.
            NotInitialized: The graph is not built.
            NotSupported: The device of the plan is not present.
        """
        try:
            plan = self.plan.bind(by_uid(self._description, arrays))
        except BadParam as error:
            raise with_lines(self._description, error) from None
        return BoundGraph(self._selection, plan)

    def _built(self) -> ExecutionPlan:
        return self._selection.build()

    def _stream_of(self, handle: Any, stream: Any) -> Any:
        if stream is not None:
            raise BadParam(STREAM.reject(self._description.where, "stream", "both"))
        try:
            return handle.stream
        except Exception:  # of what is no handle
            raise BadParam(HANDLE.reject(self._description.where, "handle", type(handle).__name__)) from None

    def _own_workspace(self, stream: Any, bindings: Mapping[int, Any]) -> Any:
        """For this thread and stream: launches of two threads may take turns in one stream.

        Kept when the thread ends, as its work may not have begun; identifiers are given to later threads again.
        """
        key = get_ident(), self.plan.queue(stream, bindings)
        found = self._selection.workspaces.get(key)
        if found is None:
            found = self._selection.workspaces[key] = self.plan.new_workspace()
        return found


class BoundGraph(Execution):
    """A built graph with inputs that are bound for good. It has the methods of ``Graph`` that execute.

    Args:
        selection: The graph's configurations.
        plan: The plan with the bound inputs.
    """

    def __init__(self, selection: PlanSelection, plan: ExecutionPlan) -> None:
        super().__init__(selection)
        self._plan = plan

    @property
    def plan(self) -> ExecutionPlan:
        return self._plan

    def _built(self) -> ExecutionPlan:
        return self._plan

    def __repr__(self) -> str:
        return f"<BoundGraph {self._description.name!r}: {self._plan.name}>"
