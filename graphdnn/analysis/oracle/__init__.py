"""The oracle: what a graph should have computed, and how far floating point may stray from it.

``reference`` runs a graph once more in float64 with the general NumPy engine:
every floating tensor and arithmetic becomes DOUBLE, so no rounding but that of the inputs,
by-value numbers and constants is left; integers and booleans keep their types, so they have
to agree bit for bit wherever nothing floating decides them.

The bound of a tensor follows from the operation that writes it and the bounds of its operands:

    bound = 8 * (sqrt(n) + 1) * u * scale  +  u_type * scale  +  sum of what the operands carry along

with u the unit roundoff of the arithmetic and u_type that of the tensor's own type, n the
number of summed terms (rounding errors of a long sum are independent; the worst case, n
itself, is never met), and scale the tensor's largest finite magnitude in the reference. The
8 is for functions like exp whose argument error is amplified. An operation that rounds
nothing (a maximum, a copy, small integers in floating arithmetic) lacks the first term.
Operand errors are carried absolutely by operations of slope 1 (sums, clips, copies), so
cancellation is allowed for, and relative to the magnitudes by all others (not less than by the
steepest slope of functions that flatten out, as tanh does).

An integer that a floating value is rounded to may differ by 1 more. What a comparison decides is
exact unless its operands lie within their errors of each other; such a close decision gives
what is selected by it a swing (graphdnn/analysis/oracle/close_decisions.py), which is allowed besides: the
element may be either operand. A value compared with itself is decided. What a maximum's index
decides is exact when its operands are; otherwise 1 % of the elements may differ. Values beyond the
range of an output's type count as the end of the range, which is where inf and saturation belong.

A bound as large as an output's largest value, or a swing that is much of it, would let zeros pass.
Such elements count as not compared. Each verdict says how many were, and an output with fewer
than half of its elements compared has failed: most of it was not looked at. Graphs that the tests
draw have 87 % and more, but where they cancel.

An engine whose rounding errors are larger says how many times (``Engine.growth``); the first term grows by it. Where
tensor cores cut, errors have one sign and grow with n, which shows from 5,000 terms on.
It is a bound for checking, not a proof.
"""

from graphdnn.analysis.oracle.comparison import (
    FLOOR,
    Comparison,
    allowances,
    compare,
    compare_values,
    counted,
    coverage,
    in_words,
)
from graphdnn.analysis.oracle.reference import evaluate, promoted, reference, with_tensors
from graphdnn.analysis.oracle.tolerances import Bounds, bounds

__all__ = [
    "FLOOR", "Bounds", "Comparison", "allowances", "bounds", "compare", "compare_values", "counted", "coverage",
    "evaluate", "in_words", "promoted", "reference", "with_tensors",
]  # fmt: skip
