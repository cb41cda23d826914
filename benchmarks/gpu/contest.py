"""Contest: one case from graph to figures. What fails is recorded, and the rest goes on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from gpu.buffers import allocate, fill
from gpu.check import Checked, compare, definition
from gpu.device import Device, Launches
from gpu.kernels import every_kernel
from gpu.options import Options
from gpu.problem import Case, Group, Peer, Problem
from gpu.result import PeerResult, Result
from gpu.timing import Contestant, alternate, estimate, repeats_for, rotation, series, timed
from graphdnn import EngineConfig, ExecutionPlan, Filters, HeurMode, NotSupported, rank
from graphdnn.device_selection import device_spec
from graphdnn.fusion import fuse
from graphdnn.tuning.candidates import candidates_of

OURS, COPY = "ours", "copy"
HOPELESS = 1.5  # times the first choice, by a glance: such a configuration is not timed
REASON_LENGTH = 300


def measure(group: Group, case: Case, device: Device, options: Options) -> Result:
    """Never raises, short of what ends the process."""
    result = Result(group.name, case.name, note=case.note)
    start = time.perf_counter()
    try:
        problem = case.describe()
        with precision(device.torch, tf32=problem.tf32):
            _Contest(problem, device, options, result).run(group)
    except Exception as error:
        result.status, result.reason = "failed", brief(error)
    result.seconds = time.perf_counter() - start
    return result


def brief(error: BaseException) -> str:
    """Type, message and place, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:REASON_LENGTH]}{place}"


class precision:  # noqa: N801  # reads as a verb in a with statement
    """cuDNN searches for its fastest algorithm, and rounds float32 operands only where that is asked for."""

    def __init__(self, torch: Any, *, tf32: bool) -> None:
        self._settings, self._products, self._tf32 = torch.backends.cudnn, torch.backends.cuda.matmul, tf32

    def __enter__(self) -> None:
        self._before = self._settings.benchmark, self._settings.allow_tf32, self._products.allow_tf32
        self._settings.benchmark, self._settings.allow_tf32 = True, self._tf32
        self._products.allow_tf32 = self._tf32

    def __exit__(self, *_: object) -> None:
        self._settings.benchmark, self._settings.allow_tf32, self._products.allow_tf32 = self._before


