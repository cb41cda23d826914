"""The engines, in order of preference: the first that serves a task is what INSTANT returns.

The tables read like a tuple and dictionaries, and are filled when they are first looked into: a program that
stays on the host never loads the engines of a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast, overload

from graphdnn.engines.engine import Cost, Engine, Kernel, Knob, Knobs, Task
from graphdnn.engines.numpy_blocked import ENGINE as NUMPY_BLOCKED
from graphdnn.engines.numpy_general import ENGINE as NUMPY
from graphdnn.engines.renames import current_name

HOST_ENGINES: tuple[Engine, ...] = (NUMPY_BLOCKED, NUMPY)
Key = TypeVar("Key")


@cache
def engines_of(kind: str) -> tuple[Engine, ...]:
    """The engines for devices of a kind: "cpu" or "cuda"."""
    if kind == "cpu":
        return HOST_ENGINES
    from graphdnn.engines.cuda.table import CUDA_ENGINES

    return CUDA_ENGINES


class _Engines(Sequence[Engine]):
    """Every engine of every kind of device."""

    @property
    def _all(self) -> tuple[Engine, ...]:
        return (*engines_of("cuda"), *engines_of("cpu"))

    @overload
    def __getitem__(self, index: int) -> Engine: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Engine]: ...

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)


class _EnginesBy(Mapping[Key, Engine]):
    """Every engine by a field that no two share. An engine's earlier name finds it; iteration shows current names."""

    def __init__(self, key: Callable[[Engine], Key]) -> None:
        self._key = key
        self._found: dict[Key, Engine] = {}

    @property
    def _all(self) -> dict[Key, Engine]:
        if not self._found:
            self._found.update({self._key(engine): engine for engine in ENGINES})
            shared = [e.name for e in ENGINES if self._found[self._key(e)] is not e]
            assert not shared, f"another engine has the id or name of {shared}"
        return self._found

    def __getitem__(self, key: Key) -> Engine:
        if isinstance(key, str):
            key = cast(Key, current_name(key))
        if not self._found:  # an engine of the host is found without loading those of devices
            for engine in HOST_ENGINES:
                if self._key(engine) == key:
                    return engine
        return self._all[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


ENGINES: Sequence[Engine] = _Engines()
ENGINE_BY_ID: Mapping[int, Engine] = _EnginesBy(lambda engine: engine.id)
ENGINE_BY_NAME: Mapping[str, Engine] = _EnginesBy(lambda engine: engine.name)

__all__ = [
    "ENGINES", "ENGINE_BY_ID", "ENGINE_BY_NAME", "Cost", "Engine", "Kernel", "Knob", "Knobs", "Task", "engines_of",
]  # fmt: skip
