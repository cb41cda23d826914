"""Products by cuBLAS: NumPy stands in for the library, and everything around it runs in the emulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from cuda_comparison import emulated, fused
from emulator.libraries import HostBlas, host_libraries
from exact_sums import check_values
from problems import LAYOUTS, tensor
from test_cuda_matmul import exact_values, operations, pointwise, product

from graphdnn import OperationGraph, fuse
from graphdnn.device.profiles import device_spec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.codegen.launch import LibraryCall
from graphdnn.engines.cuda.cublas.matmul_cublas import ENGINE
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.heuristics import Ranking
from graphdnn.operations import Operation
from graphdnn.plan import DevicePlan


@pytest.fixture(autouse=True)
def blas() -> Iterator[HostBlas]:
    with host_libraries() as library:
        yield library


def check(ops: Operation | Sequence[Operation], engine: Engine = ENGINE, seed: int = 0) -> None:
    """Sums of small multiples of a quarter are exact in any order: results are equal to the bit."""
    op, rng = fused(ops), np.random.default_rng(seed)
    values = {t.uid: exact_values(t, rng) for t in (*op.inputs, *op.outputs) if not t.is_constant}
    check_values(ops, engine, values)


def refusals(text: str, engine: Engine = ENGINE) -> set[str]:
    return {r.rule for r in engine.why_not(Task(fused(operations(text)), device_spec("h200")))}


def launches(ops: Operation | Sequence[Operation], engine: Engine = ENGINE) -> tuple[int, int]:
    """Calls of the library and kernels of ours."""
    kernel = engine.compile(Task(fused(ops), device_spec("h200")), engine.defaults())
    calls = sum(isinstance(step, LibraryCall) for step in kernel.steps)  # type: ignore[attr-defined]
    return calls, len(kernel.steps) - calls  # type: ignore[attr-defined]


PLAIN = [
    "matmul a=f32[37,68] b=f32[68,44]",
    "matmul a=f32[1,1] b=f32[1,1]",
    "matmul a=f64[5,29,31] b=f64[5,31,12]",
    "matmul a=f16[3,33,40] b=f16[3,40,50]",
    "matmul a=bf16[2,3,17,24] b=bf16[2,3,24,31]",
    "matmul a=f16[3,33,40] b=f16[1,40,50] out=f32",
    "matmul a=f32[4,1,24] b=f32[1,24,31]",
    "matmul a=f32[300,17] b=f32[17,1]",
    "matmul a=f32[1,70] b=f32[70,9]",
]
FOLLOWED = [
    "matmul a=f32[2,37,68] b=f32[2,68,44] + bias + relu",
    "matmul a=f16[3,33,40] b=f16[3,40,50] out=bf16",
    "matmul a=f32[3,8,40] b=f32[3,40,50] out=f16 + residual",
    "matmul a=bf16[2,8,24] b=bf16[2,24,32] + scale + residual",
]


@emulated
@pytest.mark.parametrize("text", PLAIN)
def test_the_result_is_written_by_the_library(text: str) -> None:
    assert launches(operations(text)) == (1, 0)
    check(operations(text))


@emulated
@pytest.mark.parametrize("text", FOLLOWED)
def test_what_follows_is_one_launch(text: str) -> None:
    assert launches(operations(text)) == (1, 1)
    check(operations(text))


@emulated
@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        ("matmul a=i8[4,20,64] b=i8[1,64,44] compute=i32 out=i8", 2),
        ("matmul a=i8[4,20,64] b=i8[4,64,44] compute=i32 out=i32", 1),
        ("matmul a=i8[1,64] b=i8[64,7] compute=i32 out=i32", 1),
        ("matmul a=i8[3,7,12] b=i8[3,12,1] compute=i32 out=i32", 0),
        ("matmul a=i8[5,2,9,8] b=i8[5,1,8,11] compute=i32 out=i32", 1),
    ],
)
def test_terms_of_int8_are_made_neighbours(text: str, kernels: int) -> None:
    assert launches(operations(text)) == (1, kernels)
    check(operations(text))


@emulated
@pytest.mark.parametrize("a", LAYOUTS)
@pytest.mark.parametrize("b", LAYOUTS)
def test_int8_of_any_strides(a: str, b: str) -> None:
    ab = tensor(1, (2, 3, 9, 12), "i8", a), tensor(2, (2, 3, 12, 10), "i8", b)
    check(product(*ab, tensor(3, (2, 3, 9, 10), "i32"), "i32"))


@emulated
def test_exits_read_the_result() -> None:
    check(operations("matmul a=f32[2,40,36] b=f32[2,36,28] + relu -> reduce add [2,40,1]"))
    check(operations("matmul a=f32[2,40,36] b=f32[2,36,28] -> reduce add [2,40,1]"))


@emulated
@pytest.mark.parametrize("a", LAYOUTS)
@pytest.mark.parametrize("b", LAYOUTS)
@pytest.mark.parametrize("c", ["packed", "reversed", "gaps", "rotated"])
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
def test_a_shared_operand_makes_one_product_of_all_rows(blas: HostBlas) -> None:
    check(operations("matmul a=f16[6,9,8] b=f16[1,8,10]"))
    (call,) = blas.calls
    assert call.batch == 1
    assert {call.m, call.n} == {54, 10}


@emulated
def test_chains_before_both_operands() -> None:
    a, b, scale = tensor(1, (2, 20, 24), "f16"), tensor(2, (2, 24, 28), "f16", "reversed"), tensor(3, (1, 1, 24), "f32")
    before_a = tensor(4, (2, 20, 24), "f16", is_virtual=True)
    before_b = [tensor(5, (2, 24, 28), "bf16", is_virtual=True), tensor(6, (2, 24, 28), "f16", is_virtual=True)]
    check([
        pointwise(PointwiseMode.MUL, a, before_a, scale),
        pointwise(PointwiseMode.ABS, b, before_b[0]),
        pointwise(PointwiseMode.NEG, before_b[0], before_b[1]),
        product(before_a, before_b[1], tensor(7, (2, 20, 28), "f32")),
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("matmul a=f16[8,8] b=bf16[8,8]", "types"),
        ("matmul a=e4m3[8,8] b=e4m3[8,8] compute=f32 out=f16", "types"),
        ("matmul a=f32[8,8] b=f32[8,8] compute=f64", "compute_type"),
        ("matmul a=i8[8,9] b=i8[9,8] compute=i32 out=i32", "int8.rows"),
        ("matmul a=i8[8,131072] b=i8[131072,8] compute=i32 out=i32", "int8.depth"),
        ("matmul a=f32[70,2,8,8] b=f32[70,1,8,8]", ""),
        ("matmul a=f32[70,1,70,8,8] b=f32[1,70,70,8,8]", "batch"),
        ("conv x=f32[8,8,8,8] w=f32[8,8,3,3]", "operation"),
    ],
)
def test_what_it_declines(text: str, rule: str) -> None:
    assert refusals(text) == ({f"cuda_matmul_cublas.{rule}"} if rule else set())


def test_without_the_library_it_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphdnn.cuda import cublas

    monkeypatch.setattr(cublas, "missing", lambda: "it is not there")
    assert refusals("matmul a=f32[8,8] b=f32[8,8]") == {"cuda_matmul_cublas.library"}


@emulated
def test_a_plan_of_several_kernels() -> None:
    """Library calls find bound arrays, tensors between kernels and their own scratch memory."""
    from emulator.runtime import EmulatedRuntime

    first = product(
        tensor(1, (3, 8, 12), "f16"), tensor(2, (3, 12, 16), "f16"), tensor(3, (3, 8, 16), "f16", is_virtual=True)
    )
    second = product(
        tensor(3, (3, 8, 16), "f16", is_virtual=True),
        tensor(4, (1, 16, 8), "f16"),
        tensor(5, (3, 8, 8), "f32", is_virtual=True),
    )
    ops = [
        first,
        second,
        pointwise(PointwiseMode.ABS, tensor(5, (3, 8, 8), "f32", is_virtual=True), tensor(6, (3, 8, 8), "bf16")),
    ]
    graph = OperationGraph.of(ops)
    rng, device = np.random.default_rng(0), device_spec("h200")
    arrays = {
        uid: exact_values(tensor(uid, dims, "f16"), rng)
        for uid, dims in ((1, (3, 8, 12)), (2, (3, 12, 16)), (4, (1, 16, 8)))
    }
    plan = DevicePlan(Ranking(fuse(graph), device, engines=[ENGINE]).best, EmulatedRuntime())
    got = np.empty((3, 8, 8), ELEMENTS[DataType.BFLOAT16].numpy)
    plan.execute({**arrays, 6: got}, plan.new_workspace())
    wide = {uid: array.astype(np.float32) for uid, array in arrays.items()}
    between = (wide[1] @ wide[2]).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(got, np.abs(between @ wide[4]).astype(got.dtype))
