"""Data movement, random numbers and whole graphs end to end: NumPy bit for bit, Philox, moments."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import (
    EXAMPLES,
    FLOATS,
    INTEGERS,
    LAYOUTS,
    SEEDS,
    Tally,
    bound,
    drawn,
    execute,
    one,
    pointwise,
    scalar,
    tensor,
    three_layouts,
    values_of,
)

from graphdnn import OperationGraph, TensorSpec, fuse
from graphdnn.dtypes import Array
from graphdnn.engines.host.memory import from_pointer, load
from graphdnn.enums import DataType, PointwiseMode, ReductionOperator, ReshapeMode, RngDistribution
from graphdnn.operations import (
    Concat,
    Matmul,
    MatmulSpec,
    Operation,
    Reduction,
    ReductionSpec,
    Reshape,
    Rng,
    RngSpec,
    Slice,
    Transpose,
)
from graphdnn.tensors import packed_strides

P = PointwiseMode
R = ReductionOperator


# Movement.

EVERY_TYPE = [*FLOATS, *INTEGERS, "bool", "boolean"]


def same_bits(found: Array, expected: Array) -> None:
    """NaN included."""
    assert found.shape == expected.shape
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


@EXAMPLES
@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_movement_equals_numpy_bit_for_bit(kind: str, examples: int) -> None:
    """concat, transpose, slice and LOGICAL reshape between any two layouts."""
    tally = Tally("movement")

    @drawn(15 * examples)
    @given(st.lists(st.integers(1, 4), min_size=1, max_size=5), three_layouts, st.data(), SEEDS)
    def check(dims: list[int], how: list[str], draw: Any, seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = tensor(1, dims, kind, how[0])
        data = values_of(x, rng, extreme=True)

        permutation = draw.draw(st.permutations(range(len(dims))))
        y = tensor(2, [dims[a] for a in permutation], kind, how[1])
        same_bits(one(Transpose(x=x, y=y, permutation=permutation), {1: data}), data.transpose(permutation))

        cut = [
            (lambda a, b: (a, b))(
                *sorted(draw.draw(st.tuples(st.integers(0, d), st.integers(0, d)).filter(lambda p: p[0] != p[1])))
            )
            for d in dims
        ]
        steps = [draw.draw(st.integers(1, 3)) for _ in dims]
        expected = data[tuple(slice(a, b, s) for (a, b), s in zip(cut, steps, strict=True))]
        op = Slice(
            x=x, y=tensor(2, expected.shape, kind, how[1]), starts=[a for a, _ in cut], limits=[b for _, b in cut],
            slice_strides=steps,
        )  # fmt: skip
        same_bits(one(op, {1: data}), expected)

        axis = draw.draw(st.integers(0, len(dims) - 1))
        other = tensor(2, [d + 1 if a == axis else d for a, d in enumerate(dims)], kind, how[1])
        more = values_of(other, rng, extreme=True)
        joined = np.concatenate([data, more, data], axis=axis)
        y = tensor(3, joined.shape, kind, how[2])
        same_bits(one(Concat(inputs_list=(x, other, x), y=y, axis=axis), {1: data, 2: more}), joined)

        y = tensor(2, (data.size,) if len(dims) > 1 else (1, data.size, 1), kind, how[1])
        same_bits(one(Reshape(x=x, y=y, mode=ReshapeMode.LOGICAL), {1: data}), data.reshape(y.dims))
        tally.add()

    check()
    tally.expect(["problems"], at_least=10)


@pytest.mark.parametrize("vectors", [(1, 1), (4, 1), (1, 4), (4, 4)])
@pytest.mark.parametrize(("x_layout", "y_layout"), list(product(("packed", "channels_last", "reversed"), repeat=2)))
def test_a_view_is_the_same_memory(x_layout: str, y_layout: str, vectors: tuple[int, int]) -> None:
    def described(uid: int, dims: tuple[int, ...], layout: str, vector: int) -> TensorSpec:
        fields = {"vector_count": vector, "vectorized_dimension": 1} if vector != 1 else {}
        return tensor(uid, (dims[0], dims[1] // vector, *dims[2:]), "i8", layout, **fields)

    x, y = described(1, (2, 8, 3), x_layout, vectors[0]), described(2, (3, 4, 2, 2), y_layout, vectors[1])
    data = values_of(x, np.random.default_rng(0), extreme=True)
    memory = bound(x, data)
    expected = load(from_pointer(memory.__array_interface__["data"][0], y), y)
    same_bits(one(Reshape(x=x, y=y), {1: data}), expected)


# Random numbers.


def philox(key: int, counter: int) -> list[int]:
    """Philox4x32-10 of one counter, in Python integers."""
    c, k, mask = (
        [counter >> 32 * i & 0xFFFFFFFF for i in range(4)],
        [key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF],
        0xFFFFFFFF,
    )
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & mask, first >> 32 ^ c[3] ^ k[1], first & mask]
        k = [k[0] + 0x9E3779B9 & mask, k[1] + 0xBB67AE85 & mask]
    return c


def uniforms(seed: int, offset: int, count: int) -> Array:
    words = [word for block in range(-(-count // 4)) for word in philox(seed % 2**64, (offset + block) % 2**64)]
    return np.array([(word >> 8) * 2.0**-24 for word in words[:count]])


UNIFORM = RngSpec(distribution=RngDistribution.UNIFORM, minimum=-1.0, maximum=3.0)


def rng_operation(
    dims: tuple[int, ...], seed: Any, spec: RngSpec = UNIFORM, kind: str = "f32", layout: str = "packed"
) -> Rng:
    return Rng(y=tensor(1, dims, kind, layout), spec=spec, seed=seed, offset=scalar(2, 1, "i64"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(13,), (3, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (-1, 7), (2**62 + 12345, 2**63 - 3), (1234567, -2)])
def test_random_numbers_follow_philox_in_every_layout(
    seed: int, offset: int, dims: tuple[int, ...], layout: str
) -> None:
    found = one(rng_operation(dims, seed, layout=layout), {2: np.int64(offset)})
    expected = -1.0 + 4.0 * uniforms(seed, offset, math.prod(dims)).reshape(dims)
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_random_numbers_are_reproducible_and_continue() -> None:
    whole = one(rng_operation((32,), 5), {2: 100})
    np.testing.assert_array_equal(whole, one(rng_operation((32,), 5), {2: 100}))
    np.testing.assert_array_equal(whole[16:], one(rng_operation((16,), 5), {2: 104}))
    assert (whole != one(rng_operation((32,), 6), {2: 100})).any()
    for kind in ("i32", "i64"):
        np.testing.assert_array_equal(whole, one(rng_operation((32,), scalar(3, 1, kind)), {2: 100, 3: 5}))
        in_memory = tensor(3, (1,), kind)
        np.testing.assert_array_equal(whole, one(rng_operation((32,), in_memory), {2: 100, 3: [5]}))


@pytest.mark.parametrize("kind", ["f32", "f64", "bool", "boolean", "i8", "e4m3"])
def test_bernoulli_numbers_are_ones_and_zeros_in_every_type(kind: str) -> None:
    spec = RngSpec(distribution=RngDistribution.BERNOULLI, probability=0.3)
    found = one(rng_operation((40, 50), 9, spec, kind), {2: 0}).astype(np.float64)
    np.testing.assert_array_equal(found, (uniforms(9, 0, 2000) < 0.3).reshape(40, 50))
    assert 0.25 < found.mean() < 0.35


def test_normal_numbers_have_their_moments() -> None:
    spec = RngSpec(distribution=RngDistribution.NORMAL, mean=2.0, standard_deviation=0.5)
    found = one(rng_operation((100, 101), 1, spec), {2: 0})
    assert abs(found.mean() - 2.0) < 0.02
    assert abs(found.std() - 0.5) < 0.02
    u = uniforms(1, 0, 8)
    radius = np.sqrt(-2 * np.log(u[0::2] + 2.0**-24))
    pairs = np.stack([radius * np.cos(2 * np.pi * u[1::2]), radius * np.sin(2 * np.pi * u[1::2])], axis=1)
    np.testing.assert_allclose(found.ravel()[:8], 2.0 + 0.5 * pairs.ravel(), rtol=1e-6)


# Graphs.


def test_one_tensor_on_both_ports_of_a_product() -> None:
    """The chain that feeds both ports becomes one prologue."""
    x, squares = tensor(1, (3, 3)), tensor(2, (3, 3), is_virtual=True)
    operations = [
        pointwise(P.RELU_FWD, "f32", [x], squares),
        Matmul(a=squares, b=squares, c=tensor(3, (3, 3)), spec=MatmulSpec(compute_type="f32")),
    ]
    assert len(fuse(OperationGraph.of(operations))) == 1
    data = np.arange(9.0).reshape(3, 3) - 4
    np.testing.assert_array_equal(execute(operations, {1: data})[3], np.maximum(data, 0) @ np.maximum(data, 0))


def test_softmax_as_a_graph() -> None:
    """MAX -> SUB -> EXP -> ADD -> DIV over several kernels, through virtual tensors."""
    dims, row = (2, 5, 7), (2, 5, 1)
    x, y = tensor(1, dims, "f16"), tensor(2, dims)
    most, total = (tensor(uid, row, is_virtual=True) for uid in (3, 4))
    shifted, powers = (tensor(uid, dims, is_virtual=True) for uid in (5, 6))
    operations: list[Operation] = [
        Reduction(x=x, y=most, spec=ReductionSpec(operator=R.MAX, compute_type="f32")),
        pointwise(P.SUB, "f32", [x, most], shifted),
        pointwise(P.EXP, "f32", [shifted], powers),
        Reduction(x=powers, y=total, spec=ReductionSpec(operator=R.ADD, compute_type="f32")),
        pointwise(P.DIV, "f32", [powers, total], y),
    ]
    data = values_of(x, np.random.default_rng(0)).astype(np.float64) * 4
    expected = np.exp(data - data.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(execute(operations, {1: data})[2], expected, rtol=1e-5)


@pytest.mark.parametrize("magnitude", [1e300, -1e300])
def test_operands_beyond_float_overflow_quietly(magnitude: float) -> None:
    """DOUBLE values in FLOAT arithmetic become infinite, without a warning."""
    x, y = tensor(1, (4,), "f64"), tensor(2, (4,))
    found = one(pointwise(P.IDENTITY, "f32", [x], y), {1: np.full(4, magnitude)})
    np.testing.assert_array_equal(found, np.full(4, math.copysign(math.inf, magnitude)))
    op = Reduction(x=x, y=tensor(2, (1,)), spec=ReductionSpec(operator=R.ADD, compute_type=DataType.FLOAT))
    assert packed_strides(op.y.dims) == op.y.strides
    np.testing.assert_array_equal(one(op, {1: np.full(4, magnitude)}), [math.copysign(math.inf, magnitude)])
