"""Device: the little that measuring needs of a machine. ``CudaDevice`` is the real one; tests bring their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from graphdnn import TensorSpec
from graphdnn.dtypes import ELEMENTS

Call = Callable[[], Any]


class Launches(Protocol):
    """A series of calls that is timed as a whole."""

    count: int
    captured: bool  # in one CUDA graph; otherwise the calls are made one by one

    def run(self) -> Any:
        """Launch the series without waiting for it."""

    def microseconds(self) -> float:
        """Device time of one call, averaged over the series."""


class Device(Protocol):
    name: str  # of PyTorch's device
    engine_device: str  # of graphdnn's
    cache_bytes: int  # last level
    torch: Any

    def array(self, raw: Any, spec: TensorSpec) -> Any:
        """PyTorch's bytes as the array that graphdnn takes for a tensor."""

    def launches(self, calls: Sequence[Call], *, foreign: bool, capture: bool = True) -> Launches:
        """``foreign``: the calls are PyTorch's, which allocates their results; otherwise they are graphdnn's."""

    def active(self) -> Any:
        """A context in which everybody works on the stream that is timed."""

    def synchronize(self) -> None: ...

    def is_alive(self) -> bool:
        """False once an illegal access or the like has ended the context: nothing works in this process any more."""

    def release(self) -> None:
        """Give back memory that is kept for reuse."""

    def about(self) -> dict[str, Any]: ...


class CudaDevice:
    """The first GPU. PyTorch and CuPy work on one stream, which is CuPy's."""

    name = "cuda"
    engine_device = "cuda"

    def __init__(self) -> None:
        import cupy
        import torch

        self.torch: Any = torch
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        torch.zeros(1, device="cuda")
        self._cupy = cupy
        self._cupy_stream = cupy.cuda.Stream(non_blocking=True)
        self._stream = self.torch.cuda.ExternalStream(self._cupy_stream.ptr)
        self._properties = torch.cuda.get_device_properties(0)
        self.cache_bytes = int(getattr(self._properties, "L2_cache_size", 0)) or 64 * 2**20

    def array(self, raw: Any, spec: TensorSpec) -> Any:
        memory = self._cupy.cuda.UnownedMemory(raw.data_ptr(), raw.numel(), raw, 0)
        element = ELEMENTS[spec.data_type]
        strides = tuple(stride * element.bytes for stride in spec.strides)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray(spec.dims, element.numpy, pointer, strides=strides)

    @contextmanager
    def active(self) -> Iterator[None]:
        with self.torch.cuda.stream(self._stream), self._cupy_stream:
            yield

    def launches(self, calls: Sequence[Call], *, foreign: bool, capture: bool = True) -> Launches:
        if capture:
            try:
                graph = self._captured_by_torch(calls) if foreign else self._captured_by_cupy(calls)
                return _Timed(self, graph, calls, captured=True)
            except Exception:  # whatever it is, calls that cannot be captured are timed one after another
                if not self.is_alive():
                    raise
        return _Timed(self, lambda: [call() for call in calls], calls, captured=False)

    def _captured_by_torch(self, calls: Sequence[Call]) -> Call:
        """PyTorch's own capture gives the results memory that nothing else uses until the graph is gone."""
        graph = self.torch.cuda.CUDAGraph()
        with self.active():
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                kept = [call() for call in calls]
            finally:
                graph.capture_end()
        del kept
        replay: Call = graph.replay
        return replay

    def _captured_by_cupy(self, calls: Sequence[Call]) -> Call:
        """graphdnn allocates nothing, and a failed capture leaves PyTorch's allocator alone."""
        with self.active():
            self._cupy_stream.begin_capture()
            try:
                for call in calls:
                    call()
            finally:
                graph = self._cupy_stream.end_capture()
        return lambda: graph.launch(self._cupy_stream)

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def is_alive(self) -> bool:
        try:
            self.torch.cuda.synchronize()
            return bool(self.torch.zeros(1, device="cuda").cpu()[0] == 0)
        except Exception:
            return False

    def release(self) -> None:
        self.torch.cuda.empty_cache()
        self._cupy.get_default_memory_pool().free_all_blocks()

    def about(self) -> dict[str, Any]:
        return {
            "device": self.torch.cuda.get_device_name(0),
            "multiprocessors": self._properties.multi_processor_count,
            "cache_bytes": self.cache_bytes,
            "driver": _driver(),
            "cuda": self.torch.version.cuda,
            "cudnn": self.torch.backends.cudnn.version(),
            "torch": self.torch.__version__,
            "cupy": self._cupy.__version__,
        }


class _Timed:
    """Between two events. A spinning kernel in front lets the host queue everything before the first event."""

    def __init__(self, device: CudaDevice, run: Call, calls: Sequence[Call], *, captured: bool) -> None:
        self._device, self.run = device, run
        self._calls = calls  # a captured graph reads their operands without owning them
        self.count, self.captured = len(calls), captured
        torch = device.torch
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._spin = 200_000 if captured else min(4_000_000, 100_000 + 40_000 * len(calls))  # cycles

    def microseconds(self) -> float:
        torch = self._device.torch
        with self._device.active():
            torch.cuda._sleep(self._spin)
            self._start.record()
            self.run()
            self._end.record()
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) * 1e3 / self.count


def _driver() -> str:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"
