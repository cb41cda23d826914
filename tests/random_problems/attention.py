"""Attention: a softmax between two products, with masks, biases and statistics."""

from __future__ import annotations

from math import inf

import numpy as np

from graphdnn import TensorSpec
from graphdnn.enums import PointwiseMode as M
from graphdnn.enums import ReductionOperator
from graphdnn.operations import Matmul, MatmulSpec, PointwiseOperation, PointwiseSpec, Reduction, ReductionSpec
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import binary, unary

_SUMS = MatmulSpec(compute_type="f32")
_HEADS = (8, 16, 24, 32, 40, 64, 64, 80, 128)


def attention(s: Sketch) -> Problem:
    """Heads of q share those of k and v sometimes; the last axis of each operand is the head's, whatever the others are."""
    kind = s.one_of(("f16", "bf16"))
    shared, held = s.number(1, 3), s.number(1, 2)
    batch = (s.extent(2, 3), held * shared) if s.chance(0.8) else (held * shared,)
    rows, keys = s.extent(40, 200), 1 + s.extent(40, 300)
    depth, columns = (s.one_of(_HEADS if s.large else _HEADS[:4]) for _ in range(2))
    of_keys = (*batch[:-1], held)
    whole, row = (*batch, rows, keys), (*batch, rows, 1)

    def operand(dims: tuple[int, ...], turned: bool = False) -> TensorSpec:
        """Heads or lines outermost, with a gap sometimes; ``turned``: the head's axis is the last but one."""
        order = list(range(len(dims) - 1))
        s.rng.shuffle(order)
        strides, step = [0] * len(dims), dims[-1]
        strides[-1] = 1
        for axis in order:
            strides[axis] = step
            step *= dims[axis]
            step += 8 * s.number(0, 1)
        if turned:
            dims, strides = (*dims[:-2], dims[-1], dims[-2]), [*strides[:-2], strides[-1], strides[-2]]
        spec = TensorSpec(uid=s.uid(), data_type=kind, dims=dims, strides=tuple(strides))
        s.values[spec.uid] = s.drawn(spec)
        return spec

    q, k, v = (
        operand((*batch, rows, depth)),
        operand((*of_keys, keys, depth), turned=True),
        operand((*of_keys, keys, columns)),
    )
    x = s.virtual(whole, "f32")
    s.add(Matmul(a=q, b=k, c=x, spec=_SUMS))

    def stepped(mode: M, b: TensorSpec) -> TensorSpec:
        made = s.virtual(whole, "f32")
        binary(s, mode, x, b, made, "f32")
        return made

    if s.chance(0.7):
        x = stepped(M.MUL, s.scalar(len(whole), 0.25))
    if s.chance(0.3):
        dims = tuple(n if s.chance(0.6) else 1 for n in whole)
        x = stepped(M.ADD, s.input(dims, s.one_of((kind, "f32"))))
    x = _masked(s, x)
    most, total = s.virtual(row, "f32"), s.virtual(row, "f32")
    powers = s.virtual(whole, "f32")
    s.add(Reduction(x=x, y=most, spec=ReductionSpec(operator=ReductionOperator.MAX, compute_type="f32")))
    shifted = stepped(M.SUB, most)
    unary(s, M.EXP, shifted, powers, "f32")
    s.add(Reduction(x=powers, y=total, spec=ReductionSpec(operator=ReductionOperator.ADD, compute_type="f32")))
    p = s.virtual(whole, kind)
    binary(s, M.DIV, powers, total, p, "f32")
    o = s.tensor((*batch, rows, columns), s.one_of((kind, "f32")), s.one_of(("packed", None)))
    s.add(Matmul(a=p, b=v, c=o, spec=_SUMS))
    if s.chance(0.4):
        logarithm, statistics = s.virtual(row, "f32"), s.tensor(row, "f32", "packed")
        unary(s, M.LOG, total, logarithm, "f32")
        binary(s, M.ADD, most, logarithm, statistics, "f32")
    return s.problem(covers=("attention",))


def _masked(s: Sketch, x: TensorSpec) -> TensorSpec:
    """With none, one or two masks made of indices."""
    rank, (rows, keys) = x.rank, x.dims[-2:]

    def made(mode: M, a: TensorSpec, b: TensorSpec | None, kind: str, **fields: int) -> TensorSpec:
        y = s.virtual(x.dims, kind)
        operands = {"x": a} if b is None else {"x": a, "b": b}
        s.add(PointwiseOperation(spec=PointwiseSpec(mode=mode, math_type="i32", **fields), y=y, **operands))
        return y

    def index(axis: int, by: int = 0) -> TensorSpec:
        found = made(M.GEN_INDEX, x, None, "i32", axis=axis)
        if not by:
            return found
        return made(M.ADD, found, s.tensor((1,) * rank, "i32", "packed", is_by_value=True, constant_value=by), "i32")

    masks = []
    if s.chance(0.2):
        lengths = s.tensor((x.dims[0], *(1,) * (rank - 1)), "i32", "packed")
        s.values[lengths.uid] = s.rng.integers(1, keys, lengths.dims, endpoint=True).astype(np.int32)
        masks.append((M.CMP_LT, index(rank - 1), lengths))
    if s.chance(0.5):
        masks.append((M.CMP_GE, index(rank - 2, s.number(-2, max(0, keys - rows))), index(rank - 1)))
    if s.chance(0.2):
        masks.append((M.CMP_LT, index(rank - 2), index(rank - 1, s.number(1, 30))))
    for mode, a, b in masks:
        mask, y = made(mode, a, b, "bool"), s.virtual(x.dims, "f32")
        hidden = s.tensor((1,) * rank, "f32", "packed", is_by_value=True, constant_value=s.one_of((-inf, -inf, -1e4)))
        s.add(PointwiseOperation(spec=PointwiseSpec(mode=M.BINARY_SELECT, math_type="f32"), x=x, b=hidden, t=mask, y=y))
        x = y
    return x
