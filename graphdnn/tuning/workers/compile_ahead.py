"""Ahead: kernels of the next candidates, compiled in a process of their own while earlier ones are measured.

That process shares nothing with the one that measures but the kernel cache's folder. Should it end, kernels are
compiled where they are needed. Texts are generated here, beside the search.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from time import perf_counter
from typing import Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.heuristics import EngineConfig
from graphdnn.heuristics.composed import Identity, identity
from graphdnn.storage import cache_directory
from graphdnn.tuning.time_accounting import Span
from graphdnn.tuning.workers.worker_process import COMPILER, LostError, WorkerProcess, give_back, worker

Texts = list[tuple[str, str, tuple[str, ...]]]  # names, texts and options of kernels

FIRST, COUNT = 3, 12  # candidates that are compiled ahead, while the first is waited for and then
_KEYS = count()  # of all tunings: what is done after the end of one is none of the next one's
_CORES = 4  # below which there is nobody to do it
_START = 30.0  # seconds that the process may take to start


class CompileAhead:
    """One process that compiles."""

    def __init__(self, *, is_useful: bool) -> None:
        is_useful = is_useful and cache_directory() is not None and (os.cpu_count() or 1) >= _CORES
        self._process: WorkerProcess | None = None
        if is_useful:
            with suppress(LostError):  # kernels are compiled where they are needed
                self._process = worker(COMPILER)
        self._teller = ThreadPoolExecutor(1)  # the process may not read yet
        self._told: dict[Identity, tuple[int, Future[list[Span]]]] = {}
        self._compiled: dict[int, list[Span]] = {}
        if self._process is not None:
            self._process.warm({"do": "warm"})

    def offer(self, configs: Sequence[EngineConfig], *, is_urgent: bool = False) -> None:
        """Begin with these, where they were not offered before; texts of urgent ones are there when this returns."""
        if self._process is None:
            return
        for config in configs:
            if identity(config) not in self._told:
                is_first, key = not self._told, next(_KEYS)
                made = _made(config) if is_urgent else None
                self._told[identity(config)] = key, self._teller.submit(self._tell, key, config, made, is_first)

    def _tell(self, key: int, config: EngineConfig, made: tuple[Texts, Span] | None, is_first: bool) -> list[Span]:
        """Begin with one; when its texts were generated."""
        texts, span = _made(config) if made is None else made
        process, arch = self._process, _arch(config.device)
        if process is not None and texts:
            process.say({"do": "compile", "key": key, "arch": arch, "texts": texts, "is_first": is_first})
        else:
            self._compiled[key] = []
        if process is not None and is_first:
            own = {"key": next(_KEYS), "arch": arch, "texts": _own(config.device)}
            process.say({"do": "compile", **own, "is_first": True})
        return [span]

    def wait(self, config: EngineConfig, limit: float) -> list[Span]:
        """Until its kernels are in the cache; from when to when they were generated and compiled."""
        told, limit = self._told.get(identity(config)), max(limit, _START)
        if told is not None and self._process is not None:
            key, generated = told
            try:
                found, until = generated.result(limit), perf_counter() + limit
                while key not in self._compiled:
                    reply, _ = self._process.answer(until - perf_counter(), "compiling")
                    self._compiled[reply["key"]] = reply["spans"]
                return [*found, *((began, ended) for began, ended in self._compiled[key])]
            except LostError:
                self._process = None
            except Exception:
                return []  # whatever is wrong with it, the process that measures says
        return []

    def close(self) -> None:
        self._teller.shutdown(wait=False, cancel_futures=True)
        if self._process is not None:
            give_back(self._process, next(_KEYS))
            self._process = None


def _made(config: EngineConfig) -> tuple[Texts, Span]:
    """The texts of a configuration, and from when to when they were generated."""
    from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch

    began, texts = perf_counter(), []
    for choice in config.choices:
        kernel: Any = choice.engine.compile(choice.task, choice.knobs)
        assert isinstance(kernel, DeviceKernel)
        texts += [step.text for step in kernel.steps if isinstance(step, Launch)]
    return _entries(texts), (began, perf_counter())


def _own(device: DeviceSpec) -> Texts:
    """Of the kernels that look at results."""
    from graphdnn.tuning.workers import device_digests, device_gather

    return _entries([own.launch(device).text for own in (device_digests, device_gather)])


def _entries(texts: Sequence[Any]) -> Texts:
    return [(text.name, text.text, text.options) for text in dict.fromkeys(texts)]


def _arch(device: DeviceSpec) -> str:
    from graphdnn.cuda.nvrtc import arch_of

    return arch_of(device.compute_capability, device.name)
