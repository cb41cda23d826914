"""A test that fails for want of a tool is not run. Every other failure stays one."""

from __future__ import annotations

from types import SimpleNamespace

import absent_tools
import pytest

from graphdnn.cuda import nvrtc


def report(text: str) -> SimpleNamespace:
    return SimpleNamespace(
        failed=True, outcome="failed", longreprtext=text, longrepr=text, location=("test.py", 3, "t")
    )


@pytest.fixture
def without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absent_tools, "absent", lambda: {"NVRTC": "cuda-bindings", "g++": "'g++'"})


@pytest.mark.parametrize(
    ("text", "rules", "tool"),
    [
        ("NotSupported: NVRTC: cuda-bindings = missing", (), "NVRTC"),
        ("assert 3 == 0", (nvrtc.NO_BINDINGS.id,), "NVRTC"),
        ("FileNotFoundError: No such file or directory: 'g++'", (), "g++"),
    ],
)
@pytest.mark.usefixtures("without_tools")
def test_a_failure_for_want_of_a_tool_is_a_skip(text: str, rules: tuple[str, ...], tool: str) -> None:
    failed = report(text)
    absent_tools.skip_if_wanted(failed, rules)
    assert failed.outcome == "skipped"
    assert absent_tools.lines([failed, failed]) == [f"NOT run: 2 tests: {tool} is absent"]


@pytest.mark.usefixtures("without_tools")
def test_every_other_failure_stays_one() -> None:
    failed = report("assert 3 == 0")
    absent_tools.skip_if_wanted(failed, ("conv.rank",))
    assert failed.outcome == "failed"


def test_where_the_tools_are_present_a_failure_that_names_them_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absent_tools, "absent", dict)
    failed = report("NotSupported: NVRTC: cuda-bindings = missing")
    absent_tools.skip_if_wanted(failed, (nvrtc.NO_BINDINGS.id,))
    assert failed.outcome == "failed"
