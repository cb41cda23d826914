"""Pointer: one element of a VOID_PTR attribute, and the array behind it.

An ``int`` is an address, as in C: of device memory for a plan on a device, but of host memory for by-value
tensors, which are read when the plan is executed. Arrays speak for themselves. Numbers, which
only by-value tensors take, are floats and NumPy scalars: an ``int`` is never one.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.backend.rules import MEMORY_SMALL
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.host.memory import from_pointer, load
from graphdnn.enums import DataType
from graphdnn.errors import BadParam
from graphdnn.tensors import TensorSpec

FIRST_PAGE = 4096  # never mapped: what is below is a number that was taken for an address
_ARRAY_PROTOCOLS = ("__array_interface__", "__cuda_array_interface__", "__dlpack__")


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """What was given (which keeps its memory alive), its address unless it is an array, its size where known."""

    given: Any
    address: int | None = None
    size: int | None = None  # bytes

    @property
    def is_null(self) -> bool:
        return self.address == 0

    def __repr__(self) -> str:
        return type(self.given).__name__ if self.address is None else hex(self.address)


def pointer_of(value: Any) -> Pointer:
    """Raises ``ValueError`` for what is neither an address nor an array nor a number of its own type."""
    if value is None:
        return Pointer(None, 0)
    if isinstance(value, float) or any(hasattr(value, name) for name in _ARRAY_PROTOCOLS):
        return Pointer(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Pointer(value, _address(value))
    if isinstance(value, ctypes.c_void_p):
        return Pointer(value, _address(value.value or 0))
    if isinstance(value, ctypes._Pointer):
        return Pointer(value, ctypes.cast(value, ctypes.c_void_p).value or 0)
    if isinstance(value, (ctypes.Array, ctypes.Structure, ctypes._SimpleCData)):
        return Pointer(value, ctypes.addressof(value), ctypes.sizeof(value))
    raise ValueError(f"{type(value).__name__} is neither an address nor an array")


def _address(value: int) -> int:
    if not 0 <= value < 2**64:
        raise ValueError("an address has 64 bits")
    if 0 < value < FIRST_PAGE:
        raise ValueError(f"no memory lies at address {value}; a number is passed as a float or a NumPy scalar")
    return value


def binding_of(pointer: Pointer, spec: TensorSpec, *, on_device: bool = False) -> Any:
    """What ``ExecutionPlan.execute`` takes for a tensor. Addresses of device memory go through as they are."""
    if pointer.address is None:
        return pointer.given
    if pointer.size is not None and pointer.size < spec.bytes:
        size = f"{pointer.size} bytes"
        raise BadParam(MEMORY_SMALL.reject("VARIANT_PACK", spec.label(), size, size=spec.bytes))
    if on_device and not spec.is_by_value:
        return pointer.address
    return from_pointer(pointer.address, spec)


def workspace_of(pointer: Pointer, size: int, *, on_device: bool = False) -> Any:
    """What ``ExecutionPlan.execute`` takes as workspace; a bare address is taken to be large enough."""
    if pointer.address is None:
        return pointer.given
    if pointer.is_null:
        return None
    if on_device:
        return pointer.address
    known = size if pointer.size is None else pointer.size
    return np.frombuffer(memoryview((ctypes.c_char * known).from_address(pointer.address)), np.uint8)


def scalar_of(pointer: Pointer, data_type: DataType) -> float:
    """The host scalar a pointer leads to. Raises ``ValueError`` when an array is not one element of that type."""
    if isinstance(pointer.given, (float, np.generic)):
        return float(pointer.given)
    if pointer.address is None:
        given = np.asarray(pointer.given)
        if given.size != 1 or given.dtype != ELEMENTS[data_type].numpy:
            raise ValueError(f"an array of {given.size} {given.dtype} elements is not one {data_type.name}")
        return float(given.reshape(()))
    spec = TensorSpec(uid=0, data_type=data_type, dims=(1,), strides=(1,))
    if pointer.size is not None and pointer.size < spec.bytes:
        raise ValueError(f"{pointer.size} bytes hold no {data_type.name}")
    return float(load(from_pointer(pointer.address, spec), spec).reshape(()))
