"""Allocations on a device, as the driver knows them."""

from __future__ import annotations

from graphdnn.cuda.driver_library import bindings, called, error_of

_NOT_FOUND = 500


def allocation(address: int) -> tuple[int, int] | None:
    """(start, bytes) of the current device's allocation that holds an address; None where none of its own does."""
    status, start, size = bindings().cuMemGetAddressRange(address)
    if int(status) == _NOT_FOUND:
        return None
    if int(status):
        raise error_of("cuMemGetAddressRange", int(status))
    return int(start), int(size)


def room(address: int, wanted: int) -> int | None:
    """Bytes from an address to the end of its memory, looked at no further than ``wanted``; None outside of any.

    Memory that is mapped piece by piece (PyTorch's expandable segments) ends where its last piece does.
    """
    found = allocation(address)
    if found is None:
        return None
    end = sum(found)
    while end - address < wanted and _is_mapped(end - 1) and _is_mapped(end):
        following = allocation(end)
        if following is None:
            break
        end = sum(following)
    return end - address


def _is_mapped(address: int) -> bool:
    """Whether this is memory that was mapped to an address by cuMemMap."""
    status, handle = bindings().cuMemRetainAllocationHandle(address)
    if int(status):
        return False
    called("cuMemRelease", handle)
    return True
