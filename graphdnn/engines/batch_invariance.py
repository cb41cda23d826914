"""Batch invariance: operations that differ only in their batch size share a number, and results that do not depend on
the batch size are computed once for each number.

The batch size is the number of images of a convolution, the length of the first axis of a batched matrix product, the
number of rows of a single matrix product, and the length of the first axis of a pointwise graph or a normalization.
A batch size of 1 has no number, because axes of one element have no meaningful stride.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import gcd
from typing import Concatenate, ParamSpec, TypeVar

from graphdnn.bounded_cache import BoundedCache
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvForward, ConvolutionOperation, Matmul, NormBackward, NormForward
from graphdnn.tensors import TensorSpec

_MOST = 1024
_LONGEST = 2**30  # steps of an axis, up to which neighbouring ones become one (``IndexSpace``)
_FARTHEST = 2**31 - 1  # elements, for offsets of 32 bits
_PLANE = 2  # spatial axes
_PACK = 16  # elements at most that one access takes
_numbers = BoundedCache[tuple[object, ...], int](_MOST)
_next = count()  # a number is not given again when the convolutions are forgotten
Result = TypeVar("Result")
Given = ParamSpec("Given")


@memoize
def images_of(op: FusedOp) -> int | None:
    """The number of an operation, whatever its batch; None where it is not known."""
    anchor, tensors = op.anchor, (*op.inputs, *op.outputs, *op.internal)
    if op.structure is None:
        return None
    extents: list[object]
    if isinstance(anchor, ConvolutionOperation):
        n, filter, axis = anchor.problem.n, anchor.roles[1].uid, 0
        if n == 1:
            return None
        extents = [(t.dims[1:] if t.dims[0] == n and t.uid != filter else t.dims, t.strides) for t in tensors]
    elif isinstance(anchor, Matmul):
        axis = counted_axis(anchor)
        n, kept = anchor.c.dims[axis], anchor.b.uid if axis else None
        is_counted = n > 1 and anchor.c.dims[-1] > 1 and not (axis and op.prologue)
        if not is_counted or max(anchor.a.elements, anchor.c.elements) > _LONGEST:
            return None
        extents = [_without(n, axis, t) if t.uid != kept else (t.dims, t.strides) for t in tensors]
    elif anchor is None or isinstance(anchor, (NormForward, NormBackward)):
        axis, n, stored = 0, (op.outputs[0] if anchor is None else anchor.x).dims[0], (*op.inputs, *op.outputs)
        counted = [t for t in stored if t.dims[0] == n]
        sizes = [t.elements for t in counted]
        if n == 1 or max(sizes) > _LONGEST or max([t.span for t in counted]) > _FARTHEST:
            return None
        extents = [_without(n, axis, t) for t in tensors]
        extents += gcd(n, _PACK), _beside([t.elements for t in stored if t.dims[0] != n], sizes)
    else:
        return None
    return None if None in extents else _number_of((op.structure, axis, *extents))


def _number_of(key: tuple[object, ...]) -> int:
    number = _numbers.get(key)
    if number is None:
        number = _numbers.remember(key, next(_next))
    return number


@memoize
def windows_of(op: FusedOp) -> int | None:
    """The number of a convolution, whatever its images' lines and pixels and how many there are; None where it is not
    known, and of other operations. Layouts are no part of it.
    """
    if op.structure is None or not isinstance(op.anchor, ConvolutionOperation):
        return None
    image, filter, _ = op.anchor.roles
    return _number_of((op.structure, filter.dims, image.dims[1]))


@memoize
def lines_of(op: FusedOp) -> int | None:
    """The number of a forward convolution of planes, whatever its images' lines and pixels and how many there are, more
    than one of each; None where it is not known, and where images have gaps, or their channels are not neighbours.
    """
    anchor = op.anchor
    if op.structure is None or not isinstance(anchor, ConvForward) or anchor.conv.spatial_dims != _PLANE:
        return None
    x, filter, y = anchor.roles
    extents: list[object] = []
    for t in (*op.inputs, *op.outputs, *op.internal):
        dims, strides = t.dims, t.strides
        if t.uid == filter.uid or dims not in (y.dims, x.dims):
            extents.append((dims, strides))
            continue
        n, c, *size = dims
        if len(size) != _PLANE or min(dims) == 1 or t.vector_count != 1 or n * strides[0] > _LONGEST:
            return None
        if strides != (size[0] * size[1] * c, 1, size[1] * c, c):
            return None
        extents.append((dims == y.dims, c))
    return _number_of((op.structure, *extents))


def counted_axis(product: Matmul) -> int:
    """The axis of c whose length ``images_of`` does not look at: the first one, or that of rows in a single product."""
    c = product.c
    return 0 if (c.rank > 2 and c.dims[0] > 1) or any(size > 1 for size in c.dims[:-2]) else c.rank - 2


def _beside(others: Sequence[int], counted: Sequence[int]) -> tuple[int, ...]:
    """Sizes of tensors without images beside tensors with images: which are larger, and which twice as large."""
    if 2 * max(others, default=0) < min(counted):
        return ()
    return tuple([sum((2 * a >= b, a >= b, a > b, a >= 2 * b, a > 2 * b)) for a in others for b in counted])


def _without(n: int, axis: int, spec: TensorSpec) -> tuple[object, ...] | None:
    """Extents and strides; axes of one element have none, as theirs may be made of all others. None where matrices, or
    rows, do not follow each other in memory, so that what is beyond this axis may depend on how many there are.
    """
    dims = spec.dims
    strides = spec.strides
    if min(dims) == 1:
        strides = tuple([s for s, size in zip(strides, dims, strict=True) if size > 1])
    if dims[axis : axis + 1] != (n,):
        return dims, strides
    return ((*dims[:axis], *dims[axis + 1 :]), strides) if spec.strides[axis] == max(strides) else None


def memoize_for_images(
    function: Callable[Concatenate[FusedOp, Given], Result],
) -> Callable[Concatenate[FusedOp, Given], Result]:
    """``function`` of an operation, which does not look at how many images there are, remembered for all batches.

    What else it is given is a part of what it is remembered by.
    """
    return _memoize_by_number(images_of, function)


def memoize_for_lines(
    function: Callable[Concatenate[FusedOp, Given], Result],
) -> Callable[Concatenate[FusedOp, Given], Result]:
    """The same of one that does not look at images' lines and pixels either, as far as ``lines_of`` goes."""
    return _memoize_by_number(images_of, _memoize_by_number(lines_of, function))  # images are quicker to tell


def _memoize_by_number(
    number_of: Callable[[FusedOp], int | None], function: Callable[Concatenate[FusedOp, Given], Result]
) -> Callable[Concatenate[FusedOp, Given], Result]:
    kept = BoundedCache[object, tuple[Result]](_MOST)

    def remembered(op: FusedOp, /, *given: Given.args, **named: Given.kwargs) -> Result:
        number = number_of(op)
        if number is None:
            return function(op, *given, **named)
        key = (number, *given, *named.items()) if given or named else number
        found = kept.get(key)
        if found is None:
            found = kept.remember(key, (function(op, *given, **named),))
        return found[0]

    remembered.__name__, remembered.__doc__ = function.__name__, function.__doc__
    return remembered
