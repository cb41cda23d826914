"""Tests that need NVRTC, g++ or scikit-image, where one is absent: such a test is not run, and the run says so in one line each."""

from __future__ import annotations

import importlib.util
import shutil
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from graphdnn.cuda import nvrtc
from graphdnn.errors import NotSupported


@cache
def absent() -> dict[str, str]:
    """The tools that are absent here, each with a word that every failure for want of it contains."""
    tools = {}
    try:
        nvrtc.loaded_version()
    except NotSupported as error:
        tools["NVRTC"] = str(error.rejections[0].attribute)
    if shutil.which("g++") is None:
        tools["g++"] = "'g++'"
    if importlib.util.find_spec("skimage") is None:
        tools["scikit-image"] = "scikit-image = missing"
    return tools


def wanted(text: str, rules: Iterable[str]) -> str | None:
    """The absent tool that a test failed for: its failure names it, or a refusal of the test did."""
    for tool, word in absent().items():
        if word in text or (tool == "NVRTC" and nvrtc.NO_BINDINGS.id in rules):
            return tool
    return None


def skip_if_wanted(report: Any, rules: Iterable[str]) -> None:
    """Make a failure for want of a tool a skip."""
    if report.failed and absent():
        tool = wanted(report.longreprtext, rules)
        if tool is not None:
            path, line, _ = report.location
            report.outcome, report.longrepr = "skipped", (path, line or 0, f"Skipped: {tool} is absent")


def lines(skipped: Iterable[Any]) -> list[str]:
    """How many tests were not run, by reason."""
    reasons = (str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr) for report in skipped)
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    return [f"NOT run: {count} tests: {reason}" for reason, count in counts.most_common()]
