"""dgrad as fprop: one problem of unit stride for every residue of dx's positions modulo the stride.

There are as many residues as the product of strides, so only an execution walks through them: the residues that a tap
reaches are no more than the filter has taps, nor than dx has positions. What a plan has to know is the sizes of their
problems (``problems_of``): along an axis no two of them differ by more than one position and one tap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import Any, NamedTuple

from numpy.typing import NDArray

from graphdnn.operations.conv_problem import ConvProblem

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Residue:
    """``problem`` reads dy and writes the positions; where no tap reaches them, its filter has none."""

    positions: tuple[slice, ...]  # of dx
    taps: tuple[slice, ...]  # that reach them
    problem: ConvProblem

    @property
    def is_reached(self) -> bool:
        return self.problem.taps > 0


class _AxisResidue(NamedTuple):
    positions: slice
    taps: slice
    output: int
    filter: int
    pre_padding: int


@dataclass(frozen=True, slots=True)
class _Axis:
    """Tap i reads x at q = p*stride + i*dilation - pre, so dx[q] takes dy[p] for p = (q + pre - i*dilation) / stride.

    p is whole, for q = residue + m*stride, for every ``step``-th tap i = first + j*step, and then is
    m + offset - j*spread: a convolution of unit stride over m, with taps in reverse.
    """

    size: int
    taps: int
    pre: int
    stride: int
    dilation: int
    step: int
    spread: int
    flip: bool

    @classmethod
    def of(cls, problem: ConvProblem, axis: int) -> _Axis:
        stride, dilation = problem.stride[axis], problem.dilation[axis]
        common = gcd(stride, dilation)
        size, taps, pre = problem.input[axis], problem.filter[axis], problem.pre_padding[axis]
        return cls(size, taps, pre, stride, dilation, stride // common, dilation // common, problem.flip)

    @property
    def count(self) -> int:
        return min(self.stride, self.size)

    def first_tap(self, residue: int) -> int:
        """The first tap that reaches a residue; ``taps`` where none does."""
        whole, rest = divmod(residue + self.pre, self.stride // self.step)
        first = 0 if self.step == 1 else whole * pow(self.spread, -1, self.step) % self.step
        return self.taps if rest else min(first, self.taps)

    def every(self) -> Iterator[_AxisResidue]:
        return (self._residue(residue, self.first_tap(residue)) for residue in range(self.count))

    def reached(self) -> Iterator[_AxisResidue]:
        """The residues that a tap reaches, in the order of their positions."""
        firsts = min(self.step, self.taps)
        if firsts < self.count:
            found = ((tap * self.dilation - self.pre) % self.stride for tap in range(firsts))
            residues: Iterable[int] = sorted(residue for residue in found if residue < self.size)
        else:
            residues = range(self.count)
        firsts_of = ((residue, self.first_tap(residue)) for residue in residues)
        return (self._residue(residue, first) for residue, first in firsts_of if first < self.taps)

    @property
    def is_reached_everywhere(self) -> bool:
        enough = min(self.step, self.taps) >= self.count
        return enough and all(self.first_tap(residue) < self.taps for residue in range(self.count))

    def _residue(self, residue: int, first: int) -> _AxisResidue:
        count = -(-(self.taps - first) // self.step)
        offset = (residue + self.pre - first * self.dilation) // self.stride
        # A filter read in reverse has tap i in element taps-1-i: the chosen ones lie as far apart, from the other end.
        start = self.taps - 1 - first - (count - 1) * self.step if self.flip else first
        return _AxisResidue(
            positions=slice(residue, None, self.stride),
            taps=slice(start, start + count * self.step, self.step),
            output=-(-(self.size - residue) // self.stride),
            filter=count,
            pre_padding=(count - 1) * self.spread - offset,
        )

    def sizes(self) -> list[tuple[int, int]]:
        """Positions and taps that residues may have, each at least 1; some pairs may be those of no residue."""
        positions = dict.fromkeys((-(-self.size // self.stride), max(1, self.size // self.stride)))
        taps = dict.fromkeys((-(-self.taps // self.step), max(1, self.taps // self.step)))
        return list(product(positions, taps))


def residue_count(problem: ConvProblem) -> int:
    return prod(min(stride, size) for stride, size in zip(problem.stride, problem.input, strict=True))


def residues_of(problem: ConvProblem) -> Iterator[Residue]:
    """All of them, as they are asked for."""
    axes = _axes(problem)
    return (_joined(problem, axes, residues) for residues in _combined(axes, _Axis.every))


def reached_residues(problem: ConvProblem) -> Iterator[Residue]:
    """The positions that a tap reaches, one after another. Every other position of dx is 0."""
    axes = _axes(problem)
    return (_joined(problem, axes, residues) for residues in _combined(axes, _Axis.reached))


def reaches_every_position(problem: ConvProblem) -> bool:
    return all(axis.is_reached_everywhere for axis in _axes(problem))


def problems_of(problem: ConvProblem) -> Iterator[ConvProblem]:
    """At least one problem of the sizes of each reached residue's; at most four for each axis."""
    axes = _axes(problem)
    nothing = (0,) * problem.spatial
    for sizes in product(*(axis.sizes() for axis in axes)):
        outputs, taps = zip(*sizes, strict=True)
        yield _reading_dy(problem, axes, outputs, taps, nothing)


def _axes(problem: ConvProblem) -> tuple[_Axis, ...]:
    return tuple([_Axis.of(problem, axis) for axis in range(problem.spatial)])


def _combined(
    axes: Sequence[_Axis], walk: Callable[[_Axis], Iterator[_AxisResidue]]
) -> Iterator[tuple[_AxisResidue, ...]]:
    """As ``itertools.product``, which would walk through every axis before it yields anything."""
    if not axes:
        yield ()
        return
    for first in walk(axes[0]):
        for rest in _combined(axes[1:], walk):
            yield (first, *rest)


def _joined(problem: ConvProblem, axes: tuple[_Axis, ...], residues: Sequence[_AxisResidue]) -> Residue:
    positions, taps, outputs, filters, paddings = zip(*residues, strict=True)
    return Residue(positions, taps, _reading_dy(problem, axes, outputs, filters, paddings))


def _reading_dy(
    problem: ConvProblem,
    axes: tuple[_Axis, ...],
    outputs: tuple[int, ...],
    filters: tuple[int, ...],
    paddings: tuple[int, ...],
) -> ConvProblem:
    return ConvProblem(
        n=problem.n,
        groups=problem.groups,
        c=problem.k,
        k=problem.c,
        input=problem.output,
        filter=filters,
        output=outputs,
        pre_padding=paddings,
        post_padding=(0,) * problem.spatial,
        stride=(1,) * problem.spatial,
        dilation=tuple([axis.spread for axis in axes]),
        flip=not problem.flip,
    )
