"""KindCache: which of some engines serve a kind of task, whatever its shape.

This is the one place that remembers it, for rankings and for the operations that rewrites give to other engines. An
engine that declines a kind is not asked again about tasks of that kind.
"""

from __future__ import annotations

from graphdnn.bounded_cache import BoundedCache
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.engine import Engine, Scope, Task

_MOST = 1024  # kinds


class KindCache:
    """What is known of some engines, in their order."""

    __slots__ = ("_engines", "_known")

    def __init__(self, engines: tuple[Engine, ...]) -> None:
        self._engines = engines
        # By the identity of the device as well, which the cache keeps alive: its limits are no part of a kind.
        self._known = BoundedCache[tuple[object, ...], tuple[DeviceSpec, tuple[Engine, ...]]](_MOST)

    def engines(self, task: Task) -> tuple[Engine, ...]:
        """The engines that serve the kind."""
        key = id(task.device), *task.kind
        found = self._known.get(key)
        if found is None:
            serving = tuple([engine for engine in self._engines if engine.serves_kind(task)])
            found = self._known.remember(key, (task.device, serving))
        return found[1]

    def serving(self, task: Task) -> list[Engine]:
        """The engines that serve the task."""
        return [engine for engine in self.engines(task) if _serves(engine, task)]


def _serves(engine: Engine, task: Task) -> bool:
    """The verdict on a task whose kind the engine serves."""
    return all(need.holds(task) for need in engine.needs_between(Scope.KIND, Scope.TASK))
