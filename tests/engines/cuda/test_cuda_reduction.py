"""Engine ``cuda_reduction`` on the emulator against NumPy, its launches for large shapes, and its text through NVRTC."""

from __future__ import annotations

from functools import partialmethod
from math import prod
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, device_kernel, emulated, run_both
from emulator import Emulated
from problems import FLOATS, INTEGERS, LAYOUTS, Tally, tensor, tiny, unit, values_of

from graphdnn.dtypes import COMPUTE, ELEMENTS, Array, data_type_of
from graphdnn.engines.cuda.reduction.reduction import ENGINE
from graphdnn.enums import DataType, PointwiseMode, ReductionOperator
from graphdnn.operations import Operation, PointwiseOperation, PointwiseSpec, Reduction, ReductionSpec
from graphdnn.tensors import TensorSpec

R = ReductionOperator
SUMS = (R.ADD, R.AVG, R.NORM1, R.NORM2)
INTEGER_OPERATORS = tuple(o for o in R if o not in (R.AVG, R.NORM2))


def reduction(x: TensorSpec, y: TensorSpec, operator: R = R.ADD, compute: str = "f32") -> Reduction:
    return Reduction(x=x, y=y, spec=ReductionSpec(operator=operator, compute_type=compute))


def assert_reduced(got: Array, expected: Array, x: Array, op: Reduction) -> None:
    """Selections and integers to the bit, floats within the rounding of any order of their sum or product."""
    operator = op.spec.operator
    compute = COMPUTE[op.spec.compute_type]
    if is_exact(op):
        np.testing.assert_array_equal(got, expected)
        return
    terms = x.size // got.size
    wide, found = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    kind = "f64" if compute == np.float64 else "f32"
    size = np.abs(wide)
    if operator in SUMS:
        pairs = [(small, large // small) for large, small in zip(x.shape, got.shape, strict=True)]
        grouped = np.abs(np.nan_to_num(x.astype(np.float64), posinf=0, neginf=0))
        grouped = grouped.reshape([n for pair in pairs for n in pair])
        axes = tuple(range(1, 2 * x.ndim, 2))
        size = np.sqrt((grouped**2).sum(axes)) if operator is R.NORM2 else grouped.sum(axes)
        size = (size / terms if operator is R.AVG else size).reshape(got.shape)
    y = op.y.data_type
    bound = 2 * (terms + 2) * unit(kind) * size + 2 * unit(y) * np.abs(wide) + tiny(y) + tiny(kind)
    if ELEMENTS[y].kind != "float":
        bound += 1
    with np.errstate(invalid="ignore"):
        near = (np.abs(found - wide) <= bound) | (found == wide) | (np.isnan(found) & np.isnan(wide))
    assert near.all(), (
        f"{found[~near][:4]} in place of {wide[~near][:4]}, bound {np.broadcast_to(bound, wide.shape)[~near][:4]}"
    )


def is_exact(op: Reduction) -> bool:
    """True when the order of the elements makes no difference, not even where intermediate results overflow."""
    return COMPUTE[op.spec.compute_type].kind == "i" or op.spec.operator in (R.MIN, R.MAX, R.AMAX)


def values(op: Reduction, rng: np.random.Generator, extreme: bool = False) -> Array:
    """Values of x; those of a product of floats are near 1, so that it neither overflows nor vanishes."""
    drawn = values_of(op.x, rng, extreme=extreme)
    if is_exact(op) or op.spec.operator not in (R.MUL, R.MUL_NO_ZEROS):
        return drawn
    near_one = np.where(drawn > 1.5, 0, 1 + 0.1 * drawn)
    return near_one.astype(drawn.dtype) if op.spec.operator is R.MUL_NO_ZEROS else (1 + 0.1 * drawn).astype(drawn.dtype)


def compare(op: Reduction, x: Array, **rest: Any) -> None:
    got, expected = run_both(op, ENGINE, {op.x.uid: x}, **rest)
    assert_reduced(got[op.y.uid], expected[op.y.uid], x, op)


# Extents of x and y, and x's layout: neighbours reduced and kept, one warp and many, one block and many.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "rows of a warp": ((37, 96), (37, 1), "packed"),
    "rows of a thread": ((400, 7), (400, 1), "packed"),
    "rows of a few lanes": ((40, 49), (40, 1), "packed"),
    "one element": ((5, 1), (5, 1), "packed"),
    "row of a block": ((3, 4096), (3, 1), "packed"),
    "everything": ((4, 33, 129), (1, 1, 1), "packed"),
    "columns": ((301, 40), (1, 40), "packed"),
    "columns of few rows": ((4, 520), (1, 520), "packed"),
    "channels, nchw": ((6, 5, 16, 24), (1, 5, 1, 1), "packed"),
    "channels, nhwc": ((3, 24, 17, 16), (1, 24, 1, 1), "channels_last"),
    "odd channels, nhwc": ((2, 3, 19, 20), (1, 3, 1, 1), "channels_last"),
    "pixels, nhwc": ((2, 40, 5, 6), (2, 1, 5, 6), "channels_last"),
    "middle": ((6, 50, 8), (6, 1, 8), "packed"),
    "ends": ((6, 50, 8), (1, 50, 1), "packed"),
    "groups": ((12, 24, 16), (4, 24, 2), "packed"),
    "groups of channels, nhwc": ((2, 32, 9, 8), (2, 4, 3, 1), "channels_last"),
    "few parts of many results": ((96, 4224), (1, 4224), "packed"),
    "gaps": ((9, 11, 13), (9, 1, 1), "gaps"),
    "reversed": ((9, 11, 13), (9, 11, 1), "reversed"),
    "rotated": ((9, 11, 13), (3, 1, 13), "rotated"),
}


@emulated
@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_way_to_divide_the_work(name: str, kind: str) -> None:
    x_dims, y_dims, layout = SHAPES[name]
    op = reduction(tensor(1, x_dims, kind, layout), tensor(2, y_dims, "f32"))
    compare(op, values_of(op.x, np.random.default_rng(prod(x_dims))))


@emulated
@pytest.mark.parametrize("compute", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("operator", R, ids=lambda o: o.name)
def test_operators(operator: R, compute: str) -> None:
    if compute[0] == "i" and operator not in INTEGER_OPERATORS:
        return
    rng = np.random.default_rng(int(operator))
    for layout in ("packed", "channels_last"):
        x, y = tensor(1, (3, 8, 5, 12), compute, layout), tensor(2, (1, 8, 1, 1), compute)
        op = reduction(x, y, operator, compute)
        for extreme in (False, True) if is_exact(op) else (False,):
            compare(op, values(op, rng, extreme), poison=0x5A if extreme else 0xFF)


@emulated
@pytest.mark.parametrize("operator", [R.MIN, R.MAX, R.AMAX, R.ADD, R.MUL_NO_ZEROS], ids=lambda o: o.name)
def test_nan_infinities_zeros_and_limits(operator: R) -> None:
    x = tensor(1, (6, 64), "f32")
    special = np.zeros((6, 64), np.float32)
    special[0, 63] = np.nan
    special[1] = -np.inf
    special[2, 5] = np.inf
    special[3] = -0.0
    special[4, ::2] = 3.0e38
    compare(reduction(x, tensor(2, (6, 1)), operator), special)
    whole = np.full((6, 64), -(2**31), np.int32)
    whole[1, 1:] = 2**31 - 1
    compare(reduction(tensor(1, (6, 64), "i32"), tensor(2, (6, 1), "i32"), operator, "i32"), whole)


@emulated
def test_every_element_type() -> None:
    tally = Tally("cuda reduction")
    rng = np.random.default_rng(7)
    for kind in (*FLOATS, *INTEGERS, "bool", DataType.BOOLEAN):
        integer = kind in INTEGERS or kind in ("bool", DataType.BOOLEAN)
        compute = "f64" if kind == "f64" else "i64" if integer else "f32"
        for layout in ("packed", "channels_last"):
            x = tensor(1, (2, 32, 3, 16), kind, layout, **({"byte_alignment": 1} if kind == "u8" else {}))
            y = tensor(2, (1, 32, 1, 1), "i32" if integer else kind)
            compare(reduction(x, y, R.ADD, compute), values_of(x, rng))
            tally.add(str(kind))
    tally.expect((*FLOATS, *INTEGERS), 2)


@emulated
@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS, DataType.BOOLEAN], ids=str)
def test_results_are_rounded_once_into_every_type(target: Any) -> None:
    x = tensor(1, (40, 24), "f32")
    halves = np.zeros((40, 24), np.float32)  # no rounding on the way: two halves of each number
    halves[:, 3] = halves[:, 17] = np.linspace(-400, 400, 40)
    got, expected = run_both(reduction(x, tensor(2, (40, 1), target)), ENGINE, {1: halves})
    np.testing.assert_array_equal(got[2], expected[2])


