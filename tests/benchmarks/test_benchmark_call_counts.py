"""The counts of functions and calls that one plan passes: what is counted, and that the counts do not grow unnoticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import call_counts
import pytest
from call_counts import PACKAGE, STORED, Counts, counted
from cuda_comparison import compiler
from repository import ROOT

_GROWTH = 1.1  # of stored counts, which were taken with one version of Python


def _function(name: str, file: str) -> object:
    """A function whose code has a file name of its own."""
    space: dict[str, object] = {}
    exec(compile(f"def {name}(*work):\n    for one in work: one()", file, "exec"), space)
    return space[name]


def test_functions_files_and_calls_of_the_package_are_counted() -> None:
    a, b, other = (
        _function(name, file)
        for name, file in (("a", f"{PACKAGE}a.py"), ("b", f"{PACKAGE}b.py"), ("c", "/elsewhere.py"))
    )
    counts = counted(lambda: a(b, other, b))  # type: ignore[operator]
    assert counts.row() == (2, 2, 3)


def test_nothing_is_counted_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        counted(lambda: 1 // 0)
    assert sys.getprofile() is None


def test_a_sum_has_each_function_once_and_all_calls() -> None:
    a, b = (_function(name, f"{PACKAGE}{name}.py") for name in "ab")
    first, second = counted(lambda: a(b)), counted(lambda: b())  # type: ignore[operator]
    assert (first.row(), second.row(), (first + second).row()) == ((2, 2, 2), (1, 1, 1), (2, 2, 3))
    assert (Counts() + first).calls == first.calls


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """The counts of a process whose kernels are in the cache."""
    program = "import json, call_counts; print(json.dumps(call_counts.rows('h200')))"
    folder = Path(call_counts.__file__).parent
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
        "GRAPHDNN_CACHE_DIR": str(tmp_path_factory.mktemp("kernels")),
    }
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
        )
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


@compiler
def test_counts_are_at_most_a_tenth_above_the_stored_counts(steps: dict[str, list[int]]) -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))["steps"]
    assert list(steps) == list(stored)
    grown = {step: (row, stored[step]) for step, row in steps.items() if _is_grown(row, stored[step])}
    assert not grown, "run `python benchmarks/call_counts.py --write` if more calls are needed"


def _is_grown(row: list[int], stored: list[int]) -> bool:
    return any(new > _GROWTH * old for new, old in zip(row, stored, strict=True))


def test_a_count_above_a_tenth_is_rejected() -> None:
    assert not _is_grown([110, 11, 1100], [100, 10, 1000])
    assert _is_grown([111, 10, 1000], [100, 10, 1000])


@compiler
def test_a_later_plan_takes_fewer_calls(steps: dict[str, list[int]]) -> None:
    calls = {step: row[2] for step, row in steps.items()}
    assert calls["execute, known arrays"] < calls["plan, equal graph"] < calls["plan, other extents"]
    assert calls["plan, other extents"] < calls["plan, first convolution"]
    assert calls["describe, plan and execute"] == sum(
        calls[step] for step in ("describe", "plan, other extents", "execute, known arrays")
    )
