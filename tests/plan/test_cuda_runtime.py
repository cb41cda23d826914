"""What CUDA's runtime asks of CuPy, with a CuPy that is pretended."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from device_apis import H200
from legal_problems import tensor

from graphdnn import device_spec
from graphdnn.engines.host.memory import empty
from graphdnn.plan.cuda_runtime import CudaRuntime


class _Pointer:
    """CuPy's MemoryPointer over host memory that starts anywhere."""

    def __init__(self, size: int) -> None:
        self._memory = np.full(size, 0xA5, np.uint8)
        self.ptr = int(self._memory.ctypes.data)

    def __iadd__(self, offset: int) -> _Pointer:
        self.ptr += offset
        return self

    def copy_from_host_async(self, address: int, size: int) -> None:
        ctypes.memmove(self.ptr, address, size)

    def copy_to_host_async(self, address: int, size: int) -> None:
        ctypes.memmove(address, self.ptr, size)


class _Event:
    clock = 0.0
    streams: list[Any] = []

    def record(self, stream: Any) -> None:
        _Event.clock += 1.0
        _Event.streams.append(stream)
        self.time = _Event.clock

    def synchronize(self) -> None:
        pass


def test_cudas_runtime_allocates_copies_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def ndarray(shape: Any, dtype: Any, memptr: Any, strides: Any) -> Any:
        return SimpleNamespace(shape=shape, dtype=np.dtype(dtype), data=memptr, strides=strides)

    waited: list[int] = []
    cuda = SimpleNamespace(
        alloc=_Pointer,
        get_current_stream=lambda: SimpleNamespace(ptr=7),
        Event=_Event,
        Stream=SimpleNamespace(from_external=lambda bare: f"stream {bare.__cuda_stream__()[1]}"),
        get_elapsed_time=lambda start, end: end.time - start.time,
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, ndarray=ndarray))
    monkeypatch.setattr("graphdnn.cuda.driver_api.is_capturing", lambda stream: False)
    monkeypatch.setattr("graphdnn.cuda.driver_api.synchronize", waited.append)
    runtime = CudaRuntime(device_spec(H200))
    for kind, carrier in (("f32", np.float32), ("bf16", np.uint16), ("e4m3", np.uint8), ("bool", np.bool_)):
        spec = tensor(1, (3, 4), kind, strides=(7, 1), byte_alignment=256)
        array = runtime.array(spec)
        assert array.dtype == carrier
        assert array.data.ptr % 256 == 0
        assert array.strides == (7 * array.dtype.itemsize, array.dtype.itemsize)
        host, back = empty(spec), empty(spec)
        host[...] = np.arange(12).reshape(3, 4).astype(host.dtype)
        back[...] = 0
        runtime.copy_in(host, array, spec.bytes)
        runtime.copy_out(array, back, spec.bytes)
        assert back.tobytes() == host.tobytes()
    assert set(waited) == {7}
    calls: list[int] = []
    assert runtime.timings(lambda: calls.append(1), 3) == runtime.timings(lambda: calls.append(1), 3, 5) == [1e-3] * 3
    assert len(calls) == 6
    assert _Event.streams == [None] * 4 + ["stream 5"] * 4
