"""Matrix products: batches that repeat, any strides, types and chains."""

from __future__ import annotations

from math import prod
from typing import Any

from problems import INTEGERS

from graphdnn import TensorSpec
from graphdnn.enums import PointwiseMode
from graphdnn.operations import Matmul, MatmulSpec
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import chain, exit_of, unary


def _extents(s: Sketch, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    a, b = [], []
    for _ in range(s.one_of((0, 0, 1, 1, 2))):
        small, factor = s.number(1, 3), s.one_of((1, 1, 2, 3))
        pair = [small, small * factor]
        if s.chance(0.5):
            pair.reverse()
        a.append(pair[0])
        b.append(pair[1])
    s.aligned = s.chance(0.4)
    m, k, n = (s.channels(9, 200) for _ in range(3))
    k = row * -(-k // row)
    return (*a, m, k), (*b, k, n)


def _along_k(spec: TensorSpec) -> TensorSpec:
    """b with its columns' elements next to each other."""
    *batch, k, n = spec.dims
    pace = [k * n * prod(batch[i + 1 :]) for i in range(len(batch))]
    return spec.model_copy(update={"strides": (*pace, 1, k)})


def _build(
    s: Sketch, kinds: tuple[Any, Any, Any], compute: Any, steps: int, out: Any, exact: bool, row: int = 1
) -> None:
    """``kinds`` of a, b and c; c is virtual where a chain follows. ``row``: above 1 operands lie along k, a multiple."""
    a_dims, b_dims = _extents(s, row)
    batch = tuple(map(max, a_dims[:-2], b_dims[:-2]))
    dims = (*batch, a_dims[-2], b_dims[-1])
    plain = "packed" if row > 1 else None
    a, b = s.input(a_dims, kinds[0], plain), s.input(b_dims, kinds[1], plain)
    if row > 1:
        b = _along_k(b)
    if steps and s.chance(0.25):
        before = s.virtual(a_dims, a.data_type)
        unary(s, PointwiseMode.RELU_FWD, a, before, compute)
        a = before
    if steps and s.chance(0.15):
        before = s.virtual(b_dims, b.data_type)
        unary(s, PointwiseMode.ABS, b, before, compute)
        b = before
    c = s.virtual(dims, kinds[2]) if steps else s.tensor(dims, kinds[2])
    s.add(Matmul(a=a, b=b, c=c, spec=MatmulSpec(compute_type=compute)))
    if steps:
        last = chain(s, c, steps, compute, out, exact=exact)
        if s.chance(0.2):
            exit_of(s, last)


def floating(s: Sketch) -> Problem:
    s.quarters = exact = s.chance(0.5)
    kind = s.one_of(("f64", "f32", "f32", "f16", "f16", "bf16", "e4m3", "mixed"))
    kinds = tuple(s.one_of(("f32", "f16", "bf16", "e5m2")) for _ in range(3)) if kind == "mixed" else (kind,) * 3
    compute = "f64" if kind == "f64" else "f32"
    steps = 0 if s.chance(0.4) else s.number(1, 4)
    between = (kinds[0], kinds[1], compute if steps else kinds[2])
    _build(s, between, compute, steps, kinds[2], exact, 8 if s.chance(0.15) else 1)
    exact = exact and all(op.tag not in ("reduction", "genstats") for op in s.operations)
    return s.problem(exact, covers=(kind,))


def whole(s: Sketch) -> Problem:
    s.extreme = s.chance(0.5)
    compute = s.one_of(("i32", "i32", "i64"))
    held = INTEGERS if compute == "i64" else INTEGERS[:-1]
    kinds = ("i8", "i8") if s.chance(0.4) else (s.one_of(held), s.one_of(held))
    steps, out = 0 if s.chance(0.5) else s.number(1, 3), s.one_of(("i8", "i32", "i64"))
    row = 1
    if s.chance(0.3):  # tensor cores have all that they ask for
        row, compute, kinds = 16, "i32", (s.one_of(("i8", "u8")), s.one_of(("i8", "u8")))
    _build(s, (*kinds, compute if steps else out), compute, steps, out, exact=True, row=row)
    return s.problem(exact=True, covers=(compute,))
