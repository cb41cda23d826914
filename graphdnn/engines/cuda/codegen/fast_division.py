"""Divisors for fast_division.cuh, which replaces a division by a multiplication and a shift.

T. Granlund and P. Montgomery, "Division by invariant integers using multiplication", PLDI 1994.
"""

from __future__ import annotations

_WORD = 32


def count_type(limit: int) -> str:
    """The C++ type of counts up to ``limit``. 32-bit counts leave the high bit free for the addition in a quotient."""
    return "unsigned int" if limit >> (_WORD - 1) == 0 else "unsigned long long"


def magic(divisor: int) -> int:
    """The multiplier (low word) and the shift (high word) of ``quotient`` in fast_division.cuh.

    For n below 2**31: n // divisor = (high word of (n * multiplier) + n) >> shift.
    """
    if divisor >> (_WORD - 1):
        return 0  # counts have 64 bits, and the kernel divides by the division instruction
    shift = (divisor - 1).bit_length()
    multiplier = (((1 << shift) - divisor) << _WORD) // divisor + 1
    return shift << _WORD | multiplier
