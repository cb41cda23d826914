"""Ranking asks engines only when they come up: the order is all the same that of all predictions, ties by the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from emulator.libraries import host_libraries
from random_problems.families import FAMILIES, Case, draw

from graphdnn.bounded_cache import BoundedCache
from graphdnn.device.profiles import device_spec
from graphdnn.engines import Engine, Task, engines_of
from graphdnn.engines.engine import Scope, scope_of
from graphdnn.enums import HeurMode
from graphdnn.fusion import FusedGraph, fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import ASKED_FOR, Choice, Filters, Ranking
from graphdnn.heuristics import candidate_cache as asked
from graphdnn.heuristics.candidate_cache import ProblemClass, candidates_of
from graphdnn.heuristics.filters import UNFILTERED
from graphdnn.operations import ConvolutionOperation
from graphdnn.problem import parse
from graphdnn.reducer.extent_reduction import Axes, with_extents
from graphdnn.reducer.graph_rebuild import possible

DRAWN = 12
DEVICES = ("h200", "a100")


def drawn(family: str, seed: int) -> FusedGraph:
    return fuse(draw(Case(family, seed, large=seed % 2 == 0)).graph)


def choices(task: Task) -> list[Choice]:
    """Of engines that nobody has to ask for."""
    offered = (e for e in engines_of(task.device.kind) if not ASKED_FOR.intersection(e.numerical_notes))
    return [Choice(task, e, e.defaults()) for e in offered if e.serves(task)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_order_is_that_of_all_predictions(family: str) -> None:
    with host_libraries():
        for seed in range(DRAWN):
            fused, device = drawn(family, seed), device_spec(DEVICES[seed // 2 % 2])
            if len(fused) > 1:
                continue
            task = Task(fused.operations[0], device)
            expected = [c.engine.name for c in sorted(choices(task), key=lambda c: c.rank)]
            assert [config.choices[0].engine.name for config in Ranking(fused, device)] == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_no_prediction_is_below_the_least(family: str) -> None:
    with host_libraries():
        for seed in range(DRAWN):
            for op in drawn(family, 100 + seed):
                for device in DEVICES:
                    for choice in choices(Task(op, device_spec(device))):
                        engine = choice.engine
                        for bound in (engine.least, engine.closer or engine.least):
                            assert bound(choice.task) <= choice.cost.seconds * (1 + 1e-12), engine.name


def test_what_cannot_be_the_best_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "conv x=f16[32,128,28,28]nhwc w=f16[128,128,3,3]nhwc pad=1 + bias + relu"  # tensor cores, far ahead
    fused, device = fuse(parse(line).build_operation_graph()), device_spec("h200")
    asked: list[str] = []

    def serves(problems: ProblemClass, engine: Engine, task: Task) -> bool:
        asked.append(engine.name)
        return known(problems, engine, task)

    known = ProblemClass.serves
    monkeypatch.setattr(ProblemClass, "serves", serves)
    ranking = Ranking(fused, device)
    assert ranking.best
    first = list(asked)
    assert len(list(ranking)) <= len(asked)
    assert len(first) < len(asked), "the rest came with the rest of the ranking"


@pytest.mark.parametrize(
    ("device", "count"), [("h200", DRAWN), *(pytest.param(name, 8 * DRAWN, marks=pytest.mark.long) for name in DEVICES)]
)
def test_needs_of_a_kind_hold_for_all_its_shapes(device: str, count: int) -> None:
    """What rankings remember of a kind is true of every task of it."""
    verdicts: dict[tuple[object, ...], dict[str, bool]] = {}
    met = 0
    for family in FAMILIES:
        for seed in range(count):
            for op in drawn(family, 300 + seed):
                task = Task(op, device_spec(device))
                found = {e.name: e.serves_kind(task) for e in engines_of("cuda")}
                met += task.kind in verdicts
                assert verdicts.setdefault(task.kind, found) == found
                for engine in engines_of("cuda"):
                    rest = engine.needs_between(Scope.KIND, Scope.TASK)
                    serves = found[engine.name] and all(need.holds(task) for need in rest)
                    assert engine.serves(task) == serves, engine.name
    assert met > count


def assert_alike(graphs: Sequence[OperationGraph | None], scopes: Sequence[Scope]) -> int:
    """Of these scopes the needs of all engines say the same of all graphs. How many kernels more than two have."""
    tasks = [Task(one, device_spec("h200")) for graph in graphs if graph is not None for one in fuse(graph)]
    by_rule: dict[tuple[int, str], list[Task]] = {}
    for task in tasks:
        by_rule.setdefault((task.op.index, task.op.name), []).append(task)
    for alike in by_rule.values():
        for engine in engines_of("cuda"):
            for need in (n for n in engine.needs if scope_of(n) in scopes):
                verdicts = {need.holds(task) for task in alike}
                assert len(verdicts) == 1, (need.id, str(alike[0].op))
    return sum(len(alike) > 2 for alike in by_rule.values())


@pytest.mark.parametrize("count", [6, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
def test_needs_of_images_hold_for_all_batches(direction: str, count: int) -> None:
    """What rankings remember of a batch is true of every other one but that of a single image."""
    met = 0
    for family in (f"conv_{direction}", f"conv_{direction}_int"):
        for seed in range(count):
            graph = draw(Case(family, 500 + seed, large=seed % 3 == 0)).graph
            axes = Axes(graph)
            op = next(o for o in graph.operations if isinstance(o, ConvolutionOperation))
            batch = axes.root((op.roles[0].uid, 0))
            found = [possible(partial(with_extents, axes, {batch: n})) for n in (2, 3, 8, 129)]
            met += assert_alike(found, (Scope.WINDOW, Scope.IMAGES))
    assert met >= count


@pytest.mark.parametrize("count", [4, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("direction", ["fprop", "dgrad", "wgrad"])
def test_needs_of_windows_hold_for_all_images(direction: str, count: int) -> None:
    """What rankings remember of filters and channels is true of images of any size, and of a single one."""
    met = 0
    for family in (f"conv_{direction}", f"conv_{direction}_int"):
        for seed in range(count):
            graph = draw(Case(family, 600 + seed, large=seed % 3 == 0)).graph
            axes = Axes(graph)
            op = next(o for o in graph.operations if isinstance(o, ConvolutionOperation))
            image, rank = op.roles[0].uid, len(op.roles[0].dims)
            batch, *pixels = (axes.root((image, axis)) for axis in (0, *range(rank - op.problem.spatial, rank)))
            wanted = [{batch: n, **dict.fromkeys(pixels, size)} for n in (1, 2, 9) for size in (7, 16, 33)]
            found = [possible(partial(with_extents, axes, w)) for w in wanted]
            met += assert_alike(found, (Scope.WINDOW,))
    assert met >= count


def test_what_declines_a_window_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that decline for filters and channels are no candidates for images of another size, those that decline
    for images none for another number of them.
    """
    monkeypatch.setattr(
        "graphdnn.heuristics.candidate_cache._known", BoundedCache(32)
    )  # full ones are forgotten, which might be in between
    monkeypatch.setattr("graphdnn.engines.batch_invariance._numbers", BoundedCache(1024))
    text, device = "conv x=f16[{n},64,{h},{h}]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias", device_spec("h200")
    graphs = [parse(text.format(n=n, h=h)).build_operation_graph() for n, h in ((2, 8), (3, 8), (4, 8), (5, 14))]
    for graph in graphs[:2]:
        assert len(Ranking(fuse(graph), device)) > 1
    known, other = fuse(graphs[2]), fuse(graphs[3])
    candidates = candidates_of(engines_of("cuda"), device, UNFILTERED, False)
    images, window = (
        {engine.name for engine in candidates.problem_class(Task(fused.operations[0], device)).engines}
        for fused in (known, other)
    )
    assert not {"cuda_grouped", "cuda_direct", "cuda_group_packing", "cuda_direct_stem"} & window
    assert images == window - {"cuda_layout_transform", "cuda_stride_fold", "cuda_space_to_depth"}
    assert [c.name for c in Ranking(known, device)] == [c.name for c in Ranking(fuse(graphs[1]), device)]


def test_another_device_or_other_engines_are_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What engines declined on one device, or within one caller's limits, says nothing of others."""
    text, h200 = "conv x=f16[{n},256,14,14]nhwc w=f16[256,256,3,3]nhwc pad=1 + bias", device_spec("h200")
    fused = [fuse(parse(text.format(n=n)).build_operation_graph()) for n in (2, 3, 4)][-1]
    devices = h200, replace(h200, shared_memory=101 * 1024), device_spec("a100"), h200
    engines = engines_of("cuda")
    callers = [
        {},
        {"mode": HeurMode.FALLBACK},
        {"filters": Filters(deterministic=True)},
        {"engines": engines[::-1]},
        {},
    ]

    def names() -> list[list[str]]:
        rankings = [Ranking(fused, device, **caller) for device in devices for caller in callers]
        return [[config.name for config in ranking] for ranking in rankings]

    found = names()
    assert names() == found
    assert found[: len(callers)] == found[-len(callers) :]
    anew = []
    for device in devices:
        for caller in callers:
            monkeypatch.setattr(asked, "_known", BoundedCache(32))
            anew.append([config.name for config in Ranking(fused, device, **caller)])
    assert anew == found
    assert len({tuple(names) for names in found}) >= 3
