"""Streams, in every form that callers have them, as the addresses that the driver takes."""

from __future__ import annotations

import ctypes
from typing import Any

from graphdnn.enums import shown
from graphdnn.errors import BadParam
from graphdnn.rules import Rule
from graphdnn.scalars import whole

KIND = Rule(
    id="execute.stream_kind",
    expected="an address, or a stream of CuPy, PyTorch or cuda.core",
    reason="work is put into a stream by its address: `ptr`, `cuda_stream`, or what `__cuda_stream__()` gives",
    fix="pass the stream object, its address, or None for the current stream",
)


def stream_number(stream: Any) -> int:
    """The address of a stream. Raises ``BadParam`` for what is none."""
    number = stream if type(stream) is int else getattr(stream, "ptr", None)  # most are CuPy's
    if type(number) is int and number >= 0:
        return number
    address = stream_address(stream)
    if address is None:
        raise BadParam(KIND.reject("EXECUTION_PLAN", "stream", f"{type(stream).__name__} {shown(stream)}"))
    return address


def stream_address(stream: Any) -> int | None:
    """As CuPy (``ptr``), PyTorch (``cuda_stream``), the CUDA stream protocol (``__cuda_stream__``), ctypes or a bare
    number give it; None for what is no stream.
    """
    try:
        number = getattr(stream, "ptr", getattr(stream, "cuda_stream", stream))
        if isinstance(number, ctypes.c_void_p):
            number = number.value or 0
        elif number is stream and hasattr(stream, "__cuda_stream__"):
            number = stream.__cuda_stream__()[1]  # (version of the protocol, address)
        address = whole(number)
    except Exception:  # protocols are others' code: what raises is no stream
        return None
    return address if 0 <= address < 2**64 else None
