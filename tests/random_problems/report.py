"""A table of many attempts by family, and the failures with what repeats them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from random_problems.attempt import Attempt
from random_problems.families import FAMILIES


def summary(attempts: Sequence[Attempt], drawn: int) -> str:
    by_family: dict[str, list[Attempt]] = defaultdict(list)
    for a in attempts:
        by_family[a.case.family].append(a)
    lines = [f"{'family':<18}{'cases':>7}{'runs':>7}{'failed':>8}{'declined':>10}{'s':>8}  engines"]
    for family in FAMILIES:
        found = by_family.get(family, [])
        if found:
            lines.append(_row(family, found))
    ran = sum(bool(a.runs) for a in attempts)
    failed = sum(bool(a.failures) for a in attempts)
    lines.append(f"{ran} cases executed of {drawn} drawn, {sum(len(a.runs) for a in attempts)} runs, {failed} failed")
    return "\n".join(lines)


def _row(family: str, found: Sequence[Attempt]) -> str:
    engines = Counter(e for a in found for e in engines_of(a))
    counts = (
        sum(bool(a.runs) for a in found),
        sum(len(a.runs) for a in found),
        sum(bool(a.failures) for a in found),
        sum(bool(a.declined) for a in found),
    )
    seconds = sum(a.seconds for a in found)
    names = ", ".join(f"{name} {count}" for name, count in engines.most_common())
    return f"{family:<18}{counts[0]:>7}{counts[1]:>7}{counts[2]:>8}{counts[3]:>10}{seconds:>8.1f}  {names}"


def engines_of(attempt: Attempt) -> list[str]:
    """Engine names of its runs, without their knobs."""
    return [part.split("_k")[0] for run in attempt.runs for part in run.split(" ; ")]


def failures(attempts: Sequence[Attempt], shown: int = 40) -> str:
    found = [a for a in attempts if a.failures]
    lines = [f"{a.case}: {_short(a.failures[0])}" for a in found[:shown]]
    if len(found) > shown:
        lines.append(f"... {len(found) - shown} more")
    return "\n".join(lines)


def _short(text: str) -> str:
    """A message, or the end of a traceback."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if len(lines) <= 3:
        return " | ".join(lines)
    return " | ".join([lines[0][:160], *lines[-3:]])[:700]


def to_json(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    return [
        {
            "case": str(a.case), "runs": a.runs, "failures": a.failures, "declined": a.declined,
            "seconds": round(a.seconds, 4),
        }
        for a in attempts
    ]  # fmt: skip
