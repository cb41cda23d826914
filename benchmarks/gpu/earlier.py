"""Results beside the files of an earlier run: has any group become slower?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu.result import Result
from gpu.table import geometric_mean

LEAST_MEAN = 0.98  # earlier time over time of this run, in the geometric mean of a group
WORST_SHOWN = 5  # cases of a group


@dataclass(frozen=True, slots=True)
class Comparison:
    """The cases of one group that both runs have.

    Args:
        group: The name of the group.
        ratios: The earlier time over the time of this run, by case.
        missing: Cases that have a time in the earlier run and none in this one.
    """

    group: str
    ratios: dict[str, float]
    missing: tuple[str, ...]

    @property
    def mean(self) -> float:
        return geometric_mean(list(self.ratios.values())) if self.ratios else 0.0

    @property
    def is_slower(self) -> bool:
        """A group that lost a case, or that has no case in common with the earlier run, counts as slower."""
        return bool(self.missing) or self.mean < LEAST_MEAN

    def __str__(self) -> str:
        slowest = sorted(self.ratios.items(), key=lambda entry: entry[1])[:WORST_SHOWN]
        shown = ", ".join(f"{case} {ratio:.2f}" for case, ratio in slowest)
        lost = f"; without a time now: {', '.join(self.missing)}" if self.missing else ""
        verdict = "SLOWER" if self.is_slower else "ok"
        return f"{self.group:12} {verdict:7} {self.mean:.3f} of {len(self.ratios)} cases; slowest {shown}{lost}"


def compare(results: Sequence[Result], folder: Path) -> list[Comparison]:
    """Print and return a comparison for each group of the results.

    Args:
        results: What this run measured. A skipped case is not compared, a failed one is missing.
        folder: The folder with ``gpu_GROUP.json`` of the earlier run. A group without a file is not compared.

    Returns:
        One comparison for each group that has a file.
    """
    comparisons = []
    print("\nearlier time / time now, geometric mean by group")
    for group in dict.fromkeys(result.group for result in results):
        path = folder / f"gpu_{group}.json"
        if not path.exists():
            print(f"{group:12} has no earlier file")
            continue
        before = _times(json.loads(path.read_text(encoding="utf-8"))["results"])
        now = {r.case: r for r in results if r.group == group and r.status != "skipped"}
        times = {case: (r.first_choice or r.ours).us for case, r in now.items() if r.ours}
        ratios = {case: before[case] / us for case, us in times.items() if case in before}
        missing = tuple(case for case in now if case in before and case not in times)
        comparisons.append(Comparison(group, ratios, missing))
        print(comparisons[-1])
    return comparisons


def is_slower(comparisons: Sequence[Comparison]) -> bool:
    """Whether any group is slower than before; true where nothing was compared."""
    return not comparisons or any(one.is_slower for one in comparisons)


def _times(rows: Sequence[dict[str, object]]) -> dict[str, float]:
    """Microseconds of the ranking's first choice, by case."""
    first = {str(row["case"]): row.get("first_choice") or row["ours"] for row in rows}
    return {case: float(timed["us"]) for case, timed in first.items() if isinstance(timed, dict)}
