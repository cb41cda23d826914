"""The CUDA driver as the engines use it: devices, contexts, modules, launches, streams, pointers.

Primary contexts are retained, so CuPy, PyTorch and this library see the same memory and the same streams.
Streams and addresses are integers, as those libraries give them; stream 0 is the default stream.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphdnn.cuda.failure import CudaError
from graphdnn.cuda.launch import PreparedLaunch, aligned_buffer
from graphdnn.cuda.library import available, bindings, called, driver_version, error_of
from graphdnn.cuda.module import Module, load

_INVALID_VALUE, _INVALID_CONTEXT = 1, 201
_contexts: dict[int, Any] = {}
_numbers: dict[int, int] = {}  # of these contexts
_guard = threading.Lock()


def device_count() -> int:
    return int(called("cuDeviceGetCount"))


def current_device() -> int:
    """The ordinal of the device whose context is current in this thread; 0, the runtime's default, when none is."""
    status, device = bindings().cuCtxGetDevice()
    if int(status) == _INVALID_CONTEXT:
        return 0
    if int(status):
        raise error_of("cuCtxGetDevice", int(status))
    return int(device)


def make_current(ordinal: int) -> int:
    """Make the device's primary context this thread's own. A microsecond, once the context is there. Returns it."""
    context = _contexts.get(ordinal)
    if context is None:
        with _guard:
            context = called("cuDevicePrimaryCtxRetain", called("cuDeviceGet", ordinal))
            _contexts[ordinal] = context
    (status,) = bindings().cuCtxSetCurrent(context)
    if int(status):
        raise error_of("cuCtxSetCurrent", int(status))
    number = _numbers[ordinal] = int(context)
    return number


def context_of(ordinal: int) -> int:
    """The device's primary context, if plans have met it; else 0."""
    return _numbers.get(ordinal, 0)


def adopt(ordinal: int) -> None:
    """Make the device current in a thread that has met none yet; one that has keeps its own."""
    if not int(called("cuCtxGetCurrent")):
        make_current(ordinal)


def memory_info() -> tuple[int, int]:
    """(free, all) bytes on the current device."""
    free, total = called("cuMemGetInfo")
    return int(free), int(total)


def synchronize(stream: int = 0) -> None:
    """Wait for a stream. Raises ``CudaError`` for what a kernel in it did wrong."""
    called("cuStreamSynchronize", stream)


def is_capturing(stream: int = 0) -> bool:
    """Whether what is put into this stream is recorded into a CUDA graph."""
    return bool(int(called("cuStreamIsCapturing", stream)))


@contextmanager
def beside_captures() -> Iterator[None]:
    """Inside, this thread may allocate although it captures a stream: what it does is no part of the graph."""
    mode = bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = called("cuThreadExchangeStreamCaptureMode", mode)
    try:
        yield
    finally:
        called("cuThreadExchangeStreamCaptureMode", before)


def pointer_device(address: int) -> int | None:
    """The ordinal of the device that an address belongs to; None for memory that no device can reach."""
    driver = bindings()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, ordinal = driver.cuPointerGetAttribute(attribute, address)
    if int(status) == _INVALID_VALUE:
        return None
    if int(status):
        raise error_of("cuPointerGetAttribute", int(status))
    return int(ordinal) if int(ordinal) >= 0 else None


__all__ = [
    "CudaError", "Module", "PreparedLaunch", "adopt", "aligned_buffer", "available",
    "beside_captures", "context_of", "current_device",
    "device_count", "driver_version", "is_capturing", "load", "make_current", "memory_info", "pointer_device",
    "synchronize",
]  # fmt: skip
