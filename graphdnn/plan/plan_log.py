"""What plans print on stderr when the environment asks for it (graphdnn/debug_log.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from time import perf_counter
from typing import Any

from graphdnn import debug_log
from graphdnn.heuristics import EngineConfig
from graphdnn.hooks import call_hook


def built(config: EngineConfig, cache: str, seconds: float) -> None:
    """A plan was built; ``cache``: "hit" when it held all kernels, "miss", or "none" where nothing is compiled."""
    if debug_log.verbose:
        debug_log.line("build", config.name, config.device.name, cache, f"{seconds * 1e3:.3f}", repeat=_repeat(config))
    if debug_log.asks("fusion"):
        for op in config.fused:
            labels = " + ".join(step.label() for step in op.operations)
            debug_log.line("fusion", config.name, op.index, op.rule, labels, repeat=_repeat(config))
        for stop in config.fused.stopped_by:
            debug_log.line("unfused", config.name, stop.subject, stop.rule, stop.reason, repeat=_repeat(config))


def executed(config: EngineConfig, seconds: float) -> None:
    debug_log.line("execute", config.name, config.device.name, f"{seconds * 1e3:.3f}", repeat=_repeat(config))


@lru_cache(maxsize=64)
def _repeat(config: EngineConfig) -> str:
    """Worked out once for a plan that is executed again and again."""
    return str(call_hook("config.repeat", config))


def told(call: Callable[..., None], config: EngineConfig) -> Callable[..., None]:
    """``call`` with a line for each execution."""

    def timed(*arguments: Any) -> None:
        start = perf_counter()
        call(*arguments)
        executed(config, perf_counter() - start)

    return timed
