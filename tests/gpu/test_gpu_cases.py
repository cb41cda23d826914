"""Drawn problems of every family on the GPU against NumPy (tests/drawn), in as many processes as there are cores."""

from __future__ import annotations

import os
import random

import pytest
from conftest import PROBLEMS
from drawn import report
from drawn.attempt import Attempt
from drawn.families import FAMILIES, cases
from drawn.pool import run_all

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # warnings of other libraries are theirs

CASES = int(os.environ.get("GRAPHDNN_TEST_CASES", "3300"))
SECONDS = float(os.environ.get("GRAPHDNN_TEST_SECONDS", "480"))


@pytest.fixture(scope="module")
def attempts() -> list[Attempt]:
    chosen = cases(CASES, large=True)
    random.Random(0).shuffle(chosen)  # a run that is cut off has seen some of every family
    found = list(run_all(chosen, time_limit=SECONDS))
    print("\n" + report.failures(found))
    print(report.summary(found, len(chosen)))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_numpy(family: str, attempts: list[Attempt]) -> None:
    """Integers bit for bit, floats within the oracle's bound; nothing else in memory changes."""
    mine = [a for a in attempts if a.case.family == family]
    PROBLEMS[f"gpu {family}"] += sum(bool(a.runs) for a in mine)
    assert any(a.runs for a in mine), "no case was executed"
    failed = [a for a in mine if a.failures]
    assert not failed, report.failures(failed)


def test_enough_cases_ran(attempts: list[Attempt]) -> None:
    ran = sum(bool(a.runs) for a in attempts)
    assert ran >= min(3000, int(0.9 * CASES)), f"{ran} cases in {SECONDS:.0f} s"
