"""The runner of all attacks: a short run of each, and faults that it has to find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import commands
import host_problems
import legacy_calls
import pytest
import run
import sizes

from graphdnn.cli import main
from graphdnn.cli.exit_codes import Exit

# Files, the builder and v8 calls have tests of their own.
SHORT = {"problems": 120, "legacy": 8000, "sizes": 300, "commands": 150}


@pytest.mark.parametrize("name", SHORT)
def test_a_short_run_finds_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    row = next(row for row in run.ATTACKS if row.name == name)
    outcome = row.attack(SHORT[name], 0)
    assert outcome.findings == []
    assert outcome.tried == SHORT[name]


def test_an_attack_that_finds_something_or_tries_too_little_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def row(tried: int, *findings: str) -> run.Row:
        return run.Row("files", "files", 5, lambda count, seed: run.Outcome(run.Counter(ok=tried), list(findings)))

    assert run._run(row(5), 5, 0) == 0
    assert run._run(row(4), 5, 0) == 1
    assert run._run(row(5, "TypeError \ud800"), 5, 0) == 1
    assert "\\ud800" in capsys.readouterr().out


def test_an_engine_that_writes_zeros_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = host_problems.Host.run

    def zeros(place: Any, plan: Any, images: Any, *rest: Any) -> str:
        said = executed(place, plan, images, *rest)
        for spec in plan.config.fused.graph.outputs:
            images[spec.uid].array[...] = 0
        return said

    monkeypatch.setattr(host_problems.Host, "run", zeros)
    assert len(host_problems.attack(60, 0)[1]) > 30


def test_an_exception_inside_a_legacy_call_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches the caller as an internal error."""
    monkeypatch.setattr("graphdnn.v6.arguments._is_of_c", lambda value: 1 / 0)
    assert legacy_calls.attack(500, 0)[1]


def test_a_plan_that_takes_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "SECONDS", -1.0)
    assert len(sizes.attack(5, 0)[1]) == 5


def test_a_traceback_of_a_command_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdnn.cli._check_words", lambda words: [][len(words)])
    endings, found = commands.attack(10, 0)
    assert found
    assert not endings


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_a_word_that_no_command_line_holds_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == Exit.USAGE
    assert "cli.word" in capsys.readouterr().err


def test_messages_of_the_parser_hold_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "one", "two\x1b[31m"]) == Exit.USAGE
    assert "two\\x1b[31m" in capsys.readouterr().err
