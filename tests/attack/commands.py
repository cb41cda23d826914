"""Command lines of garbage: they end with an exit code and a message, and print no control characters."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import files

from graphdnn.cli import COMMANDS

_PROBLEM = "conv x=f32[1,4,6,6] w=f32[4,4,3,3] pad=1 + bias + relu"
_WORDS = (
    *("--device", "h200", "cpu", "--mode", "A", "--json", "--seed", "-1", "--repeat", "0", "--db", "--forbid", "5,5"),
    *("", " ", "\x1b[31m", "a\nb", "\u202e", "%s%n", "../..", "/dev/null", "/", "-", "--", "@file", "9" * 400, "nan"),
    *("matmul a=f16[2,2] b=f16[2,2]", "conv", "x=f32[", "+ relu", "conv x=f32[1] w=f32[1] +", _PROBLEM),
)


def _word(rng: random.Random) -> str:
    """A word of use, a word of none, or a problem with one character changed."""
    if rng.random() < 0.5:
        return rng.choice(_WORDS)
    place, text = rng.randrange(len(_PROBLEM)), _PROBLEM
    return text[:place] + rng.choice(("", "\x07", "é", "[", "=", "-1", "\ud800", "9" * 30)) + text[place + 1 :]


def attack(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Exit codes, and a line for each place in the library that raised something else."""
    rng, found = random.Random(seed), files.Found()
    names = [module.rstrip("_") for module in COMMANDS if module not in ("demo", "tune", "doctor")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "none"
        path.write_bytes(b"")
        for number in range(count):
            found.count = number
            words = (rng.choice(names), *(_word(rng) for _ in range(rng.randint(0, 3))))
            files.run(words, found, path, None)
    return Counter(found.codes), [f"{place}: {said[0]}" for place, said in found.wrong.items()]
