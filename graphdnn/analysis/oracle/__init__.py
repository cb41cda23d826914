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

An integer that a floating value is rounded to may differ by 1 more. What a comparison or a
maximum decides (booleans, indices) is exact when its operands are; otherwise values close
to the edge may tip over, and 1 % of the elements may differ. Values beyond the range of an
output's type count as the end of the range, which is where inf and saturation belong.
Elements that a close decision reaches through pointwise operations (graphdnn/analysis/oracle/near_ties.py) are
not compared: between nearly equal values either choice is right. An engine whose rounding
errors are larger says how many times (``Engine.growth``); the first term grows by it. Where
tensor cores cut, errors have one sign and grow with n, which shows from 5,000 terms on.
It is a bound for checking, not a proof.
"""

from graphdnn.analysis.oracle.comparison import Comparison, allowances, compare, compare_values
from graphdnn.analysis.oracle.reference import evaluate, promoted, reference, with_tensors
from graphdnn.analysis.oracle.tolerances import Bounds, bounds

__all__ = [
    "Bounds", "Comparison", "allowances", "bounds", "compare", "compare_values", "evaluate", "promoted", "reference",
    "with_tensors",
]  # fmt: skip
