"""Allocations on a device, as the driver knows them."""

from __future__ import annotations

from graphdnn.cuda.library import called


def allocation(address: int) -> tuple[int, int]:
    """(start, bytes) of the allocation that holds an address of device memory."""
    start, size = called("cuMemGetAddressRange", address)
    return int(start), int(size)
