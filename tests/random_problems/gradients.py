"""Gradients as graphs of pointwise operations around sums and averages: of softmax, and of local response normalization."""

from __future__ import annotations

from graphdnn.enums import PaddingMode, PointwiseMode, ReductionOperator, ResampleMode
from graphdnn.operations import Reduction, ReductionSpec, ResampleForward, ResampleSpec
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import binary, unary

M = PointwiseMode


def softmax(s: Sketch) -> Problem:
    """dx of y and dy, over the channels or the last axes; of a softmax or of its logarithm."""
    rank = s.number(2, 4)
    dims = (*(s.extent(5, 20) for _ in range(rank - 1)), s.extent(40, 1200 if rank == 2 else 300))
    axis = 1 if s.chance(0.5) else rank - 1
    row = tuple(1 if i == axis else extent for i, extent in enumerate(dims))
    kind = s.one_of(("f32", "f16", "bf16"))
    y, dy, dx = s.positive(dims, kind), s.input(dims, kind), s.tensor(dims, s.one_of((kind, "f32")))
    total = s.virtual(row, "f32")
    sums = ReductionSpec(operator=ReductionOperator.ADD, compute_type="f32")
    if s.chance(0.5):
        powers, share = s.virtual(dims, "f32"), s.virtual(dims, "f32")
        s.add(Reduction(x=dy, y=total, spec=sums))
        unary(s, M.EXP, y, powers, "f32")
        binary(s, M.MUL, powers, total, share, "f32")
        binary(s, M.SUB, dy, share, dx, "f32")
    else:
        product, rest = s.virtual(dims, "f32"), s.virtual(dims, "f32")
        binary(s, M.MUL, y, dy, product, "f32")
        s.add(Reduction(x=product, y=total, spec=sums))
        binary(s, M.SUB, dy, total, rest, "f32")
        binary(s, M.MUL, y, rest, dx, "f32")
    return s.problem(covers=("softmax gradient",))


def response(s: Sketch) -> Problem:
    """dx of y, dy and x, whose channels are the first axis that windows run over."""
    window = s.number(2, 16)
    back, rank = s.number(0, window - 1), s.number(3, 4)
    dims = (s.extent(3, 8), 1, s.extent(20, 300), *(s.extent(10, 40) for _ in range(rank - 3)))
    kind = s.one_of(("f32", "f16", "bf16"))
    x, y, dy = (s.input(dims, kind) for _ in range(3))
    dx = s.tensor(dims, kind)
    squares, mean, base, factor, direct, product, share, through, part = (s.virtual(dims, "f32") for _ in range(9))

    def averages(before: int) -> ResampleSpec:
        ones, zeros = (1,) * (rank - 3), (0,) * (rank - 3)
        return ResampleSpec(
            mode=ResampleMode.AVGPOOL_INCLUDE_PADDING, compute_type="f32", spatial_dims=rank - 2,
            padding_mode=PaddingMode.ZERO_PAD, strides=(1, *ones), window_dims=(window, *ones),
            pre_paddings=(before, *zeros), post_paddings=(window - 1 - before, *zeros),
        )  # fmt: skip

    binary(s, M.MUL, x, x, squares, "f32")
    s.add(ResampleForward(x=squares, y=mean, spec=averages(back)))
    binary(s, M.ADD, mean, s.scalar(rank, 2.0), base, "f32")
    binary(s, M.POW, base, s.scalar(rank, -0.75), factor, "f32")
    binary(s, M.MUL, dy, factor, direct, "f32")
    binary(s, M.MUL, dy, y, product, "f32")
    binary(s, M.DIV, product, base, share, "f32")
    s.add(ResampleForward(x=share, y=through, spec=averages(window - 1 - back)))
    binary(s, M.MUL, x, through, part, "f32")
    binary(s, M.SUB, direct, part, dx, "f32")
    return s.problem(covers=("response gradient",))
