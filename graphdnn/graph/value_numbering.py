"""Tensors that carry the same values: one tensor read twice, its copies, and exact operations of the same operands.

A comparison of a value with itself is decided, whatever the value is off by; only NaN differs from itself. An operation
that rounds has no copies here: two kernels may round it in two ways.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from graphdnn.dtypes import COMPUTE, ELEMENTS
from graphdnn.enums import PointwiseMode
from graphdnn.operations import Operation, PointwiseOperation, Reshape, Slice, Transpose

_M = PointwiseMode
_EXACT = (_M.MIN, _M.MAX, _M.ABS, _M.NEG, _M.IDENTITY, _M.BINARY_SELECT)
_CANCELLING = (_M.SUB, _M.DIV)
_MOVED = (Reshape, Slice, Transpose)

Numbers = dict[int, int]  # uid -> a number that tensors of the same values share


def same_values(operations: Sequence[Operation]) -> Numbers:
    """A number for each tensor. Tensors of one number have equal elements in equal places, but for NaN's bits."""
    numbers: Numbers = {}
    known: dict[Hashable, int] = {}

    def number(uid: int) -> int:
        return numbers.setdefault(uid, len(numbers))

    for op in operations:
        operands = tuple(number(t.uid) for t in op.inputs().values())
        results = list(op.outputs().values())
        if not _is_exact(op):
            for tensor in results:
                number(tensor.uid)
            continue
        (result,) = results
        copied = _copied(op, operands)
        if copied is not None:
            numbers[result.uid] = copied
            continue
        ports = set(op.tensors())
        settings = tuple((n, repr(getattr(op, n))) for n in type(op).model_fields if n not in ports and n not in _WORDS)
        numbers[result.uid] = known.setdefault((op.tag, settings, operands, result.dims), number(result.uid))
    return numbers


_WORDS = ("name", "origin")


def is_of_itself(op: Operation, numbers: Numbers) -> bool:
    """True for two operands of the same values, times the same factor: ``x == x``, ``x <= x``, ``x - x``."""
    if not isinstance(op, PointwiseOperation) or op.alpha1 != op.alpha2:
        return False
    operands = list(op.inputs().values())
    if len(operands) != 2 or operands[0].extents != operands[1].extents:
        return False
    return numbers[operands[0].uid] == numbers[operands[1].uid]


def cancels(op: Operation, numbers: Numbers) -> bool:
    """True for ``x - x`` and ``x / x``, which are 0 and 1 whatever x is off by."""
    return isinstance(op, PointwiseOperation) and op.spec.mode in _CANCELLING and is_of_itself(op, numbers)


def _copied(op: Operation, operands: tuple[int, ...]) -> int | None:
    """The operand's number, where the result is the operand."""
    if not isinstance(op, PointwiseOperation):
        return None
    result, first = next(iter(op.outputs().values())), next(iter(op.inputs().values()))
    same = first.extents == result.extents
    if same and op.spec.mode is _M.IDENTITY:
        return operands[0]
    if same and op.spec.mode in (_M.MIN, _M.MAX, _M.BINARY_SELECT) and operands[0] == operands[1]:
        return operands[0]
    return None


def _is_exact(op: Operation) -> bool:
    """True where every type on the way holds the operands, and nothing is computed but a choice, a copy or a sign."""
    (result, *more) = op.outputs().values()
    if isinstance(op, _MOVED):
        return True
    if more or not isinstance(op, PointwiseOperation) or op.spec.mode not in _EXACT:
        return False
    if op.alpha1 != 1.0 or op.alpha2 != 1.0:
        return False
    compute, stored = COMPUTE.get(op.compute_type), ELEMENTS[result.data_type].numpy
    taken = [t for port, t in op.inputs().items() if port != "t"]
    if compute is None or compute.kind in "biu":
        return all(t.data_type is result.data_type for t in taken)
    return all(np.can_cast(ELEMENTS[t.data_type].numpy, kind) for t in taken for kind in (compute, stored))
