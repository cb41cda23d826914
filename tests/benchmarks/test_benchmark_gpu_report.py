"""Host figures, results, tables and the command of the GPU benchmark."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmark_fakes import FakeDevice, example, small
from gpu import contest, groups, host, isolation, report, run, table
from gpu.options import Options
from gpu.problem import Case, Group
from gpu.result import Result, result_from_json
from gpu.timing import Timed

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_host_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CALLS", 2)
    monkeypatch.setattr(host, "FRESH_BUILDS", 1)
    for case in host.HOST.cases:
        if case.name == "build_new_process_cached":
            continue  # the same two processes as the one without a cache
        result = host.measure(host.HOST, case, FakeDevice(), Options(repeats=2))
        assert (result.status, result.reason) == ("ok", ""), case.name
        assert result.ours is not None
        assert result.ours.us > 0


def test_host_time_counts_calls_not_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(host.os, "sched_setaffinity", raising=False)
    calls: list[str] = []
    times = host.in_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, FakeDevice(), 3, 5)
    assert calls[:2] == ["a", "b"]
    assert calls[2:12] == ["a"] * 5 + ["b"] * 5
    assert times["a"].repeats == 3


def test_host_time_is_that_of_the_fastest_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """All cores are tried, and afterwards the thread may go where it might before."""
    places: list[set[int]] = [{3, 5, 7}]
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _: places[0], raising=False)
    monkeypatch.setattr(host.os, "sched_setaffinity", lambda _, cores: places.append(set(cores)), raising=False)
    with host._on_fastest_core(lambda: {3: 4.0, 5: 3.0, 7: 5.0}[min(places[-1])]):
        assert places[1:] == [{3}, {5}, {7}, {5}]
    assert places[-1] == {3, 5, 7}


def test_a_failing_new_process_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    device.engine_device = "no such device"  # type: ignore[misc]
    cold = next(case for case in host.HOST.cases if case.name.endswith("cold"))
    result = host.measure(host.HOST, cold, device, Options())
    assert result.status == "failed"
    assert "new process failed" in result.reason


def test_result_survives_a_file() -> None:
    result = example(ratio_low=2.4, ratio_high=2.6, cold=True)
    data = json.loads(json.dumps(result.to_json()))
    assert result_from_json(data) == result
    assert data["ratio"] == 2.5
    assert data["share_of_copy"] == pytest.approx(0.8)
    assert data["tera_flops"] == pytest.approx(100)


def test_the_table_says_what_is_special() -> None:
    text = table.line(example(ratio_low=2.4, ratio_high=2.6, cold=False, repeatable=False, tuned="engine_k40=128"))
    for word in ("2.50", "2.40-2.60", "1.25", "100.0", "engine_k40=128", "warm", "bits differ", "alone 5.0"):
        assert word in text
    assert "host" not in table.line(example(status="skipped", ours=None, copy=None, peers=[], reason="late"))
    assert "late" in table.line(example(status="skipped", ours=None, copy=None, peers=[], reason="late"))


def test_the_summary_counts_and_averages() -> None:
    slow = example(ours=Timed(100.0, 100.0, 100.0, 1, 1, captured=True))
    text = table.summary([example(), slow, Result("g", "d", reason="x")])
    assert "2 ok, 1 failed" in text
    assert "1 below 1" in text
    assert "0.79" in text
    assert "first choice" not in text


def test_the_summary_says_what_the_ranking_lost() -> None:
    """A first choice that nothing beat counts as 1; without another one tried there is nothing to say."""
    tried = [{"plan": "b"}]
    better = example(tried=tried, first_choice=Timed(20.0 * 1.21, 24.0, 25.0, 1, 1, captured=True))
    text = table.summary([replace(better, ours=Timed(20.0, 20.0, 20.0, 1, 1, captured=True)), example(tried=tried)])
    assert "first choice / best tried: 1.100, at worst 1.21" in text
    assert example().regret is None


def test_the_report_has_versions_and_method(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "gpu_g.json"
    report.write(path, report.about({"device": "fake"}, "g", "title"), [example(), Result("g", "d")])
    data = json.loads(path.read_text())
    assert data["device"] == "fake"
    assert "poisoned" in data["method"]
    assert data["geometric_mean_ratio"] == pytest.approx(2.5)
    assert data["geometric_mean_regret"] is data["results"][0]["regret"] is None
    assert [row["case"] for row in data["results"]] == ["c", "d"]


def test_parts_of_a_group_do_not_replace_its_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny_groups(monkeypatch, [Case("first", small, quick=True), Case("second", small)])
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    for part in ("--only=first", "--quick"):
        assert run.main(["tiny", "--repeats=2", part], FakeDevice) == 0
    assert not list(tmp_path.iterdir())
    assert run.main(["tiny", "--repeats=2"], FakeDevice) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["gpu_tiny.json"]


def test_repeats_follow_from_the_options() -> None:
    for flags, repeats in (([], 15), (["--quick"], 10), (["--quick", "--repeats=3"], 3)):
        assert run.Runner(run._parser().parse_args(flags), None).options.repeats == repeats


def tiny_groups(monkeypatch: pytest.MonkeyPatch, cases: Sequence[Case], measure: Any = contest.measure) -> None:
    monkeypatch.setitem(groups.GROUPS, "tiny", (Group("tiny", "tiny cases", tuple(cases)), measure))


def test_one_failing_case_does_not_stop_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Any:
        raise RuntimeError("bad case")

    tiny_groups(monkeypatch, [Case("first", small), Case("second", fail), Case("third", small)])
    assert run.main(["tiny", "--repeats=2", f"--json={tmp_path}"], FakeDevice) == 1
    data = json.loads((tmp_path / "gpu_tiny.json").read_text())
    assert [(r["case"], r["status"]) for r in data["results"]] == [
        ("first", "ok"), ("second", "failed"), ("third", "ok")
    ]  # fmt: skip
    assert "bad case" in capsys.readouterr().out


def test_the_time_limit_skips_what_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def slow() -> Any:
        time.sleep(0.3)
        return small()

    tiny_groups(monkeypatch, [Case("first", slow), Case("second", small)])
    assert run.main(["tiny", "--repeats=2", "--time-limit=0.2", f"--json={tmp_path}"], FakeDevice) == 0
    data = json.loads((tmp_path / "gpu_tiny.json").read_text())
    assert [r["status"] for r in data["results"]] == ["ok", "skipped"]
    assert "limit" in data["results"][1]["reason"]


def test_after_a_lost_context_child_processes_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = FakeDevice()

    def measure(group: Group, case: Case, device: Any, options: Options) -> Result:
        device.dead = case.name == "second"
        return Result(group.name, case.name, status="failed" if device.dead else "ok")

    asked: list[list[str]] = []

    def elsewhere(group: str, names: Sequence[str], *_: Any) -> Iterator[Any]:
        asked.append(list(names))
        yield isolation.ABOUT, {"device": "child"}
        for name in names:
            yield isolation.RESULT, Result(group, name, status="ok")

    tiny_groups(monkeypatch, [Case(n, small) for n in ("first", "second", "third")], measure)
    monkeypatch.setattr(isolation, "isolated", elsewhere)
    assert run.main(["tiny", f"--json={tmp_path}"], lambda: device) == 1
    assert asked == [["third"]]
    data = json.loads((tmp_path / "gpu_tiny.json").read_text())
    assert [r["status"] for r in data["results"]] == ["ok", "failed", "ok"]


def test_the_worker_reports_each_case_on_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_groups(monkeypatch, [Case(n, small) for n in ("first", "second", "third")])
    assert run.main(["tiny", "--worker", "--cases=first,third", "--repeats=2"], FakeDevice) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(isolation.ABOUT)
    found = [result_from_json(json.loads(text.removeprefix(isolation.RESULT))) for text in lines[1:]]
    assert [(r.case, r.status) for r in found] == [("first", "ok"), ("third", "ok")]


def test_the_command_refuses_politely(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["nonsense"], FakeDevice) == 2
    assert "memory" in capsys.readouterr().err

    def nothing() -> Any:
        raise RuntimeError("PyTorch sees no GPU")

    assert run.main([], nothing) == 2
    assert "PyTorch sees no GPU" in capsys.readouterr().err


CHILD = """
import json, sys, time
sys.path[:0] = {path!r}
from gpu import isolation
from gpu.result import Result
for name in sys.argv[1].split(","):
    if name == "hangs":
        time.sleep(60)
    if name == "dies":
        sys.exit(7)
    print("noise")
    isolation.announce(isolation.RESULT, Result("g", name, status="ok").to_json())
    if name == "loses":
        sys.exit(isolation.CONTEXT_LOST)
"""


def test_children_that_hang_or_die_cost_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "START_SECONDS", 8.0)
    script = CHILD.format(path=[p for p in sys.path if p])
    names = ["a", "dies", "b", "loses", "c", "hangs", "d"]

    def command(rest: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", script, ",".join(rest)]

    found = [content for _, content in isolation.isolated("g", names, command, limit=1.0)]
    assert [(r.case, r.status) for r in found] == [
        ("a", "ok"), ("dies", "failed"), ("b", "ok"), ("loses", "ok"), ("c", "ok"), ("hangs", "failed"), ("d", "ok")
    ]  # fmt: skip
    assert "status 7" in found[1].reason
    assert "nothing in" in found[5].reason


def test_children_stop_at_the_deadline() -> None:
    script = CHILD.format(path=[p for p in sys.path if p])
    found = list(
        isolation.isolated("g", ["a"], lambda rest: [sys.executable, "-c", script, "a"], 1.0, time.monotonic() - 1)
    )
    assert found == []
