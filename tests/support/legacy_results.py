"""What a run of the tests says of each legacy function, as a file that the documentation's table reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

PASSED: set[str] = set()  # tests
FAILED: set[str] = set()


def note(report: Any) -> None:
    """One phase of a test is over."""
    if report.failed:
        FAILED.add(report.nodeid)
    elif report.when == "call" and report.passed:
        PASSED.add(report.nodeid)


def write(path: Path, legacy: Mapping[str, set[str]], on_gpu: bool) -> None:
    """``legacy``: function -> the tests that called it. A run that called nothing leaves no file."""
    functions = {
        name: {"passed": len(tests & (PASSED - FAILED)), "failed": len(tests & FAILED)}
        for name, tests in legacy.items()
        if tests & (PASSED | FAILED)
    }
    if not functions:
        return
    about = {"date": date.today().isoformat(), "device": _gpu() if on_gpu else "NumPy", "tests": len(PASSED | FAILED)}
    path.write_text(json.dumps({**about, "functions": functions}, indent=1) + "\n", encoding="utf-8")


def _gpu() -> str:
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
