"""CUDA attention: kernels run on the host against NumPy's separate operations, and compiled for every architecture."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pytest
from attention_graphs import Shape, attention, values
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, device_kernel, emulated, run_both
from worst_case_sums import WITHIN_BOUNDS, Sums, huge

from graphdnn import OperationGraph, fuse
from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.dtypes import cast
from graphdnn.engines import Engine
from graphdnn.engines.cuda.attention.attention_codegen import fused_attention_of
from graphdnn.engines.cuda.attention.hopper_attention import ENGINE as HOPPER
from graphdnn.engines.cuda.attention.mma_attention import ENGINE, TILES
from graphdnn.enums import DataType, KnobType
from graphdnn.heuristics import Ranking

H200 = device_spec("h200")
ELEMENT_TYPES = {"f16": DataType.HALF, "bf16": DataType.BFLOAT16}
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8}


def check(
    graph: OperationGraph,
    kind: str = "f16",
    tile: int = 0,
    given: dict[int, Any] | None = None,
    engine: Engine = ENGINE,
    device: DeviceSpec = H200,
) -> None:
    """Each row is a mean of v, so it is off by a few units of v's largest element."""
    given = values(graph) if given is None else given
    knobs = engine.settings({KnobType.TILE_SIZE: tile})
    here, there = run_both(list(graph.operations), engine, given, knobs, device=device)
    outputs = {t.uid: t for t in graph.outputs}
    for uid, expected in there.items():
        found, wanted = here[uid].astype(np.float64), expected.astype(np.float64)
        assert (np.isnan(found) == np.isnan(wanted)).all()
        unit = 2.0**-20 if outputs[uid].data_type.name == "FLOAT" else 4 * UNIT[kind]
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
        np.testing.assert_allclose(found, wanted, rtol=unit, atol=unit * largest, equal_nan=True)


