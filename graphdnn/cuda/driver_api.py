"""The CUDA driver as the engines use it: devices, contexts, modules, launches, streams, pointers.

Primary contexts are retained, so CuPy, PyTorch and this library see the same memory and the same streams.
Streams and addresses are integers, as those libraries give them; stream 0 is the default stream.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from graphdnn.cuda import tensor_map
from graphdnn.cuda.driver_library import (
    available,
    bindings,
    called,
    driver_functions,
    driver_version,
    error_of,
    launch_function,
)
from graphdnn.cuda.errors import CudaError
from graphdnn.cuda.kernel_launch import PreparedLaunch, aligned_buffer
from graphdnn.cuda.kernel_module import Module, load
from graphdnn.errors import NotSupported

_INVALID_VALUE, _INVALID_CONTEXT = 1, 201
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_DEFAULT_STREAMS = (0, 1, 2)  # of the context, and of the thread
_contexts: dict[int, tuple[Any, int]] = {}  # primary ones, by ordinal: the object, and its number
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
    context, number = _primary(ordinal)
    (status,) = bindings().cuCtxSetCurrent(context)
    if int(status):
        raise error_of("cuCtxSetCurrent", int(status))
    return number


def context_of(ordinal: int) -> int:
    """The device's primary context, which is there from the first time on."""
    return _primary(ordinal)[1]


def _primary(ordinal: int) -> tuple[Any, int]:
    found = _contexts.get(ordinal)
    if found is None:
        with _guard:
            context = called("cuDevicePrimaryCtxRetain", called("cuDeviceGet", ordinal))
            found = _contexts[ordinal] = context, int(context)
    return found


def stream_device(stream: int) -> int:
    """The ordinal of the device that a stream belongs to; the current one's for the default streams."""
    if stream in _DEFAULT_STREAMS:
        return current_device()
    context = called("cuStreamGetCtx", stream)
    for ordinal, (_, number) in list(_contexts.items()):
        if number == int(context):
            return ordinal
    called("cuCtxPushCurrent", context)
    try:
        return current_device()
    finally:
        called("cuCtxPopCurrent")


def adopt(ordinal: int) -> bool:
    """Make the device current in a thread that has met none yet; one that has keeps its own. True for the first."""
    is_new = not int(called("cuCtxGetCurrent"))
    if is_new:
        make_current(ordinal)
    return is_new


def look_up() -> None:
    """Find the functions that launches call, beforehand; what a driver lacks is said where it is needed."""
    for find in (launch_function, tensor_map.functions):
        with suppress(NotSupported):
            find()


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
    ordinal = ctypes.c_int(-1)
    status = _pointer_attribute()(ctypes.byref(ordinal), _DEVICE_ORDINAL, ctypes.c_uint64(address))
    if status == _INVALID_VALUE:
        return None
    if status:
        raise error_of("cuPointerGetAttribute", status)
    return ordinal.value if ordinal.value >= 0 else None


@cache
def _pointer_attribute() -> Any:
    """Through ctypes: some releases of the bindings answer 0 for the memory of every device."""
    return driver_functions("cuPointerGetAttribute", since="4.0")[0]


__all__ = [
    "CudaError", "Module", "PreparedLaunch", "adopt", "aligned_buffer", "available", "beside_captures", "context_of",
    "current_device", "device_count", "driver_version", "error_of", "is_capturing", "load", "look_up",
    "make_current", "memory_info", "pointer_device", "stream_device", "synchronize",
]  # fmt: skip
