"""A knob has the value that the kernel has: other values are refused, and no setting repeats the launches of another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from expect_rejection import refusal
from knob_launches import DEVICE, launches_of, offered, tasks

from graphdnn.builder import Graph
from graphdnn.device.profiles import device_spec
from graphdnn.engines import ENGINE_BY_NAME, Engine, Task
from graphdnn.engines.cuda.sm90.halo.halo_tile_choice import TILES
from graphdnn.enums import KnobType
from graphdnn.files import plan_from_json, plan_to_json
from graphdnn.fusion import fuse
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.plan import ExecutionPlan

PAIRS = tuple(tasks(device_spec(DEVICE)))


@pytest.mark.parametrize(("engine", "task"), PAIRS, ids=[f"{e.name}-{t.op.name}" for e, t in PAIRS])
def test_every_offered_setting_has_launches_of_its_own(engine: Engine, task: Task) -> None:
    found = offered(engine, task)
    assert found.of, "mode B offers at least the defaults"
    assert found.shared == 0


@pytest.mark.parametrize(("engine", "task"), PAIRS, ids=[f"{e.name}-{t.op.name}" for e, t in PAIRS])
def test_values_that_a_kernel_has_launch_it(engine: Engine, task: Task) -> None:
    """Where the values that an engine states can be set, setting them launches the same kernel."""
    for named, launches in offered(engine, task).of.items():
        knobs = {KnobType[name]: value for name, value in named}
        stated = engine.effective_knobs(task, knobs)
        if not engine.knob_problems(tuple(stated.items())):
            assert engine.has_setting(task, stated)
            assert launches_of(engine, task, stated) == launches


def test_an_engine_that_states_nothing_is_noticed() -> None:
    engine, task = next(pair for pair in PAIRS if pair[0].name == "cuda_hopper_halo")
    assert offered(replace(engine, effective=None), task).shared > 0


def test_an_engine_with_knobs_states_what_it_launches() -> None:
    """Only a kernel that has every value of its knobs may leave that out."""
    assert {engine.name for engine, _ in PAIRS if engine.effective is None} == {"cuda_matmul_skinny"}


def test_the_launched_halo_tile_is_the_named_one() -> None:
    engine, task = next(pair for pair in PAIRS if pair[0].name == "cuda_hopper_halo")
    had = 0
    for number, tile in enumerate(TILES, 1):
        knobs = engine.settings({KnobType.TILE_SIZE: number})
        is_launched = f"halo_{tile.name}x" in engine.compile(task, knobs).name
        assert is_launched is engine.has_setting(task, knobs)
        had += is_launched
    assert 0 < had < len(TILES)


def test_a_refused_value_names_those_that_can_be_had() -> None:
    engine, task = next(pair for pair in PAIRS if pair[0].name == "cuda_hopper_halo")
    numbers = range(1, len(TILES) + 1)
    refused = [n for n in numbers if engine.unavailable_knobs(task, engine.settings({KnobType.TILE_SIZE: n}))]
    (rejection,) = engine.unavailable_knobs(task, engine.settings({KnobType.TILE_SIZE: refused[0]}))
    assert rejection.rule == "knob.unavailable"
    named = {int(n) for n in rejection.expected.removeprefix("one of ").split(", ")}
    assert named
    assert not named.intersection(refused)


def test_a_named_setting_of_an_earlier_version_launches_the_same_kernel() -> None:
    engine, task = next(pair for pair in PAIRS if pair[0].name == "cuda_hopper_halo")
    named = 0
    for number in range(1, len(TILES) + 1):
        old = engine.settings({KnobType.TILE_SIZE: number})
        new = engine.named_settings(task, old)
        assert engine.has_setting(task, new)
        assert launches_of(engine, task, new) == launches_of(engine, task, old)
        named += new != old
    assert named


def halo() -> tuple[Graph, int, int]:
    """A graph, a tile of cuda_hopper_halo that it can have, and one that it cannot."""
    graph = Graph("halo", device=DEVICE)
    x = graph.tensor([2, 64, 12, 12], [9216, 1, 768, 64], data_type="float16")
    w = graph.tensor([64, 64, 3, 3], [576, 1, 192, 64], data_type="float16")
    graph.conv_fprop(x, w, padding=[1, 1]).set_output(True)
    fused = fuse(graph.build_operation_graph())
    engine, task = ENGINE_BY_NAME["cuda_hopper_halo"], Task(fused.operations[0], device_spec(DEVICE))
    had = [engine.has_setting(task, engine.settings({KnobType.TILE_SIZE: n})) for n in range(1, len(TILES) + 1)]
    return graph, had.index(True) + 1, had.index(False) + 1


def test_the_builder_refuses_a_value_that_no_kernel_has() -> None:
    graph, had, refused = halo()
    graph.create_execution_plan("cuda_hopper_halo", {"TILE_SIZE": had})
    message = refusal(
        "knob.unavailable", lambda: graph.create_execution_plan("cuda_hopper_halo", {"TILE_SIZE": refused})
    )
    assert f"TILE_SIZE = {refused}" in message


def plan_file(number: int) -> str:
    """A plan file as an earlier version wrote it, with this tile."""
    graph, _, _ = halo()
    fused, engine = fuse(graph.build_operation_graph()), ENGINE_BY_NAME["cuda_hopper_halo"]
    task = Task(fused.operations[0], device_spec(DEVICE))
    settings = engine.settings({KnobType.TILE_SIZE: number})
    return plan_to_json(ExecutionPlan(EngineConfig(fused, task.device, (Choice(task, engine, settings),))))


def test_an_old_plan_file_names_the_tile_that_it_launches() -> None:
    """The tile that an earlier version gave way to is computed again, so the plan launches what it launched."""
    _, had, refused = halo()
    assert plan_from_json(plan_file(had)).config.choices[0].knobs[KnobType.TILE_SIZE] == had
    plan = plan_from_json(plan_file(refused))
    (choice,) = plan.config.choices
    assert choice.knobs[KnobType.TILE_SIZE] not in (0, refused)
    old = choice.engine.settings({KnobType.TILE_SIZE: refused})
    assert launches_of(choice.engine, choice.task, choice.knobs) == launches_of(choice.engine, choice.task, old)


def test_a_plan_file_whose_launch_has_no_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the values that are launched cannot be set, the file is refused with the rule of the value."""
    _, _, refused = halo()
    text = plan_file(refused)
    monkeypatch.setattr(Engine, "named_settings", lambda self, task, knobs: knobs)
    refusal("knob.unavailable", lambda: plan_from_json(text))
