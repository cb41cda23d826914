"""Matrix products of compute capability 9.0 run on the host against the general NumPy engine, and compiled.

Operands are small multiples of a quarter: every sum is exact in fp32 in any order, so results are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from cuda_comparison import compiler, device_kernel, emulated, fused, last_compiles_cleanly
from disassembly import NO_DISASSEMBLER, instructions
from exact_sums import check_sums, operations

from graphdnn import Graph, OperationGraph, TensorSpec, fuse
from graphdnn.device.profiles import device_spec
from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.codegen import pointwise_program
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.sm90.gemm import hopper_matmul
from graphdnn.engines.cuda.sm90.gemm.hopper_matmul import ENGINE, ENGINE_FP8, ENGINE_TF32
from graphdnn.engines.cuda.sm90.tile import TILES
from graphdnn.enums import KnobType
from graphdnn.operations import Matmul, MatmulSpec, Operation

_NUMBER = {tile.name: i for i, tile in enumerate(TILES, 1)}
SMALL = _NUMBER["64x64"]


def check(
    ops: str | Sequence[Operation], seed: int = 0, tile: int = SMALL, engine: Engine = ENGINE, **knobs: Any
) -> None:
    check_sums(ops, engine, seed, TILE_SIZE=tile, **knobs)


TEXTS = [
    "matmul a=f16[2,70,72] b=f16[2,72,88] + bias + relu",
    "matmul a=bf16[3,65,40] b=bf16[1,40,24] out=f32",
    "matmul a=f16[1,64,200] b=f16[4,200,64] + residual",
    "matmul a=f16[90,33] b=f16[33,17]",
    "matmul a=i8[2,40,130] b=u8[2,130,70] compute=i32 out=i32",
    "matmul a=u8[20,256] b=i8[256,36] compute=i32 out=i8 + relu",
    "matmul a=f16[2,3,20,64] b=f16[2,1,64,72]",
    "matmul a=f16[2,3,20,64] b=f16[1,1,64,72] + bias + residual",
]


@emulated
@pytest.mark.parametrize("text", TEXTS)
def test_results(text: str) -> None:
    check(text, SPLIT_K=1)
    check(text, SPLIT_K=3, STAGES=3)


@emulated
@pytest.mark.parametrize(
    "text", ["matmul a=f16[1,300,1000] b=f16[1,1000,264] + bias + relu", "matmul a=f16[5,70,72] b=f16[5,72,88]"]
)
def test_teams_have_tiles_in_turns(text: str) -> None:
    """Several tiles of each, and fewer; rings shorter and longer than a tile's steps."""
    few = replace(device_spec("h200"), sm_count=2)
    for stages in (0, 3):
        check(text, tile=_NUMBER["128x128w2"], device=few, SPLIT_K=1, STAGES=stages)


@emulated
@pytest.mark.parametrize("tile", ["64x32", "64x96", "128x32", "64x64b2"])
@pytest.mark.parametrize("rows", [1, 17, 64, 100])
def test_few_rows(rows: int, tile: str) -> None:
    """Only whole sixteens of them are copied."""
    check(f"matmul a=f16[{rows},200] b=f16[200,264] + bias + relu", tile=_NUMBER[tile], SPLIT_K=1)
    check(product((rows, 80), (80, 136), "ccr"), tile=_NUMBER[tile], SPLIT_K=1)


