"""Damaged databases, locks, bundles and graphs: the commands that read them answer or refuse, in time and in plain text.

``tests/attack/README.md`` says how to run more of them.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from repository import TESTS

KINDS = ("database", "lock", "bundle", "graph")


def attacked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which may not have all memory."""
    paths = os.pathsep.join(map(str, (TESTS, TESTS / "support", TESTS.parent)))
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments], capture_output=True, text=True, check=False, timeout=3000,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [150, pytest.param(20_000, marks=pytest.mark.long)])
def test_damaged_files_end_in_an_answer_or_a_refusal(kind: str, count: int) -> None:
    ended = attacked("-m", "attack.files", str(count), "--seed", "11", "--kind", kind)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{kind}: {count} files" in ended.stdout
    assert "'USAGE'" in ended.stdout, "some are refused"
    assert "0 wrong" in ended.stdout


FAULTS = {
    "raise KeyError('no')": "KeyError",
    "print('\\x1b[2J')": "control characters",
    "print('\\u00e9')": "UnicodeEncodeError",
    "(lambda: exec('while True: pass'))()": "hung",
    "return 77": "ValueError",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_attack_sees(fault: str) -> None:
    """A command that does what none may do is caught at it."""
    code = f"""
import io, pathlib
from attack import files
files.LONGEST = 0.2
def command(words):
    {fault}
    return 0
files.graphdnn = command
found = files.Found()
files.run(("explain", "x"), found, pathlib.Path("/dev/null"), None, b"")
print(found.wrong)
"""
    ended = attacked("-c", code)
    assert FAULTS[fault] in ended.stdout, ended.stderr
