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

from graphdnn import host_memory
from graphdnn.backend.rules import MEMORY_SMALL, MEMORY_UNREADABLE
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.host.memory import from_pointer, load
from graphdnn.enums import DataType
from graphdnn.errors import BadParam
from graphdnn.host_memory import UnreadableError
from graphdnn.plan.binding_validation import view_of
from graphdnn.scalars import element
from graphdnn.tensors import TensorSpec

_NUMBERS = "a number is passed as a float or a NumPy scalar"
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
    if isinstance(value, float) or _is_array(value):
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


def _is_array(value: Any) -> bool:
    """Whether an object offers its memory; one whose own code fails at the question does not."""
    try:
        return any(hasattr(value, name) for name in _ARRAY_PROTOCOLS)
    except Exception:
        return False


def _address(value: int) -> int:
    if not 0 <= value < 2**64:
        raise ValueError("an address has 64 bits")
    if 0 < value < host_memory.FIRST:
        raise ValueError(f"no memory lies at address {value}; {_NUMBERS}")
    return value


def binding_of(pointer: Pointer, spec: TensorSpec, *, is_output: bool = False, on_device: bool = False) -> Any:
    """What ``ExecutionPlan.execute`` takes for a tensor. Addresses of device memory go through as they are."""
    if pointer.address is None:
        return pointer.given
    if pointer.size is not None and pointer.size < spec.bytes:
        size = f"{pointer.size} bytes"
        raise BadParam(MEMORY_SMALL.reject("VARIANT_PACK", spec.label(), size, size=spec.bytes))
    if on_device and not spec.is_by_value:
        return pointer.address
    try:
        return from_pointer(pointer.address, spec, is_written=is_output)
    except UnreadableError as error:
        raise _unreadable(spec.label(), pointer, spec.bytes, error) from None


def workspace_of(pointer: Pointer, size: int, *, on_device: bool = False) -> Any:
    """What ``ExecutionPlan.execute`` takes as workspace; a bare address is taken to be large enough."""
    if pointer.address is None:
        return pointer.given
    if pointer.is_null:
        return None
    if on_device:
        return pointer.address
    known = size if pointer.size is None else pointer.size
    try:
        return np.frombuffer(host_memory.at(pointer.address, known, is_written=True), np.uint8)
    except UnreadableError as error:
        raise _unreadable("workspace", pointer, known, error) from None


def _unreadable(label: str, pointer: Pointer, size: int, error: UnreadableError) -> BadParam:
    return BadParam(MEMORY_UNREADABLE.reject("VARIANT_PACK", label, pointer, size=size, detail=str(error)))


def scalar_of(pointer: Pointer, data_type: DataType) -> int | float:
    """The host scalar a pointer leads to, integers exactly.

    Raises ``ValueError`` when an array is not one element of that type, and when there is no memory at an address.
    """
    if isinstance(pointer.given, float):
        return pointer.given
    if isinstance(pointer.given, np.generic):
        return element(pointer.given)
    if pointer.address is None:
        try:
            given = view_of(pointer.given)
        except Exception as error:  # protocols are others' code: whatever it raises is the reason
            raise ValueError(f"{type(pointer.given).__name__}: {error}") from None
        if given.size != 1 or given.dtype != ELEMENTS[data_type].numpy:
            raise ValueError(f"an array of {given.size} {given.dtype} elements is not one {data_type.name}")
        return element(given.reshape(())[()])
    spec = TensorSpec(uid=0, data_type=data_type, dims=(1,), strides=(1,))
    if pointer.size is not None and pointer.size < spec.bytes:
        raise ValueError(f"{pointer.size} bytes hold no {data_type.name}")
    try:
        return element(load(from_pointer(pointer.address, spec), spec).reshape(())[()])
    except UnreadableError as error:
        raise ValueError(f"{error}; {_NUMBERS}") from None
