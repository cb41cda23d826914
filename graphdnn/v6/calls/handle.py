"""Versions, handles, streams, names of statuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.enums import Status
from graphdnn.errors import GraphdnnError
from graphdnn.plan.streams import stream_address
from graphdnn.v6.descriptor_values import Handle
from graphdnn.v6.enums import CONSTANTS, cudnnErrQueryMode_t, cudnnStatus_t, libraryPropertyType
from graphdnn.v6.errors import CudnnError, legacy_status
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import STREAM, STREAM_KIND

VERSION = (6, 0, 21)  # of the interface whose names and numbers this API has


@implements("cudnnGetVersion")
def get_version() -> int:
    return VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2]


@implements("cudnnGetCudartVersion")
def get_cudart_version() -> int:
    """0: calls run on the host, without a CUDA runtime."""
    return 0


@implements("cudnnGetErrorString")
def get_error_string(status: Any) -> str:
    """The status' name; also for the statuses of the v8 API, which have other numbers."""
    if isinstance(status, Status):
        return status.c_name
    named = CONSTANTS.get(status) if isinstance(status, str) else status
    if not isinstance(named, (int, np.integer)) or isinstance(named, bool):
        return "CUDNN_UNKNOWN_STATUS"
    known = cudnnStatus_t._value2member_map_.get(int(named))
    return "CUDNN_UNKNOWN_STATUS" if known is None else known.name


@implements("cudnnGetProperty")
def get_property(type: libraryPropertyType) -> int:
    return VERSION[type]


_device: list[DeviceSpec | str | None] = [None]


def use(device: DeviceSpec | str | None) -> None:
    """Choose the device of handles that are created from now on, in every thread.

    Args:
        device: "cuda", "cuda:1", "cpu", the name of a profile, or None for the default device.

    Raises:
        BadParam: The name is unknown. Whether a GPU is present is asked when a handle is created.
    """
    if isinstance(device, str) and device.partition(":")[0].lower() != "cuda":
        device_spec(device)
    _device[0] = device


@implements("cudnnCreate")
def create() -> Handle:
    """A handle on the device that ``use`` names. Without a driver or device: CUDNN_STATUS_NOT_INITIALIZED."""
    try:
        return Handle(device_spec(_device[0]))
    except GraphdnnError as error:
        absent = (cudnnStatus_t.CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING, cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED)
        if legacy_status(error.rejections[0].status) not in absent:
            raise
        raise CudnnError([replace(r, status=Status.NOT_INITIALIZED) for r in error.rejections]) from error


@implements("cudnnDestroy")
def destroy(handle: Handle) -> None:
    handle.destroyed = True


@implements("cudnnSetStream")
def set_stream(handle: Handle, stream: Any) -> None:
    number = 0 if stream is None else stream_address(stream)
    if number is None:
        raise CudnnError(STREAM_KIND.reject("cudnnSetStream", "streamId", stream))
    if handle.device.kind == "cuda":
        handle.stream = number
    elif number != 0:
        raise CudnnError(STREAM.reject("cudnnSetStream", "streamId", stream))


@implements("cudnnGetStream")
def get_stream(handle: Handle) -> int:
    return handle.stream


@implements("cudnnQueryRuntimeError")
def query_runtime_error(handle: Handle, mode: cudnnErrQueryMode_t) -> tuple[cudnnStatus_t, None]:
    """(status, tag): success, for calls on the host raise their errors where they happen. The tag is reserved."""
    return cudnnStatus_t.CUDNN_STATUS_SUCCESS, None
