"""Memory that no tensor describes: generator states, reserve spaces, packed weights. As arrays of bytes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from graphdnn.dtypes import Array
from graphdnn.enums import Status
from graphdnn.v6.arguments import Address
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.rules import HOST_ONLY, MEMORY_LAYOUT, MEMORY_SMALL


def raw(where: str, name: str, given: Any, size: int) -> Array:
    """The first ``size`` bytes behind an argument, in place. Raises when it is known to be smaller."""
    if isinstance(given, Address):
        if given.size is not None and given.size < size:
            raise CudnnError(MEMORY_SMALL.reject(where, name, f"{given.size} bytes", size=size))
        memory = (ctypes.c_char * size).from_address(given.address)
        return np.ndarray((size,), np.uint8, buffer=memoryview(memory))
    if hasattr(given, "__cuda_array_interface__"):
        raise CudnnError(HOST_ONLY.reject(where, name, type(given).__name__))
    if not (given.flags.c_contiguous or given.flags.f_contiguous):
        shown = f"{given.shape}, strides {given.strides}"
        raise CudnnError(MEMORY_LAYOUT.reject(where, name, shown, dims=(size,), strides=(1,)))
    if given.nbytes < size:
        raise CudnnError(MEMORY_SMALL.reject(where, name, f"{given.nbytes} bytes", size=size))
    flat = given.reshape(-1) if given.flags.c_contiguous else given.T.reshape(-1)
    return np.asarray(flat.view(np.uint8)[:size])


def at_least(where: str, name: str, given: int, size: int, status: Status | None = None) -> None:
    """The size that a caller states for a buffer is enough."""
    if given < size:
        raise CudnnError(MEMORY_SMALL.reject(where, name, f"{given} bytes", status=status, size=size))


def same_memory(a: Any, b: Any) -> bool:
    """Whether two arguments begin at one address."""
    return a is b or _begin(a) == _begin(b)


def _begin(given: Any) -> int:
    return int(given.address if isinstance(given, Address) else given.__array_interface__["data"][0])
