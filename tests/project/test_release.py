"""The script of a release on a GPU: what fails it, and that its steps are there."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from repository import ROOT


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tests" / "gpu" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["release"] = module
    spec.loader.exec_module(module)
    return module


def report(path: Path, reason: str) -> Path:
    case = f'<testcase classname="t" name="one"><skipped message="{reason}"/></testcase>'
    path.write_text(f'<testsuites><testsuite>{case}<testcase classname="t" name="two"/></testsuite></testsuites>')
    return path


def test_a_skip_that_is_not_listed_is_found(script: ModuleType, tmp_path: Path) -> None:
    assert script.unexpected_skips(report(tmp_path / "a.xml", "it states that it spreads them")) == ()
    assert script.unexpected_skips(report(tmp_path / "b.xml", "no GPU: none")) == ("t::one: no GPU: none",)


def step(script: ModuleType, code: str, **more: bool) -> object:
    return script.Step("tests", (sys.executable, "-c", code), **more)


@pytest.mark.parametrize(
    ("code", "skips", "is_dirty", "ended"),
    [
        ("print('12 passed')", False, False, 0),
        ("print('12 passed')", False, True, 1),
        ("raise SystemExit(9)", False, False, 1),
        ("print('no report')", True, False, 1),
    ],
    ids=["all is well", "another tree", "a step fails", "no report"],
)
def test_what_fails_a_release(
    script: ModuleType, code: str, skips: bool, is_dirty: bool, ended: int, tmp_path: Path
) -> None:
    assert script.release([step(script, code, skips=skips)], tmp_path, "abc", is_dirty) == ended
    written = json.loads((tmp_path / "release.json").read_text())
    assert written["commit"] == "abc"
    assert written["steps"][0]["lines"][-1:] == ([] if "Exit" in code else [code.split("'")[1]])
    assert {"devices", "python", "numpy"} <= set(written["machine"])


def test_a_program_that_is_absent_fails_its_step(script: ModuleType, tmp_path: Path) -> None:
    result = script.run(script.Step("memcheck", ("no-such-program",)), tmp_path)
    assert (result.ok, result.code) == (False, 127)


def test_nothing_run_is_no_release(script: ModuleType, tmp_path: Path) -> None:
    assert script.release([], tmp_path, "abc", False) == 1


def test_steps_name_files_that_exist(script: ModuleType, tmp_path: Path) -> None:
    named = {word for step in script.steps(tmp_path) for word in step.command if word.endswith(".py")}
    assert len(named) == 3
    assert all((ROOT / word).exists() for word in named)
    assert [s.name for s in script.steps(tmp_path)][4:8] == ["memcheck", "racecheck", "synccheck", "initcheck"]
