"""Convolutions that differ in nothing but how many images there are: they have a number, and what is the same for all
of them is worked out once. A single image is not among them, as axes of one element have no strides of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeVar

from graphdnn.engines.once import once
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ConvolutionOperation

_MOST = 1024
_numbers: dict[tuple[object, ...], int] = {}
_next = count()  # a number is not given again when the convolutions are forgotten
Result = TypeVar("Result")


@once
def images_of(op: FusedOp) -> int | None:
    """The number of a convolution, whatever its batch; None where it is not known."""
    anchor = op.anchor
    if op.like is None or not isinstance(anchor, ConvolutionOperation) or anchor.problem.n == 1:
        return None
    n, filter = anchor.problem.n, anchor.roles[1].uid
    extents = [
        (t.dims[1:] if t.dims[0] == n and t.uid != filter else t.dims, t.strides)
        for t in (*op.inputs, *op.outputs, *op.internal)
    ]
    key = op.like, *extents
    number = _numbers.get(key)
    if number is None:
        if len(_numbers) >= _MOST:
            _numbers.clear()
        number = _numbers.setdefault(key, next(_next))
    return number


def once_for_images(function: Callable[[FusedOp], Result]) -> Callable[[FusedOp], Result]:
    """``function`` of an operation, which does not look at how many images there are, remembered for all batches."""
    kept: dict[int, tuple[Result]] = {}

    def remembered(op: FusedOp) -> Result:
        number = images_of(op)
        if number is None:
            return function(op)
        found = kept.get(number)
        if found is None:
            if len(kept) >= _MOST:
                kept.clear()
            found = kept[number] = (function(op),)
        return found[0]

    remembered.__name__, remembered.__doc__ = function.__name__, function.__doc__
    return remembered
