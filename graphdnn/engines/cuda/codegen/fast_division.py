"""Divisors for fast_division.cuh, which replaces a division by a multiplication and a shift.

T. Granlund and P. Montgomery, "Division by invariant integers using multiplication", PLDI 1994.
"""

from __future__ import annotations

_WORD = 32


def count_type(most: int) -> str:
    """The type in which a kernel counts up to ``most``. The high bit stays free for the additions of a quotient."""
    return "unsigned int" if most >> (_WORD - 1) == 0 else "unsigned long long"


def magic(divisor: int) -> int:
    """For counts below 2**31: n // divisor = (high word of n * low word of magic, + n) >> high word of magic."""
    if divisor >> (_WORD - 1):
        return 0  # such an axis is counted in 64 bits, and the kernel uses the division instruction
    shift = (divisor - 1).bit_length()
    multiplier = (((1 << shift) - divisor) << _WORD) // divisor + 1
    return shift << _WORD | multiplier
