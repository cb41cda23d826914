"""Convolutions that differ in nothing but how many images there are, and stacks of matrix products that differ in how
many there are along the first axis: they have a number, and what is the same for all of them is worked out once. A
single one is not among them, as axes of one element have no strides of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Concatenate, ParamSpec, TypeVar

from graphdnn.engines.once import once
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import ConvolutionOperation, Matmul
from graphdnn.tensors import TensorSpec

_MOST = 1024
_LONGEST = 2**30  # steps of an axis
_numbers: dict[tuple[object, ...], int] = {}
_next = count()  # a number is not given again when the convolutions are forgotten
Result = TypeVar("Result")
Given = ParamSpec("Given")


@once
def images_of(op: FusedOp) -> int | None:
    """The number of a convolution or a stack, whatever its batch; None where it is not known."""
    anchor, tensors = op.anchor, (*op.inputs, *op.outputs, *op.internal)
    if op.like is None:
        return None
    if isinstance(anchor, ConvolutionOperation):
        n, filter = anchor.problem.n, anchor.roles[1].uid
        if n == 1:
            return None
        extents = [(t.dims[1:] if t.dims[0] == n and t.uid != filter else t.dims, t.strides) for t in tensors]
    elif isinstance(anchor, Matmul):
        n = anchor.c.dims[0]
        if n == 1 or anchor.c.rank < 3 or not _are_stacked(n, tensors):
            return None
        extents = [(t.dims[1:] if t.dims[0] == n else t.dims, t.strides) for t in tensors]
    else:
        return None
    key = op.like, *extents
    number = _numbers.get(key)
    if number is None:
        if len(_numbers) >= _MOST:
            _numbers.clear()
        number = _numbers.setdefault(key, next(_next))
    return number


def _are_stacked(n: int, tensors: tuple[TensorSpec, ...]) -> bool:
    """Whether matrices follow each other in memory, so that nothing beyond the first axis depends on how many there
    are; and few enough for axes to become one (``Space``).
    """
    return all((t.dims[0] != n or t.strides[0] == max(t.strides)) and t.elements <= _LONGEST for t in tensors)


def once_for_images(
    function: Callable[Concatenate[FusedOp, Given], Result],
) -> Callable[Concatenate[FusedOp, Given], Result]:
    """``function`` of an operation, which does not look at how many images there are, remembered for all batches.

    What else it is given is a part of what it is remembered by.
    """
    kept: dict[object, tuple[Result]] = {}

    def remembered(op: FusedOp, /, *given: Given.args, **named: Given.kwargs) -> Result:
        number = images_of(op)
        if number is None:
            return function(op, *given, **named)
        key = (number, *given, *named.items()) if given or named else number
        found = kept.get(key)
        if found is None:
            if len(kept) >= _MOST:
                kept.clear()
            found = kept[key] = (function(op, *given, **named),)
        return found[0]

    remembered.__name__, remembered.__doc__ = function.__name__, function.__doc__
    return remembered
