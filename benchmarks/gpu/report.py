"""The report as a file: versions, method and every figure, rewritten after each case so that nothing is lost."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import graphdnn
from gpu import timing
from gpu.result import Result
from gpu.table import geometric_mean

METHOD = (
    f"Device time by CUDA graphs of many launches ({timing.SERIES_US:.0f} us and more a series), between events, "
    "behind a spinning kernel; by events around plain calls where captured is false. graphdnn, every peer and two "
    "device copies of the bytes that have to move take turns; a figure is the median over the turns, low and high "
    "are the extremes. cold: launches rotate over so many buffer sets that twice the last-level cache passes between "
    "two uses of one. ratio: fastest peer that does the whole work / ours. Outputs are poisoned and compared with "
    "float64 (relative l2) or exactly; what is wrong has no time. "
    "regret: the ranking's first choice / the fastest of it and of those tried. Host figures: processor time of a "
    "call, not the kernel's, on the core of the host where all contestants together take least."
)


def about(device: Mapping[str, Any], group: str, title: str) -> dict[str, Any]:
    return {
        "group": group,
        "title": title,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "graphdnn": graphdnn.__version__,
        "python": platform.python_version(),
        **device,
        "method": METHOD,
    }


def write(path: Path, heading: Mapping[str, Any], results: Sequence[Result]) -> None:
    ratios = [r.ratio for r in results if r.ratio]
    regrets = [r.regret for r in results if r.regret]
    content = {
        **heading,
        "geometric_mean_ratio": geometric_mean(ratios) if ratios else None,
        "geometric_mean_regret": geometric_mean(regrets) if regrets else None,
        "results": [r.to_json() for r in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
