"""Running: a built graph executed, with arrays and streams of the plan's device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from threading import get_ident
from typing import Any

from graphdnn.builder.plan_selection import Planning
from graphdnn.builder.shape_inference import placed
from graphdnn.builder.tensor import Tensor
from graphdnn.enums import Status, shown
from graphdnn.errors import BadParam
from graphdnn.rules import Rule

UNKNOWN_KEY = Rule(
    id="builder.binding.unknown",
    expected="a tensor of this graph, its uid or its name{known}",
    reason="the variant pack is addressed by tensor, uid or name",
    fix="pass the tensor that the graph returned",
)
NO_PACK = Rule(
    id="builder.binding.pack",
    expected="a mapping of tensors, uids or names to arrays",
    reason="an array alone does not say which tensor it is for",
    fix="pass a mapping: dict(x=array, y=out) by names",
)
AMBIGUOUS = Rule(
    id="builder.binding.ambiguous",
    expected="one array for one tensor",
    reason="{why}",
    fix="bind it once, by the tensor itself or its uid",
    status=Status.BAD_PARAM_DUPLICATED_ENTRIES,
)
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


class Running(Planning):
    """``execute`` and its relatives."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._workspaces: dict[tuple[int, int], Any] = {}  # by thread and stream

    def _forget_plan(self) -> None:
        super()._forget_plan()
        self._workspaces = {}

    def execute(
        self, variant_pack: Mapping[Any, Any], workspace: Any = None, handle: Any = None, *, stream: Any = None
    ) -> None:
        """Run the plan on ``{tensor, uid or name: array}``; outputs are written in place.

        On a device the call returns when the work is in the stream. Any number of threads may execute a graph at a
        time.

        Args:
            variant_pack: One array in the memory of the plan's device for each tensor with memory. Keys that are None
                are skipped.
            workspace: A contiguous byte array of at least ``get_workspace_size()`` bytes. With None the graph keeps
                one for each thread and stream.
            handle: What ``cudnnCreate`` returned; its stream is used.
            stream: A stream in place of a handle. None takes CuPy's current one.

        Raises:
            BadParam: An array is missing, unknown or bound twice, or it has the wrong type, extents or strides.
                Nothing is written then.
            NotInitialized: The graph is not built.
            NotSupported: The device of the plan is not present.
            ExecutionFailed: A kernel failed.
        """
        if handle is not None:
            stream = self._stream_of(handle, stream)
        plan = self.plan
        is_by_uid = type(variant_pack) is dict and _ONLY_UIDS.issuperset(map(type, variant_pack))
        bindings = variant_pack if is_by_uid else self._resolved(variant_pack)
        if workspace is None and plan.workspace_size:
            workspace = self._own_workspace(stream)
        try:
            plan.execute(bindings, workspace, stream)
        except BadParam as error:
            raise self._placed(error) from None

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
            return self.plan.capture(self._resolved(variant_pack), workspace)
        except BadParam as error:
            raise self._placed(error) from None

    def run(self, inputs: Mapping[Any, Any], *, stream: Any = None) -> dict[Tensor, Any]:
        """Build the graph, execute it with new arrays for the outputs, and return these arrays.

        Args:
            inputs: ``{tensor, uid or name: array}``. An output among them is written in place.
            stream: A stream. None takes CuPy's current one.

        Returns:
            ``{tensor: array}`` of the outputs, in NumPy's arrays or, on a CUDA device, CuPy's.

        Raises:
            BadParam: The graph or an array is invalid.
            NotSupported: No engine serves the graph, or the device is not present.
        """
        graph = self.build_operation_graph()
        plan = self.build()
        given = self._resolved(inputs)
        made = {spec.uid: plan.new_array(spec) for spec in graph.outputs if spec.uid not in given}
        bindings = {**given, **made}
        self.execute(bindings, stream=stream)
        by_uid = {t.uid: t for t in self._tensors}
        return {by_uid[spec.uid]: bindings[spec.uid] for spec in graph.outputs}

    def _stream_of(self, handle: Any, stream: Any) -> Any:
        if stream is not None:
            raise BadParam(STREAM.reject(f"Graph '{self.name}'", "stream", "both"))
        try:
            return handle.stream
        except Exception:  # of what is no handle
            raise BadParam(HANDLE.reject(f"Graph '{self.name}'", "handle", type(handle).__name__)) from None

    def _own_workspace(self, stream: Any) -> Any:
        """For this thread and stream: launches of two threads may take turns in one stream.

        Kept when the thread ends, as its work may not have begun; identifiers are given to later threads again.
        """
        key = get_ident(), self.plan.queue(stream)
        found = self._workspaces.get(key)
        if found is None:
            found = self._workspaces[key] = self.plan.new_workspace()
        return found

    def _check_pack(self, variant_pack: object) -> None:
        if not isinstance(variant_pack, Mapping):
            raise BadParam(NO_PACK.reject(f"Graph '{self.name}'", "variant_pack", type(variant_pack).__name__))

    def _placed(self, error: BadParam) -> BadParam:
        """The same with the lines that made the tensors: many have no name."""
        specs = self.build_operation_graph().tensors
        lines = {specs[t.uid].label(): t.origin for t in self._tensors if t.uid is not None and t.uid in specs}
        found = [replace(r, attribute=placed(r.attribute, lines.get(r.attribute, ""))) for r in error.rejections]
        made = BadParam(found)
        made.subject = error.subject
        return made

    def _resolved(self, variant_pack: Mapping[Any, Any]) -> dict[int, Any]:
        self._check_pack(variant_pack)
        bindings: dict[int, Any] = {}
        found = []
        for key, value in dict(variant_pack).items():
            if key is None:
                continue
            uid = self._uid_of(key)
            if uid is None:
                named = sum(t.name == key for t in self._tensors) if isinstance(key, str) else 0
                rule = AMBIGUOUS if named else UNKNOWN_KEY
                why = f"{named} tensors have this name"
                names = dict.fromkeys(t.name for t in self._tensors if t.name and not t.is_virtual)
                known = f": {', '.join(names)}" if names else ""
                found.append(rule.reject(f"Graph '{self.name}'", "variant_pack", shown(key), why=why, known=known))
            elif uid in bindings:
                why = f"uid {uid} is bound already"
                found.append(AMBIGUOUS.reject(f"Graph '{self.name}'", "variant_pack", shown(key), why=why))
            else:
                bindings[uid] = value
        if found:
            raise BadParam(found)
        return bindings

    def query_tensor_attributes_of_uid(self, uid: int) -> Tensor:
        """The tensor that has a uid.

        Args:
            uid: The number.

        Returns:
            The tensor.

        Raises:
            BadParam: No tensor of the graph has this uid.
        """
        for tensor in self._tensors:
            if tensor.uid == uid:
                return tensor
        known = ", ".join(str(t.uid) for t in self._tensors if t.uid is not None)
        raise BadParam(UNKNOWN_KEY.reject(f"Graph '{self.name}'", "uid", uid, known=f": {known}" if known else ""))
