"""Engine ``cuda_data_movement`` on the emulator against the host, bit by bit, and its text through NVRTC."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, device_kernel, emulated, run_both
from problems import LAYOUTS, tensor, values_of

from graphdnn.dtypes import Array
from graphdnn.engines.cuda.codegen.fast_division import magic
from graphdnn.engines.cuda.data_movement.data_movement import ENGINE
from graphdnn.enums import DataType, ReshapeMode
from graphdnn.operations import Concat, Operation, Reshape, Slice, Transpose
from graphdnn.tensors import TensorSpec

BITS = DataType.BOOLEAN


def check(op: Operation, **values: Any) -> None:
    rng = np.random.default_rng(sum(op.outputs()["y"].extents))
    given = {spec.uid: values_of(spec, rng, extreme=True) for spec in op.inputs().values()} | values.get("values", {})
    got, expected = run_both(op, ENGINE, given)
    (uid,) = got
    np.testing.assert_array_equal(_bits(got[uid]), _bits(expected[uid]))


def _bits(values: Array) -> Array:
    """NaN payloads count too."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def transposed(
    dims: Sequence[int], permutation: Sequence[int], kind: Any = "f32", x: Any = "packed", y: Any = "packed"
) -> Transpose:
    out = [dims[axis] for axis in permutation]
    return Transpose(x=tensor(1, dims, kind, x), y=tensor(2, out, kind, y), permutation=tuple(permutation))


