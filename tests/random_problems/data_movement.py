"""Movement of elements, and random numbers."""

from __future__ import annotations

from problems import FLOATS, INTEGERS

from graphdnn.enums import ReshapeMode, RngDistribution
from graphdnn.operations import Concat, Reshape, Rng, RngSpec, Slice, Transpose
from graphdnn.tensors import channels_last_strides, packed_strides
from random_problems.graph_sketch import Problem, Sketch

_KINDS = (*FLOATS, *INTEGERS, "bool", "boolean")


def _dims(s: Sketch) -> list[int]:
    if s.large and s.chance(0.1):
        return list(s.one_of(((700, 900), (3, s.number(1, 300), 1000), (8, 64, 33, 35))))
    rank = s.number(1, 5)
    return [s.extent(5, 2000 if rank == 1 else 130 if rank == 2 else 14) for _ in range(rank)]


def transpose(s: Sketch) -> Problem:
    s.extreme, dims, kind = True, _dims(s), s.one_of(_KINDS)
    order = [int(a) for a in s.rng.permutation(len(dims))]
    s.add(Transpose(x=s.input(dims, kind), y=s.tensor([dims[a] for a in order], kind), permutation=order))
    return s.problem(exact=True, covers=("transpose",))


def slice_of(s: Sketch) -> Problem:
    s.extreme, dims, kind = True, _dims(s), s.one_of(_KINDS)
    starts = [s.number(0, d - 1) for d in dims]
    limits = [s.number(a + 1, d) for a, d in zip(starts, dims, strict=True)]
    steps = [s.one_of((1, 1, 2, 3)) for _ in dims]
    kept = [-((a - b) // c) for a, b, c in zip(starts, limits, steps, strict=True)]
    s.add(Slice(x=s.input(dims, kind), y=s.tensor(kept, kind), starts=starts, limits=limits, slice_strides=steps))
    return s.problem(exact=True, covers=("slice",))


def concat(s: Sketch) -> Problem:
    s.extreme, dims, kind = True, _dims(s), s.one_of(_KINDS)
    axis = s.number(0, len(dims) - 1)
    pieces = [
        s.input([s.extent(5, 30) if a == axis else d for a, d in enumerate(dims)], kind) for _ in range(s.number(1, 4))
    ]
    if s.chance(0.3):
        pieces.append(pieces[0])
    total = [sum(p.dims[axis] for p in pieces) if a == axis else d for a, d in enumerate(dims)]
    s.add(Concat(inputs_list=tuple(pieces), y=s.tensor(total, kind), axis=axis))
    return s.problem(exact=True, covers=("concat",))


def reshape(s: Sketch) -> Problem:
    s.extreme, dims, kind = True, _dims(s), s.one_of(_KINDS)
    count = 1
    for extent in dims:
        count *= extent
    divisors = [d for d in range(1, min(count, 5000) + 1) if count % d == 0]
    first = s.one_of(divisors)
    second = s.one_of([d for d in divisors if (count // first) % d == 0])
    to = (first, second, count // first // second)
    if s.chance(0.5):
        s.add(Reshape(x=s.input(dims, kind), y=s.tensor(to, kind), mode=ReshapeMode.LOGICAL))
        return s.problem(exact=True, covers=("reshape",))
    how = s.one_of(("packed", "channels_last"))
    x, y = s.input(dims, kind, how), s.tensor(to, kind, s.one_of(("packed", "channels_last")))
    assert x.strides in (packed_strides(x.dims), channels_last_strides(x.dims))
    s.add(Reshape(x=x, y=y, mode=ReshapeMode.VIEW_ONLY))
    return s.problem(exact=True, covers=("view",))


def random_numbers(s: Sketch) -> Problem:
    """Engines draw the same numbers: those that are not rounded from logarithms agree to the bit."""
    dims = _dims(s)
    kind = s.number(0, 2)
    if kind == 0:
        spec = RngSpec(distribution=RngDistribution.BERNOULLI, probability=s.one_of((0.0, 0.3, 0.5, 1.0)))
        out = s.one_of(("f32", "f16", "bool", "boolean", "i8", "e4m3"))
    elif kind == 1:
        spec = RngSpec(distribution=RngDistribution.UNIFORM, minimum=-1.0, maximum=s.one_of((1.0, 3.0)))
        out = s.one_of(("f32", "f16", "bf16"))
    else:
        spec = RngSpec(distribution=RngDistribution.NORMAL, mean=s.one_of((0.0, 2.0)), standard_deviation=0.5)
        out = s.one_of(("f32", "f16"))
    seed = s.number(-(2**62), 2**62)
    given = seed if s.chance(0.5) else s.scalar(len(dims), seed, "i64")
    offset = s.scalar(len(dims), s.number(0, 2**62), "i64")
    s.add(Rng(y=s.tensor(dims, out), spec=spec, seed=given, offset=offset))
    return s.problem(exact=kind != 2, covers=(spec.distribution.name,))
