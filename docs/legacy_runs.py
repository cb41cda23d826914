"""What the tests of the legacy calls did in their committed runs, on the host and on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"


def read(place: str) -> dict[str, Any]:
    """What ``pytest --legacy-results`` wrote for the host, for a GPU, or for descriptors."""
    run: dict[str, Any] = json.loads((RESULTS / f"v6_{place}.json").read_text(encoding="utf-8"))
    return run


def cases(run: dict[str, Any], function: str, alias_of: str) -> str:
    """How many cases called a function, or the one that it is another name of; and how many of them failed."""
    found = [run["functions"][name] for name in (function, alias_of) if name in run["functions"]]
    passed, failed = (sum(each[key] for each in found) for key in ("passed", "failed"))
    return f"{passed}, {failed} FAILED" if failed else str(passed or "-")


def of_descriptors(function: str, alias_of: str) -> str:
    """How many cases of the calling convention and of descriptors called a function that only keeps something."""
    return cases(read("state"), function, alias_of)


def described(place: str) -> str:
    run = read(place)
    return f"{run['tests']} cases on {run['device']}, {run['date']}"
