"""Elements that hang on a decision between nearly equal values.

A comparison whose operands lie within their errors of each other may tip over, and with it what pointwise operations
make of its result: a selection takes the other operand. Sums of small fractions meet in comparisons all the time, and
an algorithm that is exact to a millionth decides some of those ties the other way.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphdnn.dtypes import Array
from graphdnn.operations import Operation, PointwiseOperation

_TIPPING = ("comparison", "logical")


def tips(op: Operation) -> bool:
    """Whether ``undecided`` follows the operation's decisions element by element."""
    return isinstance(op, PointwiseOperation) and op.spec.row.kind in _TIPPING


def undecided(
    op: Operation, values: Mapping[int, Array], errors: Mapping[int, float], before: Mapping[int, Array]
) -> Array | None:
    """Of a pointwise operation's result, the elements that may be another choice's; None where there are none.

    ``values`` and ``errors`` are those of its operands, ``before`` is what this function said of them.
    """
    if not isinstance(op, PointwiseOperation) or op.spec.row.kind == "index":
        return None
    operands = list(op.inputs().values())
    found = [before[t.uid] for t in operands if t.uid in before]
    if op.spec.row.kind == "comparison":
        (a, at_a), (b, at_b) = (
            (values[t.uid].astype(np.float64) * scale, abs(scale) * errors.get(t.uid, 0.0))
            for t, scale in zip(operands, (op.alpha1, op.alpha2), strict=True)
        )
        if at_a + at_b:
            with np.errstate(invalid="ignore"):
                found.append(np.abs(a - b) <= at_a + at_b)
    elif op.spec.row.kind == "logical":
        found += [np.abs(values[t.uid]) <= errors[t.uid] for t in operands if errors.get(t.uid)]
    (result,) = op.outputs().values()
    reached: Array = np.zeros(values[result.uid].shape, np.bool_)
    for part in found:
        reached = reached | part
    return reached if reached.any() else None
