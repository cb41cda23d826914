"""Ahead: kernels of the next candidates, compiled in a process of their own while earlier ones are measured.

That process shares nothing with the one that measures but the kernel cache's folder. Should it end, kernels are
compiled where they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from graphdnn.composed import Identity, identity
from graphdnn.cuda.folder import cache_directory
from graphdnn.device import DeviceSpec
from graphdnn.heuristics import EngineConfig
from graphdnn.tuning.entries import entries_of_config
from graphdnn.tuning.isolation import FailedError, LostError, give_back, worker
from graphdnn.tuning.spending import Span

_ROLE = "ahead"
_SINGLE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # it multiplies nothing, and is there sooner
FIRST, COUNT = 3, 12  # candidates that are compiled ahead, while the first is waited for and then
_CORES = 4  # below which there is nobody to do it
_START = 30.0  # seconds that the process may take to start


class Ahead:
    """One process that compiles."""

    def __init__(self, initializer: str | None, *, is_useful: bool) -> None:
        is_useful = is_useful and cache_directory() is not None and (os.cpu_count() or 1) >= _CORES
        self._process = worker(initializer, _ROLE, _SINGLE) if is_useful else None
        self._sent: dict[Identity, int] = {}

    def warm(self, device: DeviceSpec) -> None:
        if self._process is not None:
            self._process.warm({"do": "warm", "device": device.to_json(), "compiles": True})

    def offer(self, configs: Sequence[EngineConfig]) -> None:
        """Begin with these, where they were not offered before."""
        for config in configs:
            if identity(config) not in self._sent:
                key = self._sent[identity(config)] = len(self._sent)
                if self._process is not None:
                    self._process.say({"do": "ahead", "key": key, "config": entries_of_config(config)})

    def wait(self, config: EngineConfig, limit: float) -> Span | None:
        """Until its kernels are in the cache; from when to when they were compiled."""
        key = self._sent.get(identity(config))
        if key is not None and self._process is not None:
            try:
                reply, _ = self._process.ask({"do": "await", "key": key}, max(limit, _START))
                return reply["began"], reply["ended"]
            except FailedError:
                pass  # the process that measures says what is wrong
            except LostError:
                self._process = None
        return None

    def close(self) -> None:
        if self._process is not None:
            give_back(self._process, _ROLE)
            self._process = None
