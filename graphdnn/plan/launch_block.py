"""Block: the packed launches of one execution at a time, and the driver calls that they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from graphdnn import debug_log
from graphdnn.cuda.errors import CudaError
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Function, Launch
from graphdnn.engines.cuda.codegen.parameters import MapSlot
from graphdnn.enums import Status
from graphdnn.errors import BadParam
from graphdnn.fusion.views import View, views_of
from graphdnn.heuristics import EngineConfig, materialized_bytes, materialized_slots
from graphdnn.plan import plan_log
from graphdnn.plan.binding_cache import Place
from graphdnn.plan.binding_validation import WHERE, Expected
from graphdnn.plan.cuda_runtime import Prepared, Runtime
from graphdnn.plan.execution_plan import NOTHING, ExecutionPlan
from graphdnn.rules import Rule

ELSEWHERE = Rule(
    id="execute.other_device",
    expected="device {loaded}",
    reason="the plan's kernels were loaded on device {loaded}, and another device is current in this thread",
    fix="execute inside `with cupy.cuda.Device({loaded}):`, or build a plan for the current device as well",
)

OTHER_CONTEXT = Rule(
    id="execute.other_context",
    expected="the primary context of device {loaded}",
    reason="the plan's kernels were loaded there, as CuPy's and PyTorch's are; memory and streams of another context "
    "are not theirs",
    fix="execute inside `with cupy.cuda.Device({loaded}):`, or pop the context that was made with cuCtxCreate",
)
OTHER_STREAM = Rule(
    id="execute.other_stream",
    expected="a stream of device {loaded}",
    reason="the plan's kernels and arrays are on device {loaded}",
    fix="make the stream where that device is current: with cupy.cuda.Device({loaded}):",
    status=Status.BAD_PARAM_STREAM_MISMATCH,
)

_MASK = (1 << 64) - 1


class Block:
    """The packed launches of one execution at a time."""

    __slots__ = (
        "_array_maps",
        "_array_words",
        "_calls",
        "_fixed",
        "_scratch_maps",
        "_scratch_words",
        "_uids",
        "_value_words",
        "launches",
        "place",
        "scratch",
        "values",
    )

    def __init__(
        self,
        config: EngineConfig,
        kernels: Sequence[DeviceKernel],
        arrays: Sequence[Expected],
        scalars: Sequence[Expected],
        runtime: Runtime,
        ordinal: int,
        fixed: Mapping[int, int] = NOTHING,
    ) -> None:
        """``fixed``: the addresses of arrays that are bound for good, by uid."""
        order = {e.spec.uid: i for i, e in enumerate(arrays)}
        number = {e.spec.uid: i for i, e in enumerate(scalars)}
        between = {tensor.uid: offset for tensor, offset in materialized_slots(config.fused, config.device)}
        views = views_of(config.fused)
        start = materialized_bytes(config.fused, config.device)  # of the scratch memory that kernels take turns in
        # Where an address goes: a struct and a word of it, or what writes a map; then which array, and the offset.
        self._array_words: list[tuple[Any, int, int, int]] = []
        self._array_maps: list[tuple[Callable[[int], None], int, int]] = []
        self._scratch_words: list[tuple[Any, int, int]] = []
        self._scratch_maps: list[tuple[Callable[[int], None], int]] = []
        self._value_words: list[tuple[Any, int, int]] = []
        self._calls: list[_Call] = []
        self._uids = tuple(order)
        self._fixed = fixed
        self.launches: list[Callable[[int], None]] = []
        self.place: Place | None = None  # whose addresses are written
        self.scratch = -1
        self.values: tuple[int, ...] = ()
        for kernel in kernels:
            for step in kernel.steps:
                if not isinstance(step, Launch):
                    call = _Call(step.prepare(), between, views, start, runtime, ordinal)
                    self._calls.append(call)
                    self.launches.append(call)
                    continue
                prepared = runtime.prepare(step, config.name)
                self.launches.append(prepared.launch)
                words = memoryview(prepared.params).cast("Q")
                for slot in step.params.slots:
                    if slot.uid is not None and slot.by_value:
                        self._value_words.append((words, slot.word, number[slot.uid]))
                        continue
                    view = None if slot.uid is None else views.get(slot.uid)
                    uid, offset = (view.tensor.uid, slot.offset + view.start) if view else (slot.uid, slot.offset)
                    which = None if uid is None else order.get(uid)  # none of an execution's arrays: scratch memory
                    address = None if uid is None else fixed.get(uid)
                    if address is not None:
                        _write(words, slot, address + offset, runtime, prepared)
                        continue
                    if which is None:
                        offset += start if uid is None else between[uid]
                    if isinstance(slot, MapSlot):
                        write = runtime.map_writer(prepared, slot)
                        if which is None:
                            self._scratch_maps.append((write, offset))
                        else:
                            self._array_maps.append((write, which, offset))
                    elif which is None:
                        self._scratch_words.append((words, slot.word, offset))
                    else:
                        self._array_words.append((words, slot.word, which, offset))

    def fill(self, place: Place, scratch: int, values: tuple[int, ...]) -> None:
        """Write addresses and scalars into the structs."""
        self.place = None  # until all is written
        addresses = place.addresses
        for words, word, i, offset in self._array_words:
            words[word] = addresses[i] + offset
        for write, i, offset in self._array_maps:
            write(addresses[i] + offset)
        for words, word, offset in self._scratch_words:
            words[word] = (scratch + offset) & _MASK
        for write, offset in self._scratch_maps:
            write((scratch + offset) & _MASK)
        for words, word, i in self._value_words:
            words[word] = values[i]
        for call in self._calls:
            call.fill({**dict(zip(self._uids, addresses, strict=True)), **self._fixed}, scratch)
        self.place, self.scratch, self.values = place, scratch, values

    def launch_watched(self, stream: int, plan: ExecutionPlan, runtime: Runtime) -> None:
        """With ranges for a profiler, and a line that says how long it took, for which it waits."""
        start = perf_counter()
        if debug_log.marks_ranges:
            self._launch_marked(stream, plan)
        else:
            for launch in self.launches:
                launch(stream)
        if debug_log.verbose:
            try:
                runtime.synchronize(stream)
            except CudaError as error:  # of one of these kernels: everything before them was waited for
                kernels = " or ".join(dict.fromkeys(kernel.name for kernel in plan.compiled))
                raise error.of(kernels, plan.name) from error
            plan_log.executed(plan.config, perf_counter() - start)

    def _launch_marked(self, stream: int, plan: ExecutionPlan) -> None:
        from cupy.cuda import nvtx

        nvtx.RangePush(plan.name)
        try:
            counts = [len(k.steps) for k in plan.compiled if isinstance(k, DeviceKernel)]
            following = iter(self.launches)
            for kernel, count in zip(plan.compiled, counts, strict=True):
                nvtx.RangePush(kernel.name)
                try:
                    for _ in range(count):
                        next(following)(stream)
                finally:
                    nvtx.RangePop()
        finally:
            nvtx.RangePop()


def _write(words: Any, slot: Any, address: int, runtime: Runtime, prepared: Prepared) -> None:
    """An address that stays."""
    if isinstance(slot, MapSlot):
        runtime.map_writer(prepared, slot)(address)
    else:
        words[slot.word] = address


class _Call:
    """A library's work with the addresses of this execution."""

    __slots__ = ("_addresses", "_between", "_function", "_ordinal", "_runtime", "_scratch", "_start", "_views")

    def __init__(
        self,
        function: Function,
        between: Mapping[int, int],
        views: Mapping[int, View],
        start: int,
        runtime: Runtime,
        ordinal: int,
    ) -> None:
        self._function, self._between, self._views, self._start = function, between, views, start
        self._runtime, self._ordinal = runtime, ordinal
        self._addresses: Mapping[int, int] = {}
        self._scratch = 0

    def fill(self, addresses: dict[int, int], scratch: int) -> None:
        inside = {uid: scratch + offset for uid, offset in self._between.items()}
        found = {**addresses, **inside}
        shown = {uid: found[view.tensor.uid] + view.start for uid, view in self._views.items()}
        self._addresses, self._scratch = {**found, **shown}, scratch + self._start

    def __call__(self, stream: int) -> None:
        # A library works on whichever device is current, in whichever stream, with addresses of this device.
        if not self._runtime.is_current():
            check_current(self._runtime, self._ordinal)
        if stream:
            check_stream(self._runtime, self._ordinal, stream)
        self._function(self._addresses, self._scratch, stream)


def check_current(runtime: Runtime, loaded_on: int) -> bool:
    """Raises where another device or context is current; True where none was, and the plan's is now."""
    is_new = runtime.adopt(loaded_on)
    ordinal = runtime.ordinal()
    if ordinal != loaded_on:
        raise BadParam(ELSEWHERE.reject(WHERE, "device", f"device {ordinal}", loaded=loaded_on))
    if not runtime.is_current():
        raise BadParam(OTHER_CONTEXT.reject(WHERE, "context", "another one of the device", loaded=loaded_on))
    return is_new


def check_stream(runtime: Runtime, loaded_on: int, stream: int) -> None:
    ordinal = runtime.stream_device(stream)
    if ordinal != loaded_on:
        raise BadParam(OTHER_STREAM.reject(WHERE, "stream", f"of device {ordinal}", loaded=loaded_on))
