"""Goals of the GPU benchmark: each speaks of cases that there are, and says yes only when all of them keep it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu import goals, run
from gpu.goals import COPY, FIRST, GOALS, OWN_HALF, RATIO, Goal
from gpu.groups import GROUPS


def row(case: str, *, us: float = 10.0, ratio: float | None = None, copy: float | None = None, **more: Any) -> Any:
    return {"case": case, "status": "ok", "ours": {"us": us}, "ratio": ratio, "times_copy": copy, "peers": []} | more


def group(*rows: Any) -> Any:
    return {"g": {r["case"]: r for r in rows}}


def said(goal: Goal, *rows: Any) -> tuple[str, ...]:
    return goals._line(goal, group(*rows))[2:]


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.what}, {goal.asked}")
def test_a_goal_speaks_of_cases_that_there_are(goal: Goal) -> None:
    name = "dense" if goal.group == goals.TUNED else goal.group
    words = [word.lstrip("-") for word in goal.cases.split()]
    for word in words:
        assert any(goals._matches(case.name, [word]) for case in GROUPS[name][0].cases), word
    assert any(goal.has(case.name) for case in GROUPS[name][0].cases)


def test_the_worst_case_decides_and_a_case_left_out_does_not() -> None:
    goal = Goal("a", "g", "* -c", RATIO, 1.05)
    assert said(goal, row("a", ratio=1.2), row("b", ratio=1.04), row("c", ratio=0.5)) == (
        "1.04", "b, the worst of 2", "no"
    )  # fmt: skip
    assert said(goal, row("a", ratio=1.05)) == ("1.05", "a", "yes")


def test_times_are_better_when_they_are_less() -> None:
    goal = Goal("a", "g", "*", COPY, 1.1)
    assert said(goal, row("a", copy=1.0), row("b", copy=1.2)) == ("1.2", "b, the worst of 2", "no")
    assert said(goal, row("a", copy=1.1)) == ("1.1", "a", "yes")


def test_a_mean_is_of_all_cases() -> None:
    goal = Goal("a", "g", "*", RATIO, 1.4, mean=True)
    assert said(goal, row("a", ratio=1.0), row("b", ratio=2.25)) == ("1.5", "2 cases", "yes")


def test_what_was_not_measured_is_not_reached() -> None:
    goal = Goal("a", "g", "*", RATIO, 1.0)
    assert said(goal) == ("-", "", "not measured")
    assert said(goal, row("a", ratio=2.0, status="wrong")) == ("-", "", "not measured")
    assert said(goal, row("a")) == ("-", "", "not measured")


def test_int32_is_held_against_the_first_choice_of_cudnn() -> None:
    goal = Goal("a", "g", "*", FIRST, 25)
    first = {"label": "cudnn int8, its first choice", "time": {"us": 300.0}}
    assert said(goal, row("a", flops=11e9, peers=[first]), row("b", flops=9e9, peers=[first])) == ("30", "a", "yes")


def test_bytes_are_held_against_our_own_half_where_that_is_long() -> None:
    goal = Goal("a", "g", "*", OWN_HALF, 1.75)
    half = {"long_f16": row("long_f16", us=100.0), "short_f16": row("short_f16", us=80.0)}
    rows = (row("long_bytes_i8", us=50.0), row("short_bytes_i8", us=79.0))
    assert goals._line(goal, {**group(*rows), "dense": half})[2:] == ("2", "long_bytes_i8", "yes")


def test_the_command_reads_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs that tried more than the first choice lie apart: their times are the best of what was tried."""
    tuned = tmp_path / goals.TUNED
    tuned.mkdir()
    data = {"group": "dense", "results": [row("c_f16", ratio=1.01, regret=None)]}
    (tmp_path / "gpu_dense.json").write_text(json.dumps(data))
    (tuned / "gpu_dense.json").write_text(json.dumps(data | {"results": [row("c_f16", ratio=2.0, regret=1.125)]}))
    assert run.main(["--goals", f"--json={tmp_path}"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(GOALS) + 1
    assert " ".join(printed[1].split()).endswith("at least 1.05 times the peer 1.01 c_f16 no")
    regret = [line for line in printed if line.startswith("first choice of the ranking")]
    assert "1.125" in regret[0]
    assert "yes" in regret[0]
