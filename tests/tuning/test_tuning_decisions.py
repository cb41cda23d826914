"""What the tuner concludes from times: arithmetic, without a worker."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tuning_records import CONV, graph_of, offered

from graphdnn import BadParam
from graphdnn.analysis.median_statistics import Interval, kendall_tau, median_interval, rank_below, spearman_rho
from graphdnn.heuristics import EngineConfig
from graphdnn.problem import parse
from graphdnn.tuning import Trial, Verdict, autotune
from graphdnn.tuning.decisions import TIE, simplicity, undecided
from graphdnn.tuning.search import Search, TuningBudget
from graphdnn.tuning.time_accounting import TimeAccount


@pytest.mark.parametrize(
    ("n", "k"), [(1, 0), (5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (30, 10), (50, 18), (100, 40)]
)
def test_ranks_are_those_of_the_tables(n: int, k: int) -> None:
    """The binomial distribution's own quantiles: Thompson's table."""
    assert rank_below(n) == k
    if k:
        assert 1 - 2 * stats.binom.cdf(k - 1, n, 0.5) >= 0.95
    assert 1 - 2 * stats.binom.cdf(k, n, 0.5) < 0.95


@pytest.mark.parametrize("shape", ["normal", "lognormal", "two speeds", "ties"])
def test_the_interval_holds_the_median(shape: str) -> None:
    draw = np.random.default_rng(5)
    samples: dict[str, Any] = {
        "normal": (lambda n: draw.normal(10, 1, n), 10.0),
        "lognormal": (lambda n: draw.lognormal(0, 1, n), 1.0),
        "two speeds": (lambda n: np.where(draw.random(n) < 0.4, 1.0, 20.0) + draw.random(n), 20 + 1 / 6),
        "ties": (lambda n: draw.integers(1, 4, n).astype(float), 2.0),
    }
    make, true = samples[shape]
    held = 0
    for _ in range(1000):
        interval = median_interval(list(make(15)))
        held += interval.low <= true <= interval.high
    assert held >= 935


def test_intervals_of_few_samples() -> None:
    few = median_interval([3.0, 1.0, 2.0])
    assert (few.median, few.low, few.high) == (2.0, 0.0, inf)
    assert few.overlaps(Interval(99.0, 98.0, 100.0))
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 9.0]) == Interval(3.5, 1.0, 9.0)
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_rank_correlations_are_scipys() -> None:
    draw = random.Random(3)
    for n in (5, 8, 30):
        a, b = ([float(draw.randrange(n)) for _ in range(n)] for _ in range(2))
        for mine, theirs in ((kendall_tau(a, b), stats.kendalltau(a, b)), (spearman_rho(a, b), stats.spearmanr(a, b))):
            assert mine == pytest.approx(theirs.statistic)
    assert kendall_tau([1.0, 2.0], [3.0, 3.0]) is None
    assert spearman_rho([1.0, 1.0], [3.0, 4.0]) is None


def trials(count: int) -> list[Trial]:
    candidates = offered(CONV, "cpu")
    configs: list[EngineConfig] = [candidates.first]
    while len(configs) < count:
        following = candidates.next([])
        assert following is not None
        configs.append(following)
    return [Trial(c, i, kernels=1) for i, c in enumerate(configs)]


class _Right(Search):
    """Whose results need no second look."""

    def _still_right(self, trial: Trial) -> bool:
        return True


def decided(times: list[list[float]], tie: float = 0.02, **kernels: int) -> list[Trial]:
    found = trials(len(times))
    for i, (trial, samples) in enumerate(zip(found, times, strict=True)):
        trial.samples, trial.interval, trial.verdict = samples, median_interval(samples), Verdict.SLOWER
        trial.kernels = kernels.get(f"of{i}", 1)
    search = _Right(offered(CONV, "cpu"), TuningBudget(tie=tie), None, 0.0, None, None)  # type: ignore[arg-type]
    search.trials = found
    assert search._decide(list(found))
    return found


def around(middle: float, spread: float = 0.01) -> list[float]:
    return [middle * (1 + spread * (i - 4) / 4) for i in range(9)]


def test_the_fastest_wins() -> None:
    found = decided([around(1.2), around(1.0), around(1.5)])
    assert [t.verdict for t in found] == [Verdict.SLOWER, Verdict.FASTEST, Verdict.SLOWER]


def test_ties_are_named_and_the_simpler_one_wins() -> None:
    found = decided([around(1.005), around(1.0), around(1.5)], of1=2)
    assert [t.verdict for t in found] == [Verdict.FASTEST, Verdict.TIED, Verdict.SLOWER]
    assert found[0].reason == "simplest of 2 within 2%"
    assert found[1].reason == f"with {found[0].name}, which is simpler"


def test_what_ties_is_right_wherever_the_winner_was_looked_at() -> None:
    """Other bits than the winner's, wrong beyond the first images: no tie. The same bits are not looked at again."""

    class Late(_Right):
        def _still_right(self, trial: Trial) -> bool:
            asked.append(trial.place)
            if trial.place == 1:
                self._out(trial, Verdict.WRONG, "beyond the first images")
            return trial.place != 1

    asked: list[int] = []
    found = trials(3)
    for trial, digest in zip(found, "aba", strict=True):
        trial.samples, trial.digest, trial.verdict = around(1.0), digest, Verdict.SLOWER
        trial.interval = median_interval(trial.samples)
    search = Late(offered(CONV, "cpu"), TuningBudget(), None, 0.0, None, None)  # type: ignore[arg-type]
    search.trials = found
    assert search._decide(list(found))
    assert [t.verdict for t in found] == [Verdict.FASTEST, Verdict.WRONG, Verdict.TIED]
    assert asked == [0, 1]


