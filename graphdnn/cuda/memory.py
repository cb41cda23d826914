"""Allocations on a device, as the driver knows them."""

from __future__ import annotations

from graphdnn.cuda.library import bindings, error_of

_NOT_FOUND = 500


def allocation(address: int) -> tuple[int, int] | None:
    """(start, bytes) of the current device's allocation that holds an address; None where none of its own does."""
    status, start, size = bindings().cuMemGetAddressRange(address)
    if int(status) == _NOT_FOUND:
        return None
    if int(status):
        raise error_of("cuMemGetAddressRange", int(status))
    return int(start), int(size)
