"""DevicePlan: execution on a CUDA device, asynchronous, without allocation or synchronisation.

Kernels are compiled when the plan is built and loaded when it first meets its device. Launches are
packed into *blocks*: the structs of all launches with their addresses written in. ``execute`` takes a free
block, writes the addresses that changed, and makes one driver call per kernel, so several threads may
execute one plan at once, each with a block (and, where the plan needs one, a workspace) of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import is_
from time import perf_counter
from typing import Any

from graphdnn.cuda import debug
from graphdnn.cuda.failure import CudaError
from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.generator import source
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Function, Launch
from graphdnn.engines.cuda.generator.parameters import MapSlot, scalar_bits
from graphdnn.engines.engine import CompiledOperation
from graphdnn.engines.host.memory import empty
from graphdnn.engines.once import once
from graphdnn.enums import Status
from graphdnn.errors import BadParam, ExecutionFailed, NotSupported
from graphdnn.fusion.views import View, views_of
from graphdnn.heuristics import EngineConfig, materialized_bytes, materialized_slots
from graphdnn.plan import report
from graphdnn.plan.base import ExecutionPlan, Remembered, bound_of
from graphdnn.plan.bindings import (
    WHERE,
    WORKSPACE_MISSING,
    WORKSPACE_OVERLAP,
    Expected,
    check_addresses,
    check_layouts,
    coerce,
    refuse_names,
)
from graphdnn.plan.looks import Looks, looks_of
from graphdnn.plan.rehearsal import rehearse
from graphdnn.plan.runtime import CudaRuntime, Runtime
from graphdnn.plan.streams import stream_number
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec

ABSENT = Rule(
    id="execute.device_absent",
    expected="a device of compute capability {capability}",
    reason="the plan was built for {device}, and this process has no such device",
    fix="build the plan for the device that is here (device='cuda'), or for the host (device='cpu')",
    status=Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
)

ELSEWHERE = Rule(
    id="execute.other_device",
    expected="device {loaded}",
    reason="the plan's kernels were loaded on device {loaded}, and another device is current in this thread",
    fix="execute inside `with cupy.cuda.Device({loaded}):`, or build a plan for the current device as well",
)

_MASK = (1 << 64) - 1
_NUMBERS = (int, float, bool)


class _Admitted(Remembered):
    """Arrays that were checked, by their addresses. Only CuPy's keep theirs for life, and may be remembered."""

    __slots__ = ("addresses",)

    def __init__(self, arrays: Sequence[Any], addresses: tuple[int, ...]) -> None:
        """``arrays``: those to remember."""
        self.addresses = addresses
        super().__init__(arrays)


_NOTHING = _Admitted((), ())  # of plans that were not executed


@once
def _looks_of(config: EngineConfig) -> Looks:
    return looks_of(bound_of(config).arrays)


