"""Ranking asks engines only when they come up: the order is all the same that of all predictions, ties by the table."""

from __future__ import annotations

from functools import partial

import pytest
from drawn.families import FAMILIES, Case, draw
from emulator.libraries import host_libraries

from graphdnn.device import device_spec
from graphdnn.engines import Engine, Task, engines_of
from graphdnn.engines.engine import Scope, scope_of
from graphdnn.fusion import FusedGraph, fuse
from graphdnn.heuristics import ASKED_FOR, Choice, Ranking
from graphdnn.operations import ConvolutionOperation
from graphdnn.reducing.extents import Axes, with_extents
from graphdnn.reducing.rebuilding import possible

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
                        assert engine.least(choice.task) <= choice.cost.seconds * (1 + 1e-12), engine.name


def test_what_cannot_be_the_best_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, device = drawn("conv_fprop", 0), device_spec("h200")
    asked: list[str] = []

    def serves(engine: Engine, task: Task) -> bool:
        asked.append(engine.name)
        return known(engine, task)

    known = Engine.serves_shape
    monkeypatch.setattr(Engine, "serves_shape", serves)
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
                    assert engine.serves(task) == (found[engine.name] and engine.serves_shape(task)), engine.name
    assert met > count


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
            tasks = [Task(one, device_spec("h200")) for graph in found if graph is not None for one in fuse(graph)]
            by_rule: dict[tuple[int, str], list[Task]] = {}
            for task in tasks:
                by_rule.setdefault((task.op.index, task.op.name), []).append(task)
            for alike in by_rule.values():
                for engine in engines_of("cuda"):
                    for need in (n for n in engine.needs if scope_of(n) is Scope.IMAGES):
                        verdicts = {need.holds(task) for task in alike}
                        assert len(verdicts) == 1, (need.id, str(alike[0].op))
                met += len(alike) > 2
    assert met >= count
