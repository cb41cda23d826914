"""A contraction over named axes as calls of cuBLAS: the choice of the axes for M, N, K and the batch.

An axis is ``(size, stride of a, stride of b, stride of c)``, in elements. Axes of one kind are merged if all operands
pass through them with one stride. The other axes of rows and columns become the batch, or need several calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from graphdnn.cuda.cublas import Gemm
from graphdnn.engines.cuda.cublas.strided_gemm import INT8_ALIGNMENT, Matrices, Sizes, plan
from graphdnn.enums import DataType

Axis = tuple[int, int, int, int]
MOST_CALLS = 64
_ONE: Axis = (1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Contraction:
    """c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]."""

    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]
    batch: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class GemmCall:
    """A division of a contraction into cuBLAS calls: one call for each combination of the ``outer`` axes."""

    gemm: Gemm
    is_exchanged: bool  # whether the call exchanges a and b
    outer: tuple[Axis, ...]

    @property
    def calls(self) -> int:
        return prod(size for size, *_ in self.outer)

    def starts(self) -> list[tuple[int, int, int]]:
        """Elements from the start of each operand to the first matrix of every call."""
        found = [(0, 0, 0)]
        for size, x, y, z in self.outer:
            found = [(a + i * x, b + i * y, c + i * z) for a, b, c in found for i in range(size)]
        return found


def merged(axes: Sequence[Axis], by: int) -> list[Axis]:
    """The axes with contiguous ones merged, outermost first in the memory of operand ``by``."""
    found: list[Axis] = []
    for size, x, y, z in sorted((a for a in axes if a[0] > 1), key=lambda axis: -axis[1 + by]):
        if found and found[-1][1:] == (size * x, size * y, size * z):
            found[-1] = (found[-1][0] * size, x, y, z)
        else:
            found.append((size, x, y, z))
    return found


def best_product(
    contraction: Contraction, types: tuple[DataType, DataType], arithmetic: DataType, most_calls: int = MOST_CALLS
) -> GemmCall | None:
    """The division with the fewest calls, then the largest matrices; None if cuBLAS cannot address the strides."""
    found = [p for p in _products(contraction, types, arithmetic) if p.calls <= most_calls]
    return min(found, key=lambda p: (p.calls, -p.gemm.m * p.gemm.n), default=None)


def _products(contraction: Contraction, types: tuple[DataType, DataType], arithmetic: DataType) -> Iterator[GemmCall]:
    terms = merged(contraction.k, 0)
    if len(terms) > 1:
        return
    k, ak, bk, _ = (terms or [_ONE])[0]
    operand, result = types
    columns = merged(contraction.n, 2) or [_ONE]
    for shared in (True, False):
        # A batch with one b is a larger M.
        extra = [axis for axis in contraction.batch if axis[2] == 0] if shared else []
        rows = merged([*contraction.m, *extra], 2) or [_ONE]
        batch = [axis for axis in contraction.batch if axis not in extra]
        for row in rows:
            for column in columns:
                rest = [a for a in rows if a is not row] + [a for a in columns if a is not column] + batch
                stack = merged(rest, 2)
                inner = max(stack, default=_ONE)
                outer = tuple(axis for axis in stack if axis is not inner)
                if operand is DataType.INT8 and any(v % INT8_ALIGNMENT for axis in outer for v in axis[1:3]):
                    continue
                sizes = Sizes(row[0], column[0], k, inner[0])
                call = plan(
                    sizes,
                    Matrices(operand, row[1], ak, inner[1]),
                    Matrices(operand, bk, column[2], inner[2]),
                    Matrices(result, row[3], column[3], inner[3]),
                    arithmetic,
                )
                if call is not None:
                    yield GemmCall(*call, outer)
