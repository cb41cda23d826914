"""Memory that no tensor describes: generator states, reserve spaces, packed weights. As arrays of bytes on the host, as
addresses on a device.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from graphdnn import host_memory
from graphdnn.dtypes import Array
from graphdnn.enums import Status
from graphdnn.v6.arguments import Address
from graphdnn.v6.descriptor_values import Handle
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.rules import MEMORY_KIND, MEMORY_LAYOUT, MEMORY_PLACE, MEMORY_SMALL, MEMORY_UNREADABLE


def raw(where: str, name: str, given: Any, size: int) -> Array:
    """The first ``size`` bytes behind an argument, in place. Raises when it is known to be smaller."""
    if isinstance(given, Address):
        if given.size is not None and given.size < size:
            raise CudnnError(MEMORY_SMALL.reject(where, name, f"{given.size} bytes", size=size))
        return np.ndarray((size,), np.uint8, buffer=bytes_at(where, name, given, size))
    if hasattr(given, "__cuda_array_interface__"):
        raise CudnnError(MEMORY_KIND.reject(where, name, type(given).__name__))
    if not (given.flags.c_contiguous or given.flags.f_contiguous):
        shown = f"{given.shape}, strides {given.strides}"
        raise CudnnError(MEMORY_LAYOUT.reject(where, name, shown, dims=(size,), strides=(1,)))
    if given.nbytes < size:
        raise CudnnError(MEMORY_SMALL.reject(where, name, f"{given.nbytes} bytes", size=size))
    flat = given.reshape(-1) if given.flags.c_contiguous else given.T.reshape(-1)
    return np.asarray(flat.view(np.uint8)[:size])


def bytes_at(where: str, name: str, given: Address, size: int, *, is_written: bool = False) -> memoryview:
    """``size`` bytes of memory of the host. Raises where there are none; the system is asked once for each address."""
    try:
        return host_memory.at_known(given.address, size, is_written=is_written)
    except host_memory.UnreadableError as error:
        raise CudnnError(MEMORY_UNREADABLE.reject(where, name, hex(given.address), detail=str(error))) from None


def memory(where: str, name: str, handle: Handle, given: Any, size: int) -> Any:
    """As ``raw``, where the handle's calls run."""
    if handle.device.kind == "cpu":
        return raw(where, name, given, size)
    if not isinstance(given, Address):
        interface = getattr(given, "__cuda_array_interface__", None)
        if interface is None:
            raise CudnnError(MEMORY_PLACE.reject(where, name, type(given).__name__))
        given = Address(int(interface["data"][0]), given, _contiguous_bytes(where, name, interface, size))
    if given.size is not None and given.size < size:
        raise CudnnError(MEMORY_SMALL.reject(where, name, f"{given.size} bytes", size=size))
    return Address(given.address, given.owner, size)


def _contiguous_bytes(where: str, name: str, interface: dict[str, Any], size: int) -> int:
    shape, itemsize = tuple(interface["shape"]), np.dtype(interface["typestr"]).itemsize
    strides, step = interface.get("strides"), itemsize
    for extent, stride in zip(reversed(shape), reversed(strides or ()), strict=False):  # none: packed
        if extent > 1 and stride != step:
            raise CudnnError(
                MEMORY_LAYOUT.reject(where, name, f"{shape}, strides {strides}", dims=(size,), strides=(1,))
            )
        step *= extent
    return int(prod(shape) * itemsize)


def part(memory: Any, start: int, stop: int) -> Any:
    """Some of its bytes."""
    if isinstance(memory, Address):
        return Address(memory.address + start, memory.owner, stop - start)
    return memory[start:stop]


def at_least(where: str, name: str, given: int, size: int, status: Status | None = None) -> None:
    """The size that a caller states for a buffer is enough."""
    if given < size:
        raise CudnnError(MEMORY_SMALL.reject(where, name, f"{given} bytes", status=status, size=size))


def same_memory(a: Any, b: Any) -> bool:
    """Whether two arguments begin at one address."""
    return a is b or begin_of(a) == begin_of(b)


def begin_of(given: Any) -> int:
    """The address of an argument's memory."""
    if isinstance(given, Address):
        return int(given.address)
    on_host = getattr(given, "__array_interface__", None)
    return int((given.__cuda_array_interface__ if on_host is None else on_host)["data"][0])
