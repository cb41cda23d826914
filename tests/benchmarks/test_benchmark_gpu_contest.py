"""What the GPU benchmark makes of results that are wrong, refused or fail, and how contestants take turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from benchmark_fakes import SMALL, FakeDevice, FakeLaunches, assert_right, broken, measured, small
from gpu import contest, convolutions, table, timing
from gpu.options import Options
from gpu.problem import Case, Group, Peer

import graphdnn

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_a_wrong_result_has_no_time_but_the_peer_has() -> None:
    result = measured(broken(small()))
    assert result.status == "wrong"
    assert result.ours is None
    assert result.ratio is None
    assert result.peer is not None
    assert "over" in result.right
    assert "WRONG" in table.line(result)


def test_a_result_that_goes_wrong_in_the_timed_launches_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, device = small(), FakeDevice()
    kind = type(graphdnn.build(problem.graph, "cpu"))
    execute = kind.execute
    calls = []

    def later_wrong(self: Any, bindings: Any, workspace: Any = None) -> None:
        execute(self, bindings, workspace)
        calls.append(0)
        if len(calls) > 8:
            bindings[problem.outputs["y"].uid][...] = 0

    monkeypatch.setattr(kind, "execute", later_wrong)
    result = measured(problem, device)
    assert result.status == "wrong"
    assert result.reason.startswith("after the timed launches")
    assert result.ours is None


def test_a_failing_peer_leaves_its_reason() -> None:
    def refuse(torch: Any, tensors: Any) -> Any:
        raise RuntimeError("unable to find an engine")

    problem = replace(small(), peers=(Peer("bad", refuse, ("y",)),))
    result = measured(problem)
    assert result.status == "ok"
    assert result.peer is None
    assert "unable to find an engine" in result.peers[0].error


def test_an_unsupported_problem_is_told_from_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = graphdnn.Filters(workspace_limit=-1)
    result = measured(replace(small(), filters=reasons))
    assert result.status == "unsupported"
    assert result.peer is not None

    def fail(*_: Any) -> Any:
        raise RuntimeError("boom")

    monkeypatch.setattr(contest, "ExecutionPlan", fail)
    result = measured(small())
    assert result.status == "failed"
    assert "boom" in result.reason


def test_a_case_that_cannot_be_described_is_a_result() -> None:
    def describe() -> Any:
        raise ValueError("no such layer")

    result = contest.measure(Group("g", "g", ()), Case("c", describe), FakeDevice(), Options())
    assert (result.status, result.ours) == ("failed", None)
    assert "no such layer" in result.reason


def test_nothing_more_is_tried_on_a_dead_context(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()

    def fail(*_: Any) -> Any:
        device.dead = True
        raise RuntimeError("illegal memory access")

    monkeypatch.setattr(contest, "ExecutionPlan", fail)
    result = measured(small(), device)
    assert result.status == "failed"
    assert not result.peers


def test_settings_of_cudnn_are_restored() -> None:
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    with contest.precision(torch, tf32=not before[1]):
        assert torch.backends.cudnn.allow_tf32 is not before[1]
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32) == before


def test_the_fastest_whole_peer_counts_and_the_spread_is_of_rounds() -> None:
    values = iter([1.0] * 1000)
    device = FakeDevice(lambda launches: 30.0 * next(values) if launches.foreign else 10.0)
    result = measured(small(), device)
    assert result.ratio == pytest.approx(3)
    assert (result.ratio_low, result.ratio_high) == (pytest.approx(3), pytest.approx(3))
    assert result.times_copy == pytest.approx(1 / 3)


def test_contestants_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    class Spy:
        count, captured = 1, True

        def __init__(self, name: str) -> None:
            self.name = name

        def microseconds(self) -> float:
            order.append(self.name)
            return float(len(order))

    times = timing.alternate({"a": Spy("a"), "b": Spy("b")}, 2)  # type: ignore[dict-item]
    assert order == ["a", "b"] * 3
    assert times == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_rotation_is_cold_where_time_allows() -> None:
    cache = 60 * 2**20
    big = timing.rotation(200 * 2**20, 50.0, cache)
    assert (big.sets, big.cold) == (2, True)
    small_sets = timing.rotation(2**20, 10.0, cache)
    assert small_sets.cold
    assert (small_sets.sets - 1) * 2**20 >= 2 * cache
    slow = timing.rotation(2**20, 10_000.0, cache)
    assert (slow.sets, slow.cold) == (6, False)


def test_series_use_every_set_equally_and_results_rotate() -> None:
    device = FakeDevice()
    used: list[int] = []

    def prepare(i: int) -> Any:
        return lambda: used.append(i)

    launches = timing.series(timing.Contestant(prepare, foreign=True), 100.0, 3, device)
    used.clear()
    launches.run()  # type: ignore[attr-defined]
    assert launches.count == 3
    assert used == [0, 1, 2]
    launches = timing.series(timing.Contestant(prepare, foreign=True), 10.0, 3, device)
    used.clear()
    launches.run()  # type: ignore[attr-defined]
    assert launches.count == 21
    assert [used.count(i) for i in range(3)] == [7, 7, 7]
    assert used[:6] == [0, 1, 2, 0, 1, 2]


def test_slow_launches_get_fewer_repeats() -> None:
    assert timing.repeats_for(15, [10.0, 20.0]) == 15
    assert timing.repeats_for(15, [10.0, 200_000.0]) == 3


def test_timed_sets_are_all_used_and_checked() -> None:
    device = FakeDevice()
    result = measured(small(), device)
    assert result.cold
    assert result.sets > 2
    assert all(made.count % result.sets == 0 for made in device.made if made.captured)


def test_tuning_takes_the_fastest_right_configuration() -> None:
    result = measured(convolutions.strict_problem(SMALL["dense"]), tune=3)
    assert_right(result)
    assert 1 <= len(result.tried) <= 3
    assert all("us" in row for row in result.tried)


def test_a_tuned_configuration_replaces_the_first_choice() -> None:
    problem = convolutions.strict_problem(SMALL["dense"])
    first = graphdnn.build(problem.graph, "cpu").name

    def clock(launches: FakeLaunches) -> float:
        if launches.foreign:
            return 20.0
        names = {call.func.__self__.name for call in launches.calls}
        return 10.0 if names == {first} else 5.0

    result = measured(problem, FakeDevice(clock), tune=6)
    assert result.tuned
    assert result.ours is not None
    assert result.first_choice is not None
    assert (result.ours.us, result.first_choice.us, result.ratio) == (5.0, 10.0, 4.0)
