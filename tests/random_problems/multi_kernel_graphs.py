"""Graphs of several kernels with a workspace between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdnn import ConvolutionMode, TensorSpec
from graphdnn.enums import PointwiseMode, ReductionOperator
from graphdnn.operations import ConvForward, ConvolutionSpec, Matmul, MatmulSpec, Reduction, ReductionSpec, Transpose
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import SMOOTH, binary, operand, unary

M = PointwiseMode


def network(s: Sketch) -> Problem:
    """Convolutions, reductions and pointwise operations on values drawn from all that came before."""
    n, c, side = s.extent(2, 3), s.extent(6, 40), s.extent(5, 14) + 2
    image = (n, c, side, side)
    kind = s.one_of(("f32", "f32", "f16", "bf16"))
    values: list[TensorSpec] = [s.input(image, kind)]
    for i in range(s.number(3, 6)):
        x = values[-1] if s.chance(0.6) else s.one_of(values)
        last = i > 1 and s.chance(0.3)
        y = s.tensor(image, kind) if last or s.chance(0.15) else s.virtual(image, kind)
        _layer(s, x, y, values, c)
        values.append(y)
    read = {t.uid for op in s.operations for t in op.inputs().values()}
    ends = [v for v in values if v.uid not in read and v.is_virtual]
    for end in ends:
        unary(s, M.IDENTITY, end, s.tensor(image, kind), "f32")
    return s.problem(covers=("network",))


def _layer(s: Sketch, x: TensorSpec, y: TensorSpec, values: list[TensorSpec], c: int) -> None:
    kind = s.rng.random()
    image = x.dims
    if kind < 0.35:
        w = s.input((c, c, 3, 3), x.data_type)
        s.values[w.uid] = (s.values[w.uid].astype(np.float32) / (3 * c**0.5)).astype(s.values[w.uid].dtype)
        conv = ConvolutionSpec(
            compute_type="f32", spatial_dims=2, dilations=(1, 1), filter_strides=(1, 1), pre_paddings=(1, 1),
            post_paddings=(1, 1), mode=ConvolutionMode.CROSS_CORRELATION,
        )  # fmt: skip
        s.add(ConvForward(x=x, w=w, y=y, conv=conv))
    elif kind < 0.5:
        total = s.virtual((1, c, 1, 1), "f32")
        operator = s.one_of((ReductionOperator.MAX, ReductionOperator.AVG))
        s.add(Reduction(x=x, y=total, spec=ReductionSpec(operator=operator, compute_type="f32")))
        binary(s, s.one_of((M.ADD, M.MUL)), x, total, y, "f32")
    elif kind < 0.75:
        binary(s, M.ADD, x, s.one_of(values) if s.chance(0.5) else operand(s, image, "f32"), y, "f32")
    else:
        unary(s, s.one_of((M.RELU_FWD, *SMOOTH)), x, y, "f32")


def products(s: Sketch) -> Problem:
    """Two matrix products with a rounding and, sometimes, a transposition between."""
    batch, m, k, n, o = s.extent(2, 3), *(s.extent(9, 90) for _ in range(4))
    kind: Any = s.one_of(("f32", "f16", "bf16"))
    a, b, c = s.input((batch, m, k), kind), s.input((batch, k, n), kind), s.input((1, n, o), kind)
    first = s.virtual((batch, m, n), kind)
    s.add(Matmul(a=a, b=b, c=first, spec=MatmulSpec(compute_type="f32")))
    hidden = s.virtual((batch, m, n), kind)
    unary(s, s.one_of((M.RELU_FWD, *SMOOTH)), first, hidden, "f32")
    y = s.tensor((batch, m, o), kind)
    s.add(Matmul(a=hidden, b=c, c=y, spec=MatmulSpec(compute_type="f32")))
    if s.chance(0.4):
        s.add(Transpose(x=y, y=s.tensor((o, m, batch), kind), permutation=(2, 1, 0)))
    return s.problem(covers=("products",))
