"""Tuned: what a tuning found. A table of candidates with their times and verdicts, and the plan of the fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from graphdnn.analysis.median_statistics import CONFIDENCE, Interval
from graphdnn.analysis.oracle import counted
from graphdnn.enums import HeurMode, Status
from graphdnn.errors import NotSupported
from graphdnn.escaped import escaped
from graphdnn.files import choices_to_json
from graphdnn.heuristics import EngineConfig
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule

FORMAT, VERSION = "graphdnn.tuned", 1

NONE_LEFT = Rule(
    id="tuning.none_left",
    expected="a candidate that runs and computes what the graph says",
    reason="{why}",
    fix="see the verdict of each candidate; build() takes the ranking's best without trying it",
    status=Status.NOT_SUPPORTED,
)


class Verdict(str, Enum):
    """What became of a candidate."""

    FASTEST = "fastest"
    TIED = "tied"  # as fast as the fastest one as far as can be told; a simpler one was chosen, or this one is not
    SLOWER = "slower"
    SAME = "same kernels"  # as another candidate: nothing to measure
    UNDECIDED = "not tried"  # it is being tried
    REFUSED = "refused"
    RAISED = "raised"
    WRONG = "wrong result"
    MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    CRASHED = "crashed"

    @property
    def is_fault(self) -> bool:
        """Whether the candidate did something wrong."""
        return self in (
            Verdict.RAISED, Verdict.WRONG, Verdict.MEMORY, Verdict.TIMED_OUT, Verdict.CRASHED, Verdict.REFUSED,
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class Trial:
    """One candidate of a tuning, and what became of it."""

    config: EngineConfig
    place: int  # in the order in which they were tried
    verdict: Verdict = Verdict.UNDECIDED
    reason: str = ""
    samples: list[float] = field(default_factory=list)  # seconds, one for each round
    interval: Interval | None = None  # of the median
    kernels: int = 0  # launches of an execution
    digest: str = ""  # of what it computed

    @property
    def name(self) -> str:
        """The engines, with the knobs that differ from their defaults."""
        return self.config.name

    @property
    def predicted(self) -> float:
        """The predicted time in seconds."""
        return self.config.predicted_seconds

    @property
    def median(self) -> float | None:
        """The median of the measured times in seconds; None if the candidate was not timed."""
        return None if self.interval is None else self.interval.median

    def to_json(self) -> dict[str, Any]:
        """Plain data with the fields of the trial."""
        interval = self.interval
        known = interval is not None and interval.high != float("inf")
        return {
            "name": self.name,
            "choices": choices_to_json(self.config),
            "verdict": self.verdict.value,
            "reason": self.reason,
            "predicted_us": self.predicted * 1e6,
            "median_us": None if interval is None else interval.median * 1e6,
            "interval_us": [interval.low * 1e6, interval.high * 1e6] if interval is not None and known else None,
            "samples": len(self.samples),
            "kernels": self.kernels or None,
            "workspace_size": self.config.workspace_size,
        }


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the seconds of a tuning went."""

    wall: float
    kernels: float  # executions of candidates
    building: float  # compiling and loading them

    @property
    def overhead(self) -> float:
        """Share of the time that was neither."""
        return max(0.0, 1 - (self.kernels + self.building) / self.wall) if self.wall else 0.0

    def __str__(self) -> str:
        return (
            f"{self.wall:.2f} s: {self.kernels:.2f} s in kernels, {self.building:.2f} s building them, "
            f"{self.overhead * self.wall:.2f} s ({self.overhead:.1%}) starting, ranking and checking"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """The result of ``autotune``, best candidate first."""

    trials: tuple[Trial, ...]
    mode: HeurMode
    spent: Spent
    stopped: str  # why no more was tried or measured
    checked: str = "in full"  # what of each result was compared with the oracle
    compared: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # output -> elements compared, of how many
    left_out: int = 0  # candidates whose errors are larger than those of the ranking's best
    earlier: tuple[str, float] | None = None  # a record that stays ahead of the winner: its name, seconds

    @property
    def has_winner(self) -> bool:
        """Whether a candidate computed the right results and was timed."""
        return bool(self.trials) and self.trials[0].verdict is Verdict.FASTEST

    @property
    def best(self) -> EngineConfig:
        """The configuration of the best candidate.

        Raises:
            NotSupported: No candidate is left.
        """
        if not self.has_winner:
            why = "; ".join(f"{t.name}: {t.verdict.value}" for t in self.trials) or "there were no candidates"
            raise NotSupported(NONE_LEFT.reject("AUTOTUNE", "candidates", len(self.trials), why=why))
        return self.trials[0].config

    @property
    def plan(self) -> ExecutionPlan:
        """A plan of the best candidate, built in this process.

        Raises:
            NotSupported: No candidate is left.
        """
        return ExecutionPlan(self.best)

    @property
    def ties(self) -> tuple[Trial, ...]:
        """The candidates whose times cannot be told from the best one's."""
        return tuple(t for t in self.trials if t.verdict is Verdict.TIED)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def __len__(self) -> int:
        return len(self.trials)

    def __str__(self) -> str:
        from graphdnn.tuning.result import as_text

        return as_text(self)

    def to_json(self) -> dict[str, Any]:
        """Plain data with every trial."""
        found = next(iter(self.trials), None)
        graph = None if found is None else found.config.fused.graph
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": "" if graph is None else graph.name,
            "device": None if found is None else found.config.device.name,
            "mode": self.mode.name,
            "confidence": CONFIDENCE,
            "best": self.best.name if self.has_winner else None,
            "trials": [t.to_json() for t in self.trials],
            "stopped": self.stopped,
            "checked": self.checked,
            "compared": {
                label: {"compared": compared, "elements": elements, "share": compared / max(elements, 1)}
                for label, (compared, elements) in self.compared.items()
            },
            "left_out": self.left_out,
            "earlier": None if self.earlier is None else {"name": self.earlier[0], "median_us": self.earlier[1] * 1e6},
            "seconds": {"wall": self.spent.wall, "kernels": self.spent.kernels, "building": self.spent.building},
        }


_LONGEST = 96  # characters of a reason in the table


def as_text(tuned: Tuned) -> str:
    """A line for each candidate, and why there are no more."""
    if not tuned.trials:
        return "no candidates"
    config = tuned.trials[0].config
    name = f" '{escaped(config.fused.graph.name)}'" if config.fused.graph.name else ""
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
    shares = "".join(f"; {label}: {counted(*numbers)}" for label, numbers in tuned.compared.items())
    lines += [f"compared with the oracle {tuned.checked}{shares}", f"stopped: {tuned.stopped}", f"took {tuned.spent}"]
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
