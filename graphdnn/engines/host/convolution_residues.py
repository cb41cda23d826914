"""dgrad as fprop: one problem of unit stride for every residue of dx's positions modulo the stride."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd
from typing import Any, NamedTuple

from numpy.typing import NDArray

from graphdnn.operations.conv_problem import ConvProblem

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Residue:
    positions: tuple[slice, ...]  # of dx
    taps: tuple[slice, ...]  # that reach them
    problem: ConvProblem | None  # reads dy, writes these positions; None where no tap reaches them


class _AxisResidue(NamedTuple):
    positions: slice
    taps: slice
    output: int
    filter: int
    pre_padding: int
    dilation: int


@lru_cache(maxsize=64)
def residues_of(problem: ConvProblem) -> tuple[_Residue, ...]:
    residues = []
    for axes in product(*(_axis_residues(problem, axis) for axis in range(problem.spatial))):
        reached: ConvProblem | None = None
        if all(axis.filter for axis in axes):
            reached = ConvProblem(
                n=problem.n,
                groups=problem.groups,
                c=problem.k,
                k=problem.c,
                input=problem.output,
                filter=tuple(axis.filter for axis in axes),
                output=tuple(axis.output for axis in axes),
                pre_padding=tuple(axis.pre_padding for axis in axes),
                post_padding=(0,) * problem.spatial,
                stride=(1,) * problem.spatial,
                dilation=tuple(axis.dilation for axis in axes),
                flip=not problem.flip,
            )
        positions, taps = tuple(axis.positions for axis in axes), tuple(axis.taps for axis in axes)
        residues.append(_Residue(positions, taps, reached))
    return tuple(residues)


def _axis_residues(problem: ConvProblem, axis: int) -> list[_AxisResidue]:
    """Tap i reads x at q = p*stride + i*dilation - pre, so dx[q] takes dy[p] for p = (q + pre - i*dilation) / stride.

    p is whole, for q = residue + m*stride, for every ``step``-th tap i = first + j*step, and then is
    m + offset - j*spread: a convolution of unit stride over m, with taps in reverse.
    """
    size, taps, pre = problem.input[axis], problem.filter[axis], problem.pre_padding[axis]
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    common = gcd(stride, dilation)
    step, spread = stride // common, dilation // common
    found = []
    for residue in range(min(stride, size)):
        whole = (i for i in range(min(step, taps)) if (residue + pre - i * dilation) % stride == 0)
        first = next(whole, taps)
        count = len(range(first, taps, step))
        offset = (residue + pre - first * dilation) // stride
        # A filter read in reverse has tap i in element taps-1-i: the chosen ones lie as far apart, from the other end.
        start = taps - 1 - first - (count - 1) * step if problem.flip else first
        found.append(
            _AxisResidue(
                positions=slice(residue, None, stride),
                taps=slice(start, start + count * step, step),
                output=len(range(residue, size, stride)),
                filter=count,
                pre_padding=(count - 1) * spread - offset,
                dilation=spread,
            )
        )
    return found
