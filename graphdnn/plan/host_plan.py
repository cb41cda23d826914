"""HostPlan: execution on arrays in host memory.

Everything is worked out when the plan is built. ``execute`` picks the bound
arrays, compares each one's dtype and shape with what the plan expects, and
launches; strides and addresses (alignment, overlap) are looked at again only
when the arrays are not the ones of the call before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from time import perf_counter
from typing import Any

import numpy as np

from graphdnn import debug_log
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import Array
from graphdnn.engines import Kernel
from graphdnn.engines.engine import CompiledOperation
from graphdnn.engines.host.memory import empty, from_buffer, new_bytes
from graphdnn.errors import BadParam, NotSupported
from graphdnn.heuristics import EngineConfig, materialized_bytes, materialized_slots
from graphdnn.host_allocation import allocating, out_of_memory
from graphdnn.plan import plan_log
from graphdnn.plan.binding_validation import (
    HOST_CAPTURE,
    HOST_STREAM,
    NO_NAME,
    WHERE,
    check_addresses,
    check_workspace,
    coerce,
    refuse_names,
)
from graphdnn.plan.execution_plan import NOTHING, ExecutionPlan, ValidatedArrays, pick_one
from graphdnn.plan.streams import stream_address
from graphdnn.tensors import TensorSpec

Launch = Callable[[Sequence[Array], "Array | None"], None]

_form = attrgetter("dtype", "shape")  # strides are compared when an array is new: NumPy is doing away with setting them


class HostPlan(ExecutionPlan, place="cpu"):
    """A plan of NumPy engines."""

    __slots__ = ("_all", "_arrays", "_fixed", "_forms", "_known", "_launch", "_written")

    @classmethod
    def prepare(cls, device: DeviceSpec) -> None:
        """The numerics."""
        import graphdnn.engines.host.kernel
        import graphdnn.engines.host.semantics  # noqa: F401  both load what they stand on

    def __init__(self, config: EngineConfig, *, compiled: Sequence[CompiledOperation] | None = None) -> None:
        start = perf_counter()
        super().__init__(config, compiled=compiled)
        kernels = [k for k in self.compiled if isinstance(k, Kernel)]
        assert len(kernels) == len(self.compiled), "an engine of the host compiles to host kernels"
        self._forms = tuple(e.layout[:2] for e in self._expected)
        self._written = tuple(i for i, e in enumerate(self._expected) if e.is_output)
        self._launch = _in_turn(_launches(config, kernels, self.uids))
        self._known = ValidatedArrays(())
        self._fixed: Mapping[int, Any] = NOTHING
        self._arrays, self._all = self._expected, self._pick  # with the arrays that are bound for good
        if debug_log.verbose:
            self._launch = plan_log.told(self._launch, config)
        plan_log.built(config, "none", perf_counter() - start)

    def execute(self, bindings: Mapping[int, Any], workspace: Any = None, stream: Any = None) -> None:
        """As ``ExecutionPlan.execute``; there are no streams on the host, a call has finished when it returns."""
        if stream is not None and stream_address(stream) != 0:
            raise BadParam(HOST_STREAM.reject(WHERE, "stream", stream))
        try:
            if self._fixed:
                self._pick(bindings)
                arrays = self._all({**bindings, **self._fixed})
            else:
                arrays = self._pick(bindings)
            scalars = [bindings[e.spec.uid] for e in self._scalars] if self._scalars else None
        except NO_NAME:
            refuse_names((*self._expected, *self._scalars), bindings)
        if len(bindings) != self._count:
            refuse_names((*self._expected, *self._scalars), bindings)
        is_known = tuple(map(id, arrays)) == self._known.ids and tuple(map(_form, arrays)) == self._forms
        for i in self._written:
            is_known = is_known and arrays[i].flags.writeable
        if not is_known:
            arrays = self._admit(arrays)
        if scalars:
            arrays = (*arrays, *coerce(self._scalars, scalars))  # read now: numbers have no address to remember
        if self.workspace_size:
            workspace = check_workspace(workspace, self.workspace_size, arrays)
        try:
            self._launch(arrays, workspace)
        except MemoryError as error:
            raise out_of_memory(WHERE, "execute", "intermediate values", error) from error

    def _admit(self, arrays: Sequence[Any]) -> tuple[Array, ...]:
        """Arrays that were not the last call's: full check, then remembered (weakly)."""
        if not all(
            type(array) is np.ndarray and want.accepts(array) for array, want in zip(arrays, self._arrays, strict=True)
        ):
            arrays = coerce(self._arrays, arrays)
        check_addresses(self._arrays, arrays)
        self._known = ValidatedArrays(arrays)
        return tuple(arrays)

    def bind(self, arrays: Mapping[int, Any]) -> ExecutionPlan:
        expected = self._bound_inputs(arrays)
        found = dict(zip(arrays, coerce(expected, list(arrays.values())), strict=True))
        made = HostPlan(self.config, compiled=self.compiled)
        made._fixed = {**self._fixed, **found}
        made._expect_others(made._fixed)
        return made

    def new_workspace(self) -> Array | None:
        """A workspace of the right size, or None where none is needed."""
        with allocating(WHERE, "workspace", f"{self.workspace_size} bytes"):
            return new_bytes(self.workspace_size) if self.workspace_size else None

    def load(self) -> None:
        """The host is always here."""

    def capture(self, *_: Any, **__: Any) -> Any:
        raise NotSupported(HOST_CAPTURE.reject(WHERE, "device", self.config.device.name))

    def new_array(self, spec: TensorSpec) -> Array:
        with allocating(WHERE, spec.label(), f"{spec.bytes} bytes"):
            return empty(spec)

    def to_device(self, bindings: Mapping[int, Any]) -> dict[int, Any]:
        """The same arrays: they are where the plan runs."""
        return dict(bindings)

    def to_host(self, bindings: Mapping[int, Any]) -> dict[int, Any]:
        """The same arrays."""
        return dict(bindings)

    def queue(self, *_: Any) -> int:
        return 0


