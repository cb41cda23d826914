"""How long commands take, the start of the interpreter included: the shortest of several fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from time import perf_counter

import pytest

PROBLEM = "conv x=f16[32,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu"


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with bytecode, as an installed package has it, and one BLAS thread."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode"))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment | {"OPENBLAS_NUM_THREADS": "1"}


def run(environment: dict[str, str], *words: str) -> tuple[float, str]:
    """Seconds and output."""
    start = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "graphdnn", *words], capture_output=True, text=True, check=True, env=environment
    )
    return perf_counter() - start, done.stdout


@pytest.mark.long
@pytest.mark.parametrize("command", ["certify", "run", "trace"])
def test_a_command_takes_three_seconds(command: str, bytecode: dict[str, str]) -> None:
    shortest = min(run(bytecode, command, PROBLEM)[0] for _ in range(4))
    print(f"{command}: {shortest:.2f} s")
    assert shortest <= 3.0


@pytest.mark.long
def test_measured_cuts_repeat_their_verdicts(bytecode: dict[str, str]) -> None:
    words = []
    for _ in range(3):
        seconds, output = run(bytecode, "cuts", PROBLEM, "--measure", "--json")
        print(f"cuts --measure: {seconds:.2f} s")
        words.append([cut["verdict"] for cut in json.loads(output)["cuts"]])
    assert words[0] == words[1] == words[2]
