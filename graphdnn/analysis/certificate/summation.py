"""How a kernel adds up: the roundings of one sum of products, as its engine states them.

For any order of n terms, sums of parts included, ``|computed - exact| <= gamma_n * sum |x| |w|``: each term passes
through one product and at most n - 1 additions (N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd
edition, SIAM 2002, sections 3.1 and 4.2). An engine that adds in other ways states its own count of units
(``Engine.sum_error``): tensor cores cut (M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, *Numerical behavior of NVIDIA
tensor cores*, PeerJ Computer Science 7 (2021) e330), Winograd's transforms add up larger numbers (B. Barabasz, A.
Anderson, K. M. Soodhalter, D. Gregg, *Error analysis and improving the accuracy of Winograd convolution for deep
neural networks*, ACM Trans. Math. Softw. 46 (2020)). A count of units k is taken as gamma_k, which covers what their
products add to each other. An FFT's error is small beside the norm of its plane: Higham (2002), theorem 24.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, prod, sqrt

from graphdnn.analysis.certificate.roundoff import LAMBDA, REFERENCE, compute_of, gamma, likely, roundoff, smallest
from graphdnn.engines.operation_cost import reduction_length
from graphdnn.engines.sum_error import CUT, ROUNDED, SumError
from graphdnn.enums import NumericalNote
from graphdnn.heuristics import Choice
from graphdnn.operations import ConvolutionOperation, Operation

_ROUNDED_OPERANDS = 2.0**8  # units before the first product, from which on it is the operands that lose digits


@dataclass(frozen=True, slots=True)
class Summation:
    """``|computed - exact| <= worst * sum |x| |w| + floor``, or beside the largest values where ``products``."""

    length: int  # terms of one result
    worst: float
    statistical: float  # what a sum is hardly ever farther off
    floor: float  # absolute, times the largest of 1, |x| and |w|: what vanishes below the normal numbers
    how: str
    products: float = 0.0  # of the largest magnitudes: what the bound is relative to, in place of the sum
    headroom: float = 1.0  # intermediate numbers may be larger than the sum by as much

    @property
    def relative_to(self) -> str:
        return f"{self.products:.0f} max|x| max|w|" if self.products else "sum |x||w|"


def summation(op: Operation, choice: Choice | None) -> Summation:
    """Of a convolution or product in floating point, by the engine whose main operation it is."""
    n, compute = reduction_length(op), compute_of(op.compute_type)
    u = roundoff(compute) + REFERENCE
    if choice is not None and NumericalNote.FFT in choice.engine.numerical_notes:
        assert isinstance(op, ConvolutionOperation)
        return _by_fft(op, n, u, smallest(compute))
    row = sum_error(choice)
    units = row.units(n)
    floor = smallest(compute) if row in (ROUNDED, CUT) else row.floor
    return Summation(
        length=n,
        worst=gamma(units, u),
        statistical=_likely(row, n, u),
        floor=(n + 1) * floor,
        how=_words(row),
        products=float(n) if row.of_largest else 0.0,
        headroom=row.headroom,
    )


def sum_error(choice: Choice | None) -> SumError:
    """What the engine states; without a statement, that of tensor cores where it uses them, else of plain sums."""
    if choice is None:
        return ROUNDED
    if choice.engine.sum_error is not None:
        return choice.engine.sum_error
    return CUT if NumericalNote.TENSOR_CORE in choice.engine.numerical_notes else ROUNDED


def _likely(row: SumError, n: int, u: float) -> float:
    """Random errors grow with the root of n; those of sums that are cut have one sign, and the drift is as measured."""
    if row == ROUNDED:
        return likely(n, u)
    parts = ceil(n / row.restart) if row.restart else 0
    run = min(n, row.restart) if row.restart else n
    units = row.once + LAMBDA * row.each * sqrt(run) + LAMBDA * sqrt(parts) + row.drift * n
    return min(gamma(units, u), gamma(row.units(n), u))


def _words(row: SumError) -> str:
    if row == ROUNDED:
        return "a sum in any order"
    if row == CUT:
        return "tensor cores, exact products, cut sums"
    if row.of_largest:
        return "transforms and products of transforms"
    if row.restart:
        what = "sums of few digits" if row.each > 1 else "parts of each operand"
        return f"tensor cores, {what}, that begin anew after {row.restart} products"
    return "tensor cores, operands rounded to fewer digits" if row.once > _ROUNDED_OPERANDS else f"{row}"


def _by_fft(op: ConvolutionOperation, n: int, u: float, eta: float) -> Summation:
    """``t e / (1 - t e)`` for each of three transforms of 2^t points, beside the product of the planes' norms."""
    problem = op.problem
    planes = (prod(t.extents[-op.conv.spatial_dims :]) for t in op.inputs().values())
    sizes = zip(problem.input, problem.pre_padding, problem.post_padding, strict=True)
    steps = ceil(log2(max(2, prod(2 * sum(axis) for axis in sizes)))) + 1
    rotation = 8 * u + gamma(4, u) * (sqrt(2) + 8 * u)  # its sine and cosine are a library's
    each = steps * rotation / (1 - steps * rotation)
    channels = problem.n if op.tag == "conv_wgrad" else n // problem.taps
    worst = (1 + each) ** 3 * (1 + gamma(channels + 2, u)) - 1
    random = LAMBDA * sqrt(3 * steps + channels) * 8 * u
    norms = channels * prod(sqrt(size) for size in planes)
    how = f"transforms of {steps} steps"
    return Summation(n, worst, min(worst, random), n * eta, how, norms, norms)