def _in_turn(launches: Sequence[Launch]) -> Launch:
    """All kernels as one launch; a single one is called directly."""
    if len(launches) == 1:
        return launches[0]

    def launch(arrays: Sequence[Array], workspace: Array | None) -> None:
        for each in launches:
            each(arrays, workspace)

    return launch


def _launches(config: EngineConfig, kernels: Sequence[Kernel], uids: Sequence[int]) -> tuple[Launch, ...]:
    """One function per kernel that finds its arrays among the plan's and in the workspace."""
    place = {uid: i for i, uid in enumerate(uids)}
    slots = {tensor.uid: (tensor, offset) for tensor, offset in materialized_slots(config.fused, config.device)}
    scratch_start = materialized_bytes(config.fused, config.device)
    launches = []
    for choice, kernel in zip(config.choices, kernels, strict=True):
        tensors = (*choice.task.op.inputs, *choice.task.op.outputs)
        sources = tuple(slots.get(t.uid, place.get(t.uid)) for t in tensors)
        launches.append(_launch(kernel, sources, scratch_start, choice.scratch))
    return tuple(launches)


def _launch(kernel: Kernel, sources: tuple[Any, ...], start: int, size: int) -> Launch:
    """``sources``: an index among the plan's arrays, a (tensor, workspace offset), or None for a constant."""
    run = kernel.run
    if not size and all(isinstance(s, int) for s in sources):
        if sources == tuple(range(len(sources))):
            return lambda arrays, workspace: run(arrays, None)
        pick = itemgetter(*sources) if len(sources) > 1 else pick_one(sources[0])
        return lambda arrays, workspace: run(pick(arrays), None)

    def launch(arrays: Sequence[Array], workspace: Array | None) -> None:
        found: list[Any] = []
        for source in sources:
            if isinstance(source, tuple):
                assert workspace is not None
                found.append(from_buffer(workspace, source[1], source[0]))
            else:
                found.append(None if source is None else arrays[source])
        run(found, None if not size or workspace is None else workspace[start : start + size])

    return launch
