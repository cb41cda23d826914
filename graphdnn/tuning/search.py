"""The search: candidates are tried one by one, and the fast ones then race each other.

Trying: a candidate is built, executed once on garbage outputs and workspace, its result compared with the oracle's,
and timed a few times. Racing: in each round every leader is timed once, in an order that turns, so that a clock that
drifts hits all of them; a leader whose times are above the fastest one's in the same rounds, by the interval of the
median of their ratios, is out. The race ends when nothing is undecided.

Candidates run in a process of their own (graphdnn/tuning/workers/measurement_client.py). A process that dies takes its
candidate with it, and the next process builds the leaders anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf
from typing import Any

from graphdnn.analysis.graph_slices import SlicedGraph
from graphdnn.analysis.median_statistics import FEWEST, median_interval
from graphdnn.engines.operation_cost import bytes_moved, floor_seconds
from graphdnn.heuristics import EngineConfig
from graphdnn.tuning.candidates import Candidates
from graphdnn.tuning.decisions import TIE, in_turn, shown_order, simplicity, tied_with, undecided
from graphdnn.tuning.progress_bar import Progress
from graphdnn.tuning.result import Trial, Tuned, Verdict, time_text
from graphdnn.tuning.time_accounting import TimeAccount
from graphdnn.tuning.verification.reference import Reference
from graphdnn.tuning.workers.compile_ahead import COUNT, CompileAhead
from graphdnn.tuning.workers.measurement_client import Bench
from graphdnn.tuning.workers.protocol import SWITCH
from graphdnn.tuning.workers.worker_process import FailedError, LostError

_LEAD = 1.3  # times the fastest first impression up to which a candidate races
_NEAR = 2.0  # up to which its neighbours are candidates
_LEADERS = 6
_ROUNDS = FEWEST + 1, 41  # fewest and most
_QUICK = 3  # samples of the first impression
_SAMPLES = 3  # of a round: their median is the round's value
_SAMPLE = {"cpu": 5e-4, "cuda": 3e-4}  # seconds that a sample should last
_TRYING = 0.95  # share of the budget; the race has the rest, and twice what the fewest rounds need
_FAR = 8.0  # times the fastest first impression beyond which one sample says enough
_SHORT = 0.1  # share of the budget that the fewest rounds may take when it is spent
_LONG = 0.02  # seconds from which on one sample is as good as several
_PENDING = 8  # results that wait to be judged, at most: each may be large
_PARTS = 0.01  # share of the time so far that more of the oracle's values are waited for in the end
_LOOKING = 0.005  # share of the time so far that the rest of a result is looked at in the end
_PATIENT = 5.0  # seconds that every answer may take, if the limit for a candidate lets it
_VERDICTS = {"memory": Verdict.MEMORY, "refused": Verdict.REFUSED, "raised": Verdict.RAISED}


@dataclass(slots=True)
class TuningBudget:
    """What a tuning may take."""

    budget: float = 10.0  # seconds in all
    candidate: float = 20.0  # seconds that one may take to build, to run once, or to be timed once
    most: int = 64  # candidates
    tie: float = TIE


@dataclass(slots=True, eq=False)
class Search:
    """One tuning."""

    candidates: Candidates
    limits: TuningBudget
    reference: Reference
    spending: TimeAccount
    bench: Bench
    ahead: CompileAhead
    trials: list[Trial] = field(default_factory=list)
    stopped: str = "every candidate was tried"
    _marks: dict[str, Trial] = field(default_factory=dict)
    _awaited: list[tuple[Trial, Future[str]]] = field(default_factory=list)  # results that are being judged
    _estimates: dict[int, float] = field(default_factory=dict)  # place -> seconds, from the first impression
    _bar: Progress = field(default_factory=Progress)

    # Time.

    def _left(self, share: float = 1.0) -> float:
        return self.limits.budget * share - self.spending.passed

    # The bench.

    def _ask(self, trial: Trial, what: str, limit: float | None = None, **more: Any) -> dict[str, Any]:
        return self.bench.ask(trial, what, self._patience() if limit is None else limit, **more)

    def _load(self, trial: Trial) -> dict[str, Any]:
        reply = self.bench.build(trial, self._patience())
        self.spending.built(reply["seconds"])
        return reply

    def _patience(self) -> float:
        """Seconds to wait for an answer: once something works, not far beyond the budget."""
        limit = self.limits.candidate
        return limit if self._best() is None else min(limit, max(self._left(), _PATIENT))

    def _guarded(self, trial: Trial, work: Callable[[], bool]) -> bool:
        """``work``, with what goes wrong in it as the candidate's verdict."""
        try:
            return work()
        except LostError as lost:
            verdict = Verdict.TIMED_OUT if lost.verdict == "timed out" else Verdict.CRASHED
            self._out(trial, verdict, lost.reason)
            self.bench.drop_all()
        except FailedError as failed:
            self._out(trial, _VERDICTS[failed.kind], failed.reason)
            if failed.usable:
                self._drop(trial)
            else:
                self.bench.drop_all()
        return False

    def _out(self, trial: Trial, verdict: Verdict, reason: str) -> None:
        trial.verdict, trial.reason = verdict, reason
        trial.samples, trial.interval = [], None

    def _drop(self, trial: Trial) -> None:
        self.bench.drop(trial, self._patience())

    # Trying.

    def run(self) -> Tuned:
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)  # the oracle's threads do not keep this one from the next question
        with self._bar:
            try:
                config: EngineConfig | None = self.candidates.first
                while config is not None:
                    self._try_from(config)
                    self._look_ahead()
                    is_decided = self._decide(self._race())
                    while (
                        not is_decided and self._impressions()
                    ):  # the slower ones, where the fast were wrong in the end
                        is_decided = self._decide(self._race())
                    # Where everything was wrong, what nobody expected to win has its turn.
                    config = None if is_decided else self.candidates.next([])
            except BaseException:
                self.bench.kill()
                raise
            finally:
                sys.setswitchinterval(before)
                self.ahead.close()
                self.reference.close()
            self.bench.give_back()
        order = sorted(self.trials, key=shown_order)
        return Tuned(
            tuple(order),
            self.candidates.mode,
            self.spending.total(),
            self.stopped,
            self.reference.checked,
            self.reference.compared,
            len(self.candidates.other_class),
        )

    def _try_from(self, first: EngineConfig) -> None:
        config: EngineConfig | None = first
        floor = _floor(first)
        while config is not None:
            if len(self.trials) == self.limits.most:
                self.stopped = f"{self.limits.most} candidates were tried, and no more were asked for"
                break
            if self.trials and min(self._left(_TRYING), self._left() - 2 * self._needed()) <= 0:
                self.stopped = f"the rest of {self.limits.budget:g} s belonged to the race"
                break
            best = self._best()
            if best is not None and floor < self._estimates[best.place] <= floor * (1 + self.limits.tie):
                self.stopped = f"no candidate can be faster than {time_text(floor)} on this device"
                break
            trial = Trial(config, len(self.trials))
            self.trials.append(trial)
            self._show(trial)
            if self.bench.is_starting:  # the process that measures is there later than the first kernels are compiled
                self.ahead.offer(self.candidates.upcoming([first], COUNT))
            self.spending.compiled(self.ahead.wait(config, self.limits.candidate))
            self.bench.await_start()
            if self._guarded(trial, lambda trial=trial: self._tried(trial)):  # type: ignore[misc]
                self._collect()
            if not trial.verdict.is_fault and trial.samples:
                self._estimates[trial.place] = trial.samples[len(trial.samples) // 2]
            self._forget_the_slow()
            near = [t.config for t in self._near(_NEAR)]
            config = self.candidates.next(near)
            if config is not None:
                self.ahead.offer([config, *self.candidates.upcoming(near, COUNT)])

    def _best(self) -> Trial | None:
        """By first impressions."""
        return min(self._impressions(), key=lambda t: self._estimates[t.place], default=None)

    def _impressions(self) -> list[Trial]:
        return [t for t in self.trials if t.place in self._estimates and not t.verdict.is_fault]

    def _tried(self, trial: Trial) -> bool:
        self.bench.restore()
        if not self._built(trial):
            return False
        if not self._is_right(trial):
            return False
        best = self._best()
        (first,) = trial.samples = self._timed(trial, 1)  # the execution before it may have loaded a library
        self._estimates[trial.place] = first
        if best is not None and best is not trial and first > _FAR * self._estimates[best.place]:
            trial.reason = f"more than {_FAR:g} times as long"
        elif first <= _LONG:
            trial.samples = sorted(self._timed(trial, _QUICK))
        trial.interval = median_interval(trial.samples)
        trial.verdict = Verdict.SLOWER
        return True

    def _built(self, trial: Trial) -> bool:
        reply = self._load(trial)
        trial.kernels = reply["kernels"]
        mark = reply["mark"]
        twin = None if mark is None else self._marks.setdefault(mark, trial)
        if twin is not None and twin is not trial:
            self._out(trial, Verdict.SAME, f"as {twin.name}")
            self._drop(trial)
            return False
        return True

    def _is_right(self, trial: Trial, *, is_last: bool = False) -> bool:
        """Execute once, on garbage, and look at what came out; with ``is_last`` at all that the oracle got through."""
        reply = self._ask(trial, "check")
        self.spending.ran(reply["seconds"])
        self._estimates.setdefault(trial.place, reply["seconds"])
        if reply["altered"]:
            wrong = f"it wrote to its inputs: uid {', '.join(map(str, reply['altered']))}"
            self.bench.kill()  # the operands are spoilt
        else:
            trial.digest = reply["digest"]
            result = trial.digest, trial.config.error_growth, self._outputs
            seconds = _LOOKING * self.spending.passed
            judged = self.reference.judgements(*result, seconds) if is_last else [self.reference.judgement(*result)]
            self._awaited += [(trial, verdict) for verdict in judged]
            self._collect()
            return not trial.verdict.is_fault
        self._is_wrong(trial, wrong)
        return False

    def _outputs(self, thin: SlicedGraph | None) -> tuple[list[int], bytes]:
        cut = {} if thin is None else thin.slices.axes
        axes = [cut.get(t.uid) for t in self.reference.graph.outputs]
        return self.bench.outputs(axes, list(thin.kept if thin else ()))

    def _collect(self, *, wait: bool = False) -> None:
        """Take over what the reference found since; with ``wait``, all of it."""
        wait = wait or len(self._awaited) > _PENDING
        pending = []
        for trial, judged in self._awaited:
            if not wait and not judged.done():
                pending.append((trial, judged))
            elif judged.result() and not trial.verdict.is_fault:
                self._is_wrong(trial, judged.result())
        self._awaited = pending

    def _is_wrong(self, trial: Trial, why: str) -> None:
        self._estimates.pop(trial.place, None)
        self._out(trial, Verdict.WRONG, why)
        self._drop(trial)

    def _needed(self) -> float:
        """Seconds of a race of the fewest rounds, as far as it is known."""
        each = (max(self._estimates[t.place], _SAMPLES * _SAMPLE[t.config.device.kind]) for t in self._leaders())
        return min(_ROUNDS[0] * sum(each), self.limits.budget / 4)

    def _timed(self, trial: Trial, samples: int) -> list[float]:
        estimate = max(self._estimates[trial.place], 1e-7)
        calls = max(1, min(1000, round(_SAMPLE[trial.config.device.kind] / estimate)))
        samples = 1 if estimate > _LONG else samples
        limit = max(self._patience(), 10 * estimate * calls * samples)
        # Of what takes long a cold start is nothing; on a GPU the first execution of all may have loaded a library.
        warm = estimate <= _LONG or (trial.config.device.kind != "cpu" and not trial.samples)
        reply = self._ask(trial, "time", limit, calls=calls, samples=samples, warm=warm)
        self.spending.ran(reply["seconds"])
        return [float(t) for t in reply["times"]]

    def _forget_the_slow(self) -> None:
        """Plans that will not race give their memory back."""
        racing = {t.place for t in self._leaders()}
        for trial in self.trials:
            if trial.place not in racing:
                self._drop(trial)

    # The race.

    def _near(self, times: float) -> list[Trial]:
        """The candidates whose first time was at most ``times`` the fastest one's, fastest first."""
        found = sorted(self._impressions(), key=lambda t: self._estimates[t.place])
        return [t for t in found if self._estimates[t.place] <= times * self._estimates[found[0].place]]

    def _leaders(self) -> list[Trial]:
        return self._near(_LEAD)[:_LEADERS]

    def _race(self) -> list[Trial]:
        """The leaders, timed round after round until the order is clear; returns the remaining ones.

        A leader that turns out slower than it first seemed brings back the ones that it kept out.
        """
        rounds: dict[int, dict[int, float]] = {}  # place -> round -> seconds
        running: list[Trial] = []
        fewest, most = _ROUNDS
        for turn in range(most):
            self._collect()
            running = [t for t in running if not t.verdict.is_fault]
            entered = [t for t in self._leaders() if t.place not in rounds]
            rounds.update((t.place, {}) for t in entered)
            running += entered
            if not running:
                break
            is_short = turn < fewest and self._needed() <= _SHORT * self.limits.budget
            if self._left() <= 0 and not is_short and (turn or len(running) == 1):
                self.stopped += "; the race ended with the time"
                break
            for trial in in_turn(running, turn):
                if not self._guarded(trial, lambda t=trial: self._one_round(t, turn, rounds)):  # type: ignore[misc] # noqa: B023
                    running.remove(trial)
            self._show(running[0] if running else None)
            if running:
                fastest = min(running, key=lambda t: self._estimates[t.place])
                running = undecided(running, fastest, rounds, fewest, self.limits.tie)
            if len(running) == 1 and len(rounds[running[0].place]) >= fewest and not self._newcomers(rounds):
                break
        self._collect(wait=True)
        raced = [t for t in self.trials if rounds.get(t.place) and not t.verdict.is_fault]
        for trial in raced:
            trial.samples = list(rounds[trial.place].values())
            trial.interval = median_interval(trial.samples)
        # Of one that is alone the first impression is enough where there was no time for more.
        return raced or [t for t in running if not t.verdict.is_fault]

    def _look_ahead(self) -> None:
        """Judge the leader's result, beside the race, by all that the oracle got through: the winner's bits mostly."""
        best = self._best()
        if best is not None and self.reference.is_beside:
            self._guarded(best, lambda: self._still_right(best))

    def _newcomers(self, rounds: Mapping[int, object]) -> bool:
        return any(t.place not in rounds for t in self._leaders())

    def _one_round(self, trial: Trial, turn: int, rounds: dict[int, dict[int, float]]) -> bool:
        self.bench.restore()
        if not self.bench.has(trial):
            self._load(trial)
        times = sorted(self._timed(trial, _SAMPLES))
        mine = rounds[trial.place]
        mine[turn] = times[len(times) // 2]
        self._estimates[trial.place] = median_interval(list(mine.values())).median
        return True

    # The verdict.

    def _decide(self, leaders: list[Trial]) -> bool:
        """The fastest, or what ties with it and is simpler; its result is looked at once more. False without one."""
        while leaders:
            leaders.sort(key=lambda t: t.interval.median if t.interval else inf)
            first = leaders[0]
            tied = tied_with(first, leaders, self.limits.tie)
            chosen = min(tied, key=simplicity)
            is_right = self._guarded(chosen, lambda chosen=chosen: self._still_right(chosen))  # type: ignore[misc]
            self._collect(wait=True)
            if not is_right or chosen.verdict.is_fault:
                leaders.remove(chosen)
                continue
            tied = [t for t in tied if t is chosen or self._is_right_as(t, chosen)]
            leaders = [t for t in leaders if not t.verdict.is_fault]
            for trial in tied:
                trial.verdict = Verdict.TIED
                trial.reason = f"with {chosen.name}, which is simpler" if trial is not chosen else ""
            for trial in leaders:
                if trial.verdict is Verdict.SLOWER and _overlap(trial, first):
                    trial.reason = "not for certain, the intervals overlap"
            chosen.verdict = Verdict.FASTEST
            if len(tied) > 1:
                chosen.reason = f"simplest of {len(tied)} within {self.limits.tie:.0%}"
            return True
        return False

    def _is_right_as(self, trial: Trial, chosen: Trial) -> bool:
        """Of a tie: right wherever the winner was looked at, which needs no look where the bits are the same."""
        if trial.digest != chosen.digest and not self._guarded(trial, lambda: self._still_right(trial)):
            return False
        self._collect(wait=True)
        return not trial.verdict.is_fault

    def _still_right(self, trial: Trial) -> bool:
        self.bench.restore()
        if not self.bench.has(trial):
            self._load(trial)
        self.reference.settle(_PARTS * self.spending.passed)
        return self._is_right(trial, is_last=True)

    def _show(self, trial: Trial | None) -> None:
        best = self._best()
        fastest = "" if best is None else f", fastest {time_text(self._estimates[best.place])} by {best.name}"
        now = "" if trial is None else f", at {trial.name}"
        self._bar.show(self.spending.passed / self.limits.budget, f"{len(self.trials)} candidates{fastest}{now}")


def _floor(config: EngineConfig) -> float:
    """Seconds that no engine can beat; what fits into the cache need not come from memory."""
    device = config.device
    return sum(floor_seconds(op, device) if bytes_moved(op) > 2 * device.cache_bytes else 0.0 for op in config.fused)


def _overlap(a: Trial, b: Trial) -> bool:
    return a.interval is not None and b.interval is not None and a.interval.overlaps(b.interval)
