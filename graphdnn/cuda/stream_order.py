"""Order between streams, without the host waiting."""

from __future__ import annotations

from graphdnn.cuda.driver_library import bindings, called


def wait_for(producer: int, consumer: int) -> None:
    """Work put into ``consumer`` from now on starts after what ``producer`` holds now."""
    event = called("cuEventCreate", int(bindings().CUevent_flags.CU_EVENT_DISABLE_TIMING))
    try:
        called("cuEventRecord", event, producer)
        called("cuStreamWaitEvent", consumer, event, 0)
    finally:
        called("cuEventDestroy", event)  # the driver keeps it until both streams have passed it


class BareStream:
    """A stream's address as an object of the CUDA stream protocol."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address
