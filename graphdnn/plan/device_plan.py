"""DevicePlan: execution on a CUDA device, asynchronous, without allocation or synchronisation.

Kernels are compiled when the plan is built and loaded when it first meets its device. Launches are
packed into *blocks*: the structs of all launches with their addresses written in. ``execute`` takes a free
block, writes the addresses that changed, and makes one driver call per kernel, so several threads may
execute one plan at once, each with a block (and, where the plan needs one, a workspace) of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any, NamedTuple

from graphdnn import debug_log
from graphdnn.cuda.errors import CudaError
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import Array
from graphdnn.engines.cuda.codegen import source
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.parameters import scalar_bits
from graphdnn.engines.engine import CompiledOperation
from graphdnn.engines.host.memory import empty
from graphdnn.engines.memoization import memoize
from graphdnn.enums import Status
from graphdnn.errors import BadParam, ExecutionFailed, NotSupported
from graphdnn.heuristics import EngineConfig
from graphdnn.plan import plan_log
from graphdnn.plan.binding_cache import BindingCache, Place, is_of_cupy
from graphdnn.plan.binding_check import BindingCheck, has_tensors_only, numbers_of
from graphdnn.plan.binding_validation import (
    NO_NAME,
    WHERE,
    WORKSPACE_MISSING,
    WORKSPACE_OVERLAP,
    Expected,
    check_addresses,
    check_layouts,
    coerce,
    refuse_names,
)
from graphdnn.plan.cuda_runtime import CudaRuntime, Runtime
from graphdnn.plan.execution_plan import NOTHING, ExecutionPlan, ValidatedArrays, bound_of
from graphdnn.plan.launch_block import Block, check_current, check_stream
from graphdnn.plan.memory_overlap import FixedSpans
from graphdnn.plan.streams import stream_number
from graphdnn.plan.warmup import rehearse
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec

ABSENT = Rule(
    id="execute.device_absent",
    expected="a device of compute capability {capability}",
    reason="the plan was built for {device}, and this process has no such device",
    fix="build the plan for the device that is here (device='cuda'), or for the host (device='cpu')",
    status=Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
)

_NUMBERS = (int, float, bool)
_UNREAD = object()  # in place of a number before the first call


class _Fixed(NamedTuple):
    """An array that is bound for good, and its shadow. The plan keeps it alive."""

    want: Expected
    shadow: Array
    array: Any

    @property
    def address(self) -> int:
        return int(self.shadow.__array_interface__["data"][0])


@memoize
def _binding_check_of(config: EngineConfig) -> BindingCheck:
    return BindingCheck(bound_of(config).arrays)


class DevicePlan(ExecutionPlan, place="cuda"):
    """A plan of CUDA engines. ``runtime`` stands in for CUDA in tests."""

    __slots__ = (
        "_array_type",
        "_binding_cache",
        "_binding_check",
        "_find",
        "_fixed",
        "_free",
        "_known",
        "_numbers",
        "_read",
        "_runtime",
        "_stream",
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
        steps = [step for kernel in self._device_kernels for step in kernel.steps]
        launches = [step for step in steps if isinstance(step, Launch)]
        for launch in launches:
            self._runtime.compile(launch.text)
        # By-value ones of the last call, and as words.
        self._numbers: tuple[tuple[Any, ...], tuple[int, ...]] = (_UNREAD,) * len(self._scalars), ()
        self._free: list[Block] = []
        # A library's work may hold memory on the device, which cannot be had while a stream is captured.
        self._binding_cache = BindingCache(self._free, is_light=len(launches) == len(steps))
        self._known = self._binding_cache.known
        self._stream = self._runtime.current_stream
        self._read = numbers_of(self._scalars) if self._scalars else None
        self.loaded_on: int | None = None  # ordinal
        self.in_place: Collection[tuple[int, int]] = ()  # inputs and outputs, by uid, that may be the same memory
        self._array_type: type | None = None  # of arrays that are admitted by the binding check, once there is a device
        self._fixed: tuple[_Fixed, ...] = ()
        self._binding_check = _binding_check_of(config)
        self._find = self._binding_check.find
        if self._runtime.is_here():
            self._free.append(self._new_block())
        plan_log.built(config, "miss" if self._runtime.compiled else "hit", perf_counter() - start)

    @classmethod
    def prepare(cls, device: DeviceSpec) -> None:
        """The kernel cache, the kernels' texts, what first plans work out, and where the device is here its context
        and CuPy.
        """
        from graphdnn.cuda import driver_api, kernel_cache

        kernel_cache.default_cache()
        source.prepare()
        rehearse(device)
        runtime = CudaRuntime(device)
        if runtime.is_here():
            with runtime.device(runtime.wanted()):
                driver_api.make_current(runtime.ordinal())
                driver_api.look_up()

    def bind(self, arrays: Mapping[int, Any]) -> ExecutionPlan:
        expected = self._bound_inputs(arrays)
        self.load()
        assert self.loaded_on is not None
        self._check_current()
        given = tuple(arrays.values())
        shadows, found = self._runtime.shadows(expected, given, self.queue())
        if found:
            raise BadParam(found)
        check_layouts(expected, shadows)
        check_addresses(expected, shadows)
        fixed = [_Fixed(want, shadow, array) for want, shadow, array in zip(expected, shadows, given, strict=True)]
        made = DevicePlan(self.config, self._runtime, compiled=self.compiled)
        made._fix((*self._fixed, *fixed))
        return made

    def _fix(self, fixed: tuple[_Fixed, ...]) -> None:
        """Bind arrays for good. Their addresses are written once into each block."""
        self._fixed = fixed
        self._expect_others([f.want.spec.uid for f in fixed])
        spans = FixedSpans((f.address, f.address + f.want.spec.bytes) for f in fixed)
        self._binding_check = BindingCheck(self._expected, spans)
        self._find = self._binding_check.find
        self._free.clear()

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

        ``stream``: an address, or an object with ``ptr`` or ``cuda_stream``. None is PyTorch's current stream if an
        output is a tensor of PyTorch, else CuPy's: the readers of the outputs are in this stream.
        """
        if self.loaded_on is None:
            self.load()
        number = self._stream() if stream is None else stream_number(stream)
        try:
            known = self._find(bindings, self._known) if len(bindings) == self._count else None
            numbers = self._read(bindings, self._numbers[0]) if self._read is not None else None
        except NO_NAME:
            refuse_names((*self._expected, *self._scalars), bindings)
        if known is None:
            place, number = self._admit(bindings, number, is_chosen=stream is not None)
        else:
            place = known.place
        values = () if numbers is None else self._words(numbers)
        scratch = self._scratch(workspace, place, number) if self.workspace_size else 0
        blocks = place.blocks
        try:
            block = blocks.pop()
        except IndexError:
            block = self._free_block()
        try:
            if block.place is not place or block.scratch != scratch or block.values != values:
                block.fill(place, scratch, values)
            if debug_log.watches:
                block.launch_watched(number, self, self._runtime)
            else:
                for launch in block.launches:
                    launch(number)
        except ExecutionFailed as error:
            if not (isinstance(error, CudaError) and error.is_sticky):  # after which the driver answers nothing else
                if self._check_current():  # known arrays in the default stream of a thread that had met no device
                    self.execute(bindings, workspace, stream)
                    return
                self._check_stream(number)
            error.subject = self.config
            raise
        finally:
            blocks.append(block)

    def _words(self, numbers: tuple[Any, ...]) -> tuple[int, ...]:
        """By-value numbers as words of a struct. Python's own cannot change: the last call's are known again."""
        given, words = self._numbers
        if numbers is given:
            return words
        read = coerce(self._scalars, numbers)
        words = tuple([int.from_bytes(scalar_bits(value.tobytes()), "little") for value in read])
        if all([type(number) in _NUMBERS for number in numbers]):  # noqa: C419  a list takes half the time
            self._numbers = numbers, words
        return words

    def _admit(self, bindings: Mapping[int, Any], stream: int, *, is_chosen: bool) -> tuple[Place, int]:
        """Arrays that are not known by identity, checked, and the stream of the execution.

        ``is_chosen``: the caller stated ``stream``; without it the outputs decide.
        """
        assert self.loaded_on is not None
        try:
            arrays = self._pick(bindings)
        except NO_NAME:
            refuse_names((*self._expected, *self._scalars), bindings)
        if len(bindings) != self._count:
            refuse_names((*self._expected, *self._scalars), bindings)
        if not self._runtime.is_current():
            self._check_current()
        if not is_chosen and self._binding_check.writes_tensors(bindings):
            stream = self._stream_for_tensors(arrays, stream)
        where = self._binding_check.where(arrays, self._array_type, self.loaded_on, self._binding_cache.places)
        if where is not None:
            addresses, ids, are_fixed = where
            if not are_fixed:
                self._runtime.order(self._runtime.stream_of_torch(self.loaded_on), stream)
            return self._binding_cache.place(arrays, ids, addresses, are_fixed=are_fixed), stream
        addresses, are_fixed = self._checked(arrays, stream), all(map(is_of_cupy, arrays))
        self._binding_check.learn(arrays)
        return self._binding_cache.place(arrays, tuple(map(id, arrays)), addresses, are_fixed=are_fixed), stream

    def _stream_for_tensors(self, arrays: Sequence[Any], current: int) -> int:
        """PyTorch's current stream. It waits for ``current``, which is CuPy's, if other arrays are bound as well."""
        assert self.loaded_on is not None
        found = self._runtime.stream_of_torch(self.loaded_on)
        if found != current and not has_tensors_only(arrays):
            self._runtime.order(current, found)
        return found

    def _checked(self, arrays: Sequence[Any], stream: int) -> tuple[int, ...]:
        """Addresses of any arrays. Raises with everything that is wrong with them."""
        shadows, found = self._runtime.shadows(self._expected, arrays, stream)
        if found:
            raise BadParam(found)
        check_layouts(self._expected, shadows)
        fixed = self._fixed
        expected, places = (*self._expected, *(f.want for f in fixed)), (*shadows, *(f.shadow for f in fixed))
        check_addresses(expected, places, self.in_place)
        return tuple([int(s.__array_interface__["data"][0]) for s in shadows])

    def load(self) -> None:
        if self.loaded_on is not None:
            self._runtime.adopt(self.loaded_on)
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

    def _check_current(self) -> bool:
        """Arrays, streams and kernels are a device's own. Raises where another one is current than the plan's; True
        where none was.
        """
        assert self.loaded_on is not None
        return check_current(self._runtime, self.loaded_on)

    def _check_stream(self, stream: int) -> None:
        assert self.loaded_on is not None
        check_stream(self._runtime, self.loaded_on, stream)

    def _scratch(self, workspace: Any, place: Place, stream: int) -> int:
        """The workspace's address. Raises when it is missing, small, of the wrong kind or shared."""
        remembered, address = place.scratch
        if (id(workspace),) == remembered.ids:
            return address
        if workspace is None:
            raise BadParam(WORKSPACE_MISSING.reject(WHERE, "workspace", None, size=self.workspace_size))
        self._check_current()
        address, problem = self._runtime.workspace_address(workspace, self.workspace_size, stream)
        if problem is not None:
            raise BadParam(problem)
        end, taken = address + self.workspace_size, [*zip(place.addresses, self._expected, strict=True)]
        taken += [(f.address, f.want) for f in self._fixed]
        if any(address < start + e.spec.bytes and start < end for start, e in taken):
            raise BadParam(WORKSPACE_OVERLAP.reject(WHERE, "workspace", "shared"))
        if is_of_cupy(workspace):
            place.scratch = ValidatedArrays((workspace,)), address
        return address

    def _free_block(self) -> Block:
        try:
            return self._free.pop()
        except IndexError:
            return self._new_block()

    def _new_block(self) -> Block:
        ordinal = self._runtime.wanted() if self.loaded_on is None else self.loaded_on
        with self._runtime.device(ordinal):
            fixed = {f.want.spec.uid: f.address for f in self._fixed}
            kernels, scalars = self._device_kernels, self._scalars
            block = Block(self.config, kernels, self._expected, scalars, self._runtime, ordinal, fixed)
        if self.loaded_on is None:
            self._array_type, self.loaded_on = self._runtime.array_type(), ordinal
        return block

    @property
    def ordinal(self) -> int | None:
        self.load()
        return self.loaded_on

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

    def queue(self, stream: Any = None, bindings: Mapping[int, Any] = NOTHING) -> int:
        if self.loaded_on is None:
            self.load()
            assert self.loaded_on is not None
        if stream is not None:
            return stream_number(stream)
        if self._binding_check.writes_tensors(bindings):
            return self._runtime.stream_of_torch(self.loaded_on)
        return self._runtime.current_stream()

    def timings(self, call: Callable[[], None], repeat: int, stream: int | None = None) -> list[float]:
        """Seconds that the device spends on each of several calls, which put work into this or the current stream."""
        self.load()
        return self._runtime.timings(call, repeat, stream)

    def capture(self, bindings: Mapping[int, Any], workspace: Any = None) -> Any:
        from graphdnn.plan.cuda_graph import capture

        return capture(self, bindings, workspace)