@emulated
def test_what_is_long_is_a_function_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many sums and a GELU; here of everything, as sums alone are exact."""
    gelu = operations(TEXTS[0].removesuffix("relu") + "gelu")
    for name, is_called in (("64x64", False), ("128x256", True)):
        kernel = device_kernel(gelu, ENGINE, {KnobType.TILE_SIZE: _NUMBER[name], KnobType.SPLIT_K: 1})
        assert ("t_outlined0(" in kernel.source) == is_called, name
    monkeypatch.setattr(pointwise_program, "_MAX_INLINE_FLOPS", 0)
    check(TEXTS[6] + " + residual + relu", SPLIT_K=1)


def product(a: Sequence[int], b: Sequence[int], layouts: str, result: str = "f16") -> list[Operation]:
    """``layouts`` of a, b and c: r for rows of neighbours, c for columns, p for rows with a gap between them."""

    def tensor(uid: int, dims: Sequence[int], layout: str, kind: str) -> TensorSpec:
        rows, columns = dims[-2:]
        strides = {"r": [columns, 1], "c": [1, rows], "p": [columns + 8, 1]}[layout]
        pace = strides[0] * rows if layout != "c" else rows * columns
        for extent in reversed(dims[:-2]):
            strides.insert(0, pace)
            pace *= extent
        return TensorSpec(uid=uid, data_type=kind, dims=tuple(dims), strides=tuple(strides))

    found = [*map(max, a[:-2], b[:-2])]
    c = (*found, a[-2], b[-1])
    kinds = ("f16", "f16", result)
    specs = [tensor(i, *of) for i, of in enumerate(zip((a, b, c), layouts, kinds, strict=True), 1)]
    return [Matmul(a=specs[0], b=specs[1], c=specs[2], spec=MatmulSpec(compute_type="f32"))]


@emulated
@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("layouts", ["rcr", "ccr", "rcp"])
def test_columns_in_another_order(layouts: str, kind: str) -> None:
    """Columns along k of one matrix: lanes get neighbours, four or eight."""
    check(product((3, 40, 72), (1, 72, 96), layouts, kind), SPLIT_K=1)


@emulated
@pytest.mark.parametrize("layouts", ["rrr", "rcr", "crr", "ccr", "rrc", "ccc", "ppp"])
def test_layouts(layouts: str) -> None:
    """Operands along k and across it, copied by tensor maps as they lie; results whose columns are contiguous."""
    ops = product((2, 72, 80), (2, 80, 136), layouts)
    assert all(isinstance(s, Launch) and s.entry == "hopper_gemm" for s in device_kernel(ops, ENGINE).steps)
    check(ops, SPLIT_K=1)


@emulated
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 1, 40), (1, 40, 24)),
        ((4, 8, 8), (2, 8, 8)),
        ((2, 6, 8, 8), (2, 3, 8, 8)),
        ((1, 6, 8, 8), (4, 2, 8, 8)),
        ((2, 1, 3, 8, 8), (2, 2, 1, 8, 8)),
    ],
)
def test_matrices_that_serve_several_products(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check(product(a, b, "rrr"), SPLIT_K=1)


@emulated
def test_bands_of_tiles() -> None:
    """Thirteen rows of tiles are a band of eleven and one of two."""
    check(product((2, 800, 16), (2, 16, 136), "rrr"), SPLIT_K=1)


@emulated
@pytest.mark.parametrize("tile", ["128x96", "256x64", "128x64b2"])
def test_tiles(tile: str) -> None:
    check(TEXTS[0], tile=_NUMBER[tile])


@emulated
@pytest.mark.long
@pytest.mark.parametrize("tile", [0, *_NUMBER.values()], ids=["chosen", *_NUMBER])
@pytest.mark.parametrize("text", TEXTS[:5])
def test_every_tile(text: str, tile: int) -> None:
    check(text, tile=tile)
    check(text, tile=tile, SPLIT_K=2)


@emulated
@pytest.mark.parametrize("text", ["matmul a=f32[2,40,36] b=f32[2,36,24] + relu", "matmul a=f32[70,64] b=f32[64,64]"])
def test_tf32(text: str) -> None:
    """Quarters have few digits: nothing is rounded. Rows of b are copied: these tensor cores read along k."""
    check(text, engine=ENGINE_TF32)


@emulated
@pytest.mark.parametrize(
    "text",
    [
        "matmul a=e4m3[2,40,272] b=e5m2[2,272,24] out=f32 + relu",
        "matmul a=e5m2[70,64] b=e4m3[64,64] out=f16 + bias",
        "matmul a=e4m3[3,9,36] b=e4m3[1,36,40] out=f32",
    ],
)
def test_fp8(text: str) -> None:
    check(text, engine=ENGINE_FP8)
    check(text, engine=ENGINE_FP8, SPLIT_K=2)


@emulated
def test_operands_are_computed_first() -> None:
    graph = Graph()
    a, b = (graph.tensor(dims, data_type="float16") for dims in ([2, 24, 40], [2, 40, 16]))
    graph.matmul(graph.relu(a).set_data_type("float16"), b).set_output(True)
    ops = graph.build_operation_graph().operations
    assert fused(ops).prologue
    check(ops)


LARGE = [
    "matmul a=f16[8,1024,512] b=f16[8,512,768] + bias + gelu",
    "matmul a=bf16[1,4096,4096] b=bf16[1,4096,4096]",
    "matmul a=i8[1,512,4096] b=i8[1,4096,512] compute=i32 out=i32",
]


@compiler
@pytest.mark.parametrize("text", LARGE)
def test_compiles(text: str) -> None:
    last_compiles_cleanly(operations(text), ENGINE)


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@pytest.mark.parametrize("text", LARGE)
def test_instructions(text: str) -> None:
    found = instructions(last_compiles_cleanly(operations(text), ENGINE).cubin)
    assert found["IGMMA" if "i8" in text else "HGMMA"]
    assert found["UTMALDG"]
    assert not found["HMMA"] + found["IMMA"] + found["LDGSTS"]


_REFUSED = {
    "compute_type": "matmul a=i8[1,8,8] b=i8[1,8,8] compute=i64 out=i64",
    "types": "matmul a=f32[1,8,8] b=f32[1,8,8]",
}


@pytest.mark.parametrize("reason", _REFUSED)
def test_refusals(reason: str) -> None:
    task = Task(fused(operations(_REFUSED[reason])), device_spec("h200"))
    assert f"cuda_hopper_matmul.{reason}" in {r.rule for r in ENGINE.why_not(task)}


def test_a_stack_is_one_axis_of_the_result() -> None:
    a, b, c = (
        TensorSpec(uid=i, data_type="f16", dims=(2, 3, 8, 8), strides=strides)
        for i, strides in enumerate([(192, 64, 8, 1), (192, 64, 8, 1), (1024, 64, 8, 1)])
    )
    (op,) = fuse(OperationGraph.of([Matmul(a=a, b=b, c=c, spec=MatmulSpec(compute_type="f32"))]))
    assert "cuda_hopper_matmul.batch" in {r.rule for r in ENGINE.why_not(Task(op, device_spec("h200")))}


@pytest.mark.parametrize(
    ("a", "b", "layouts", "rows"),
    [
        ((2, 3, 20, 64), (1, 1, 64, 72), "rrr", 120),
        ((5, 1, 40), (1, 40, 24), "rrr", 5),
        ((5, 7, 40), (1, 40, 24), "rrc", 7),  # rows of one result do not follow those of another
        ((5, 7, 40), (5, 40, 24), "rrr", 7),
    ],
)
def test_stacks_of_one_matrix_are_one_product(a: Any, b: Any, layouts: str, rows: int) -> None:
    op = fused(product(a, b, layouts))
    flat = hopper_matmul._BatchedGemm.of(op).flattened(op)
    assert flat.row.size == (rows if not flat.stack.swapped else 24)
