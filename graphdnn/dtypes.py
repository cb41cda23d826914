"""Element types: what a ``DataType`` is in memory, and the one conversion between them.

Conversions follow the hardware: floats round to nearest, ties to even; a value
outside an integer's or an fp8's range saturates; NaN becomes 0 in an integer.
cuDNN publishes none of this, so it is written down here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from graphdnn.enums import DataType, shown

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Element:
    """Storage of one element type."""

    numpy: np.dtype[np.generic]  # what arrays of this type are; bit-packed BOOLEAN unpacks to bool
    bits: int  # in memory
    kind: str  # "float", "int" or "bool"
    largest: float  # finite
    smallest: float
    short: str  # the name in a problem's line, such as "f16"; "" where a line cannot name the type
    bytes: int = field(init=False)  # of one element; 1 for the bit-packed type, which cannot be addressed more finely

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes", max(1, self.bits // 8))


def _element(dtype: object, short: str, bits: int | None = None) -> Element:
    native = np.dtype(dtype)  # type: ignore[call-overload]
    bits = native.itemsize * 8 if bits is None else bits
    if native.kind == "b":
        return Element(native, bits, "bool", 1, 0, short)
    if native.kind in "iu":
        info = np.iinfo(native)
        return Element(native, bits, "int", int(info.max), int(info.min), short)
    limits = ml_dtypes.finfo(native)  # type: ignore[no-untyped-call]
    return Element(native, bits, "float", float(limits.max), float(limits.min), short)


ELEMENTS: dict[DataType, Element] = {
    DataType.DOUBLE: _element(np.float64, "f64"),
    DataType.FLOAT: _element(np.float32, "f32"),
    DataType.HALF: _element(np.float16, "f16"),
    DataType.BFLOAT16: _element(ml_dtypes.bfloat16, "bf16"),
    DataType.FP8_E4M3: _element(ml_dtypes.float8_e4m3fn, "e4m3"),
    DataType.FP8_E5M2: _element(ml_dtypes.float8_e5m2, "e5m2"),
    DataType.INT8: _element(np.int8, "i8"),
    DataType.UINT8: _element(np.uint8, "u8"),
    DataType.INT16: _element(np.int16, "i16"),
    DataType.INT32: _element(np.int32, "i32"),
    DataType.INT64: _element(np.int64, "i64"),
    DataType.BYTE_BOOLEAN: _element(np.bool_, "bool"),
    DataType.BOOLEAN: _element(np.bool_, "", bits=1),
}

_OF_NUMPY = 1  # ``isbuiltin`` of NumPy's own types; 2 for the types of ml_dtypes
# Element types that CuPy, DLPack or NumPy's protocols may lack: unsigned integers of the same size carry their bits.
CARRIERS: dict[DataType, type[np.generic]] = {
    t: np.dtype(f"u{e.bytes}").type for t, e in ELEMENTS.items() if e.numpy.isbuiltin != _OF_NUMPY
}

SHORT_NAMES = {e.short: t for t, e in ELEMENTS.items() if e.short}  # element types by their names in a problem's line
FLOATS = tuple(t for t, e in ELEMENTS.items() if e.kind == "float")
INTEGERS = tuple(t for t, e in ELEMENTS.items() if e.kind == "int")
BOOLEANS = tuple(t for t, e in ELEMENTS.items() if e.kind == "bool")
FP8 = (DataType.FP8_E4M3, DataType.FP8_E5M2)

_FLOAT32 = np.dtype(np.float32)
# What arithmetic runs in when an operation names a compute type. Types narrower than float32 have no
# arithmetic of their own: the sum is kept in float32 and rounded once, which is at least as exact.
COMPUTE: dict[DataType, np.dtype[np.generic]] = {
    DataType.DOUBLE: np.dtype(np.float64),
    DataType.FLOAT: _FLOAT32,
    DataType.HALF: _FLOAT32,
    DataType.BFLOAT16: _FLOAT32,
    DataType.FAST_FLOAT_FOR_FP8: _FLOAT32,
    DataType.INT32: np.dtype(np.int32),
    DataType.INT64: np.dtype(np.int64),
    DataType.BOOLEAN: np.dtype(np.bool_),
    DataType.BYTE_BOOLEAN: np.dtype(np.bool_),
}
# Compute types whose arithmetic is that of fp32. FAST_FLOAT_FOR_FP8 allows shorter sums and is not among them.
FLOAT_COMPUTE = (DataType.FLOAT, DataType.HALF, DataType.BFLOAT16)
INTEGER_COMPUTE = (DataType.INT32, DataType.INT64)

_BY_NUMPY = {e.numpy: t for t, e in reversed(ELEMENTS.items()) if t is not DataType.BOOLEAN}
_BY_NAME = {
    **{t.name.lower(): t for t in ELEMENTS},
    **SHORT_NAMES,
    "fp64": DataType.DOUBLE, "fp32": DataType.FLOAT, "fp16": DataType.HALF,
    "float64": DataType.DOUBLE, "float32": DataType.FLOAT, "float16": DataType.HALF,
    "float8_e4m3fn": DataType.FP8_E4M3, "float8_e5m2": DataType.FP8_E5M2,
}  # fmt: skip


def data_type_of(value: object) -> DataType:
    """``DataType`` of a member, its integer, a name ("f16", "float16", "half"), or a NumPy, CuPy or torch dtype.

    Raises ``ValueError`` when nothing fits. NumPy's one-byte bool is ``BYTE_BOOLEAN``; the bit-packed
    ``BOOLEAN`` has to be asked for by name.
    """
    if isinstance(value, DataType):
        return value
    if isinstance(value, bool):
        raise ValueError(f"no element type is called {value!r}")
    if isinstance(value, int):
        try:
            return DataType(value)
        except ValueError:
            raise ValueError(f"no element type has the number {shown(value)}") from None
    name = value if isinstance(value, str) else ""
    if type(value).__module__ == "torch":
        name = str(value).removeprefix("torch.")
    if name and name.lower() in _BY_NAME:
        return _BY_NAME[name.lower()]
    try:
        return _BY_NUMPY[np.dtype(value)]  # type: ignore[call-overload]
    except Exception:  # NumPy asks the object
        raise ValueError(f"no element type is called {shown(value)}") from None


def cast(values: Array, to: DataType) -> Array:
    """``values`` in the storage type ``to``: nearest-even rounding, saturation, NaN to 0 for integers.

    Returns the array itself when it already has the type.
    """
    element = ELEMENTS[to]
    if values.dtype == element.numpy:
        return values
    if element.kind == "bool":
        return np.asarray(values != 0)
    source_kind = "float" if values.dtype.kind in "fV" else "int"  # ml_dtypes report kind "V" or "f"
    if element.kind == "int":
        return _to_integer(values, element, source_kind)
    if to in FP8:
        return _to_fp8(values, element)
    if to is DataType.BFLOAT16:
        values = _once_rounded(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(element.numpy)


def _to_integer(values: Array, element: Element, source_kind: str) -> Array:
    if values.dtype.kind == "b":
        return values.astype(element.numpy)
    info = np.iinfo(element.numpy)  # type: ignore[type-var]
    if source_kind == "int":
        source = np.iinfo(values.dtype)
        if source.min >= info.min and source.max <= info.max:
            return values.astype(element.numpy)
        return np.clip(values, max(info.min, source.min), min(info.max, source.max)).astype(element.numpy)
    with np.errstate(invalid="ignore"):
        whole = np.rint(values if values.dtype in (np.float32, np.float64) else values.astype(np.float32))
        # The float next above the largest integer may be out of range: saturate by comparing, not by clipping.
        result = np.where(np.isnan(whole), 0, whole).astype(element.numpy)
    result = np.where(whole >= float(info.max), element.numpy.type(info.max), result)
    return np.where(whole <= float(info.min), element.numpy.type(info.min), result)


def _to_fp8(values: Array, element: Element) -> Array:
    # ml_dtypes turns what is too large into NaN or Inf; the hardware conversion (satfinite) gives the largest
    # finite value instead, for infinities too. NaN stays NaN.
    with np.errstate(invalid="ignore"):
        wide = _once_rounded(values).astype(np.float32, copy=False)
        return np.asarray(np.clip(wide, element.smallest, element.largest).astype(element.numpy))


def _once_rounded(values: Array) -> Array:
    """float32 for values of 32 bits and more, rounded to odd: rounding once more, to 16 bits or fewer, is then right.

    ml_dtypes converts through float32, and two roundings to nearest are not one: a value just above the middle of
    two narrow numbers first falls onto the middle, and from there to the even one.
    """
    if values.dtype.kind not in "iuf" or values.dtype.itemsize < 4 or values.dtype == np.float32:
        return values
    exact = _sticky(values) if values.dtype.kind in "iu" else values
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.asarray(exact.astype(np.float32))
        bits = near.view(np.uint32)
        beyond = np.abs(near.astype(np.float64)) > np.abs(exact)
        inexact = (near != exact) & ~np.isnan(near)
        return np.where(inexact, (bits - beyond) | np.uint32(1), bits).astype(np.uint32).view(np.float32)


def _sticky(values: Array) -> Array:
    """Integers as float64; bits that do not fit leave a trace in the lowest one that does."""
    wide = values.astype(np.int64, copy=False)
    lost = np.int64((1 << 11) - 1)
    cut = (wide & ~lost) | np.where(wide & lost != 0, lost + 1, 0)
    return np.where((wide > -(1 << 53)) & (wide < 1 << 53), wide, cut).astype(np.float64)