CASES: dict[str, tuple[Shape, dict[str, Any]]] = {
    "plain": (Shape(), {}),
    "statistics": (Shape(rows=70, keys=66), {"scale": 0.2, "statistics": True, "behind": True}),
    "odd keys": (Shape(batch=1, rows=17, keys=77, depth=24, columns=40), {"scale": 0.3, "statistics": True}),
    "one row": (Shape(rows=1, keys=130, heads=4, shared=4), {"scale": 0.3}),
    "one key more than a step": (Shape(batch=1, rows=3, keys=65), {"scale": 0.3, "bias": (1, 2, 3, 65)}),
    "bias of rows": (Shape(rows=20), {"bias": (1, 1, 20, 80)}),
    "bias of keys": (Shape(rows=20), {"bias": (2, 1, 1, 80), "cap": 5.0}),
    "causal": (Shape(batch=1, rows=90, keys=90), {"causal": 0, "scale": 0.2, "statistics": True}),
    "causal, bottom right": (Shape(batch=1, rows=40, keys=100, shared=2), {"causal": 60, "scale": 0.2}),
    "rows that see nothing": (Shape(batch=1, rows=100, keys=70), {"causal": -33, "statistics": True}),
    "causal in floats": (Shape(batch=1, rows=70, keys=70), {"causal": 0, "index": "f32"}),
    "window": (Shape(batch=1, rows=150, keys=150), {"causal": 0, "window": 20, "scale": 0.2}),
    "window, ahead": (Shape(batch=1, rows=150, keys=90), {"window": 7, "scale": 0.2, "statistics": True}),
    "padded": (Shape(batch=3, rows=20, shared=2), {"padded": True, "scale": 0.2}),
    "padded and causal": (Shape(batch=2, rows=80), {"padded": True, "causal": 3, "scale": 0.2}),
    "finite mask": (Shape(batch=1, rows=90, keys=90), {"causal": -70, "hidden": -1e4}),
    "scores in 16 bits": (Shape(batch=1, rows=90, keys=90), {"scores": "f16", "scale": 0.2}),
    "strides": (Shape(between=64, rows=33), {"scale": 0.2}),
    "long heads": (Shape(batch=1, heads=1, rows=70, keys=70, depth=136, columns=256), {"causal": 0, "scale": 0.1}),
    "short heads": (Shape(rows=70, keys=70, depth=8, columns=8), {"causal": 0}),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_results(name: str, kind: str) -> None:
    shape, fields = CASES[name]
    if fields.get("scores") == "f16":
        fields = {**fields, "scores": kind}
    graph = attention(shape, kind, **fields)
    check(graph, kind, 0, values(graph, keys=shape.keys))


@emulated
@pytest.mark.parametrize("tile", range(1, len(TILES) + 1))
def test_tiles(tile: int) -> None:
    shape = Shape(batch=1, rows=150, keys=140, depth=48, columns=32)
    check(attention(shape, causal=5, scale=0.2, statistics=True), tile=tile)


@emulated
def test_infinite_scores_and_rows_without_numbers() -> None:
    graph = attention(Shape(batch=1, rows=40, keys=80), statistics=True)
    given = values(graph)
    q = given[graph.inputs[0].uid].copy()
    q[0, 0, 3], q[0, 1, 5] = np.nan, 60000.0
    check(graph, given={**given, graph.inputs[0].uid: q})


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("depth", [64, 80, 128, 160, 192, 256])
@pytest.mark.parametrize("fields", [{}, {"causal": 0, "statistics": True}, {"cap": 5.0, "bias": (2, 2, 48, 80)}])
def test_compiles(arch: str, depth: int, fields: dict[str, Any]) -> None:
    for rows in (48, 9999):  # few blocks, and many
        shape = Shape(rows=rows, depth=depth, columns=depth)
        if "bias" in fields:
            fields = {**fields, "bias": shape.scores}
        compiles_cleanly(list(attention(shape, scale=0.1, **fields).operations), ENGINE, arch, device="a100")


@pytest.mark.parametrize(
    ("fields", "first", "last", "masks"),
    [
        ({"causal": 0}, None, 0, 1),
        ({"causal": -4}, None, -4, 1),
        ({"window": 7}, -6, None, 1),
        ({"causal": 2, "window": 7}, -6, 2, 2),
        ({"padded": True, "causal": 0}, None, 0, 1),
        ({"causal": 0, "hidden": -1e9}, None, None, 0),
        ({"causal": 0, "index": "f32"}, None, 0, 1),
        ({"bias": (2, 2, 48, 80)}, None, None, 0),
    ],
)
def test_mask_bounds(fields: dict[str, Any], first: int | None, last: int | None, masks: int) -> None:
    (op,) = fuse(attention(**fields))
    bounds = fused_attention_of(op).mask_bounds
    assert (bounds.first, bounds.last, len(bounds.masks)) == (first, last, masks)


def test_visible_scores() -> None:
    (op,) = fuse(attention(Shape(rows=64, keys=64), causal=0))
    assert fused_attention_of(op).mask_bounds.visible(64, 64) == 64 * 65 / 2


def test_the_unmasked_form_has_no_masks() -> None:
    text = device_kernel(list(attention(causal=0, scale=0.1).operations), ENGINE).source
    whole = text.split("void score_mod_unmasked")[1].split("template")[0]
    assert "gen_index" not in text.split("void score_mod_unmasked")[0].split("void score_mod_masked")[0]
    assert "cmp_ge" not in whole
    assert whole.count("// operation") == 3


@pytest.mark.parametrize(
    ("device", "engine"), [("h200", "cuda_hopper_attention"), ("a100", ENGINE.name), ("l4", ENGINE.name)]
)
def test_it_is_chosen(device: str, engine: str) -> None:
    graph = attention(Shape(rows=512, keys=512, depth=64, columns=64), causal=0, scale=0.1, hidden=-inf)
    assert Ranking(fuse(graph), device_spec(device)).best.name == engine


@emulated
@pytest.mark.parametrize("engine", [ENGINE, HOPPER], ids=lambda engine: engine.name)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("how", [how for how in WITHIN_BOUNDS if how is not huge], ids=lambda how: how.__name__)
def test_stated_errors_of_both_products(engine: Engine, kind: str, how: Callable[..., Sums]) -> None:
    """The statistics of a row that sees one key are its score; where all scores are zeros, a result is a mean of v."""
    data_type, rows, keys, depth, columns = ELEMENT_TYPES[kind], 40, 320, 192, 32
    few = Shape(batch=1, heads=1, rows=rows, keys=16, depth=depth, columns=columns)
    of_scores = attention(few, kind, padded=True, statistics=True)
    of_values = attention(Shape(batch=1, heads=1, rows=rows, keys=keys, depth=16, columns=columns), kind, result="f32")
    drawn = (
        how(np.random.default_rng(depth), data_type, rows, 16, depth),
        how(np.random.default_rng(keys), data_type, 1, columns, keys),
    )
    q, k, v = (cast(a, data_type).astype(np.float64) for a in (drawn[0].x, drawn[0].w.T, drawn[1].w.T))
    given = {"q": q, "k": k, "v": np.ones((16, columns)), "lengths": np.ones((1, 1))}
    score = (q @ k)[:, :1], (abs(q) @ abs(k))[:, :1]
    _within(of_scores, engine, given, depth, *score)
    given = {"q": np.zeros((rows, 16)), "k": np.ones((16, keys)), "v": v}
    _within(of_values, engine, given, keys, v.mean(0), abs(v).mean(0))


def _within(graph: OperationGraph, engine: Engine, given: dict[str, Any], n: int, exact: Any, size: Any) -> None:
    """The last result of one head, as far off as sums of n terms of that size may be, a division and a rounding."""
    assert engine.sum_error is not None
    bound = {t.uid: given[t.name].reshape(t.dims) for t in graph.inputs if not t.is_constant}
    here, _ = run_both(list(graph.operations), engine, bound, device=H200)
    found = here[graph.outputs[-1].uid][0, 0].astype(np.float64)
    units = engine.sum_error.units(n) + 4
    assert np.all(abs(found - exact) <= units * 2.0**-24 * size + n * engine.sum_error.floor + 2.0**-149)
