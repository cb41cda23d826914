"""The command: which groups and cases, how long, and where the results go."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu import earlier, goals, isolation, report, table
from gpu.device import CudaDevice, Device
from gpu.goals import RESULTS
from gpu.groups import GROUPS, SUITES, chosen
from gpu.options import QUICK_REPEATS, REPEATS, Options
from gpu.prebuild import prebuild
from gpu.problem import Case, Group
from gpu.result import Result
from graphdnn.device_selection import device_spec

SCRIPT = Path(__file__).resolve().parents[1] / "gpu.py"


def main(arguments: Sequence[str] | None = None, make_device: Callable[[], Device] = CudaDevice) -> int:
    given = _parser().parse_args(arguments)
    if given.goals:
        print(goals.text(goals.read(given.json or RESULTS)))
        return 0
    unknown = [name for name in given.groups if name not in GROUPS]
    if unknown:
        print(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    device: Device | None = None
    if not given.isolate:
        try:
            device = make_device()
        except Exception as error:
            print(f"this benchmark needs a GPU, CuPy and PyTorch: {error}", file=sys.stderr)
            return 2
    runner = Runner(given, device)
    if given.worker:
        return runner.work(*given.groups)
    names = given.groups or SUITES.get(given.suite, [name for name, (group, _) in GROUPS.items() if group.by_default])
    if runner.about:
        print(table.machine(runner.about))
    if given.prebuild and device:
        runner.prebuild(names)
    results = [result for name in names for result in runner.group(name)]
    is_slower = given.against is not None and earlier.is_slower(earlier.compare(results, given.against))
    return 1 if is_slower or any(result.status in ("wrong", "failed") for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu.py", description="graphdnn beside PyTorch and cuDNN on one GPU.")
    groups = ", ".join(f"{name} ({group.title})" for name, (group, _) in GROUPS.items())
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"{groups}; without names: what needs no tensor cores"
    )
    parser.add_argument("--suite", choices=sorted(SUITES), help="several groups at once; table: the layer table")
    parser.add_argument("--only", default="", metavar="NAME,...", help="cases whose name contains or matches one")
    parser.add_argument("--quick", action="store_true", help="a few cases of each group, fewer repeats")
    parser.add_argument("--repeats", type=int, help=f"of each figure; {REPEATS}, or {QUICK_REPEATS} with --quick")
    parser.add_argument(
        "--tune",
        type=int,
        metavar="N",
        help="time N configurations that a tuner would try first beside each first choice; fp32 tries 4",
    )
    parser.add_argument(
        "--every-kernel", action="store_true", help="time each engine and each of its kernels beside the first choice"
    )
    parser.add_argument("--alone", action="store_true", help="graphdnn without peers and without device copies")
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="compare with the files of an earlier run; exit 1 where slower"
    )
    parser.add_argument(
        "--prebuild", type=int, metavar="N", help="compile the kernels of all cases in N processes before measuring"
    )
    parser.add_argument("--time-limit", type=float, default=75.0, metavar="SECONDS", help="of a group")
    parser.add_argument("--isolate", action="store_true", help="measure in a child process, with a limit on each case")
    parser.add_argument("--case-limit", type=float, default=60.0, metavar="SECONDS", help="of a case in a child")
    parser.add_argument("--json", type=Path, metavar="DIR", help="where gpu_GROUP.json goes; benchmarks/results")
    parser.add_argument("--goals", action="store_true", help="no run: what is aimed at beside what files say")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cases", default="", help=argparse.SUPPRESS)
    return parser


class Runner:
    """One run. ``device`` is None when all measuring is left to child processes."""

    def __init__(self, given: argparse.Namespace, device: Device | None) -> None:
        self.given, self.device = given, device
        self.about: dict[str, Any] = device.about() if device else {}
        repeats = given.repeats or (QUICK_REPEATS if given.quick else REPEATS)
        self.options = Options(repeats=repeats, tune=given.tune, every_kernel=given.every_kernel, alone=given.alone)

    def prebuild(self, names: Sequence[str]) -> None:
        """Compile what ``group`` will measure."""
        assert self.device is not None
        start, device = time.monotonic(), device_spec(self.device.engine_device)
        pairs = [(name, case.name) for name in names for case in self._cases(GROUPS[name][0])]
        counts = prebuild(pairs, device, self.given.prebuild, every_kernel=self.given.every_kernel)
        seconds = time.monotonic() - start
        print(f"{counts['built']} plans built before measuring, {counts['failed']} failed, {seconds:.0f} s", flush=True)

    def _cases(self, group: Group) -> tuple[Case, ...]:
        words = [word for word in self.given.only.split(",") if word]
        return chosen(group, words, quick=self.given.quick)

    def group(self, name: str) -> list[Result]:
        """Measure, print and write one group."""
        group, _ = GROUPS[name]
        cases = self._cases(group)
        if not cases:
            return []
        print(f"\n{group.name}: {group.title}\n{table.heading()}", flush=True)
        part = bool(self.given.only) or self.given.quick or self.given.alone
        folder = self.given.json or (None if part else RESULTS)
        options = replace(self.options, deadline=time.monotonic() + self.given.time_limit)
        results: list[Result] = []
        for result in self.results(group, cases, options):
            results.append(result)
            print(table.line(result), flush=True)
            if folder:
                heading = report.about(self.about, group.name, group.title)
                report.write(folder / f"gpu_{group.name}.json", heading, results)
        print(table.summary(results), flush=True)
        print(f"-> {folder}/gpu_{group.name}.json" if folder else "part of a group: written with --json DIR only")
        return results

    def results(self, group: Group, cases: Sequence[Case], options: Options) -> Iterator[Result]:
        """One for each case, in order as far as they are measured; what the deadline cut off comes last."""
        done: set[str] = set()
        for result in self._here(group, cases, options):
            done.add(result.case)
            yield result
        rest = [case.name for case in cases if case.name not in done]
        if self.device is None:
            for result in self._elsewhere(group, rest, options):
                done.add(result.case)
                yield result
        limit = f"the group's limit of {self.given.time_limit:.0f} s was reached"
        yield from (Result(group.name, n, status="skipped", reason=limit) for n in rest if n not in done)

    def _here(self, group: Group, cases: Sequence[Case], options: Options) -> Iterator[Result]:
        """In this process, until the deadline or until its context is lost."""
        measure = GROUPS[group.name][1]
        for case in cases:
            if self.device is None or options.is_late:
                return
            result = measure(group, case, self.device, options)
            gc.collect()
            if result.status == "failed" and not self.device.is_alive():
                self.device = None
            else:
                self.device.release()
            yield result

    def _elsewhere(self, group: Group, names: Sequence[str], options: Options) -> Iterator[Result]:
        def command(rest: Sequence[str]) -> list[str]:
            left = max(options.deadline - time.monotonic(), 1.0)
            tune = [] if options.tune is None else [f"--tune={options.tune}"]
            tune += ["--alone"] if options.alone else []
            tune += ["--every-kernel"] if options.every_kernel else []
            flags = [f"--cases={','.join(rest)}", f"--repeats={options.repeats}", f"--time-limit={left:.0f}"]
            return [sys.executable, str(SCRIPT), group.name, "--worker", *flags, *tune]

        messages = isolation.isolated(group.name, names, command, self.given.case_limit, options.deadline)
        for kind, content in messages:
            if kind == isolation.ABOUT:
                self.about = content
            else:
                yield content

    def work(self, name: str) -> int:
        """As the child of another run: report each case, and stop where this process cannot go on."""
        group, _ = GROUPS[name]
        wanted = self.given.cases.split(",")
        cases = [case for case in group.cases if case.name in wanted]
        isolation.announce(isolation.ABOUT, self.about)
        options = replace(self.options, deadline=time.monotonic() + self.given.time_limit)
        for result in self._here(group, cases, options):
            isolation.announce(isolation.RESULT, result.to_json())
        return isolation.CONTEXT_LOST if self.device is None else 0
