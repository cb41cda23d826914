"""Element types of ONNX, and the element type of the library that carries each.

A carrier holds every value of the type. Arrays are converted where they enter and leave a graph if the carrier's
storage differs, as for UINT32, which INT64 carries. UINT64 is carried by its bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from graphdnn.dtypes import ELEMENTS, Array
from graphdnn.enums import DataType


@dataclass(frozen=True, slots=True)
class ElementType:
    """One element type of ONNX."""

    number: int  # of onnx.TensorProto.DataType
    name: str
    numpy: np.dtype[Any]
    carrier: DataType
    bits: int  # of an integer; 0 for other types

    @property
    def is_float(self) -> bool:
        return ELEMENTS[self.carrier].kind == "float"

    @property
    def is_bool(self) -> bool:
        return self.carrier is DataType.BYTE_BOOLEAN

    @property
    def is_integer(self) -> bool:
        return self.bits > 0

    @property
    def is_signed(self) -> bool:
        return not self.name.startswith("UINT")

    @property
    def lowest(self) -> int:
        """The smallest integer."""
        return -(2 ** (self.bits - 1)) if self.is_signed else 0

    @property
    def highest(self) -> int:
        """The largest integer."""
        return int(2 ** (self.bits - 1 if self.is_signed else self.bits) - 1)

    @property
    def is_carried_whole(self) -> bool:
        """False for UINT64: its carrier has the bits, and other numbers."""
        return self.number != _UINT64

    @property
    def is_stored_only(self) -> bool:
        """Whether no operation rounds to the type."""
        return self.name in {row[1] for row in _STORED_ONLY}

    def encoded(self, array: Array) -> Array:
        """An array of this type in the storage of the carrier."""
        stored = ELEMENTS[self.carrier].numpy
        if array.dtype == stored:
            return array
        return array.view(stored) if not self.is_carried_whole else array.astype(stored)

    def decoded(self, array: Array) -> Array:
        """An array of the carrier as an array of this type."""
        if array.dtype == self.numpy:
            return array
        return array.view(self.numpy) if not self.is_carried_whole else array.astype(self.numpy)


_UINT64 = 13
_ROWS: tuple[tuple[int, str, Any, DataType, int], ...] = (
    (1, "FLOAT", np.float32, DataType.FLOAT, 0),
    (2, "UINT8", np.uint8, DataType.UINT8, 8),
    (3, "INT8", np.int8, DataType.INT8, 8),
    (4, "UINT16", np.uint16, DataType.INT32, 16),
    (5, "INT16", np.int16, DataType.INT16, 16),
    (6, "INT32", np.int32, DataType.INT32, 32),
    (7, "INT64", np.int64, DataType.INT64, 64),
    (9, "BOOL", np.bool_, DataType.BYTE_BOOLEAN, 0),
    (10, "FLOAT16", np.float16, DataType.HALF, 0),
    (11, "DOUBLE", np.float64, DataType.DOUBLE, 0),
    (12, "UINT32", np.uint32, DataType.INT64, 32),
    (_UINT64, "UINT64", np.uint64, DataType.INT64, 64),
    (16, "BFLOAT16", ml_dtypes.bfloat16, DataType.BFLOAT16, 0),
    (17, "FLOAT8E4M3FN", ml_dtypes.float8_e4m3fn, DataType.FP8_E4M3, 0),
    (19, "FLOAT8E5M2", ml_dtypes.float8_e5m2, DataType.FP8_E5M2, 0),
    (21, "UINT4", ml_dtypes.uint4, DataType.UINT8, 4),
    (22, "INT4", ml_dtypes.int4, DataType.INT8, 4),
)
# Types whose rounding no conversion here has: a carrier holds their values, and casts from them are exact.
_STORED_ONLY: tuple[tuple[int, str, str, DataType], ...] = (
    (18, "FLOAT8E4M3FNUZ", "float8_e4m3fnuz", DataType.HALF),
    (20, "FLOAT8E5M2FNUZ", "float8_e5m2fnuz", DataType.HALF),
    (23, "FLOAT4E2M1", "float4_e2m1fn", DataType.HALF),
    (24, "FLOAT8E8M0", "float8_e8m0fnu", DataType.FLOAT),
)
_ROWS += tuple(
    (n, name, getattr(ml_dtypes, own), to, 0) for n, name, own, to in _STORED_ONLY if hasattr(ml_dtypes, own)
)
# Later versions of ml_dtypes have integers of 2 bits.
if hasattr(ml_dtypes, "uint2"):
    _ROWS += ((25, "UINT2", ml_dtypes.uint2, DataType.UINT8, 2), (26, "INT2", ml_dtypes.int2, DataType.INT8, 2))
ELEMENT_TYPES = {row[0]: ElementType(row[0], row[1], np.dtype(row[2]), row[3], row[4]) for row in _ROWS}
BY_NAME = {t.name: t for t in ELEMENT_TYPES.values()}
BY_NUMPY = {t.numpy: t for t in ELEMENT_TYPES.values()}
