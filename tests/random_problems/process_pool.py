"""Runs cases in several processes, each with the device to itself for a while.

Compiling is most of the work and one process compiles on one core, so there are as many processes as cores.
A process whose device context is lost reports its case and is replaced; one that a case keeps longer than
``patience`` seconds is ended, and the case counts as failed.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from multiprocessing.connection import Connection, wait
from typing import Any

from random_problems.attempt import Attempt, attempt
from random_problems.families import Case

_FIRST = 120.0  # seconds more for a process that has just started


class Pool:
    """The processes. They start with the first cases and end with the ``with`` block."""

    def __init__(self, processes: int = 0, *, patience: float = 90.0, place: str = "cuda", **how: Any) -> None:
        """``how``: keywords of ``attempt``."""
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes are the threads
        self._count = processes or os.cpu_count() or 1
        self._patience, self._place, self._how = patience, place, how
        self._workers: list[_Worker] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def run(self, cases: Sequence[Case], time_limit: float = float("inf")) -> Iterator[Attempt]:
        """Verdicts in the order in which they are reached. Cases that the time limit cuts off have none."""
        started, waiting = time.monotonic(), list(reversed(cases))
        while len(self._workers) < min(self._count, len(cases)):
            self._workers.append(_Worker(self._place, self._how))
        while waiting or any(w.case for w in self._workers):
            if time.monotonic() - started > time_limit:
                waiting.clear()
            for worker in self._workers:
                if worker.case is None and waiting:
                    worker.give(waiting.pop())
            busy = [w for w in self._workers if w.case]
            ready = wait([w.pipe for w in busy], timeout=1.0)
            for worker in busy:
                result = worker.take() if worker.pipe in ready else worker.overdue(self._patience)
                if result is None:
                    continue
                if result.broken:
                    self._workers[self._workers.index(worker)] = _Worker(self._place, self._how)
                yield result


class _Worker:
    """One process and the case it has."""

    def __init__(self, place: str, how: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.pipe, far = context.Pipe()
        self._process = context.Process(target=_work, args=(far, place, how), daemon=True)
        self._process.start()
        far.close()
        self.case: Case | None = None
        self._since = time.monotonic()
        self._new = True

    def give(self, case: Case) -> None:
        self.case, self._since = case, time.monotonic()
        self.pipe.send(case)

    def take(self) -> Attempt:
        assert self.case is not None
        case, self.case = self.case, None
        try:
            result: Attempt = self.pipe.recv()
            self._new = False
        except (EOFError, OSError):
            self._process.join(5)
            result = Attempt(case, failures=[f"the process ended with code {self._process.exitcode}"], broken=True)
        if result.broken:
            self.end()
        return result

    def overdue(self, patience: float) -> Attempt | None:
        assert self.case is not None
        if time.monotonic() - self._since < patience + (_FIRST if self._new else 0):
            return None
        case, self.case = self.case, None
        self.end()
        return Attempt(case, failures=[f"no answer within {patience:.0f} s"], broken=True)

    def end(self) -> None:
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(10)
            if self._process.is_alive():
                self._process.kill()
        self.pipe.close()


def _work(pipe: Connection, place: str, how: dict[str, Any]) -> None:
    """In the other process: cases in, verdicts out, until the pipe closes."""
    from emulator.libraries import host_libraries

    from random_problems import execution_targets

    emulated = place != "cuda"
    here = execution_targets.Emulated(libraries=True) if emulated else execution_targets.Cuda()
    try:
        with host_libraries() if emulated else nullcontext():
            while True:
                result = attempt(pipe.recv(), here, **how)
                pipe.send(result)
                if result.broken:
                    return
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
