"""Files from strangers: reading any bytes ends in a value or a reasoned error, and does nothing else (tests/strangers.py).

A million texts take twenty minutes: ``python tests/strangers.py 1000000``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: an audit hook stays for good."""
    paths = os.pathsep.join((str(TESTS), str(TESTS.parent)))
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


def test_damaged_files_of_every_format() -> None:
    ended = _python(str(TESTS / "strangers.py"), "1800", "--seed", "7")
    print(ended.stdout)
    assert ended.stdout.splitlines()[-1] == "nothing wrong", ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        ("lambda text: __import__('colorsys')", "colorsys"),
        ("lambda text: eval('1 + 1')", "compile"),
        ("lambda text: open('written', 'w')", "open"),
        ("lambda text: text.index(b'no')", "ValueError"),
        ("lambda text: sum(range(5_000_000))", "took"),
    ],
)
def test_the_watch_sees(tmp_path: Path, reader: str, said: str) -> None:
    """A reader that does what none may do is caught at it."""
    code = (
        "import os, sys, strangers\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "strangers.LONGEST = 0.02\n"
        "class Source(strangers.Source):\n    pass\n"
        f"reader = {reader}\n"
        "source = strangers.Source(('{}',), lambda text: text == b'{}' or reader(text))\n"
        "object.__setattr__(source, 'is_json', False)\n"
        "strangers._line = lambda text, rng: b'other'\n"
        "outcome = strangers.run('fake', source, 1, 0, strangers.Watch())\n"
        "print(outcome.wrong)\n"
    )
    ended = _python("-c", code)
    assert said in ended.stdout, ended.stdout + ended.stderr
