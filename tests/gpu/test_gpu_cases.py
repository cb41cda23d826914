"""Drawn problems of every family on the GPU against NumPy (tests/drawn), in as many processes as there are cores.

Beside other processes of pytest-xdist (--dist loadgroup), one of them has all families, and the cores that are left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from conftest import PROBLEMS
from random_problems import report
from random_problems.attempt import Attempt
from random_problems.families import FAMILIES, cases
from random_problems.process_pool import Pool

# Warnings of other libraries are theirs.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default"), pytest.mark.xdist_group("drawn")]

CASES = int(os.environ.get("GRAPHDNN_TEST_CASES", "3300"))
SECONDS = float(os.environ.get("GRAPHDNN_TEST_SECONDS", "480"))  # for all families
CHOSEN = cases(CASES, large=True)
ATTEMPTS: list[Attempt] = []


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    others = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) - 1
    with Pool(max(1, (os.cpu_count() or 1) - others)) as processes:
        yield processes
    print("\n" + report.failures(ATTEMPTS))
    print(report.summary(ATTEMPTS, len(CHOSEN)))


@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_numpy(family: str, pool: Pool) -> None:
    """Integers bit for bit, floats within the oracle's bound; nothing else in memory changes."""
    mine = [case for case in CHOSEN if case.family == family]
    # A family that compiles slowly may take twice its share.
    found = list(pool.run(mine, time_limit=2 * SECONDS * len(mine) / len(CHOSEN)))
    ATTEMPTS.extend(found)
    PROBLEMS[f"gpu {family}"] += sum(bool(a.runs) for a in found)
    assert any(a.runs for a in found), "no case was executed"
    failed = [a for a in found if a.failures]
    assert not failed, report.failures(failed)


def test_enough_cases_ran() -> None:
    if {a.case.family for a in ATTEMPTS} < {case.family for case in CHOSEN}:
        pytest.skip("another process has the other families, or they were not asked for")
    ran = sum(bool(a.runs) for a in ATTEMPTS)
    assert ran >= min(3000, 0.9 * CASES), f"{ran} cases of {len(CHOSEN)} drawn"
