"""Scalars: numbers as callers pass them, taken exactly or refused.

A reader raises ``ValueError`` with the reason. Objects bring code of their own (``__index__``, ``__float__``,
``__iter__``), so whatever that code raises is such a reason.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from math import isnan
from typing import Any

import numpy as np

from graphdnn.dtypes import ELEMENTS, FP8
from graphdnn.enums import DataType

_INT64 = (-(2**63), 2**63 - 1)
_NO_NUMBERS = (bool, np.bool_, str, bytes, bytearray)


def whole(value: Any) -> int:
    """An exact integer; bools, floats and text are none."""
    if isinstance(value, (bool, np.bool_)):
        raise ValueError("a bool is not an integer here")
    try:
        return operator.index(value)
    except Exception:
        raise ValueError(f"{type(value).__name__} is not an integer") from None


def wholes(values: Any) -> tuple[int, ...]:
    """Exact integers from any sequence of them; nothing is cut or parsed."""
    return tuple(map(whole, listed(values, "a sequence of integers is wanted")))


def listed(values: Any, otherwise: str) -> tuple[Any, ...]:
    """The items of a sequence. Text and mappings are none: ``otherwise`` says what is wanted."""
    if isinstance(values, (str, bytes, bytearray, Mapping)):
        raise ValueError(f"{type(values).__name__}: {otherwise}")
    try:
        return tuple(values)
    except Exception:
        raise ValueError(f"{type(values).__name__}: {otherwise}") from None


def real(value: Any) -> float:
    """A float of 64 bits. A whole number without one of its own is refused: it would become its neighbour."""
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    if is_array or isinstance(value, (*_NO_NUMBERS, complex, np.complexfloating)):
        raise ValueError(f"{type(value).__name__} is not a number here")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("too large for a float of 64 bits") from None
    except Exception:
        raise ValueError(f"{type(value).__name__} is not a number") from None
    try:
        exact = operator.index(value)
    except Exception:  # no whole number
        return number
    if exact != number:
        raise ValueError(f"a float of 64 bits does not keep {exact}, the nearest that it keeps is {number:.0f}")
    return number


def number(value: Any) -> int | float:
    """An integer of 64 bits as it is, anything else as a float of 64 bits."""
    try:
        found = whole(value)
    except ValueError:
        return real(value)
    return found if _INT64[0] <= found <= _INT64[1] else real(found)


def element(value: Any) -> int | float:
    """The number that one element of a NumPy array is: integers exactly, bools as 0 or 1."""
    kind = np.asarray(value).dtype.kind
    try:
        if kind in "iub":
            return int(value)
        if kind in "fV":  # V: of ml_dtypes
            return float(value)
    except TypeError:
        pass
    raise ValueError(f"{type(value).__name__} is not a number")


def is_kept(value: float, data_type: DataType) -> bool:
    """Whether an element type keeps a number. Floats are rounded, to an infinity beyond the range of a type that has
    infinities: masks add numbers such as -1e9 to fp16 scores.
    """
    row = ELEMENTS[data_type]
    if row.smallest <= value <= row.largest:
        return row.kind == "float" or (value == int(value) and (row.kind == "int" or value in (0, 1)))
    if row.kind != "float":
        return False
    if isnan(value) or data_type in FP8:
        return isnan(value)
    return True


def kept_by(data_type: DataType) -> str:
    """What ``is_kept`` accepts, for messages."""
    row = ELEMENTS[data_type]
    if row.kind == "bool":
        return "0 or 1"
    span = f"from {row.smallest} to {row.largest}"
    if row.kind == "int":
        return f"a whole number {span}"
    return f"a number {span}, or NaN" if data_type in FP8 else f"a number {span}, an infinity or NaN"
