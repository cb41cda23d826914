"""Likeness: graphs of one class differ in extents and strides only, and what fusion keeps of a class changes nothing."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import pytest
from emulator.libraries import host_libraries
from problems import tensor
from random_problems.families import FAMILIES, Case, draw

from graphdnn import NotSupported, OperationGraph, device_spec
from graphdnn.bounded_cache import BoundedCache
from graphdnn.engines.batch_invariance import images_of
from graphdnn.enums import PointwiseMode
from graphdnn.fusion import FusedGraph, fuse, fusion_cache
from graphdnn.fusion.fusion_pass import _Walk
from graphdnn.fusion.limits import NO_LIMITS
from graphdnn.graph.structure_key import structure_key_of
from graphdnn.heuristics import Ranking, candidate_cache
from graphdnn.operations import ConvolutionOperation, PointwiseOperation, PointwiseSpec
from graphdnn.problem import parse
from graphdnn.reducer.extent_reduction import Axes, with_extents
from graphdnn.reducer.graph_rebuild import possible

NAN, INF = float("nan"), float("inf")
CLASSES = (
    "conv x=f16[{n},8,{h},6]nhwc w=f16[8,8,3,3]nhwc pad=1 + bias + residual + relu",
    "pointwise x=f16[{n},8,{h},6] + bias + relu + mul",
    "matmul a=f16[{n},{h},8] b=f16[{n},8,16] + bias + gelu",
    "norm layer x=f16[{n},{h}]",
    "conv x=f32[{n},8,{h},6] w=f32[8,8,3,3] pad=1 + bias -> reduce add [1,8,1,1]",
)


def scaled(value: float, slope: float = 0.0) -> OperationGraph:
    """The sum of a tensor and a constant, and a ReLU of it."""
    factor = tensor(2, (1, 1), is_by_value=True, constant_value=value)
    between = tensor(3, (4, 8), is_virtual=True)
    add = PointwiseSpec(mode=PointwiseMode.ADD, math_type="f32")
    relu = PointwiseSpec(mode=PointwiseMode.RELU_FWD, math_type="f32", relu_lower_clip_slope=slope)
    return OperationGraph.of(
        [
            PointwiseOperation(spec=add, x=tensor(1, (4, 8)), b=factor, y=between),
            PointwiseOperation(spec=relu, x=between, y=tensor(4, (4, 8))),
        ]
    )


def test_what_python_calls_equal_is_told_apart() -> None:
    different = [scaled(v) for v in (0.0, -0.0, 0, 1, 1.0, INF, -INF)] + [scaled(0.0, -0.0), scaled(0.0, 0.5)]
    for one, other in combinations(different, 2):
        assert one.structure_key.number != other.structure_key.number
    for value in (-0.0, 1, 1.0, INF, NAN):
        assert scaled(value).structure_key == scaled(value).structure_key


@pytest.mark.parametrize("family", FAMILIES)
def test_it_says_what_the_json_says(family: str) -> None:
    graphs = [draw(Case(family, seed, large=False)).graph for seed in (0, 1, 2, 0)]
    texts = [[(type(op), op.__pydantic_serializer__.to_json(op)) for op in graph.operations] for graph in graphs]
    for (one, first), (other, second) in combinations(zip(graphs, texts, strict=True), 2):
        assert (structure_key_of(one.operations) == structure_key_of(other.operations)) == (first == second)


def test_extents_and_strides_are_no_part_of_a_class() -> None:
    for text in CLASSES:
        found = [parse(text.format(n=n, h=h)).build_operation_graph().structure_key for n in (2, 3) for h in (5, 12)]
        assert len({key.number for key in found}) == 1
        assert len({key.extents for key in found}) == len(found)


def anew(graph: OperationGraph) -> FusedGraph:
    return _Walk(graph, NO_LIMITS).run()


def assert_same(found: FusedGraph, expected: FusedGraph) -> None:
    assert found.graph is expected.graph
    assert found.to_json() == expected.to_json()
    assert str(found) == str(expected)
    for one, other in zip(found, expected, strict=True):
        for part in ("operations", "prologue", "epilogue", "inputs", "outputs", "internal"):
            assert [id(t) for t in getattr(one, part)] == [id(t) for t in getattr(other, part)], part
        assert (one.anchor, one.exit) == (other.anchor, other.exit)


def test_known_classes_are_fused_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion_cache, "_known", BoundedCache(512))
    drawn = [draw(Case(family, seed, large=False)).graph for family in FAMILIES for seed in (0, 1)]
    texts = [parse(t.format(n=n, h=h)).build_operation_graph() for n in (1, 2, 3) for h in (5, 6) for t in CLASSES]
    repeated = 0
    for graph in (*drawn, *drawn, *texts):
        repeated += fusion_cache.key_of(graph) in fusion_cache._known
        assert_same(fuse(graph), anew(graph))
    assert repeated > len(drawn) // 2


@pytest.mark.parametrize("sizes", [(4, 1), (1, 4)])
def test_one_class_may_fuse_in_two_ways(sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is added to a matrix is computed by its own kernel, unless the matrix is a row too."""
    monkeypatch.setattr(fusion_cache, "_known", BoundedCache(512))
    relu, add = (PointwiseSpec(mode=mode, math_type="f32") for mode in (PointwiseMode.RELU_FWD, PointwiseMode.ADD))
    for rows in sizes * 2:
        row = tensor(2, (1, 8), is_virtual=True)
        graph = OperationGraph.of(
            [
                PointwiseOperation(spec=relu, x=tensor(1, (1, 8)), y=row),
                PointwiseOperation(spec=add, x=row, b=tensor(3, (rows, 8)), y=tensor(4, (rows, 8))),
            ]
        )
        assert_same(fuse(graph), anew(graph))
        assert len(fuse(graph)) == (1 if rows == 1 else 2)