class DevicePlan(ExecutionPlan, place="cuda"):
    """A plan of CUDA engines. ``runtime`` stands in for CUDA in tests."""

    __slots__ = (
        "_are",
        "_array_type",
        "_free",
        "_known",
        "_looks",
        "_numbers",
        "_runtime",
        "_seen",
        "_workspace",
        "in_place",
        "loaded_on",
    )

    def __init__(
        self,
        config: EngineConfig,
        runtime: Runtime | None = None,
        *,
        compiled: Sequence[CompiledOperation] | None = None,
    ) -> None:
        start = perf_counter()
        super().__init__(config, compiled=compiled)
        self._runtime: Runtime = CudaRuntime(config.device) if runtime is None else runtime
        for kernel in self._device_kernels:
            for step in kernel.steps:
                if isinstance(step, Launch):
                    self._runtime.compile(step.text)
        self._known = _NOTHING
        self._seen: tuple[int, ...] = ()  # the arrays of the last call that were not known, by identity
        self._numbers: tuple[tuple[Any, ...], tuple[int, ...]] = (), ()  # by-value ones of the last call, as words
        self._workspace: tuple[Remembered, int, _Admitted] = _NOTHING, 0, _NOTHING
        self._free: list[_Block] = []
        self.loaded_on: int | None = None  # ordinal
        self.in_place: Collection[tuple[int, int]] = ()  # inputs and outputs, by uid, that may be the same memory
        self._array_type: type | None = None  # of arrays that are admitted by their looks, once there is a device
        self._looks = _looks_of(config)
        self._are = self._looks.are
        if self._runtime.is_here():
            self._free.append(self._new_block())
        report.built(config, "miss" if self._runtime.compiled else "hit", perf_counter() - start)

    @classmethod
    def prepare(cls, device: DeviceSpec) -> None:
        """The kernel cache, the kernels' texts, what first plans work out, and where the device is here its context
        and CuPy.
        """
        from graphdnn.cuda import cache, driver

        cache.default_cache()
        source.prepare()
        rehearse(device)
        runtime = CudaRuntime(device)
        if runtime.is_here():
            with runtime.device(runtime.wanted()):
                driver.make_current(runtime.ordinal())

    def like(self, config: EngineConfig) -> DevicePlan:
        return DevicePlan(config, self._runtime)

    def with_compiled(self, compiled: Sequence[CompiledOperation]) -> DevicePlan:
        """The same plan with other kernels that do the same."""
        return DevicePlan(self.config, self._runtime, compiled=compiled)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Every kernel launch of an execution, in order."""
        return tuple(step for k in self._device_kernels for step in k.steps if isinstance(step, Launch))

    @property
    def _device_kernels(self) -> tuple[DeviceKernel, ...]:
        kernels = tuple(k for k in self.compiled if isinstance(k, DeviceKernel))
        assert len(kernels) == len(self.compiled), "an engine of a device compiles to device kernels"
        return kernels

    def execute(self, bindings: Mapping[int, Any], workspace: Any = None, stream: Any = None) -> None:
        """As ``ExecutionPlan.execute``, on arrays in device memory: CuPy's, addresses (int, ctypes), and anything
        with ``__dlpack__`` or ``__cuda_array_interface__``. Returns when the work is in the stream.

        ``stream``: an address, or an object with ``ptr`` or ``cuda_stream``; None is CuPy's current stream.
        """
        if self.loaded_on is None:
            self.load()
        number = self._runtime.current_stream() if stream is None else stream_number(stream)
        known = self._known
        ids = known.ids
        try:
            is_known = ids is not None and len(bindings) == self._count and self._are(bindings, ids)
            scalars = [bindings[e.spec.uid] for e in self._scalars] if self._scalars else None
        except KeyError:
            refuse_names((*self._expected, *self._scalars), bindings)
        if not is_known:
            known = self._admit(bindings, number)
        values = self._words(scalars) if scalars else ()
        scratch = self._scratch(workspace, known, number) if self.workspace_size else 0
        try:
            block = self._free.pop()
        except IndexError:
            block = self._new_block()
        try:
            if block.known is not known or block.scratch != scratch or block.values != values:
                block.fill(known, scratch, values)
            if debug.watches:
                block.launch_watched(number, self, self._runtime)
            else:
                for launch in block.launches:
                    launch(number)
        except ExecutionFailed as error:
            if not (isinstance(error, CudaError) and error.is_sticky):  # after which the driver answers nothing else
                self._check_current()
            error.subject = self.config
            raise
        finally:
            self._free.append(block)

    def _words(self, scalars: Sequence[Any]) -> tuple[int, ...]:
        """By-value numbers as words of a struct. Python's own cannot change: the last call's are known again."""
        given, words = self._numbers
        if len(given) == len(scalars) and all(map(is_, given, scalars)):
            return words
        read = coerce(self._scalars, scalars)
        words = tuple([int.from_bytes(scalar_bits(value.tobytes()), "little") for value in read])
        if all([type(number) in _NUMBERS for number in scalars]):  # noqa: C419  a list takes half the time
            self._numbers = tuple(scalars), words
        return words

    def _admit(self, bindings: Mapping[int, Any], stream: int) -> _Admitted:
        """Arrays that are not remembered: checked. Those of two calls one after the other are remembered."""
        assert self.loaded_on is not None
        try:
            arrays = self._pick(bindings)
        except KeyError:
            arrays = ()
        if len(bindings) != self._count or not arrays:
            refuse_names((*self._expected, *self._scalars), bindings)
        if not self._runtime.is_current():
            self._check_current()
        addresses = self._looks.addresses(arrays, self._array_type, self.loaded_on) or self._checked(arrays, stream)
        known, ids = self._known, tuple(map(id, arrays))
        if ids == self._seen and all(map(_is_of_cupy, arrays)):
            self._known = known = _Admitted(arrays, addresses)
        elif addresses != known.addresses:
            self._known = known = _Admitted((), addresses)
        self._seen = ids
        return known

    def _checked(self, arrays: Sequence[Any], stream: int) -> tuple[int, ...]:
        """Addresses of any arrays. Raises with everything that is wrong with them."""
        shadows, found = self._runtime.shadows(self._expected, arrays, stream)
        if found:
            raise BadParam(found)
        check_layouts(self._expected, shadows)
        check_addresses(self._expected, shadows, self.in_place)
        if all(map(_is_of_cupy, arrays)):
            self._looks.learn(arrays)
        return tuple([int(s.__array_interface__["data"][0]) for s in shadows])

    def load(self) -> None:
        if self.loaded_on is not None:
            return
        device = self.config.device
        if not self._runtime.is_here():
            self._runtime.look()  # which says what is wrong with a device that is here
            raise NotSupported(
                ABSENT.reject(
                    WHERE, "device", "none", device=device.name,
                    capability=".".join(map(str, device.compute_capability)),
                )
            )  # fmt: skip
        self._free.append(self._new_block())

    def _check_current(self) -> None:
        """Arrays, streams and kernels are a device's own. Raises where another one is current than the plan's."""
        assert self.loaded_on is not None
        _check_current(self._runtime, self.loaded_on)

    def _scratch(self, workspace: Any, known: _Admitted, stream: int) -> int:
        """The workspace's address. Raises when it is missing, small, of the wrong kind or shared."""
        remembered, address, checked_with = self._workspace
        if (id(workspace),) == remembered.ids and checked_with is known:
            return address
        if workspace is None:
            raise BadParam(WORKSPACE_MISSING.reject(WHERE, "workspace", None, size=self.workspace_size))
        self._check_current()
        address, problem = self._runtime.workspace_address(workspace, self.workspace_size, stream)
        if problem is not None:
            raise BadParam(problem)
        end, places = address + self.workspace_size, zip(known.addresses, self._expected, strict=True)
        if any(address < start + e.spec.bytes and start < end for start, e in places):
            raise BadParam(WORKSPACE_OVERLAP.reject(WHERE, "workspace", "shared"))
        if _is_of_cupy(workspace):
            self._workspace = Remembered((workspace,)), address, known
        return address

    def _new_block(self) -> _Block:
        ordinal = self._runtime.wanted() if self.loaded_on is None else self.loaded_on
        with self._runtime.device(ordinal):
            block = _Block(self.config, self._device_kernels, self._expected, self._scalars, self._runtime, ordinal)
        if self.loaded_on is None:
            self._array_type, self.loaded_on = self._runtime.array_type(), ordinal
        return block

    def new_workspace(self) -> Any:
        """CuPy bytes of the right size, or None where none are needed."""
        self.load()
        with self._here():
            return self._runtime.memory(self.workspace_size) if self.workspace_size else None

    def new_array(self, spec: TensorSpec) -> Any:
        """A CuPy array; BFLOAT16 and FP8, which CuPy may lack, are carried by unsigned integers."""
        self.load()
        with self._here():
            return self._runtime.array(spec)

    def array_at(self, uid: int, address: int) -> Any:
        """A tensor's array at an address that was bound before: as the plan's own arrays, it is not looked at again.

        Whose memory it is keeps it alive.
        """
        with self._here():
            return self._runtime.array_at(next(e for e in self._expected if e.spec.uid == uid), address)

    def _here(self) -> AbstractContextManager[Any]:
        assert self.loaded_on is not None
        return self._runtime.device(self.loaded_on)

    def to_device(self, bindings: Mapping[int, Any]) -> dict[int, Any]:
        bound = [e for e in self._expected if e.spec.uid in bindings]
        hosts = coerce(bound, [bindings[e.spec.uid] for e in bound])
        copies = dict(bindings)
        for want, host in zip(bound, hosts, strict=True):
            copies[want.spec.uid] = array = self.new_array(want.spec)
            with self._here():
                self._runtime.copy_in(host, array, want.spec.bytes)
        return copies

    def to_host(self, bindings: Mapping[int, Any]) -> dict[int, Any]:
        self.load()
        copies = dict(bindings)
        for spec in (e.spec for e in self._expected if e.spec.uid in bindings):
            copies[spec.uid] = empty(spec)
            with self._here():
                self._runtime.copy_out(bindings[spec.uid], copies[spec.uid], spec.bytes)
        return copies

    def queue(self, stream: Any = None) -> int:
        if self.loaded_on is None:
            self.load()
        return self._runtime.current_stream() if stream is None else stream_number(stream)

    def timings(self, call: Callable[[], None], repeat: int, stream: int | None = None) -> list[float]:
        """Seconds that the device spends on each of several calls, which put work into this or the current stream."""
        self.load()
        return self._runtime.timings(call, repeat, stream)

    def capture(self, bindings: Mapping[int, Any], workspace: Any = None) -> Any:
        from graphdnn.plan.capture import capture

        return capture(self, bindings, workspace)


