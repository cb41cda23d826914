"""ConvProblem: the one geometry behind fprop, dgrad and wgrad.

Both ways of writing groups, ``[N, G*C, ...]`` with filters ``[G*K, C, ...]``
and ``[N, G, C, ...]`` with ``[G, K, C, ...]``, are read into the same record, so
shape rules, cost models and engines see one form. The three directions are
the same contraction with the roles of x, w and y exchanged; only which of the
three is written differs, and that is not part of the geometry.

Names: x ``[N, G, C, *input]``, w ``[G, K, C, *filter]``, y ``[N, G, K, *output]``;
C and K count per group. Spatial axes are outermost first: (D,) H, W.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """Sizes of one convolution, in elements; every spatial tuple has 1 to 3 entries."""

    n: int
    groups: int
    c: int
    k: int
    input: tuple[int, ...]
    filter: tuple[int, ...]
    output: tuple[int, ...]
    pre_padding: tuple[int, ...]
    post_padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    flip: bool = False  # True for CUDNN_CONVOLUTION: taps are read in reverse on every spatial axis

    @property
    def spatial(self) -> int:
        return len(self.input)

    @property
    def x_extents(self) -> tuple[int, ...]:
        return (self.n, self.groups, self.c, *self.input)

    @property
    def w_extents(self) -> tuple[int, ...]:
        return (self.groups, self.k, self.c, *self.filter)

    @property
    def y_extents(self) -> tuple[int, ...]:
        return (self.n, self.groups, self.k, *self.output)

    @property
    def taps(self) -> int:
        """Filter positions R*S (times T in 3-D)."""
        return prod(self.filter)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of any of the three directions, padding taps included."""
        return self.n * self.groups * self.k * self.c * self.taps * prod(self.output)

    @property
    def is_pointwise_filter(self) -> bool:
        """1x1 filter, unit stride, no padding: the convolution is a matrix product without copies."""
        return (
            self.taps == 1
            and all(s == 1 for s in self.stride)
            and not any(self.pre_padding)
            and not any(self.post_padding)
        )


def output_extent(size: int, filter: int, pre: int, post: int, stride: int, dilation: int) -> int:
    """Outputs along one axis: ``1 + floor((size + pre + post - dilation*(filter-1) - 1) / stride)``.

    At most 0 when the dilated filter is larger than the padded input, so callers can say so.
    """
    return 1 + (size + pre + post - dilation * (filter - 1) - 1) // stride


def pairs_inside(size: int, filter: int, outputs: int, pre: int, stride: int, dilation: int) -> int:
    """Pairs of an output and a tap along one axis that read inside the image, in steps of the sizes' logarithm."""

    def before(limit: int) -> int:
        """Pairs that read before a position, the first output's first tap at 0."""
        if limit <= 0:
            return 0
        reading = min(filter, -(-limit // dilation))  # taps of the first output that read there
        whole = min(reading, max(0, -((outputs * stride - limit - stride) // dilation)))  # and every other output
        rest = reading - whole
        # Of each tap of the rest, ceil((limit - tap * dilation) / stride) outputs; the last of these taps comes first.
        return whole * outputs + floor_sum(rest, stride, dilation, limit - (reading - 1) * dilation + stride - 1)

    return before(size + pre) - before(pre)


def floor_sum(count: int, divisor: int, step: int, start: int) -> int:
    """The sum of ``(step * i + start) // divisor`` for i from 0 to ``count`` - 1; none of them is negative."""
    total = 0
    while count > 0:
        whole, step = divmod(step, divisor)
        total += whole * (count * (count - 1) // 2)
        whole, start = divmod(start, divisor)
        total += whole * count
        reached, rest = divmod(step * count + start, divisor)
        # What is left counts points below a line: the same points, counted along the other axis.
        count, divisor, step, start = reached, step, divisor, rest
    return total
