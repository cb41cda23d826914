"""Order between streams, without the host waiting."""

from __future__ import annotations

import sys
from typing import Any

from graphdnn.cuda.driver_api import is_capturing
from graphdnn.cuda.driver_library import bindings, called


def wait_for(producer: int, consumer: int) -> None:
    """Work put into ``consumer`` from now on starts after what ``producer`` holds now."""
    event = called("cuEventCreate", int(bindings().CUevent_flags.CU_EVENT_DISABLE_TIMING))
    try:
        called("cuEventRecord", event, producer)
        called("cuStreamWaitEvent", consumer, event, 0)
    finally:
        called("cuEventDestroy", event)  # the driver keeps it until both streams have passed it


def order(producer: int, consumer: int) -> None:
    """As ``wait_for``, where a wait is needed.

    One stream is in order. A stream that is being captured cannot wait: the graph is launched later, and its caller
    orders the launch.
    """
    if producer != consumer and not is_capturing(consumer):
        wait_for(producer, consumer)


def stream_of_torch(device: int) -> int:
    """PyTorch's current stream of a device.

    PyTorch's generated code calls the first function; the second one is public, and slower.
    """
    torch: Any = sys.modules["torch"]
    try:
        return int(torch._C._cuda_getCurrentRawStream(device))
    except AttributeError:
        return int(torch.cuda.current_stream(device).cuda_stream)


class BareStream:
    """A stream's address as an object of the CUDA stream protocol."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address
