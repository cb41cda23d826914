"""Numbers as literals of CUDA C++, and products with them."""

from __future__ import annotations

from functools import lru_cache
from math import copysign, inf, isnan

import numpy as np


def literal(value: float, ctype: str) -> str:
    """A number as a literal of an arithmetic type; integers saturate."""
    return _literal(value, copysign(1.0, value), ctype)  # the sign distinguishes 0.0 and -0.0 in the cache


@lru_cache(maxsize=512)
def _literal(value: float, sign: float, ctype: str) -> str:
    if ctype == "bool":
        return "true" if value else "false"
    if ctype in ("int", "long long"):
        low, high = (-(2**31), 2**31 - 1) if ctype == "int" else (-(2**63), 2**63 - 1)
        integer = high if value >= high else low if value <= low else int(value)
        suffix = "" if ctype == "int" else "LL"
        if integer == low:
            return f"(-{high}{suffix} - 1)"  # C++ has no literal of the lowest integer
        return f"({integer}{suffix})" if integer < 0 else f"{integer}{suffix}"
    if isnan(value):
        return f"({ctype})NAN"
    if value in (inf, -inf):
        return f"((({ctype}){'-' if value < 0 else ''}INFINITY))"
    number = float(np.float32(value)) if ctype == "float" else float(value)
    if number in (inf, -inf):
        return literal(number, ctype)
    text = f"{number!r}{'f' if ctype == 'float' else ''}"
    return f"({text})" if number < 0 or text.startswith("-") else text


_ROUNDED = {"float": "__fmul_rn", "double": "__dmul_rn"}


def scaled(value: str, factor: float, ctype: str) -> str:
    """``value`` times a factor. A product of floats is rounded: the compiler cannot contract it with a sum."""
    if factor == 1.0:
        return value
    number = literal(factor, ctype)
    return f"{_ROUNDED[ctype]}({value}, {number})" if ctype in _ROUNDED else f"{value} * {number}"
