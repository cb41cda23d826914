"""Checks that several calls make on extents, types and strides: each gives a rejection, or None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphdnn.enums import Status
from graphdnn.v6.descriptor_values import LRN, Tensor
from graphdnn.v6.errors import refuse_if
from graphdnn.v6.rules import COUNT, POSITIVE, RANGE, RANK, SAME_DIMS, SAME_STRIDES, SAME_TYPE

DIM_MAX = 8
LRN_N, LRN_K, LRN_BETA = (1, 16), 1e-5, 0.01  # limits of the headers


def reaches(number: float, least: float) -> bool:
    """Whether a number is at least a limit of the headers, which float callers hand over rounded to a float."""
    return number >= min(least, float(np.float32(least)))


def entries(where: str, minimum: int, **values: Any) -> None:
    """Every number (of a tuple) is at least ``minimum``."""
    words = "zero or more" if minimum == 0 else f"{minimum} or more"
    refuse_if(
        POSITIVE.reject(where, name, value, expected=words)
        for name, value in values.items()
        if min(value if isinstance(value, tuple) else (value,), default=minimum) < minimum
    )


def counted(where: str, count: int, **arrays: Sequence[int]) -> list[tuple[int, ...]]:
    """The first ``count`` entries of each array. Raises when one is shorter."""
    refuse_if(
        COUNT.reject(where, name, array, expected=f"{count} entries")
        for name, array in arrays.items()
        if len(array) < count
    )
    return [tuple(array[:count]) for array in arrays.values()]


def rank_in(where: str, name: str, rank: int, low: int, high: int, status: Status | None = None) -> None:
    if not low <= rank <= high:
        expected = f"{low} to {high} axes" if low != high else f"{low} axes"
        refuse_if([RANK.reject(where, name, f"{rank} axes", status=status, expected=expected)])


def same_dims(where: str, reason: str, tensors: Mapping[str, Any], *, status: Status = Status.BAD_PARAM) -> None:
    """Every tensor has the extents of the first."""
    first, *others = tensors.items()
    refuse_if(
        SAME_DIMS.reject(where, f"{n}.dims", t.dims, status=status, expected=str(first[1].dims), reason=reason)
        for n, t in others
        if t.dims != first[1].dims
    )


def same_type(where: str, tensors: Mapping[str, Any], *, status: Status = Status.BAD_PARAM) -> None:
    """Every tensor has the element type of the first."""
    first, *others = tensors.items()
    refuse_if(
        SAME_TYPE.reject(where, f"{n}.dataType", t.data_type.name, status=status, expected=first[1].data_type.name)
        for n, t in others
        if t.data_type is not first[1].data_type
    )


def same_strides(where: str, tensors: Mapping[str, Tensor], *, status: Status = Status.BAD_PARAM) -> None:
    """Every tensor has the strides of the first."""
    first, *others = tensors.items()
    refuse_if(
        SAME_STRIDES.reject(where, f"{n}.strides", t.strides, status=status, expected=str(first[1].strides))
        for n, t in others
        if t.strides != first[1].strides
    )


def broadcasts(where: str, name: str, tensor: Tensor, to: Tensor) -> None:
    """Same rank, and each extent is the other's or 1."""
    fits = len(tensor.dims) == len(to.dims) and all(a in (1, c) for a, c in zip(tensor.dims, to.dims, strict=True))
    if not fits:
        reason = "the operand repeats along axes of extent 1 only"
        expected = f"{to.dims}, or 1 on any axis"
        refuse_if([SAME_DIMS.reject(where, f"{name}.dims", tensor.dims, expected=expected, reason=reason)])


def lrn_ranges(where: str, norm: LRN) -> None:
    """Settings of response and divisive normalisation within the limits of the headers."""
    refuse_if(
        RANGE.reject(where, name, given, expected=expected)
        for name, given, expected, fits in (
            ("lrnN", norm.n, f"{LRN_N[0]} to {LRN_N[1]}", LRN_N[0] <= norm.n <= LRN_N[1]),
            ("lrnBeta", norm.beta, f"at least {LRN_BETA}", reaches(norm.beta, LRN_BETA)),
            ("lrnK", norm.k, f"at least {LRN_K}", reaches(norm.k, LRN_K)),
        )
        if not fits
    )
