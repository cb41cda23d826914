"""The search: candidates are tried one by one, and the fast ones then race each other.

Trying: a candidate is built, executed once on garbage outputs and workspace, its result compared with the oracle's,
and timed a few times. Racing: in each round every leader is timed once, in an order that turns, so that a clock that
drifts hits all of them; a leader whose times are above the fastest one's in the same rounds, by the interval of the
median of their ratios, is out. The race ends when nothing is undecided.

Everything happens in a worker process (graphdnn/tuning/isolation.py). One that is lost takes its candidate with it, and
the next one starts with the leaders built anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf
from typing import Any

from graphdnn.device import DeviceSpec
from graphdnn.engines import engines_of
from graphdnn.engines.work import bytes_moved, floor_seconds
from graphdnn.enums import Status
from graphdnn.errors import ExecutionFailed
from graphdnn.files import graph_to_dict
from graphdnn.graph import OperationGraph
from graphdnn.heuristics import EngineConfig
from graphdnn.rules import Rule
from graphdnn.tuning.ahead import COUNT, Ahead
from graphdnn.tuning.candidates import Candidates
from graphdnn.tuning.entries import entries_of_config
from graphdnn.tuning.intervals import FEWEST, median_interval
from graphdnn.tuning.isolation import FailedError, Isolated, LostError, give_back, worker
from graphdnn.tuning.messages import SWITCH
from graphdnn.tuning.progress import Progress
from graphdnn.tuning.reference import Reference
from graphdnn.tuning.report import time_text
from graphdnn.tuning.spending import Spending
from graphdnn.tuning.thinning import Thinned
from graphdnn.tuning.tuned import Trial, Tuned, Verdict

PROCESS = Rule(
    id="tuning.process",
    expected="a process that candidates run in",
    reason="it did not get as far as the first candidate: {why}",
    fix="free memory where it is short, make the problem smaller, or use the ranking as it is",
    status=Status.EXECUTION_FAILED,
)
TIE = 0.02  # medians closer than this, with intervals that overlap, are a tie
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
_START = 60.0  # seconds that a worker may take to start and to make its operands
_VERDICTS = {"memory": Verdict.MEMORY, "refused": Verdict.REFUSED, "raised": Verdict.RAISED}


@dataclass(slots=True)
class Limits:
    """What a tuning may take."""

    budget: float = 10.0  # seconds in all
    candidate: float = 20.0  # seconds that one may take to build, to run once, or to be timed once
    most: int = 64  # candidates
    memory: int | None = None  # bytes that the worker may grow by; None: most of what is free
    tie: float = TIE


@dataclass(slots=True, eq=False)
class Search:
    """One tuning."""

    candidates: Candidates
    limits: Limits
    reference: Reference
    initializer: str | None
    spending: Spending
    process: Isolated
    ahead: Ahead
    ordinal: int | None = None
    trials: list[Trial] = field(default_factory=list)
    stopped: str = "every candidate was tried"
    _is_open: bool = False
    _is_opening: bool = True
    _loaded: set[int] = field(default_factory=set)  # places of the trials whose plans the worker has
    _marks: dict[str, Trial] = field(default_factory=dict)
    _awaited: list[tuple[Trial, Future[str]]] = field(default_factory=list)  # results that are being judged
    _estimates: dict[int, float] = field(default_factory=dict)  # place -> seconds, from the first impression
    _bar: Progress = field(default_factory=Progress)

    # Time.

    def _left(self, share: float = 1.0) -> float:
        return self.limits.budget * share - self.spending.passed

    # The worker.

    def _opened(self) -> None:
        """Wait for the worker, which was told its graph (``opening``) and makes operands.

        Raises ``ExecutionFailed`` where it failed: it is no candidate's fault.
        """
        if self._is_opening:
            self._is_opening = False
            try:
                self.process.answer(max(_START, self.limits.candidate), "starting")
            except (LostError, FailedError) as failed:
                raise not_begun(failed) from None
            self._is_open = True

    def _reopened(self) -> None:
        if self._is_open and self.process.is_alive:
            return
        self.process.kill()
        self.process = worker(self.process.program, self.initializer)
        self._loaded.clear()
        config, memory = self.candidates.first, self.limits.memory
        message = opening(config.fused.graph, config.device, self.ordinal, self.reference.seed, memory)
        self.process.ask(message, max(_START, self.limits.candidate))
        self._is_open = True

    def _ask(self, trial: Trial, what: str, limit: float | None = None, **more: Any) -> dict[str, Any]:
        message = {"do": what, "key": trial.place, **more}
        return self.process.ask(message, self._patience() if limit is None else limit)[0]

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
            self._loaded.clear()
        except FailedError as failed:
            self._out(trial, _VERDICTS[failed.kind], failed.reason)
            if failed.usable:
                self._drop(trial)
            else:
                self._loaded.clear()
        return False

    def _out(self, trial: Trial, verdict: Verdict, reason: str) -> None:
        trial.verdict, trial.reason = verdict, reason
        trial.samples, trial.interval = [], None

    def _drop(self, trial: Trial) -> None:
        if trial.place in self._loaded:
            self._loaded.discard(trial.place)
            try:
                self._ask(trial, "drop")
            except (LostError, FailedError):
                self._loaded.clear()

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
                self.process.kill()
                raise
            finally:
                sys.setswitchinterval(before)
                self.ahead.close()
                self.reference.close()
            give_back(self.process)
        order = sorted(self.trials, key=_shown_order)
        return Tuned(
            tuple(order),
            self.candidates.mode,
            self.spending.total(),
            self.stopped,
            self.reference.checked,
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
            if self._is_opening:  # the process that measures is there later than the first kernels are compiled
                self.ahead.offer(self.candidates.upcoming([first], COUNT))
            self.spending.compiled(self.ahead.wait(config, self.limits.candidate))
            self._opened()
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
        self._reopened()
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
        reply = self._ask(trial, "build", config=entries_of_config(trial.config))
        self._loaded.add(trial.place)
        self.spending.built(reply["seconds"])
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
            self.process.kill()  # the operands are spoilt
            self._loaded.clear()
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

    def _outputs(self, thin: Thinned | None) -> tuple[list[int], bytes]:
        cut = {} if thin is None else thin.slices.axes
        wanted = {
            "axes": [cut.get(t.uid) for t in self.reference.graph.outputs],
            "kept": list(thin.kept if thin else ()),
        }
        reply, payload = self.process.ask({"do": "outputs", **wanted}, self.limits.candidate)
        return reply["sizes"], payload

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
            if trial.place in self._loaded and trial.place not in racing:
                self._drop(trial)

    # The race.

    def _near(self, times: float) -> list[Trial]:
        """Those that took up to ``times`` as long as the fastest one at first, fastest first."""
        found = sorted(self._impressions(), key=lambda t: self._estimates[t.place])
        return [t for t in found if self._estimates[t.place] <= times * self._estimates[found[0].place]]

    def _leaders(self) -> list[Trial]:
        return self._near(_LEAD)[:_LEADERS]

    def _race(self) -> list[Trial]:
        """The leaders, timed round after round until the order is clear; those that are left.

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
            for trial in _turned(running, turn):
                if not self._guarded(trial, lambda t=trial: self._one_round(t, turn, rounds)):  # type: ignore[misc] # noqa: B023
                    running.remove(trial)
            self._show(running[0] if running else None)
            running = self._undecided(running, rounds, fewest)
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
        self._reopened()
        if trial.place not in self._loaded:
            reply = self._ask(trial, "build", config=entries_of_config(trial.config))
            self._loaded.add(trial.place)
            self.spending.built(reply["seconds"])
        times = sorted(self._timed(trial, _SAMPLES))
        mine = rounds[trial.place]
        mine[turn] = times[len(times) // 2]
        self._estimates[trial.place] = median_interval(list(mine.values())).median
        return True

    def _undecided(self, running: list[Trial], rounds: Mapping[int, Mapping[int, float]], fewest: int) -> list[Trial]:
        """The fastest, with those of which it is not clear whether they are slower, or as fast."""
        if not running:
            return []
        fastest = min(running, key=lambda t: self._estimates[t.place])
        first, undecided = rounds[fastest.place], [fastest]
        for trial in running:
            mine = rounds[trial.place]
            ratios = [mine[turn] / first[turn] for turn in mine.keys() & first.keys()]
            if trial is fastest:
                continue
            if len(ratios) >= fewest:
                ratio = median_interval(ratios)
                if ratio.low > 1 + self.limits.tie:
                    continue  # it is slower
                if 1 - self.limits.tie < ratio.low and ratio.high < 1 + self.limits.tie:
                    continue  # it is as fast
            undecided.append(trial)
        return undecided

    # The verdict.

    def _decide(self, leaders: list[Trial]) -> bool:
        """The fastest, or what ties with it and is simpler; its result is looked at once more. False without one."""
        while leaders:
            leaders.sort(key=lambda t: t.interval.median if t.interval else inf)
            first = leaders[0]
            assert first.interval is not None
            limit = (1 + self.limits.tie) * first.interval.median
            tied = [
                t for t in leaders if t.interval and t.interval.median <= limit and t.interval.overlaps(first.interval)
            ]
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
                if trial.verdict is Verdict.SLOWER and trial.interval and trial.interval.overlaps(first.interval):
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
        self._reopened()
        if trial.place not in self._loaded:
            self._ask(trial, "build", config=entries_of_config(trial.config))
            self._loaded.add(trial.place)
        self.reference.settle(_PARTS * self.spending.passed)
        return self._is_right(trial, is_last=True)

    def _show(self, trial: Trial | None) -> None:
        best = self._best()
        fastest = "" if best is None else f", fastest {time_text(self._estimates[best.place])} by {best.name}"
        now = "" if trial is None else f", at {trial.name}"
        self._bar.show(self.spending.passed / self.limits.budget, f"{len(self.trials)} candidates{fastest}{now}")


def not_begun(failed: LostError | FailedError) -> ExecutionFailed:
    """For a process that candidates should have run in."""
    return ExecutionFailed(PROCESS.reject("AUTOTUNE", "process", "none", why=failed.reason))


def opening(
    graph: OperationGraph, device: DeviceSpec, ordinal: int | None, seed: int, memory: int | None
) -> dict[str, Any]:
    """Tells a worker which graph it works on. ``memory``: bytes that it may grow by, None for most of what is free."""
    return {
        "do": "open",
        "graph": graph_to_dict(graph),
        "device": device.to_json(),
        "ordinal": ordinal,
        "seed": seed,
        "memory": _free_memory() if memory is None else memory,
    }


def simplicity(trial: Trial) -> tuple[int, int, int, tuple[int, ...], int]:
    """Fewer kernels, then less workspace, fewer knobs that are not at their defaults, the engine table's order."""
    config = trial.config
    changed = sum(
        choice.knobs[kind] != value for choice in config.choices for kind, value in choice.engine.defaults().items()
    )
    table = {engine.id: i for i, engine in enumerate(engines_of(config.device.kind))}
    places = tuple(table.get(choice.engine.id, len(table)) for choice in config.choices)
    return trial.kernels, config.workspace_size, changed, places, trial.place


def _turned(trials: Sequence[Trial], by: int) -> list[Trial]:
    """Each round begins with another one."""
    start = by % len(trials)
    return [*trials[start:], *trials[:start]]


def _floor(config: EngineConfig) -> float:
    """Seconds that no engine can beat; what fits into the cache need not come from memory."""
    device = config.device
    return sum(floor_seconds(op, device) if bytes_moved(op) > 2 * device.cache_bytes else 0.0 for op in config.fused)


def _free_memory() -> int:
    """Bytes: most of what the system can give now."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 1 << 34
    return free * 1024 * 3 // 4


_ORDER = (
    Verdict.FASTEST, Verdict.TIED, Verdict.SLOWER, Verdict.SAME, Verdict.REFUSED, Verdict.WRONG,
    Verdict.RAISED, Verdict.MEMORY, Verdict.TIMED_OUT, Verdict.CRASHED, Verdict.UNDECIDED,
)  # fmt: skip


def _shown_order(trial: Trial) -> tuple[int, float, int]:
    return _ORDER.index(trial.verdict), inf if trial.median is None else trial.median, trial.place
