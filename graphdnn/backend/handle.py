"""Handle: a device and a stream."""

from __future__ import annotations

from graphdnn.backend.rules import HANDLE_DESTROYED, HANDLE_KIND, HANDLE_NULL, HANDLE_STREAM
from graphdnn.device.profiles import DeviceSpec
from graphdnn.errors import Rejection, raise_if
from graphdnn.plan.streams import stream_address


class Handle:
    """What cudnnCreate returns."""

    __slots__ = ("destroyed", "device", "stream")

    def __init__(self, device: DeviceSpec) -> None:
        self.device = device
        self.stream = 0
        self.destroyed = False

    def __repr__(self) -> str:
        return f"<handle on {self.device.name}, stream {self.stream}{', destroyed' if self.destroyed else ''}>"


def handle_problem(handle: object, where: str, attribute: str = "handle") -> Rejection | None:
    """Why ``handle`` cannot be used, or None."""
    if handle is None:
        return HANDLE_NULL.reject(where, attribute, None)
    if not isinstance(handle, Handle):
        return HANDLE_KIND.reject(where, attribute, type(handle).__name__)
    if handle.destroyed:
        return HANDLE_DESTROYED.reject(where, attribute, handle)
    return None


def usable(handle: object, where: str) -> Handle:
    """The handle; raises when it is none, or destroyed."""
    raise_if(r for r in (handle_problem(handle, where),) if r is not None)
    assert isinstance(handle, Handle)
    return handle


def set_stream(handle: Handle, stream: object) -> None:
    """Raises for what is no stream, and for any but the default one on a host device."""
    where = "cudnnSetStream"
    number = 0 if stream is None else stream_address(stream)
    if number is None:
        expected, reason = "0, or the address of a stream", "a stream is given by its address"
        raise_if([HANDLE_STREAM.reject(where, "streamId", stream, expected=expected, reason=reason)])
    if number and handle.device.kind == "cpu":
        reason = f"{handle.device.name} has no streams: calls finish before they return"
        raise_if([HANDLE_STREAM.reject(where, "streamId", stream, expected="stream 0", reason=reason)])
    assert number is not None
    handle.stream = number
