"""Which of several timed candidates is ahead, which are tied, and in which order they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from graphdnn.analysis.median_statistics import median_interval
from graphdnn.engines import engines_of
from graphdnn.tuning.result import Trial, Verdict

TIE = 0.02  # medians closer than this, with intervals that overlap, are a tie
_SHOWN = (
    Verdict.FASTEST, Verdict.TIED, Verdict.SLOWER, Verdict.SAME, Verdict.REFUSED, Verdict.WRONG,
    Verdict.RAISED, Verdict.MEMORY, Verdict.TIMED_OUT, Verdict.CRASHED, Verdict.UNDECIDED,
)  # fmt: skip


def undecided(
    running: Sequence[Trial], fastest: Trial, rounds: Mapping[int, Mapping[int, float]], fewest: int, tie: float
) -> list[Trial]:
    """The fastest, with the candidates that may be as fast.

    ``rounds``: seconds by a trial's place and a round. Times are compared round by round: a clock that drifts hits all.
    """
    first, found = rounds[fastest.place], [fastest]
    for trial in running:
        mine = rounds[trial.place]
        ratios = [mine[turn] / first[turn] for turn in mine.keys() & first.keys()]
        if trial is fastest:
            continue
        if len(ratios) >= fewest:
            ratio = median_interval(ratios)
            if ratio.low > 1 + tie:
                continue  # it is slower
            if 1 - tie < ratio.low and ratio.high < 1 + tie:
                continue  # it is as fast
        found.append(trial)
    return found


def tied_with(first: Trial, leaders: Sequence[Trial], tie: float) -> list[Trial]:
    """The candidates that are as fast as the fastest one, itself included."""
    assert first.interval is not None
    limit = (1 + tie) * first.interval.median
    return [t for t in leaders if t.interval and t.interval.median <= limit and t.interval.overlaps(first.interval)]


def simplicity(trial: Trial) -> tuple[int, int, int, tuple[int, ...], int]:
    """Fewer kernels, then less workspace, fewer knobs that are not at their defaults, the engine table's order."""
    config = trial.config
    changed = sum(
        choice.knobs[kind] != value for choice in config.choices for kind, value in choice.engine.defaults().items()
    )
    table = {engine.id: i for i, engine in enumerate(engines_of(config.device.kind))}
    places = tuple(table.get(choice.engine.id, len(table)) for choice in config.choices)
    return trial.kernels, config.workspace_size, changed, places, trial.place


def in_turn(trials: Sequence[Trial], by: int) -> list[Trial]:
    """Each round begins with another one."""
    start = by % len(trials)
    return [*trials[start:], *trials[:start]]


def shown_order(trial: Trial) -> tuple[int, float, int]:
    return _SHOWN.index(trial.verdict), inf if trial.median is None else trial.median, trial.place
