"""Files from strangers: reading any bytes ends in a value or a reasoned error, and does nothing else (tests/support/untrusted_files.py).

A million texts take twenty minutes: ``python tests/support/untrusted_files.py 1000000``.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

from file_mutations import assert_checked, damaged
from repository import TESTS

from graphdnn.errors import GraphdnnError
from graphdnn.files import graph_from_json, graph_to_json
from graphdnn.problem import parse


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: an audit hook stays for good."""
    paths = os.pathsep.join(map(str, (TESTS, TESTS / "support", TESTS.parent)))
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


def test_damaged_files_of_every_format() -> None:
    ended = _python(str(TESTS / "support" / "untrusted_files.py"), "900", "--seed", "7")
    print(ended.stdout)
    assert ended.stdout.splitlines()[-1] == "nothing wrong", ended.stdout + ended.stderr


READERS = {
    "lambda text: __import__('colorsys')": "colorsys",
    "lambda text: eval('1 + 1')": "compile",
    "lambda text: open('written', 'w')": "open",
    "lambda text: text.index(b'no')": "ValueError",
    "lambda text: sum(range(5_000_000))": "took",
}


def test_the_watch_sees(tmp_path: Path) -> None:
    """A reader that does what none may do is caught at it."""
    code = f"""
import os, untrusted_files
os.chdir({str(tmp_path)!r})
untrusted_files.LONGEST = 0.02
untrusted_files._line = lambda text, rng: b"other"
watch = untrusted_files.Watch()
for reader in ({", ".join(READERS)}):
    source = untrusted_files.Source(("{{}}",), lambda text: text == b"{{}}" or reader(text), is_json=False)
    print(untrusted_files.run("fake", source, 1, 0, watch).wrong)
"""
    ended = _python("-c", code)
    lines = ended.stdout.splitlines()
    assert len(lines) == len(READERS), ended.stderr
    for line, said in zip(lines, READERS.values(), strict=True):
        assert said in line


def test_refused_values_leave_nothing_behind() -> None:
    """Errors die with those who hold them: pydantic's own would keep them out of the garbage collector's sight."""
    text = graph_to_json(parse("conv x=f16[8,16,9,9] w=f16[24,16,3,3] pad=1 + bias").build_operation_graph())

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(o), GraphdnnError) for o in gc.get_objects())

    before = alive()
    values, refused = assert_checked(graph_from_json, damaged(text, 400))
    assert refused > values
    assert alive() <= before
