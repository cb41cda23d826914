"""What tensor cores multiply, and what an engine says of its sums for each of these: notes and errors."""

from __future__ import annotations

from typing import Any

from graphdnn.engines.sum_error import CUT, FP8, TF32
from graphdnn.enums import DataType, NumericalNote

Pairs = tuple[tuple[DataType, DataType], ...]
INTEGERS = (DataType.INT8, DataType.UINT8)
NARROW = (DataType.FP8_E4M3, DataType.FP8_E5M2)
FLOAT_PAIRS: Pairs = ((DataType.HALF, DataType.HALF), (DataType.BFLOAT16, DataType.BFLOAT16))
EXACT_PAIRS: Pairs = (*FLOAT_PAIRS, *((a, b) for a in INTEGERS for b in INTEGERS))
TF32_PAIRS: Pairs = ((DataType.FLOAT, DataType.FLOAT),)
FP8_PAIRS: Pairs = tuple((a, b) for a in NARROW for b in NARROW)

# Arguments of engines.
OF_EXACT: dict[str, Any] = {"numerical_notes": (NumericalNote.TENSOR_CORE,), "sum_error": CUT}
# Offered only where the note is allowed: operands lose 13 of their 24 bits on the way to the tensor cores.
OF_TF32: dict[str, Any] = {
    "numerical_notes": (NumericalNote.TENSOR_CORE, NumericalNote.DOWN_CONVERT_INPUTS),
    "sum_error": TF32,
    "error_growth": 2.0**13,
}
# Where the compute type, FAST_FLOAT_FOR_FP8, allows what is lost in sums.
OF_FP8_FAST: dict[str, Any] = {
    "numerical_notes": (NumericalNote.TENSOR_CORE,),
    "sum_error": FP8,
    "error_growth": 2.0**10,
}
# That is little beside what the operands lack, but more than fp32 sums lose: not unasked.
OF_FP8: dict[str, Any] = {
    **OF_FP8_FAST,
    "numerical_notes": (NumericalNote.TENSOR_CORE, NumericalNote.REDUCED_PRECISION_REDUCTION),
}
