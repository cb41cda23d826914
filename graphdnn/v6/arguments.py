"""Arguments: one reader for each kind of parameter in the function table.

A reader takes what the caller passed and returns what an implementation works with; it raises
``CudnnError`` for what is null, destroyed, not set or of another kind. So every function refuses
the same mistake with the same rule, and implementations only see values that are there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from graphdnn import host_memory
from graphdnn.enums import Status
from graphdnn.errors import Rejection
from graphdnn.plan.binding_validation import view_of
from graphdnn.scalars import real
from graphdnn.text_format import meant
from graphdnn.v6 import enums
from graphdnn.v6.descriptor_values import DESCRIPTORS, Descriptor, Handle
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.functions import Function, Parameter
from graphdnn.v6.rules import DESTROYED, ENUM, KIND, MEMORY_KIND, NULL, NUMBER, SCALAR, UNSET

Reader = Callable[[Any], Any]

# Descriptors that a function writes: the first parameter, by how the function's name begins, and these.
_MAY_BE_UNSET = ("cudnnSet", "cudnnDestroy", "cudnnDerive", "cudnnRestore")
_READ_ALL_THE_SAME = ("cudnnSetPersistentRNNPlan",)
_WRITTEN = {
    "cudnnSetRNNDescriptor_v6": "rnnDesc",
    "cudnnGetRNNLinLayerMatrixParams": "linLayerMatDesc",
    "cudnnGetRNNLinLayerBiasParams": "linLayerBiasDesc",
}
_READ_DEFAULTS = ("cudnnGetConvolutionMathType", "cudnnGetConvolutionGroupCount")
_STATUSES = {"cudnnDestroy": Status.NOT_INITIALIZED, "cudnnGetProperty": Status.INVALID_VALUE}  # others: the rule's
_UNKNOWN_ALGORITHM = {
    "cudnnCTCLoss": Status.NOT_SUPPORTED,
    "cudnnGetCTCLossWorkspaceSize": Status.NOT_SUPPORTED,
}  # where an enumerator that does not exist has a status of its own
_NO_NUMBERS = "OSUMm"  # kinds of arrays whose memory has objects, text or times
_FIRST = host_memory.FIRST
_REFERENCE = type(ctypes.byref(ctypes.c_float()))  # ctypes has no name for it
_POINTERS = (ctypes.c_void_p, ctypes._Pointer, ctypes.Array, _REFERENCE)


class Address:
    """A raw host address; ``owner`` keeps the memory alive where that is known, ``size`` counts bytes."""

    __slots__ = ("address", "owner", "size")

    def __init__(self, address: int, owner: Any = None, size: int | None = None) -> None:
        self.address = address
        self.owner = owner
        self.size = size


def readers_of(function: Function) -> tuple[Reader, ...]:
    """A reader for each parameter that a caller passes."""
    return tuple(_reader(function.name, p, first=i == 0) for i, p in enumerate(function.inputs))


def _reader(where: str, parameter: Parameter, *, first: bool) -> Reader:
    kind = parameter.kind
    if kind == "Handle":
        return _handle(where, parameter.name)
    if kind in DESCRIPTORS:
        begins = first and where.startswith(_MAY_BE_UNSET) and where not in _READ_ALL_THE_SAME
        written = begins or _WRITTEN.get(where) == parameter.name
        may_be_unset = written or where in _READ_DEFAULTS
        read = _descriptor(where, parameter.name, DESCRIPTORS[kind], may_be_unset=may_be_unset)
        return (lambda value: None if value is None else read(value)) if parameter.nullable else read
    if kind == "TensorDescriptor[]":
        return _descriptors(where, parameter.name)
    if kind in _ENUMS:
        return _enum(where, parameter.name, _ENUMS[kind])
    if kind in ("int", "size"):
        return _integer(where, parameter.name)
    if kind == "float":
        return _real(where, parameter.name)
    if kind == "ints":
        return _integers(where, parameter.name)
    if kind == "scalar":
        return _scalar(where, parameter.name)
    if kind in ("data", "inout", "out", "workspace"):
        return _memory(where, parameter.name, nullable=parameter.nullable)
    return lambda value: value  # kinds of functions that are not implemented, and streams


_ENUMS: dict[str, type[IntEnum]] = {
    enum.__name__.removeprefix("cudnn").removesuffix("_t"): enum for enum in enums.ENUMS
}


def _handle(where: str, name: str) -> Reader:
    def read(value: Any) -> Handle:
        if type(value) is Handle and not value.destroyed:
            return value
        expected, status = "what cudnnCreate returned", _STATUSES.get(where)
        if value is None:
            raise CudnnError(NULL.reject(where, name, None, status=status, expected=expected))
        if isinstance(value, Handle):
            raise CudnnError(DESTROYED.reject(where, name, value, status=status, expected="a handle"))
        raise CudnnError(
            KIND.reject(where, name, type(value).__name__, status=status, expected=expected, made=expected)
        )

    return read


def _descriptor(where: str, name: str, wanted: type[Descriptor], *, may_be_unset: bool) -> Reader:
    def read(value: Any) -> Descriptor:
        if type(value) is wanted and not value.destroyed and (may_be_unset or value.value is not None):
            return value
        raise CudnnError(_descriptor_problem(where, name, wanted, value))

    return read


def _descriptors(where: str, name: str) -> Reader:
    def read(value: Any) -> tuple[Descriptor, ...]:
        if value is None:
            raise CudnnError(NULL.reject(where, name, None, expected="an array of tensor descriptors"))
        if not isinstance(value, Sequence):
            given = type(value).__name__
            expected = "an array of tensor descriptors"
            raise CudnnError(KIND.reject(where, name, given, expected=expected, made=expected))
        kind = DESCRIPTORS["TensorDescriptor"]
        for i, v in enumerate(value):
            if type(v) is not kind or v.destroyed or v.value is None:
                raise CudnnError(_descriptor_problem(where, f"{name}[{i}]", kind, v))
        return tuple(value)

    return read


def _descriptor_problem(where: str, name: str, wanted: type[Descriptor], value: Any) -> Rejection:
    expected = f"a {wanted.c_type}"
    if value is None:
        return NULL.reject(where, name, None, expected=expected)
    if type(value) is not wanted:
        given = value.c_type if isinstance(value, Descriptor) else type(value).__name__
        made = f"one that {wanted.c_type.replace('cudnn', 'cudnnCreate', 1).removesuffix('_t')}() returned"
        return KIND.reject(where, name, given, expected=expected, made=made)
    if value.destroyed:
        return DESTROYED.reject(where, name, value, expected=expected)
    return UNSET.reject(where, name, value)


def _enum(where: str, name: str, enum: type[IntEnum]) -> Reader:
    members, values = enum.__members__, {int(m): m for m in enum}

    def read(value: Any) -> IntEnum:
        if type(value) is enum:
            return value
        found = members.get(value) if isinstance(value, str) else None
        if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, IntEnum)):
            found = values.get(int(value))
        if found is None:
            status, names = _STATUSES.get(where) or _UNKNOWN_ALGORITHM.get(where), ", ".join(members)
            is_of_another = isinstance(value, IntEnum)
            kind = type(value).__name__
            reason = f"it belongs to {kind}: are two arguments exchanged?" if is_of_another else "it has no such member"
            near = meant(value, [*members]) if isinstance(value, str) else ""
            raise CudnnError(
                ENUM.reject(
                    where, name, value, status=status, enum=enum.__name__, members=names, near=near, reason=reason
                )
            )
        return found

    return read


def _integer(where: str, name: str) -> Reader:
    def read(value: Any) -> int:
        found = value.value if isinstance(value, ctypes._SimpleCData) else value
        if type(found) is int or isinstance(found, (np.integer, IntEnum)):
            if _is_of_c(int(found)):
                return int(found)
            raise CudnnError(NUMBER.reject(where, name, found, expected="an integer of 64 bits"))
        raise CudnnError(NUMBER.reject(where, name, value, expected="an integer"))

    return read


def _real(where: str, name: str) -> Reader:
    def read(value: Any) -> float:
        if isinstance(value, ctypes._SimpleCData):
            value = value.value
        try:
            return real(value)
        except ValueError:
            raise CudnnError(NUMBER.reject(where, name, value, expected="a number")) from None

    return read


def _integers(where: str, name: str) -> Reader:
    def read(value: Any) -> tuple[int, ...]:
        if value is None:
            raise CudnnError(NULL.reject(where, name, None, expected="an array of integers"))
        found = _entries(value)
        if found is None or not all(isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in found):
            raise CudnnError(NUMBER.reject(where, name, value, expected="an array of integers"))
        if not all(_is_of_c(int(v)) for v in found):
            raise CudnnError(NUMBER.reject(where, name, value, expected="integers of 64 bits"))
        return tuple(int(v) for v in found)

    return read


def _is_of_c(value: int) -> bool:
    """No type of C holds more; and Python does not print integers of any length."""
    return -(2**63) <= value < 2**64


def _entries(value: Any) -> tuple[Any, ...] | None:
    """The entries of an array of integers; of one integer, itself. None for what has no length, as a C pointer."""
    if isinstance(value, (int, np.integer)):
        return (value,)
    try:
        len(value)
        return tuple(value)
    except Exception:  # whatever an object of the caller's raises, it is no array
        return None


def _scalar(where: str, name: str) -> Reader:
    def read(value: Any) -> float:
        if type(value) is float:
            return value
        if value is None:
            raise CudnnError(NULL.reject(where, name, None, expected="a number"))
        try:
            return _pointed_at(value)
        except ValueError as error:
            raise CudnnError(SCALAR.reject(where, name, type(value).__name__, detail=str(error))) from None

    return read


def _pointed_at(value: Any) -> float:
    """The number that a scalar argument stands for. Raises ``ValueError`` when it stands for none."""
    if isinstance(value, _REFERENCE):
        kind: Any = type(value._obj)  # type: ignore[attr-defined]
        element = kind._type_ if issubclass(kind, ctypes.Array) else kind
        value = ctypes.cast(value, ctypes.POINTER(element))  # with byref's offset
    if isinstance(value, ctypes._Pointer) and value:
        place = ctypes.cast(value, ctypes.c_void_p).value or 0
        host_memory.check_known(place, ctypes.sizeof(value._type_))
        value = value.contents
    if isinstance(value, ctypes.Array) and len(value) == 1:
        value = value[0]
    if isinstance(value, (ctypes.c_float, ctypes.c_double)):
        value = value.value
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    return real(value)


def _memory(where: str, name: str, *, nullable: bool) -> Reader:
    def read(value: Any) -> Any:
        kind = type(value)
        if kind is int and _FIRST <= value < 2**64:
            return Address(value)
        if kind is np.ndarray and value.dtype.kind in _NO_NUMBERS:
            raise CudnnError(MEMORY_KIND.reject(where, name, f"an array of {value.dtype}"))
        if kind is np.ndarray or kind.__module__.startswith("cupy"):  # asking these for more costs microseconds
            return value
        if value is None and nullable:
            return None
        found = _address_of(value) if value is None or isinstance(value, (int, *_POINTERS)) else _array(value)
        if isinstance(found, Address) and not found.address:
            if nullable:
                return None
            raise CudnnError(NULL.reject(where, name, None, expected="memory for the tensor"))
        if found is None:
            raise CudnnError(MEMORY_KIND.reject(where, name, type(value).__name__))
        return found

    return read


def _address_of(value: Any) -> Address | None:
    if value is None or isinstance(value, bool):
        return None if value is not None else Address(0)
    if isinstance(value, int):
        return Address(value) if value == 0 or _FIRST <= value < 2**64 else None
    if isinstance(value, ctypes.Array):
        return Address(ctypes.addressof(value), value, ctypes.sizeof(value))
    return Address(ctypes.cast(value, ctypes.c_void_p).value or 0, value)


def _array(value: Any) -> Any:
    """A NumPy array of the memory; what lies on a device stays as it is."""
    try:
        if hasattr(value, "__cuda_array_interface__"):
            return value
        found = view_of(value)
        return None if found.dtype.kind in _NO_NUMBERS else found
    except Exception:  # protocols are others' code: what raises has no memory to offer
        return None