class _Contest:
    def __init__(self, problem: Problem, device: Device, options: Options, result: Result) -> None:
        self.problem, self.device, self.options, self.result = problem, device, options, result
        result.flops, result.moved = problem.flops, problem.moved
        with device.active():
            self.first = allocate(problem, device)
            fill(problem, self.first, device, options.seed)
            self.expected = definition(problem, self.first.tensors, device.torch)
        device.synchronize()
        self.sets = [self.first]
        self.contestants: dict[str, Contestant] = {}
        self.estimates: dict[str, float] = {}

    def run(self, group: Group) -> None:
        self._enter_ours()
        if self.result.status == "failed" and not self.device.is_alive():
            return
        if not self.options.alone:
            for peer in self.problem.peers:
                self._enter_peer(peer)
            self._enter_copy()
        if self.result.status == "ok":
            self._try(self._others(group))
        self._time()

    # Who takes part.

    def _enter_ours(self) -> None:
        result = self.result
        start = time.perf_counter()
        try:
            plan = ExecutionPlan(self._ranking(HeurMode.A).best)
            result.build_seconds = time.perf_counter() - start
            result.plan, result.workspace = plan.name, plan.workspace_size
            result.fused = [list(operations) for operations in plan.fused_operations]
            contestant, checks = self._checked(plan)
            result.checks = [check.to_json() for check in checks]
            result.right = _in_words(checks)
            result.repeatable = self._is_repeatable(contestant)
            result.status = "ok" if all(check.is_right for check in checks) else "wrong"
            if result.status == "ok":
                self.estimates[OURS] = estimate(contestant, self.device)
                self.contestants[OURS] = contestant
        except NotSupported as error:
            result.status, result.reason = "unsupported", brief(error)
        except Exception as error:
            result.status, result.reason = "failed", brief(error)

    def _ranking(self, mode: HeurMode) -> Any:
        return rank(self.problem.graph, self.device.engine_device, mode, self.problem.filters)

    def _checked(self, plan: ExecutionPlan) -> tuple[Contestant, list[Checked]]:
        """The plan as a contestant, after one run from poisoned outputs."""
        workspace = plan.new_workspace()

        def prepare(i: int) -> Callable[[], None]:
            return partial(plan.execute, self.sets[i].bindings, workspace)

        contestant = Contestant(prepare, foreign=False)
        self._execute(contestant)
        found = {name: buffer.tensor for name, buffer in self.first.outputs.items()}
        return contestant, compare(self.problem, found, self.expected, self.device.torch)

    def _execute(self, contestant: Contestant) -> None:
        with self.device.active():
            self.first.poison()
            contestant.prepare(0)()
        self.device.synchronize()

    def _is_repeatable(self, contestant: Contestant) -> bool:
        before = {name: buffer.raw.clone() for name, buffer in self.first.outputs.items()}
        self._execute(contestant)
        same = self.device.torch.equal
        return all(same(before[name], buffer.raw) for name, buffer in self.first.outputs.items())

    def _enter_peer(self, peer: Peer) -> None:
        found = PeerResult(peer.label, peer.part)
        self.result.peers.append(found)
        torch = self.device.torch

        def prepare(i: int) -> Callable[[], Any]:
            return peer.prepare(torch, self.sets[i].tensors)

        contestant = Contestant(prepare, foreign=True)
        try:
            with self.device.active():
                given = prepare(0)()
            self.device.synchronize()
            if peer.gives:
                values = dict(zip(peer.gives, given if isinstance(given, (tuple, list)) else (given,), strict=False))
                found.error = _in_words(compare(self.problem, values, self.expected, torch))
            del given
            self.estimates[peer.label] = estimate(contestant, self.device)
            self.contestants[peer.label] = contestant
        except Exception as error:
            found.error = brief(error)

    def _enter_copy(self) -> None:
        """Two ways to copy, as neither is the faster one everywhere."""
        torch, half = self.device.torch, -(-self.problem.moved // 32) * 16
        pairs: dict[int, tuple[Any, Any]] = {}

        def pair(i: int) -> tuple[Any, Any]:
            if i not in pairs:
                source = torch.empty(half, dtype=torch.uint8, device=self.device.name).random_()
                pairs[i] = source, torch.empty_like(source)
            return pairs[i]

        def memory_copy(i: int) -> Callable[[], Any]:
            source, target = pair(i)
            return partial(target.copy_, source)

        def kernel(i: int) -> Callable[[], Any]:
            source, target = (raw.view(torch.int32) for raw in pair(i))
            return partial(torch.bitwise_not, source, out=target)

        for label, prepare in ((COPY, memory_copy), (f"{COPY} kernel", kernel)):
            try:
                self.estimates[label] = estimate(Contestant(prepare, foreign=True), self.device)
                self.contestants[label] = Contestant(prepare, foreign=True)
            except Exception as error:
                self.result.note = f"{self.result.note} {label}: {brief(error)}".strip()

    def _others(self, group: Group) -> Iterable[EngineConfig]:
        """Every kernel, or what a tuner would try: other engines, then other values of knobs."""
        count = group.tune if self.options.tune is None else self.options.tune
        tries_kernels = group.every_kernel or self.options.every_kernel
        if not (tries_kernels or count):
            return ()
        graph, filters = fuse(self.problem.graph), self.problem.filters or Filters()
        device = device_spec(self.device.engine_device)
        if tries_kernels:
            return every_kernel(graph, device, filters)
        candidates = candidates_of(graph, device, HeurMode.B, filters, None, any_class=False, without=())
        return candidates.upcoming([], count)

    def _try(self, configs: Iterable[EngineConfig]) -> None:
        """What is right and not slow takes part."""
        for config in configs:
            if self.options.is_late:
                break
            row: dict[str, Any] = {"plan": config.name}
            self.result.tried.append(row)
            try:
                contestant, checks = self._checked(ExecutionPlan(config))
                row["right"] = _in_words(checks)
                if not all(check.is_right for check in checks):
                    continue
                row["us"] = us = estimate(contestant, self.device)
                if us < HOPELESS * self.estimates[OURS]:
                    self.estimates[config.name], self.contestants[config.name] = us, contestant
            except Exception as error:
                row["failed"] = brief(error)
                if not self.device.is_alive():
                    raise

    # The contest.

    def _time(self) -> None:
        if not self.contestants:
            return
        plan = rotation(self.problem.moved, max(self.estimates.values()), self.device.cache_bytes)
        self.result.sets, self.result.cold = plan.sets, plan.cold
        self._more_sets(plan.sets)
        lines: dict[str, Launches] = {}
        for name, contestant in self.contestants.items():
            try:
                lines[name] = series(contestant, self.estimates[name], plan.sets, self.device)
            except Exception as error:
                self._drop(name, error)
        self._poison_all()
        times = alternate(lines, repeats_for(self.options.repeats, list(self.estimates.values())))
        self._file(times, lines)
        if OURS in lines:
            self._check_all()

    def _more_sets(self, count: int) -> None:
        with self.device.active():
            while len(self.sets) < count:
                more = allocate(self.problem, self.device)
                more.copy_inputs(self.first)
                self.sets.append(more)
        self.device.synchronize()

    def _poison_all(self) -> None:
        with self.device.active():
            for buffers in self.sets:
                buffers.poison()
        self.device.synchronize()

    def _drop(self, name: str, error: Exception) -> None:
        if not self.device.is_alive():
            raise error
        if name == OURS:
            self.result.status, self.result.reason = "failed", brief(error)
        for peer in self.result.peers:
            if peer.label == name:
                peer.error = brief(error)

    def _file(self, times: dict[str, list[float]], lines: dict[str, Launches]) -> None:
        result = self.result
        found = {name: timed(values, lines[name]) for name, values in times.items()}
        for peer in result.peers:
            peer.time = found.get(peer.label)
        copies = [t for name, t in found.items() if name.startswith(COPY)]
        result.copy = min(copies, key=lambda t: t.us, default=None)
        result.ours = found.get(OURS)
        winner = OURS
        for row in result.tried:
            name = row["plan"]
            if name in found and result.ours:
                row["us"] = found[name].us
                winner = name if found[name].us < found[winner].us else winner
        if winner != OURS:
            result.tuned, result.first_choice, result.ours = winner, result.ours, found[winner]
        if result.peer and winner in times:
            rounds = [p / o for p, o in zip(times[result.peer.label], times[winner], strict=True)]
            result.ratio_low, result.ratio_high = min(rounds), max(rounds)

    def _check_all(self) -> None:
        """The timed launches were right as well: every set holds the results of the first check."""
        torch = self.device.torch
        for buffers in self.sets:
            found = {name: buffer.tensor for name, buffer in buffers.outputs.items()}
            checks = compare(self.problem, found, self.expected, torch)
            if not all(check.is_right for check in checks):
                self._void(f"after the timed launches: {_in_words(checks)}")
                return

    def _void(self, reason: str) -> None:
        self.result.status, self.result.reason = "wrong", reason
        self.result.ours = self.result.first_choice = None


def _in_words(checks: list[Checked]) -> str:
    """The first wrong output, or the largest error."""
    wrong = [str(check) for check in checks if not check.is_right]
    return wrong[0] if wrong else str(max(checks, key=lambda check: check.error))
