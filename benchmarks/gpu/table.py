"""The report as text: one line for each case, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

from gpu.result import Result

PLAN_WIDTH = 44


def heading() -> str:
    columns = (
        f"{'case':28}{'ours us':>10}{'peer us':>10}{'ratio':>7}{'spread':>12}{'copy us':>9}{'x copy':>7}{'T/s':>7}"
    )
    return f"{columns}  {'check':10} plan; peer"


def machine(about: Mapping[str, Any]) -> str:
    """The device and the versions on a line."""
    named = ("driver", "cuda", "cudnn", "torch", "cupy")
    return f"{about['device']}: " + ", ".join(f"{name} {about[name]}" for name in named if name in about)


def line(r: Result) -> str:
    peer = r.peer
    spread = f"{r.ratio_low:.2f}-{r.ratio_high:.2f}" if r.ratio_low is not None and r.ratio is not None else ""
    ours, theirs, copy = (time.us if time else None for time in (r.ours, peer.time if peer else None, r.copy))
    numbers = (
        f"{_number(ours, 10, 1)}{_number(theirs, 10, 1)}"
        f"{_number(r.ratio, 7, 2)}{spread:>12}{_number(copy, 9, 1)}{_number(r.times_copy, 7, 2)}"
        f"{_number(r.tera_flops, 7, 1)}"
    )
    check = r.right if r.status == "ok" else r.status.upper()
    return f"{r.case:28}{numbers}  {check:10} {_about(r)}"


def _about(r: Result) -> str:
    """Plan and peer; why there is no figure; what makes the figure special."""
    parts = []
    plan = r.tuned or r.plan
    if plan:
        kernels = f" ({len(r.fused)} kernels)" if len(r.fused) > 1 else ""
        parts.append(plan[:PLAN_WIDTH] + ("..." if len(plan) > PLAN_WIDTH else "") + kernels)
    if r.peer:
        parts.append(r.peer.label)
    parts += [f"{p.label} {p.time.us:.1f}" for p in r.peers if p.part and p.time]
    if r.first_choice:
        parts.append(f"first choice {r.first_choice.us:.1f}")
    if r.cold is False:
        parts.append("warm")
    if r.ours and not r.host and not r.ours.captured:
        parts.append("not captured")
    if r.repeatable is False:
        parts.append("bits differ between runs")
    if r.status != "ok":
        parts.append(r.reason or r.right)
    return "; ".join(parts)


def _number(value: float | None, width: int, digits: int) -> str:
    return f"{'-' if value is None else f'{value:.{digits}f}':>{width}}"


def summary(results: Sequence[Result]) -> str:
    counts = Counter(r.status for r in results)
    parts = [", ".join(f"{count} {status}" for status, count in counts.items())]
    ratios = [r.ratio for r in results if r.ratio]
    if ratios:
        slower = sum(ratio < 1 for ratio in ratios)
        parts.append(f"peer / ours: geometric mean {geometric_mean(ratios):.2f} of {len(ratios)}, {slower} below 1")
    copies = [r.times_copy for r in results if r.times_copy]
    if copies:
        parts.append(f"ours / copy: geometric mean {geometric_mean(copies):.2f}")
    regrets = [r.regret for r in results if r.regret]
    if regrets:
        parts.append(f"first choice / best tried: {geometric_mean(regrets):.3f}, at worst {max(regrets):.2f}")
    return "; ".join(parts)


def geometric_mean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values))
