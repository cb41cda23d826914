"""Attention of compute capability 9.0: kernels run on the host against NumPy's separate operations, and compiled."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attention_graphs import Shape, attention, stacked, values
from cuda_comparison import compiler, device_kernel, emulated, text_compiles_cleanly
from disassembly import NO_DISASSEMBLER, ordered
from test_cuda_attention import CASES, H200, check

from graphdnn import fuse
from graphdnn.device.profiles import device_spec
from graphdnn.engines import Task
from graphdnn.engines.cuda.attention.attention_codegen import fused_attention_of, scale_of_scores
from graphdnn.engines.cuda.attention.hopper_attention import ENGINE, TILES
from graphdnn.engines.cuda.codegen.launch import Launch

SMALL = replace(H200, sm_count=2)  # a block has several tiles


@emulated
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_results(name: str, kind: str) -> None:
    shape, fields = CASES[name]
    if fields.get("scores") == "f16":
        fields = {**fields, "scores": kind}
    graph = attention(shape, kind, **fields)
    check(graph, kind, 0, values(graph, keys=shape.keys), ENGINE, SMALL)


@emulated
@pytest.mark.parametrize("tile", range(1, len(TILES) + 1))
def test_tiles(tile: int) -> None:
    """Several blocks of keys for each tile of rows, more tiles than blocks of the grid, and rows that see a few keys."""
    shape = Shape(batch=2, heads=2, rows=300, keys=420, depth=48, columns=40, shared=2)
    check(attention(shape, causal=130, window=150, scale=0.2, statistics=True), tile=tile, engine=ENGINE, device=SMALL)
    check(attention(shape, scale=0.2), tile=tile, engine=ENGINE, device=SMALL)


@emulated
def test_infinite_scores_and_rows_without_numbers() -> None:
    graph = attention(Shape(batch=1, rows=40, keys=400), statistics=True)
    given = values(graph)
    q = given[graph.inputs[0].uid].copy()
    q[0, 0, 3], q[0, 1, 5] = np.nan, 60000.0
    check(graph, given={**given, graph.inputs[0].uid: q}, engine=ENGINE)


@emulated
def test_scores_near_the_largest_number() -> None:
    """Multiplied by log2 e they would be infinite."""
    graph = attention(Shape(batch=1, heads=1, rows=20, keys=400, depth=16), "bf16")
    given = values(graph, keys=400)
    q, k = (given[t.uid].copy() for t in graph.inputs[:2])
    q[...], k[...] = 0.0, 0.0
    q[..., 0], k[..., 0, :] = 1.5e19, 1e19
    k[..., 0, 200:210] = 2e19
    q[..., 10:, 0] *= -1
    check(graph, "bf16", given={**given, graph.inputs[0].uid: q, graph.inputs[1].uid: k}, engine=ENGINE)


@emulated
@pytest.mark.parametrize("scale", [None, 1.0])
def test_scores_far_from_zero(scale: float | None) -> None:
    """Multiplied by log2 e they are rounded by more than they differ; the largest ones pass from near to far and back."""
    graph = attention(Shape(batch=1, heads=1, rows=40, keys=400, depth=16), scale=scale, statistics=True)
    given = values(graph, keys=400)
    q, k = (given[t.uid].copy() for t in graph.inputs[:2])
    q[...], k[...] = 0.0, 0.0
    q[..., 0], k[..., 0, :] = 1024.0, 676.0  # 692,224; from 693,147 on they are far
    q[..., 1], k[..., 1, :] = 1.0, 944.0 - np.arange(400) // 10
    q[..., 1::3, :] *= -1
    q[..., 2::3, 0] *= 8
    check(graph, given={**given, graph.inputs[0].uid: q, graph.inputs[1].uid: k}, engine=ENGINE)


@pytest.mark.parametrize(
    ("fields", "factor"),
    [
        ({"scale": 0.125}, 0.125),
        ({"scale": 0.75}, 0.75),
        ({"scale": 2.0, "causal": 3, "padded": True}, 2.0),
        ({"scale": -0.5}, None),
        ({"scale": 0.5, "bias": (1, 1, 1, 80)}, None),
        ({"scale": 0.5, "scores": "f16"}, 0.5),
        ({"scale": 0.5, "causal": 0, "hidden": -1e4}, None),
        ({"scale": 2.0**-100}, None),  # its products would lose digits
        ({}, None),
    ],
)
def test_factor_of_the_exponent(fields: dict[str, Any], factor: float | None) -> None:
    (op,) = fuse(attention(**fields))
    found = scale_of_scores(fused_attention_of(op))
    assert (None if found is None else found[1]) == factor


@emulated
@pytest.mark.parametrize("fields", [{"causal": 0, "padded": True}, {"cap": 3.0}, {"window": 9, "behind": True}])
def test_scores_that_are_scaled_in_the_exponent(fields: dict[str, Any]) -> None:
    check(attention(Shape(batch=1, rows=90), scale=0.25, statistics=True, **fields), engine=ENGINE)


@compiler
@pytest.mark.parametrize("depth", [64, 128, 256])
@pytest.mark.parametrize("fields", [{}, {"causal": 0, "statistics": True}, {"cap": 5.0, "bias": (2, 2, 48, 80)}])
def test_compiles(depth: int, fields: dict[str, Any]) -> None:
    graph = attention(Shape(depth=depth, columns=depth), scale=0.1, **fields)
    (step,) = device_kernel(list(graph.operations), ENGINE).steps
    assert isinstance(step, Launch)
    text_compiles_cleanly(step.text, "sm_90a")


@compiler
@pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)
@pytest.mark.parametrize("depth", [64, 128])
def test_both_products_are_under_way_at_the_same_time(depth: int) -> None:
    """In the loop over blocks: what the compiler would put between them is a wait."""
    graph = attention(Shape(depth=depth, columns=depth), scale=0.1)
    (step,) = device_kernel(list(graph.operations), ENGINE).steps
    assert isinstance(step, Launch)
    names = "HGMMA", "WARPGROUP.DEPBAR", "MUFU.EX2"
    found = " ".join(ordered(text_compiles_cleanly(step.text, "sm_90a").cubin, names))
    keys = int(step.text.name.split("x")[1])
    assert re.search(rf"DEPBAR (MUFU.EX2 )+(HGMMA ){{{depth // 16 + keys // 16}}}WARPGROUP.DEPBAR", found)


def reasons(batch: tuple[int, ...], device: str) -> list[str]:
    (op,) = fuse(stacked(batch))
    return [reason.rule for reason in ENGINE.why_not(Task(op, device_spec(device)))]


@pytest.mark.parametrize("batch", [(2,), (2, 3), (2, 1, 3)])
def test_needs(batch: tuple[int, ...]) -> None:
    assert not reasons(batch, "h200")
    assert reasons(batch, "a100") == ["cuda_hopper_attention.compute_capability"]


def test_more_batch_axes_than_the_copy_unit_counts() -> None:
    assert reasons((2, 1, 3, 2), "h200") == ["cuda_hopper_attention.batch"]


@emulated
def test_one_batch_axis() -> None:
    check(stacked((3,), rows=70), engine=ENGINE, device=SMALL)