@emulated
@pytest.mark.parametrize("count", [4, 32])
def test_vectors_of_channels(count: int) -> None:
    x = TensorSpec(
        uid=1, data_type="i8", dims=(2, 64 // count, 3, 5), strides=(64 // count * 15, 15, 5, 1),
        vector_count=count, vectorized_dimension=1,
    )  # fmt: skip
    drawn = values_of(x, np.random.default_rng(count), extreme=True)
    for extents in ((1, 64, 1, 1), (2, 1, 3, 5), (2, 8, 1, 5)):
        compare(reduction(x, tensor(2, extents, "i32"), R.ADD, "i32"), drawn)


@emulated
@pytest.mark.parametrize("layout", LAYOUTS)
def test_prologue_and_epilogue(layout: str) -> None:
    """x -> + bias (half) -> sum -> * scale (half) -> relu, with the sum and the end written."""
    dims, kept = (3, 16, 5, 8), (1, 16, 1, 1)
    x, bias = tensor(1, dims, "f16", layout), tensor(2, kept, "f32")
    added, total = tensor(3, dims, "f16", is_virtual=True), tensor(6, kept, "f32")
    scale, scaled = tensor(7, kept, "f16"), tensor(8, kept, "f16", is_virtual=True)
    y = tensor(9, kept, "f32", layout)
    mode = PointwiseMode
    operations: list[Operation] = [
        pointwise(mode.ADD, x=x, b=bias, y=added),
        reduction(added, total, R.ADD),
        pointwise(mode.MUL, x=total, b=scale, y=scaled),
        pointwise(mode.RELU_FWD, x=scaled, y=y),
    ]
    rng = np.random.default_rng(3)
    inputs = {t.uid: values_of(t, rng) for t in (x, bias, scale)}
    got, expected = run_both(operations, ENGINE, inputs)
    for uid in (6, 9):
        np.testing.assert_allclose(got[uid], expected[uid], rtol=3e-3, atol=3e-3)


@emulated
@pytest.mark.parametrize("y_dims", [(4, 1, 6), (4, 9, 1), (2, 3, 2)])
def test_indices_before_and_after(y_dims: tuple[int, ...]) -> None:
    """Coordinates are those of the tensors also where axes are merged or divided into groups."""
    dims = (4, 9, 6)
    x = tensor(1, dims, "i32")
    index, product = tensor(2, dims, "i32", is_virtual=True), tensor(3, dims, "i32", is_virtual=True)
    total, place, y = (
        tensor(4, y_dims, "i32", is_virtual=True),
        tensor(5, y_dims, "i32", is_virtual=True),
        tensor(6, y_dims, "i32"),
    )
    inputs = {1: values_of(x, np.random.default_rng(0))}
    for axis in range(3):
        before: list[Operation] = [
            pointwise(PointwiseMode.GEN_INDEX, "i32", x=x, y=index, axis=axis),
            pointwise(PointwiseMode.MUL, "i32", x=index, b=x, y=product),
            reduction(product, y, R.ADD, "i32"),
        ]
        after: list[Operation] = [
            reduction(x, total, R.ADD, "i32"),
            pointwise(PointwiseMode.GEN_INDEX, "i32", x=total, y=place, axis=axis),
            pointwise(PointwiseMode.MUL, "i32", x=total, b=place, y=y),
        ]
        for operations in (before, after):
            got, expected = run_both(operations, ENGINE, inputs)
            np.testing.assert_array_equal(got[6], expected[6])


def pointwise(
    mode: PointwiseMode, math: str = "f32", axis: int | None = None, **ports: TensorSpec
) -> PointwiseOperation:
    parameters = {} if axis is None else {"axis": axis}
    return PointwiseOperation(spec=PointwiseSpec(mode=mode, math_type=math, **parameters), **ports)


@emulated
def test_random_problems() -> None:
    rng = np.random.default_rng(11)
    for _ in range(24):
        rank = int(rng.integers(1, 5))
        y_dims = tuple(int(n) for n in rng.choice([1, 1, 2, 3, 8], rank))
        x_dims = tuple(n * int(rng.choice([1, 1, 2, 5, 16])) for n in y_dims)
        layouts = rng.choice(list(LAYOUTS), 2)
        op = reduction(
            tensor(1, x_dims, "f16", layouts[0]), tensor(2, y_dims, "f32", layouts[1]), R(int(rng.integers(9)))
        )
        compare(op, values(op, rng, extreme=is_exact(op)))


@emulated
@pytest.mark.parametrize("name", ["everything", "columns", "channels, nhwc", "rows of a few lanes"])
def test_sums_have_the_same_bits_in_any_order_of_the_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x_dims, y_dims, layout = SHAPES[name]
    op = reduction(tensor(1, x_dims, "f32", layout), tensor(2, y_dims, "f32"))
    inputs = {1: values_of(op.x, np.random.default_rng(5))}
    forward = run_both(op, ENGINE, inputs)[0][2]
    monkeypatch.setattr(Emulated, "launch", partialmethod(Emulated.launch, backward=True))
    assert run_both(op, ENGINE, inputs)[0][2].tobytes() == forward.tobytes()


# Shapes of networks, looked at without running them.
LARGE = {
    "f16 nhwc": ((64, 128, 56, 56), (1, 128, 1, 1), "f16", "channels_last"),
    "f16 nchw": ((64, 128, 56, 56), (1, 128, 1, 1), "f16", "packed"),
    "f32 nhwc": ((64, 128, 56, 56), (1, 128, 1, 1), "f32", "channels_last"),
    "f32 nchw": ((64, 128, 56, 56), (1, 128, 1, 1), "f32", "packed"),
    "i8 nhwc": ((64, 128, 56, 56), (1, 128, 1, 1), "i8", "channels_last"),
    "everything": ((64, 128, 56, 56), (1, 1, 1, 1), "f16", "packed"),
    "rows": ((8192, 1024), (8192, 1), "f16", "packed"),
    "long rows": ((16, 1 << 20), (16, 1), "f32", "packed"),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_shapes_fill_the_device_with_little_scratch(name: str) -> None:
    x_dims, y_dims, kind, layout = LARGE[name]
    op = reduction(tensor(1, x_dims, kind, layout), tensor(2, y_dims, "f32"))
    kernel = device_kernel(op, ENGINE)
    first = kernel.steps[0]
    assert prod(first.grid) >= 2 * 132
    assert kernel.workspace_bytes <= 1 << 20
    assert "using Count = unsigned int;" in first.text.text
    width = 16 // ELEMENTS[data_type_of(kind)].bytes
    assert f"constexpr int VEC_WIDTH = {width};" in first.text.text


def test_more_elements_than_32_bits_count() -> None:
    x = tensor(1, (1 << 20, 1 << 13), "i8")
    for y_dims in ((1 << 20, 1), (1, 1 << 13), (1, 1)):
        kernel = device_kernel(reduction(x, tensor(2, y_dims, "i64"), R.ADD, "i64"), ENGINE)
        wide = y_dims == (1, 1)
        assert ("using Count = unsigned long long;" in kernel.steps[0].text.text) == wide


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", [*LARGE, "f64", "i64 from i8", "e4m3", "bits"])
def test_text_compiles_without_spills(name: str, arch: str) -> None:
    special = {"f64": ("f64", "f64", "f64"), "i64 from i8": ("i8", "i64", "i64"), "e4m3": ("e4m3", "e4m3", "f32"),
               "bits": (DataType.BOOLEAN, "i32", "i32")}  # fmt: skip
    if name in special:
        kind, target, compute = special[name]
        x_dims, y_dims, layout = (4, 64, 56, 56), (1, 64, 1, 1), "channels_last"
    else:
        (x_dims, y_dims, kind, layout), target, compute = LARGE[name], "f32", "f32"
    op = reduction(tensor(1, x_dims, kind, layout), tensor(2, y_dims, target), R.ADD, compute)
    compiles_cleanly(op, ENGINE, arch, registers=128)


@compiler
@pytest.mark.parametrize("operator", R, ids=lambda o: o.name)
def test_operators_compile(operator: R) -> None:
    for kind in ("f32", "f64", *(("i32", "i64") if operator in INTEGER_OPERATORS else ())):
        op = reduction(tensor(1, (8, 64, 28, 28), kind), tensor(2, (1, 64, 1, 1), kind), operator, kind)
        compiles_cleanly(op, ENGINE, "sm_90a", registers=128)
