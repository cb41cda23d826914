"""CudaRuntime: what a device plan asks of CUDA: compile, load, the current stream and device, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Any, Protocol

from graphdnn.cuda import driver_api
from graphdnn.cuda.device_query import present_device
from graphdnn.cuda.errors import OutOfMemory
from graphdnn.cuda.kernel_cache import default_cache
from graphdnn.cuda.nvrtc import KernelText, arch_of
from graphdnn.cuda.stream_order import BareStream
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import CARRIERS, Array
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.parameters import WORD, MapSlot
from graphdnn.engines.host.memory import binding_layout
from graphdnn.enums import Status
from graphdnn.errors import NotSupported, Rejection
from graphdnn.plan.binding_validation import Expected
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec

NO_CUPY = Rule(
    id="cuda.cupy",
    expected="the package CuPy",
    reason="CuPy provides arrays, streams and memory on a device, and it cannot be imported: {detail}",
    fix="pip install 'graphdnn[cuda13]', or graphdnn[cuda12] for a driver of CUDA 12",
    status=Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
)


class Prepared(Protocol):
    """A launch whose struct is filled in place."""

    params: Any  # writable bytes

    def launch(self, stream: int) -> None: ...


class Runtime(Protocol):
    """CUDA, or what stands in for it where there is none."""

    compiled: int  # kernels that were not in the kernel cache

    def compile(self, text: KernelText) -> bytes: ...

    def is_here(self) -> bool: ...

    def look(self) -> None: ...

    def ordinal(self) -> int: ...

    def adopt(self, ordinal: int) -> bool: ...

    def is_current(self) -> bool: ...

    def stream_device(self, stream: int) -> int: ...

    def wanted(self) -> int: ...

    def device(self, ordinal: int) -> AbstractContextManager[Any]: ...

    def current_stream(self) -> int: ...

    def stream_of_torch(self, device: int) -> int: ...

    def order(self, producer: int, consumer: int) -> None: ...

    def array_type(self) -> type | None: ...

    def prepare(self, launch: Launch, plan: str) -> Prepared: ...

    def map_writer(self, prepared: Prepared, slot: MapSlot) -> Callable[[int], None]: ...

    def shadows(
        self, expected: Sequence[Expected], arrays: Sequence[Any], stream: int
    ) -> tuple[list[Array], list[Rejection]]: ...

    def memory(self, size: int) -> Any: ...

    def workspace_address(self, workspace: Any, size: int, stream: int = 0) -> tuple[int, Rejection | None]: ...

    def array(self, spec: TensorSpec) -> Any: ...

    def array_at(self, want: Expected, address: int) -> Any: ...

    def copy_in(self, host: Array, array: Any, size: int) -> None: ...

    def copy_out(self, array: Any, host: Array, size: int) -> None: ...

    def synchronize(self, stream: int) -> None: ...

    def timings(self, call: Callable[[], None], repeat: int, stream: int | None = None) -> list[float]: ...


_HERE = nullcontext()


class CudaRuntime:
    """The real one. Kernels come from the kernel cache; a device is needed only to load them."""

    def __init__(self, device: DeviceSpec) -> None:
        self._capability = device.compute_capability
        self._arch = arch_of(device.compute_capability, device.name)
        self._ordinal = device.ordinal
        self._current: Callable[[], Any] = self._first_current  # finds the current stream
        self._context: Callable[[], Any] = self._first_context  # and the current context
        self._own = -1  # the context that kernels are loaded in
        # Of this plan's kernels: asked for when it is built, and again when it is loaded.
        self._cubins: dict[KernelText, bytes] = {}
        self.compiled = 0

    def compile(self, text: KernelText) -> bytes:
        known = self._cubins.get(text)
        if known is None:
            found = default_cache().load(text, self._arch)
            self.compiled += found.origin == "compiled"
            known = self._cubins[text] = found.cubin
        return known

    def is_here(self) -> bool:
        """True when the device that was meant, or else the current one, runs what was compiled.

        Raises ``NotSupported`` where the device was named and cannot be used. A profile's plan may be for another
        machine: what is wrong with this one's device is said when the plan is loaded (``look``).
        """
        if self._ordinal is not None:
            return self._is_usable()
        try:
            return self._is_usable()
        except NotSupported:
            return False

    def look(self) -> None:
        """Raises ``NotSupported`` with what is wrong with the device that is here, where there is one."""
        self._is_usable()

    def _is_usable(self) -> bool:
        if driver_api.available() or present_device(self._ordinal).compute_capability != self._capability:
            return False
        _find_cupy()
        return True

    def ordinal(self) -> int:
        return driver_api.current_device()

    def adopt(self, ordinal: int) -> bool:
        """Make the device current in a thread that has met none yet; whether it was one."""
        return driver_api.adopt(ordinal)

    def is_current(self) -> bool:
        """Whether the context of plans on this device is this thread's: asked wherever arrays are new."""
        return self._context() == self._own  # type: ignore[no-any-return]

    def stream_device(self, stream: int) -> int:
        return driver_api.stream_device(stream)

    def wanted(self) -> int:
        """The ordinal to load kernels on: of the device that was named, or of the current one."""
        return self.ordinal() if self._ordinal is None else self._ordinal

    def device(self, ordinal: int) -> AbstractContextManager[Any]:
        """Inside, this device is current: as it is where plans have met its context, and that is this thread's."""
        self._own = driver_api.context_of(ordinal)
        if self.is_current():
            return _HERE
        import cupy

        return cupy.cuda.Device(ordinal)  # type: ignore[no-any-return]

    def current_stream(self) -> int:
        return self._current().ptr  # type: ignore[no-any-return]

    def stream_of_torch(self, device: int) -> int:
        """PyTorch's current stream of a device."""
        from graphdnn.cuda.stream_order import stream_of_torch

        return stream_of_torch(device)

    def order(self, producer: int, consumer: int) -> None:
        """Later work of ``consumer`` starts after the present work of ``producer``."""
        from graphdnn.cuda.stream_order import order

        order(producer, consumer)

    def _first_current(self) -> Any:
        """Each execution asks, so what finds the stream is looked up once."""
        import cupy

        self._current = cupy.cuda.get_current_stream
        return self._current()

    def _first_context(self) -> Any:
        import cupy

        self._context = cupy.cuda.driver.ctxGetCurrent  # without the objects that the bindings make
        return self._context()

    def array_type(self) -> type | None:
        """The class of arrays that are admitted by the short way."""
        import cupy

        return cupy.ndarray  # type: ignore[no-any-return]

    def prepare(self, launch: Launch, plan: str) -> Prepared:
        if not self.is_current():
            self._own = driver_api.make_current(self.ordinal())
        module = driver_api.load(self.compile(launch.text), launch.text.name, self._own)
        params = driver_api.aligned_buffer(len(launch.params.data))
        params[:] = launch.params.data
        function = module.function(launch.entry, launch.shared)
        block = (launch.block, 1, 1)
        return driver_api.PreparedLaunch(
            function,
            launch.grid,
            block,
            launch.shared,
            params,
            is_cooperative=launch.is_cooperative,
            starts_early=launch.starts_early,
            kernel=launch.text.name,
            plan=plan,
        )

    def map_writer(self, prepared: Prepared, slot: MapSlot) -> Callable[[int], None]:
        """What writes a tensor map into a launch's struct, given the tensor's address."""
        assert isinstance(prepared, driver_api.PreparedLaunch)
        assert slot.map is not None
        return slot.map.writer(prepared.address + slot.word * WORD)

    def shadows(
        self, expected: Sequence[Expected], arrays: Sequence[Any], stream: int
    ) -> tuple[list[Array], list[Rejection]]:
        from graphdnn.plan.device_arrays import shadow_of

        ordinal = self.ordinal()
        pairs = [shadow_of(want, given, ordinal, stream) for want, given in zip(expected, arrays, strict=True)]
        return [s for s, _ in pairs if s is not None], [r for _, r in pairs if r is not None]

    def memory(self, size: int) -> Any:
        import cupy

        with _by_cupy("cuMemAlloc", size):
            return cupy.empty(size, cupy.uint8)

    def workspace_address(self, workspace: Any, size: int, stream: int = 0) -> tuple[int, Rejection | None]:
        from graphdnn.plan.device_arrays import workspace_address

        return workspace_address(workspace, size, self.ordinal(), stream)

    def array(self, spec: TensorSpec) -> Any:
        """A new CuPy array of a tensor's type, extents, strides and alignment. Types that CuPy lacks travel as bits."""
        import cupy

        dtype, shape, strides = binding_layout(spec)
        with _by_cupy("cuMemAlloc", spec.bytes):
            memory = cupy.cuda.alloc(spec.bytes + spec.byte_alignment)
        memory += -memory.ptr % spec.byte_alignment
        return cupy.ndarray(shape, CARRIERS.get(spec.data_type, dtype), memory, strides=strides)

    def array_at(self, want: Expected, address: int) -> Any:
        """A CuPy array of memory that is somebody else's, who keeps it alive."""
        import cupy

        dtype, shape, strides = want.layout
        pointer = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, want.spec.bytes, None), 0)
        return cupy.ndarray(shape, CARRIERS.get(want.spec.data_type, dtype), pointer, strides=strides)

    def copy_in(self, host: Array, array: Any, size: int) -> None:
        with _by_cupy("cuMemcpyHtoDAsync", size):
            array.data.copy_from_host_async(_address(host), size)
        self.synchronize(self.current_stream())

    def copy_out(self, array: Any, host: Array, size: int) -> None:
        with _by_cupy("cuMemcpyDtoHAsync", size):
            array.data.copy_to_host_async(_address(host), size)
        self.synchronize(self.current_stream())

    def synchronize(self, stream: int) -> None:
        """Wait for a stream, unless it is being captured and there is nothing to wait for."""
        if not driver_api.is_capturing(stream):
            driver_api.synchronize(stream)

    def timings(self, call: Callable[[], None], repeat: int, stream: int | None = None) -> list[float]:
        """Seconds on the device between the end of one call's work and the end of the next one's."""
        import cupy

        where = None if stream is None else cupy.cuda.Stream.from_external(BareStream(stream))
        events = [cupy.cuda.Event() for _ in range(repeat + 1)]
        events[0].record(where)
        for event in events[1:]:
            call()
            event.record(where)
        events[-1].synchronize()
        pairs = pairwise(events)
        return [cupy.cuda.get_elapsed_time(start, end) * 1e-3 for start, end in pairs]


def _find_cupy() -> None:
    try:
        import cupy  # noqa: F401
    except Exception as error:  # what its own libraries raise differs by version
        detail = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
        raise NotSupported(NO_CUPY.reject("CUDA device", "cupy", "missing", detail=detail)) from error


@contextmanager
def _by_cupy(call: str, size: int) -> Iterator[None]:
    """Inside, CuPy allocates or copies. Raises ``OutOfMemory`` where memory runs out, else ``CudaError``."""
    import cupy

    try:
        yield
    except MemoryError as error:
        if not isinstance(error, cupy.cuda.memory.OutOfMemoryError):
            raise
        raise OutOfMemory.of_pool(size, str(error)) from error
    except RuntimeError as error:
        code = getattr(error, "status", None)  # of an error of the driver's or the runtime's, which have the same ones
        if code is None:
            raise
        raise driver_api.error_of(call, int(code)) from error


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