def test_a_difference_beyond_the_tie_is_none_to_break() -> None:
    """Overlapping intervals alone are no tie, but they are said."""
    found = decided([around(1.1, 0.2), around(1.0, 0.2)], of1=2)
    assert [t.verdict for t in found] == [Verdict.SLOWER, Verdict.FASTEST]
    assert "not for certain" in found[0].reason
    assert [t.verdict for t in decided([around(1.1, 0.2), around(1.0, 0.2)], tie=0.2, of1=2)] == [
        Verdict.FASTEST, Verdict.TIED,
    ]  # fmt: skip


def test_the_order_of_simplicity() -> None:
    """Fewer kernels, less workspace, fewer changed knobs, the engine table's order, what was tried first."""
    plain, second, third = trials(3)
    assert simplicity(plain) < simplicity(replace(plain, kernels=2))
    assert simplicity(replace(plain, place=0)) < simplicity(replace(plain, place=1))
    small = min((plain, second, third), key=lambda t: t.config.workspace_size)
    assert simplicity(small) == min(map(simplicity, (plain, second, third)))
    assert simplicity(replace(small, kernels=2)) > max(map(simplicity, (plain, second, third)))


def test_drift_of_the_clock_does_not_decide() -> None:
    """All leaders are timed in each round: a machine that slows down hits them alike, and the ratios stay."""
    found = trials(2)
    clock = [1.0 + 0.3 * i for i in range(9)]  # the last round takes three times as long
    rounds = {0: dict(enumerate(clock)), 1: {i: 1.1 * t for i, t in enumerate(clock)}}
    assert undecided(found, found[0], rounds, 7, TIE) == [found[0]]
    rounds[1] = {i: t * (1.1 if i % 2 else 0.9) for i, t in enumerate(clock)}
    assert len(undecided(found, found[0], rounds, 7, TIE)) == 2
    assert len(undecided(found, found[0], {0: rounds[0], 1: dict(list(rounds[1].items())[:3])}, 7, TIE)) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"budget": "1"}, {"budget": -1.0}, {"budget": float("nan")}, {"budget": True}, {"most": 0}, {"memory": -1},
        {"candidate_seconds": None, "most": 1.5}, {"tie": "x"}, {"tie": -1}, {"seed": -1}, {"seed": 0.5},
        {"memory": "1GB", "seed": None, "database": 3},
    ],
)  # fmt: skip
def test_options_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(BadParam) as error:
        autotune(graph_of(CONV), **options)
    assert [r.attribute for r in error.value.rejections] == list(options)
    limits = {"budget", "candidate_seconds", "most", "memory"}
    for rejection in error.value.rejections:
        assert rejection.rule == ("tuning.limit" if rejection.attribute in limits else "tuning.option")


def test_a_database_that_is_none() -> None:
    for ask in (lambda g: g.build(tuned=3), lambda g: g.autotune(database=3.5)):
        with pytest.raises(BadParam, match=r"tuning\.database\.kind"):
            ask(parse(CONV))


def test_what_overlaps_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels first, then building, of which what was before the start or lies in kernels does not count."""
    now = [10.0]
    monkeypatch.setattr("graphdnn.tuning.time_accounting.perf_counter", lambda: now[0])
    spending = TimeAccount(10.0)
    spending.compiled([(8.0, 12.0)])
    spending.compiled([(11.0, 11.5), (11.0, 13.0)])
    spending.compiled([])
    now[0] = 14.0
    spending.ran(1.5)  # 12.5 to 14
    now[0] = 16.0
    spending.built(1.0)
    now[0] = 20.0
    spent = spending.total()
    assert (spent.wall, spent.kernels, spent.building) == (10.0, 1.5, 3.5)
    assert spent.overhead == pytest.approx(0.5)