def sliced(
    dims: Sequence[int],
    starts: Any,
    limits: Any,
    steps: Any = (),
    kind: Any = "f32",
    x: Any = "packed",
    y: Any = "packed",
) -> Slice:
    by = steps or (1,) * len(dims)
    out = [-((a - b) // s) for a, b, s in zip(starts, limits, by, strict=True)]
    return Slice(
        x=tensor(1, dims, kind, x), y=tensor(2, out, kind, y), starts=starts, limits=limits, slice_strides=steps
    )


def joined(dims: Sequence[Sequence[int]], axis: int, kind: Any = "f32", x: Any = "packed", y: Any = "packed") -> Concat:
    out = list(dims[0])
    out[axis] = sum(d[axis] for d in dims)
    inputs = tuple(tensor(10 + i, d, kind, x) for i, d in enumerate(dims))
    return Concat(axis=axis, inputs_list=inputs, y=tensor(2, out, kind, y))


def reshaped(
    dims: Sequence[int], out: Sequence[int], mode: ReshapeMode, kind: Any = "f32", x: Any = "packed", y: Any = "packed"
) -> Reshape:
    return Reshape(x=tensor(1, dims, kind, x), y=tensor(2, out, kind, y), mode=mode)


LOGICAL, VIEW = ReshapeMode.LOGICAL, ReshapeMode.VIEW_ONLY

# operation, and the kernels it is expected to take
CASES: dict[str, tuple[Operation, set[str]]] = {
    "transpose f32": (transposed((2, 40, 36), (0, 2, 1)), {"movement_tile"}),
    "transpose f16": (transposed((3, 72, 5, 16), (0, 2, 3, 1), "f16"), {"movement_tile"}),
    "transpose i8": (transposed((144, 160), (1, 0), "i8"), {"movement_tile"}),
    "transpose f64": (transposed((2, 34, 38), (2, 0, 1), "f64"), {"movement_tile"}),
    "transpose odd": (transposed((2, 35, 37), (0, 2, 1), "f16"), {"movement_odd"}),
    "transpose odd, many tiles": (transposed((131, 257), (1, 0), "f16"), {"movement_odd"}),
    "transpose odd, between others": (transposed((2, 3, 61, 5, 67), (0, 4, 1, 3, 2), "f16"), {"movement_odd"}),
    "transpose odd, short in both": (transposed((5, 77, 49), (0, 2, 1), "f16"), {"movement_odd"}),
    "transpose odd, short rows of floats": (transposed((3, 33, 301), (0, 2, 1), "f32"), {"movement_odd"}),
    "transpose odd floats": (transposed((131, 257), (1, 0), "f32"), {"movement_tile"}),
    "transpose odd, short in x": (transposed((3, 301, 35), (0, 2, 1), "i8"), {"movement_odd"}),
    "transpose odd, short in y": (transposed((3, 35, 301), (0, 2, 1), "f16"), {"movement_odd"}),
    "transpose odd, with gaps": (transposed((3, 35, 301), (0, 2, 1), "f16", "gaps"), {"movement_odd"}),
    "transpose odd, into gaps": (transposed((3, 135, 51), (0, 2, 1), "i8", "packed", "gaps"), {"movement_odd"}),
    "transpose odd x": (transposed((2, 32, 37), (0, 2, 1), "f32"), {"movement_run"}),
    "transpose odd y": (transposed((2, 37, 32), (0, 2, 1), "i8"), {"movement_run"}),
    "turned filters": (transposed((3, 264, 9), (0, 2, 1), "f64"), {"movement_run"}),
    "turned back": (transposed((3, 49, 136), (0, 2, 1), "f16"), {"movement_run"}),
    "pixel shuffle": (transposed((2, 3, 2, 2, 8, 32), (0, 1, 4, 2, 5, 3), "f16"), {"movement_zip"}),
    "pixel unshuffle": (transposed((2, 3, 8, 2, 32, 2), (0, 1, 3, 5, 2, 4), "i8"), {"movement_zip"}),
    "four of each pixel": (transposed((3, 1040, 4), (0, 2, 1), "f32"), {"movement_zip"}),
    "into fours": (transposed((3, 4, 272), (0, 2, 1), "i8"), {"movement_zip"}),
    "transpose few": (transposed((2, 3, 50), (0, 2, 1), "f32"), {"movement_copy"}),
    "transpose layouts": (transposed((2, 24, 5, 6), (0, 2, 3, 1), "f32", "channels_last", "packed"), {"movement_copy"}),
    "nchw to nhwc": (
        reshaped((2, 48, 5, 8), (2, 48, 5, 8), LOGICAL, "bf16", "packed", "channels_last"),
        {"movement_tile"},
    ),
    "slice wide": (sliced((4, 32, 64), (0, 8, 16), (4, 32, 48), kind="f16"), {"movement_copy"}),
    "slice odd": (sliced((4, 9, 21), (1, 2, 3), (4, 9, 20), (1, 2, 3), "f16"), {"movement_copy"}),
    "slice nhwc": (
        sliced((2, 16, 5, 6), (0, 8, 1, 0), (2, 16, 4, 6), (1, 1, 1, 2), "f32", "channels_last", "channels_last"),
        {"movement_copy"},
    ),
    "concat channels": (joined([(2, 3, 4, 5), (2, 8, 4, 5), (2, 1, 4, 5)], 1), {"movement_copy"}),
    "concat nhwc": (
        joined([(2, 8, 3, 4), (2, 24, 3, 4)], 1, "f16", "channels_last", "channels_last"),
        {"movement_copy"},
    ),
    "concat mixed": (joined([(2, 24, 5, 8), (2, 8, 5, 8)], 1, "f32", "packed", "channels_last"), {"movement_tile"}),
    "concat rows": (joined([(3, 7), (3, 9)], 1, "i64", "gaps", "reversed"), set()),
    "reshape rows": (reshaped((4, 6, 10), (24, 10), LOGICAL, "f32", "gaps", "packed"), {"movement_copy"}),
    "reshape crossing": (reshaped((6, 4), (8, 3), LOGICAL, "f32", "gaps", "gaps"), {"movement_general"}),
    "reshape view": (reshaped((4, 6, 2, 2), (8, 12), VIEW, "f16", "channels_last", "reversed"), {"movement_copy"}),
    "bits view": (reshaped((3, 5, 7), (105,), VIEW, BITS), {"movement_copy", "movement_general"}),
    "bits channels last": (
        reshaped((3, 5, 7), (5, 3, 7), VIEW, BITS, "channels_last", "reversed"),
        {"movement_copy", "movement_general"},
    ),
    "bits transposed": (transposed((5, 7), (1, 0), BITS), {"movement_general"}),
    "bits sliced": (sliced((4, 32), (1, 8), (4, 24), kind=BITS), {"movement_copy"}),
    "bits sliced across bytes": (sliced((4, 32), (1, 7), (4, 21), kind=BITS), {"movement_general"}),
    "bits joined": (joined([(2, 16, 2), (2, 8, 2)], 1, BITS), {"movement_copy"}),
    "bits turned": (transposed((33, 64), (1, 0), BITS), {"movement_general"}),  # y's rows end inside bytes
    "bits turned by words": (transposed((3, 64, 5, 7), (0, 2, 3, 1), BITS), {"movement_bits"}),
    "bits turned by bytes": (transposed((2, 40, 9, 9), (0, 2, 3, 1), BITS), {"movement_bits"}),
    "part of bits turned": (
        reshaped((2, 24, 5, 7), (2, 24, 5, 7), LOGICAL, BITS, "packed", "channels_last"),
        {"movement_bits"},
    ),
    "bytes of booleans": (transposed((40, 40), (1, 0), "bool"), {"movement_tile"}),
    "one element": (reshaped((1, 1), (1,), LOGICAL, "e4m3"), {"movement_copy"}),
}


@emulated
@pytest.mark.parametrize("name", CASES)
def test_bits_move(name: str) -> None:
    op, kernels = CASES[name]
    check(op)
    used = {step.entry for step in device_kernel(op, ENGINE).steps}  # type: ignore[union-attr]
    assert not kernels or used == kernels


@emulated
def test_pieces_with_items_alike_are_one_launch() -> None:
    """Channels that 16 bytes divide, twice in fours: a launch each."""
    op = joined([(2, c, 5, 7) for c in (64, 8, 24, 4, 12, 40)], 1, "f16", "channels_last", "channels_last")
    check(op)
    steps = device_kernel(op, ENGINE).steps
    assert [step.text.name.split("__")[1] for step in steps] == ["copy_b16r2u1p4", "copy_b8r2u1p2"]  # type: ignore[union-attr]


@emulated
def test_pieces_that_no_launch_has_room_for_are_several() -> None:
    op = joined([(2, 3, 1 + i % 3, 5) for i in range(70)], 2, "f32", "packed", "packed")
    check(op)
    steps = device_kernel(op, ENGINE).steps
    assert len(steps) > 1
    assert all(len(step.params.data) <= 4096 for step in steps)  # type: ignore[union-attr]


def vectors(uid: int, dims: Sequence[int], count: int, kind: str = "i8") -> TensorSpec:
    return tensor(uid, dims, kind, vector_count=count, vectorized_dimension=1)


@emulated
def test_vectors_of_channels() -> None:
    wide, narrow, plain = vectors(1, (2, 2, 3, 5), 32), vectors(2, (2, 16, 3, 5), 4), tensor(3, (2, 64, 3, 5), "i8")
    for x, y in ((wide, narrow), (narrow, wide), (wide, plain), (plain, narrow)):
        check(Reshape(x=x, y=y, mode=LOGICAL))
    check(Reshape(x=narrow, y=tensor(4, (16, 3, 40), "i8"), mode=VIEW))
    check(Slice(x=wide, y=tensor(4, (2, 28, 3, 5), "i8"), starts=(0, 4, 0, 0), limits=(2, 32, 3, 5)))
    check(
        Slice(
            x=narrow,
            y=tensor(4, (2, 9, 3, 5), "i8"),
            starts=(0, 3, 0, 0),
            limits=(2, 30, 3, 5),
            slice_strides=(1, 3, 1, 1),
        )
    )
    check(Concat(axis=1, inputs_list=(narrow, tensor(5, (2, 4, 3, 5), "i8")), y=vectors(6, (2, 17, 3, 5), 4)))
    check(Transpose(x=wide, y=tensor(4, (64, 2, 5, 3), "i8"), permutation=(1, 0, 3, 2)))


@emulated
@pytest.mark.parametrize("kind", ["f64", "f16", "u8", "bool", BITS])
def test_scalars_by_value_join_arrays(kind: Any) -> None:
    one = tensor(1, (1,), kind, is_by_value=True)
    constant = tensor(2, (1,), kind, is_by_value=True, constant_value=1)
    op = Concat(axis=0, inputs_list=(one, tensor(3, (2,), kind), constant), y=tensor(4, (4,), kind))
    check(op)


@emulated
@pytest.mark.parametrize(
    "seed", [pytest.param(0, id="few"), *(pytest.param(i, marks=pytest.mark.long) for i in range(1, 40))]
)
def test_random_movements(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(12):
        rank = choose.randint(1, 5)
        dims = [choose.choice([1, 2, 3, 4, 8, 16, 33]) for _ in range(rank)]
        while np.prod(dims) > 8000:
            dims[dims.index(max(dims))] = 2
        kind = choose.choice(["f64", "f32", "f16", "i8", BITS])
        x, y = choose.choice(list(LAYOUTS)), choose.choice(list(LAYOUTS))
        which = choose.choice(["transpose", "slice", "concat", "reshape"])
        if which == "transpose":
            check(transposed(dims, choose.sample(range(rank), rank), kind, x, y))
        elif which == "slice":
            starts = [choose.randrange(d) for d in dims]
            limits = [choose.randint(s + 1, d) for s, d in zip(starts, dims, strict=True)]
            check(sliced(dims, tuple(starts), tuple(limits), tuple(choose.randint(1, 3) for _ in dims), kind, x, y))
        elif which == "concat":
            axis = choose.randrange(rank)
            parts = [[*dims[:axis], choose.randint(1, 9), *dims[axis + 1 :]] for _ in range(choose.randint(1, 3))]
            check(joined(parts, axis, kind, x, y))
        else:
            check(
                reshaped(dims, [int(np.prod(dims[: rank // 2])), int(np.prod(dims[rank // 2 :]))], LOGICAL, kind, x, y)
            )


def test_quotients_are_exact() -> None:
    rng = np.random.default_rng(0)
    divisors = [*range(1, 300), *(2**k + d for k in range(9, 31) for d in (-1, 0, 1)), 2**31 - 1]
    for divisor in divisors:
        word = magic(divisor)
        multiplier, shift = word % 2**32, word >> 32
        n = np.concatenate(
            [rng.integers(0, 2**31, 100), np.arange(1, 40) * divisor, np.arange(1, 40) * divisor - 1, [0, 2**31 - 1]]
        )
        n = n[n < 2**31].astype(np.uint64)
        high = (n * np.uint64(multiplier)) >> np.uint64(32)
        assert (((high + n) & np.uint64(2**32 - 1)) >> np.uint64(shift) == n // np.uint64(divisor)).all(), divisor


COMPILED = ("transpose f32", "transpose f16", "transpose i8", "transpose f64", "transpose odd", "transpose odd y", "slice wide",
            "slice odd", "concat channels", "reshape crossing", "bits view", "bits transposed")  # fmt: skip


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", COMPILED)
def test_text_compiles_without_spills(name: str, arch: str) -> None:
    compiles_cleanly(CASES[name][0], ENGINE, arch, registers=128)


@compiler
@pytest.mark.parametrize("kind", ["i8", "f16", "f32", "f64"])
def test_long_copies_compile_without_spills(kind: str) -> None:
    compiles_cleanly(
        sliced((4096, 999, 3), (0, 1, 0), (4096, 999, 3), (1, 2, 1), kind), ENGINE, "sm_90a", registers=128
    )
    compiles_cleanly(sliced((4096, 1024), (0, 16), (4096, 1024), kind=kind), ENGINE, "sm_90a", registers=128)
