"""The operand types of tensor cores, and the numerical notes and error bounds of their sums."""

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

# Arguments of ``cuda_engine``, by operand types.
EXACT_OPTIONS: dict[str, Any] = {"numerical_notes": (NumericalNote.TENSOR_CORE,), "sum_error": CUT}
# Operands are rounded from 24 to 11 significant bits, so the engine is offered only if its note is allowed.
TF32_OPTIONS: dict[str, Any] = {
    "numerical_notes": (NumericalNote.TENSOR_CORE, NumericalNote.DOWN_CONVERT_INPUTS),
    "sum_error": TF32,
    "error_growth": 2.0**13,
}
# For the compute type FAST_FLOAT_FOR_FP8, which allows the rounding errors of tensor cores' fp8 sums.
FP8_FAST_OPTIONS: dict[str, Any] = {
    "numerical_notes": (NumericalNote.TENSOR_CORE,),
    "sum_error": FP8,
    "error_growth": 2.0**10,
}
# For other compute types: the errors are small compared with the rounding of operands, but larger than in fp32 sums, so
# the engine is offered only if its note is allowed.
FP8_OPTIONS: dict[str, Any] = {
    **FP8_FAST_OPTIONS,
    "numerical_notes": (NumericalNote.TENSOR_CORE, NumericalNote.REDUCED_PRECISION_REDUCTION),
}
