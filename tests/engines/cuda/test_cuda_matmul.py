"""SIMT matrix products on the emulator against the general NumPy engine, and their text through NVRTC.

Floating operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal
to the bit. Integers are exact by nature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, emulated, fused, run_both
from exact_sums import check_values
from problems import LAYOUTS, tensor

from graphdnn.dtypes import ELEMENTS, Array, cast
from graphdnn.engines.cuda.simt.implicit_tiles import TILES
from graphdnn.engines.cuda.simt.matmul_simt import ENGINE
from graphdnn.enums import KnobType, PointwiseMode, ReductionOperator
from graphdnn.operations import (
    Matmul,
    MatmulSpec,
    Operation,
    PointwiseOperation,
    PointwiseSpec,
    Reduction,
    ReductionSpec,
)
from graphdnn.problem import parse
from graphdnn.tensors import TensorSpec

TILE, SPLIT = KnobType.TILE_SIZE, KnobType.SPLIT_K


def operations(text: str) -> Sequence[Operation]:
    return parse(text).build_operation_graph().operations


def exact_values(spec: TensorSpec, rng: np.random.Generator) -> Array:
    row = ELEMENTS[spec.data_type]
    if row.kind == "float":
        return cast(rng.integers(-8, 9, spec.extents) / 4.0, spec.data_type)
    if row.kind == "bool":
        return rng.random(spec.extents) < 0.5
    return rng.integers(int(row.smallest), int(row.largest), spec.extents, row.numpy, endpoint=True)  # type: ignore[no-any-return,arg-type]


def check(ops: Operation | Sequence[Operation], seed: int = 0, **knobs: int) -> None:
    op, rng = fused(ops), np.random.default_rng(seed)
    values = {t.uid: exact_values(t, rng) for t in op.inputs if not t.is_constant}
    check_values(ops, ENGINE, values, **knobs)


def product(a: TensorSpec, b: TensorSpec, c: TensorSpec, compute: str = "f32") -> Matmul:
    return Matmul(a=a, b=b, c=c, spec=MatmulSpec(compute_type=compute))


def pointwise(mode: PointwiseMode, x: TensorSpec, y: TensorSpec, b: TensorSpec | None = None) -> PointwiseOperation:
    return PointwiseOperation(spec=PointwiseSpec(mode=mode, math_type="f32"), x=x, b=b, y=y)


@emulated
@pytest.mark.parametrize("tile", range(len(TILES) + 1))
@pytest.mark.parametrize("parts", [1, 3])
def test_every_tile(tile: int, parts: int) -> None:
    check(operations("matmul a=f32[2,37,68] b=f32[2,68,44] + bias + relu"), TILE_SIZE=tile, SPLIT_K=parts)


PROBLEMS = [
    "matmul a=f32[1,1] b=f32[1,1]",
    "matmul a=f32[300,17] b=f32[17,1]",
    "matmul a=f32[1,700] b=f32[700,9]",
    "matmul a=f16[3,33,40] b=f16[3,40,50] + bias + gelu_approx_tanh",
    "matmul a=bf16[2,3,17,24] b=bf16[2,1,24,31] + scale + residual",
    "matmul a=f64[5,29,31] b=f64[5,31,12]",
    "matmul a=e4m3[20,32] b=e5m2[32,24] compute=f32 out=f16",
    "matmul a=i8[4,19,64] b=i8[2,64,44] compute=i32 out=i32",
    "matmul a=u8[19,50] b=i8[50,21] compute=i32 out=i8",
    "matmul a=i16[2,19,50] b=i16[6,50,21] compute=i64 out=i64",
    "matmul a=i32[30,70] b=i32[70,9] compute=i32 out=i32",
    "matmul a=i64[14,33] b=i32[33,18] compute=i64 out=i64",
    "matmul a=bool[14,33] b=i8[33,18] compute=i32 out=i32",
    "matmul a=f32[2,40,36] b=f32[2,36,28] + relu -> reduce add [2,40,1]",
]


@emulated
@pytest.mark.parametrize("text", PROBLEMS)
def test_agrees_with_numpy(text: str) -> None:
    if "gelu" not in text:
        check(operations(text))
        return
    ops = operations(text)
    rng = np.random.default_rng(3)
    values = {t.uid: exact_values(t, rng) for t in fused(ops).inputs if not t.is_constant}
    got, expected = run_both(ops, ENGINE, values)
    for uid, array in expected.items():
        np.testing.assert_allclose(got[uid].astype(np.float64), array.astype(np.float64), rtol=2e-3, atol=1e-3)


@emulated
@pytest.mark.parametrize("a", LAYOUTS)
@pytest.mark.parametrize("b", ["packed", "reversed", "rotated"])
@pytest.mark.parametrize("c", ["packed", "reversed", "gaps"])
def test_any_strides(a: str, b: str, c: str) -> None:
    check(
        product(
            tensor(1, (2, 1, 18, 20), "f16", a),
            tensor(2, (1, 3, 20, 22), "f16", b),
            tensor(3, (2, 3, 18, 22), "f32", c),
        )
    )


@emulated
@pytest.mark.parametrize("shared", ["a", "b"])
def test_consecutive_batches_share_a_matrix(shared: str) -> None:
    a, b = ((2, 9, 8), (6, 8, 10)) if shared == "a" else ((6, 9, 8), (3, 8, 10))
    check(product(tensor(1, a), tensor(2, b), tensor(3, (6, 9, 10))))


@emulated
@pytest.mark.parametrize("c", ["packed", "reversed"])
def test_chains_before_both_operands(c: str) -> None:
    a, b, scale = tensor(1, (2, 20, 24), "f16"), tensor(2, (2, 24, 28), "f16", "reversed"), tensor(3, (1, 1, 24), "f32")
    before_a = tensor(4, (2, 20, 24), "f16", is_virtual=True)
    before_b = [tensor(uid, (2, 24, 28), "bf16", is_virtual=True) for uid in (5, 6)]
    check([
        pointwise(PointwiseMode.MUL, a, before_a, scale),
        pointwise(PointwiseMode.ABS, b, before_b[0]),
        pointwise(PointwiseMode.NEG, before_b[0], before_b[1]),
        product(before_a, before_b[1], tensor(7, (2, 20, 28), "f32", c)),
    ])  # fmt: skip


@emulated
def test_a_chain_before_one_matrix_that_is_both_operands() -> None:
    a, before = tensor(1, (12, 12), "f32"), tensor(2, (12, 12), "f32", is_virtual=True)
    check([pointwise(PointwiseMode.NEG, a, before), product(before, before, tensor(3, (12, 12)))])


@emulated
def test_packed_bits_and_vectors() -> None:
    check(product(tensor(1, (17, 24), "BOOLEAN"), tensor(2, (24, 19), "i8"), tensor(3, (17, 19), "i32"), "i32"))
    vectors = TensorSpec(
        uid=2, data_type="i8", dims=(2, 6, 19), strides=(114, 19, 1), vector_count=4, vectorized_dimension=1
    )
    check(product(tensor(1, (2, 17, 24), "i8"), vectors, tensor(3, (2, 17, 19), "i32"), "i32"))


@emulated
def test_results_of_the_chain_and_an_exit() -> None:
    a, b, bias = tensor(1, (3, 18, 16)), tensor(2, (3, 16, 20)), tensor(3, (1, 1, 20))
    c, added = tensor(4, (3, 18, 20), is_virtual=True), tensor(5, (3, 18, 20), "f16")
    active = tensor(6, (3, 18, 20), is_virtual=True)
    check([
        product(a, b, c),
        pointwise(PointwiseMode.ADD, c, added, bias),
        pointwise(PointwiseMode.RELU_FWD, added, active),
        Reduction(
            x=active, y=tensor(7, (3, 1, 20)),
            spec=ReductionSpec(operator=ReductionOperator.MAX, compute_type="f32"),
        ),
    ])  # fmt: skip


@emulated
def test_infinities_and_nan_stay_in_their_row_and_column() -> None:
    op = product(tensor(1, (9, 12)), tensor(2, (12, 11)), tensor(3, (9, 11)))
    a, b = np.ones((9, 12), np.float32), np.ones((12, 11), np.float32)
    a[2, 3], a[4, 5], b[7, 6] = np.nan, np.inf, -np.inf
    got, expected = run_both(op, ENGINE, {1: a, 2: b})
    np.testing.assert_array_equal(got[3], expected[3])


def test_a_product_is_all_that_it_serves() -> None:
    from graphdnn.device.profiles import device_spec
    from graphdnn.engines import Task

    (reason,) = ENGINE.why_not(Task(fused(operations("conv x=f32[1,4,5,5] w=f32[4,4,3,3]")), device_spec("h200")))
    assert reason.rule == "cuda_matmul_simt.operation"


COMPILED: list[tuple[str, dict[Any, int]]] = [
    *(
        ("matmul a=f32[4096,4096] b=f32[4096,4096] + bias + relu", {TILE: t, SPLIT: 1})
        for t in range(1, len(TILES) + 1)
    ),
    ("matmul a=f32[64,4096] b=f32[4096,64]", {}),
    ("matmul a=f16[8,513,511] b=f16[8,511,300] + bias + gelu", {TILE: 2}),
    ("matmul a=i8[512,512] b=i8[512,512] compute=i32 out=i32", {TILE: 2}),
    ("matmul a=f64[512,512] b=f64[512,512]", {}),
    ("matmul a=i64[512,512] b=i64[512,512] compute=i64 out=i64", {}),
]


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("text", "knobs"), COMPILED, ids=lambda v: str(v).replace(" ", "_"))
def test_compiles(text: str, knobs: dict[Any, int], arch: str) -> None:
    compiles_cleanly(operations(text), ENGINE, arch, knobs)