def chosen(graph: OperationGraph) -> list[tuple[str, float]]:
    try:
        return [(c.name, c.cost.seconds) for c in Ranking(fuse(graph), device_spec("h200")).best.choices]
    except NotSupported:
        return []


def test_choices_do_not_depend_on_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fusion, rankings and engines keep of classes and of shapes before."""
    graphs = [draw(Case(family, seed, large=True)).graph for family in FAMILIES for seed in range(3)]
    graphs += [
        parse(t.format(n=n, h=h)).build_operation_graph() for n in (1, 2, 3, 24) for h in (5, 64) for t in CLASSES
    ]
    expected = []
    with host_libraries():
        for graph in graphs:
            monkeypatch.setattr(fusion_cache, "_known", BoundedCache(512))
            monkeypatch.setattr(candidate_cache, "_known", BoundedCache(512))
            expected.append(chosen(graph))
        assert [chosen(graph) for graph in reversed(graphs)] == expected[::-1]


@pytest.mark.parametrize("count", [1, pytest.param(25, marks=pytest.mark.long)])
def test_choices_do_not_depend_on_batches_before(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of images, whatever their number."""
    families = [f"conv_{direction}{kind}" for direction in ("fprop", "dgrad", "wgrad") for kind in ("", "_int")]
    met = 0
    with host_libraries():
        for drawn in (draw(Case(f, 700 + seed, large=seed % 2 == 0)).graph for f in families for seed in range(count)):
            axes = Axes(drawn)
            op = next(o for o in drawn.operations if isinstance(o, ConvolutionOperation))
            wanted = [{axes.root((op.roles[0].uid, 0)): n} for n in (64, 3, 2, 300)]
            graphs = [g for g in (possible(partial(with_extents, axes, w)) for w in wanted) if g is not None]
            again = [chosen(graph) for graph in graphs]
            met += sum(images_of(op) is not None for graph in graphs for op in fuse(graph))
            for graph, found in zip(graphs, again, strict=True):
                monkeypatch.setattr(fusion_cache, "_known", BoundedCache(512))
                assert chosen(graph) == found
    assert met > 3 * count