class _Block:
    """The packed launches of one execution at a time."""

    __slots__ = (
        "_array_words",
        "_calls",
        "_scratch_words",
        "_uids",
        "_value_words",
        "known",
        "launches",
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
    ) -> None:
        place = {e.spec.uid: i for i, e in enumerate(arrays)}
        number = {e.spec.uid: i for i, e in enumerate(scalars)}
        between = {tensor.uid: offset for tensor, offset in materialized_slots(config.fused, config.device)}
        views = views_of(config.fused)
        start = materialized_bytes(config.fused, config.device)  # of the scratch memory that kernels take turns in
        self._array_words: list[tuple[Any, int, int, int]] = []  # struct, word, which array, offset
        self._value_words: list[tuple[Any, int, int]] = []
        self._scratch_words: list[tuple[Any, int, int]] = []
        self._calls: list[_Call] = []
        self._uids = tuple(place)
        self.launches: list[Callable[[int], None]] = []
        self.known: object = None
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
                    at = _MapWords(runtime.map_writer(prepared, slot)) if isinstance(slot, MapSlot) else words
                    if slot.uid is None:
                        self._scratch_words.append((at, slot.word, start + slot.offset))
                        continue
                    if slot.by_value:
                        self._value_words.append((at, slot.word, number[slot.uid]))
                        continue
                    view = views.get(slot.uid)
                    uid, offset = (view.tensor.uid, slot.offset + view.start) if view else (slot.uid, slot.offset)
                    if uid in between:
                        self._scratch_words.append((at, slot.word, between[uid] + offset))
                    else:
                        self._array_words.append((at, slot.word, place[uid], offset))

    def fill(self, known: _Admitted, scratch: int, values: tuple[int, ...]) -> None:
        """Write addresses and scalars into the structs."""
        self.known = None  # until all is written
        addresses = known.addresses
        for words, word, i, offset in self._array_words:
            words[word] = addresses[i] + offset
        for words, word, offset in self._scratch_words:
            words[word] = (scratch + offset) & _MASK
        for words, word, i in self._value_words:
            words[word] = values[i]
        for call in self._calls:
            call.fill(dict(zip(self._uids, addresses, strict=True)), scratch)
        self.known, self.scratch, self.values = known, scratch, values

    def launch_watched(self, stream: int, plan: ExecutionPlan, runtime: Runtime) -> None:
        """With ranges for a profiler, and a line that says how long it took, for which it waits."""
        start = perf_counter()
        if debug.marks_ranges:
            self._launch_marked(stream, plan)
        else:
            for launch in self.launches:
                launch(stream)
        if debug.verbose:
            try:
                runtime.synchronize(stream)
            except CudaError as error:  # of one of these kernels: everything before them was waited for
                kernels = " or ".join(dict.fromkeys(kernel.name for kernel in plan.compiled))
                raise error.of(kernels, plan.name) from error
            report.executed(plan.config, perf_counter() - start)

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


class _MapWords:
    """Stands for a struct's words where an address is written as the map of the tensor that lies there."""

    __slots__ = ("_write",)

    def __init__(self, write: Callable[[int], None]) -> None:
        self._write = write

    def __setitem__(self, word: int, address: int) -> None:
        self._write(address)


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
        if not self._runtime.is_current():  # a library works on whichever device is, with addresses of this one
            _check_current(self._runtime, self._ordinal)
        self._function(self._addresses, self._scratch, stream)


def _check_current(runtime: Runtime, loaded_on: int) -> None:
    runtime.adopt(loaded_on)
    ordinal = runtime.ordinal()
    if ordinal != loaded_on:
        raise BadParam(ELSEWHERE.reject(WHERE, "device", f"device {ordinal}", loaded=loaded_on))


def _is_of_cupy(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "cupy"
