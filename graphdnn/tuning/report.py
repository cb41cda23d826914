"""A tuning as a table of text."""

from __future__ import annotations

from graphdnn.tuning.tuned import Trial, Tuned

_LONGEST = 96  # characters of a reason in the table


def as_text(tuned: Tuned) -> str:
    """A line for each candidate, and why there are no more."""
    if not tuned.trials:
        return "no candidates"
    config = tuned.trials[0].config
    name = f" '{config.fused.graph.name}'" if config.fused.graph.name else ""
    lines = [f"tuned graph{name} on {config.device.name}, mode {tuned.mode.name}"]
    rows = [("", "configuration", "predicted", "median", "95 % interval", "verdict")]
    rows += [(str(i), t.name, time_text(t.predicted), *_measured(t), _verdict(t)) for i, t in enumerate(tuned)]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    for row in rows:
        cells = [row[0].rjust(widths[0]), row[1].ljust(widths[1]), *(row[i].rjust(widths[i]) for i in (2, 3, 4))]
        lines.append("  " + "  ".join([*cells, row[5]]).rstrip())
    if tuned.left_out:
        lines.append(f"  {tuned.left_out} more have larger errors than the ranking's best (any_class tries them)")
    if tuned.earlier is not None:
        name, seconds = tuned.earlier
        lines.append(f"  an earlier tuning is better and stays in front: {name}, {time_text(seconds)}")
    lines += [f"compared with the oracle {tuned.checked}", f"stopped: {tuned.stopped}", f"took {tuned.spent}"]
    return "\n".join(lines)


def _measured(trial: Trial) -> tuple[str, str]:
    if trial.interval is None:
        return "-", "-"
    if trial.interval.high == float("inf"):
        return time_text(trial.interval.median), f"{len(trial.samples)} samples"
    low, high = (time_text(t) for t in (trial.interval.low, trial.interval.high))
    return time_text(trial.interval.median), f"{low} - {high}"


def _verdict(trial: Trial) -> str:
    reason = " ".join(trial.reason.split())
    reason = reason if len(reason) <= _LONGEST else reason[: _LONGEST - 3] + "..."
    return f"{trial.verdict.value}: {reason}" if reason else trial.verdict.value


def time_text(seconds: float) -> str:
    """Three or four digits, with a unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit or name == "us":
            value = seconds / unit
            return f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f} {name}"
    raise AssertionError
