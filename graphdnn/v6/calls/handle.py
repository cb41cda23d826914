"""Versions, handles, streams, names of statuses."""

from __future__ import annotations

from typing import Any

from graphdnn.enums import Status
from graphdnn.machine import device_spec
from graphdnn.v6.enums import CONSTANTS, cudnnErrQueryMode_t, cudnnStatus_t, libraryPropertyType
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.objects import Handle
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import STREAM

VERSION = (6, 0, 21)  # of the interface whose names and numbers this face has


@implements("cudnnGetVersion")
def get_version() -> int:
    return VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2]


@implements("cudnnGetCudartVersion")
def get_cudart_version() -> int:
    """0: calls run on the host, without a CUDA runtime."""
    return 0


@implements("cudnnGetErrorString")
def get_error_string(status: Any) -> str:
    """The status' name; also for the statuses of the v8 face, which have other numbers."""
    if isinstance(status, Status):
        return status.c_name
    named = CONSTANTS.get(status) if isinstance(status, str) else status
    try:
        return cudnnStatus_t(named).name  # type: ignore[arg-type]  # what is no number is a ValueError
    except ValueError:
        return "CUDNN_UNKNOWN_STATUS"


@implements("cudnnGetProperty")
def get_property(type: libraryPropertyType) -> int:
    return VERSION[type]


@implements("cudnnCreate")
def create() -> Handle:
    return Handle(device_spec("cpu"))


@implements("cudnnDestroy")
def destroy(handle: Handle) -> None:
    handle.destroyed = True


@implements("cudnnSetStream")
def set_stream(handle: Handle, stream: Any) -> None:
    number = getattr(stream, "ptr", 0 if stream is None else stream)
    if number != 0:
        raise CudnnError(STREAM.reject("cudnnSetStream", "streamId", stream))


@implements("cudnnGetStream")
def get_stream(handle: Handle) -> int:
    return handle.stream


@implements("cudnnQueryRuntimeError")
def query_runtime_error(handle: Handle, mode: cudnnErrQueryMode_t) -> tuple[cudnnStatus_t, None]:
    """(status, tag): success, for calls on the host raise their errors where they happen. The tag is reserved."""
    return cudnnStatus_t.CUDNN_STATUS_SUCCESS, None
