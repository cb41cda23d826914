"""Elements: how each attribute type is read from Python values and given back.

One row per attribute type that holds plain values; descriptors and handles are
objects of their own and looked at in ``descriptor``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np

from graphdnn import enums, host_memory
from graphdnn.attribute_names import AttributeName
from graphdnn.backend.data_pointers import Pointer, pointer_of
from graphdnn.enums import AttributeType as T
from graphdnn.enums import CEnum, shown
from graphdnn.scalars import real
from graphdnn.spec import signed


@dataclass(frozen=True, slots=True)
class Element:
    """``read`` makes the value of an element, ``give`` an element of a value; both raise ``ValueError``."""

    expected: str
    read: Callable[[Any], Any]
    give: Callable[[Any], Any]
    dtype: np.dtype[Any] | None = None  # of a NumPy or ctypes array of these


ENUM_OF: dict[T, type[CEnum]] = {
    T.DATA_TYPE: enums.DataType,
    T.CONVOLUTION_MODE: enums.ConvolutionMode,
    T.HEUR_MODE: enums.HeurMode,
    T.KNOB_TYPE: enums.KnobType,
    T.NAN_PROPOGATION: enums.NanPropagation,
    T.NUMERICAL_NOTE: enums.NumericalNote,
    T.LAYOUT_TYPE: enums.LayoutType,
    T.ATTRIB_NAME: AttributeName,
    T.POINTWISE_MODE: enums.PointwiseMode,
    T.GENSTATS_MODE: enums.GenStatsMode,
    T.BN_FINALIZE_STATS_MODE: enums.BnFinalizeStatsMode,
    T.REDUCTION_OPERATOR_TYPE: enums.ReductionOperator,
    T.BEHAVIOR_NOTE: enums.BehaviorNote,
    T.TENSOR_REORDERING_MODE: enums.TensorReordering,
    T.RESAMPLE_MODE: enums.ResampleMode,
    T.PADDING_MODE: enums.PaddingMode,
    T.SIGNAL_MODE: enums.SignalMode,
    T.NORM_MODE: enums.NormMode,
    T.NORM_FWD_PHASE: enums.NormPhase,
    T.RNG_DISTRIBUTION: enums.RngDistribution,
    T.MOE_GROUPED_MATMUL_MODE: enums.MoeGroupedMatmulMode,
    T.RESHAPE_MODE: enums.ReshapeMode,
    T.OPERATIONGRAPH_MODE: enums.OperationGraphMode,
    T.CUDA_GRAPH_RETENTION: enums.CudaGraphRetention,
}


_int64 = signed(64)


def _whole(value: Any) -> int:
    if isinstance(value, Fraction) and value.denominator == 1:
        return value.numerator
    if not isinstance(value, int):
        raise ValueError(f"{value} is not an integer; read it with another type")
    return int(value)


def _double(value: Any) -> float:
    if not isinstance(value, (Real, np.number)):
        raise ValueError(f"{type(value).__name__} is not a number here")
    return real(value)


def _float(value: Any) -> float:
    """What a C ``float`` keeps of the number."""
    number = _double(value)
    with np.errstate(over="ignore"):
        kept = float(np.float32(number))
    if np.isinf(kept) and not np.isinf(number):
        raise ValueError("too large for a float")
    if isinstance(value, (int, np.integer)) and kept != number:
        raise ValueError(f"a float of 32 bits does not keep {value}, the nearest that it keeps is {kept:.0f}")
    return kept


def _boolean(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{type(value).__name__} is not a bool")
    return bool(value)


def _fraction(value: Any) -> Fraction:
    if isinstance(value, Fraction):
        pair = (value.numerator, value.denominator)
    elif (isinstance(value, (tuple, list)) and len(value) == 2) or (
        isinstance(value, np.ndarray) and value.shape == (2,)
    ):
        pair = (value[0], value[1])
    else:
        raise ValueError(f"{type(value).__name__} is neither a Fraction nor a (numerator, denominator) pair")
    numerator, denominator = map(_int64, pair)
    if denominator == 0:
        raise ValueError("the denominator is 0")
    return Fraction(numerator, denominator)


def _ratio(value: Any) -> Fraction:
    if not isinstance(value, (int, Fraction)):
        raise ValueError(f"{value} is not a fraction; read it with another type")
    return Fraction(value)


def _member(enum: type[CEnum]) -> Callable[[Any], CEnum]:
    def read(value: Any) -> CEnum:
        if isinstance(value, CEnum) and not isinstance(value, enum):
            raise ValueError(f"{type(value).__name__} is another enum")
        try:
            return enum(_int64(value))
        except ValueError as error:
            raise ValueError(f"{shown(value)} is not a {enum._c_type_}: {error}") from None

    return read


def _address(pointer: Any) -> Any:
    return pointer.given if isinstance(pointer, Pointer) else pointer


def _enum_row(enum: type[CEnum]) -> Element:
    return Element(f"a {enum._c_type_}: {enum.__name__}, or its integer", _member(enum), enum, np.dtype(np.int32))


ELEMENTS: dict[T, Element] = {
    T.INT64: Element("an integer of 64 bits", _int64, _whole, np.dtype(np.int64)),
    T.INT32: Element("an integer of 32 bits", signed(32), _whole, np.dtype(np.int32)),
    T.BOOLEAN: Element("a bool", _boolean, bool, np.dtype(np.bool_)),
    T.FLOAT: Element("a number", _float, _float, np.dtype(np.float32)),
    T.DOUBLE: Element("a number", _double, float, np.dtype(np.float64)),
    T.FRACTION: Element("a Fraction or a (numerator, denominator) pair", _fraction, _ratio, np.dtype(np.int64)),
    T.VOID_PTR: Element("an address, a ctypes pointer or an array", pointer_of, _address),
    **{kind: _enum_row(enum) for kind, enum in ENUM_OF.items()},
}


def expected_of(kind: T) -> str:
    """What one element of an attribute type is, for messages."""
    if kind is T.BACKEND_DESCRIPTOR:
        return "a descriptor"
    if kind is T.HANDLE:
        return "a handle"
    return "text that ends with NUL" if kind is T.CHAR else ELEMENTS[kind].expected


def split(kind: T, count: int, values: Any) -> Sequence[Any]:
    """The elements in ``values``: a sequence or array of them, or a single one when ``count`` is 1.

    Raises ``ValueError`` for an array of another C type, and for text without its end.
    """
    if isinstance(values, ctypes.Array) and kind is not T.VOID_PTR:  # which is read here, wherever it says it is
        host_memory.check(ctypes.addressof(values), ctypes.sizeof(values))
    if kind is T.CHAR:
        return _characters(values)
    if kind is T.VOID_PTR and not isinstance(values, (list, tuple)):
        is_table = isinstance(values, ctypes.Array) and values._type_ is ctypes.c_void_p
        return list(values) if is_table else [values]  # any other array is itself what is pointed to
    if kind is T.FRACTION and count == 1 and isinstance(values, tuple) and _is_pair(values):
        return [values]
    if isinstance(values, (np.ndarray, ctypes.Array)):
        return _array(kind, np.asarray(values))
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        return values
    return [values]


def _is_pair(values: tuple[Any, ...]) -> bool:
    return len(values) == 2 and not any(isinstance(v, (tuple, list, Fraction)) for v in values)


def _array(kind: T, array: Any) -> Sequence[Any]:
    """Elements as NumPy scalars; C would read the bytes, so the type has to be exactly right."""
    wanted = ELEMENTS[kind].dtype if kind in ELEMENTS else None
    if wanted is None or array.dtype != wanted:
        raise ValueError(f"an array of {array.dtype}, where C reads {wanted or 'pointers'}")
    if array.ndim > 1 and not (kind is T.FRACTION and array.ndim == 2):
        raise ValueError(f"an array of {array.ndim} axes")
    return list(np.atleast_1d(array))


def _characters(values: Any) -> bytes:
    """The bytes, terminating NUL included; Python's strings end by themselves."""
    if isinstance(values, str):
        values = values.encode()
    if isinstance(values, (bytes, bytearray)):
        data = bytes(values)
        data = data if data.endswith(b"\0") else data + b"\0"
    elif isinstance(values, ctypes.Array) or (isinstance(values, np.ndarray) and values.itemsize == 1):
        data = bytes(values)
    elif isinstance(values, Sequence):
        data = b"".join(map(_character, values))
    else:
        raise ValueError(f"{type(values).__name__} is not text")
    if data.find(b"\0") != len(data) - 1:
        raise ValueError("text ends with its first NUL, and has one")
    return data


def _character(value: Any) -> bytes:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 256:
        return bytes([value])
    if isinstance(value, str) and len(value) == 1:
        return value.encode()
    if isinstance(value, bytes) and len(value) == 1:
        return value
    raise ValueError(f"{shown(value)} is not a character")
