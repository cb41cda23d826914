"""Assertions for tests: what was fused, and that a plan is as it was locked.

    from graphdnn.pytest_plugin import assert_fused, assert_plan_locked

    def test_layer():
        plan = layer().build()
        assert_fused(plan, "conv+bias+relu")
        assert_plan_locked(plan)

Locks lie beside the test, in a file of its module's name; ``pytest --graphdnn-update-locks`` writes them anew.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphdnn.builder import Graph
from graphdnn.cuda.private import beginning
from graphdnn.device.profiles import PROFILES
from graphdnn.errors import NotInitialized
from graphdnn.fusion import FusedGraph, fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig
from graphdnn.locks import Lock, LockChange, LockedGraph, against, entry_of, lock_from_json
from graphdnn.locks.kernel_patterns import described, kernels_like
from graphdnn.pipeline import rank
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule
from graphdnn.storage import write_atomically

OUTSIDE = Rule(
    id="pytest.outside",
    expected="a running test",
    reason="the lock lies beside the test, and no test is running that the plugin knows of",
    fix="call it from a test, with the plugin on (pytest -p pytest_graphdnn), or pass name= and file=",
)
_OPTION = "--graphdnn-update-locks"
_PATIENCE = 10.0  # seconds that a writer waits for another one

Subject = ExecutionPlan | EngineConfig | Graph | OperationGraph


def assert_fused(subject: Subject | FusedGraph, pattern: str, *, exact: bool = False) -> None:
    """Fail unless one kernel holds these operations, one after another: ``conv+bias+relu``.

    Words are those of problem texts (conv, dgrad, matmul, bias, residual, scale, relu, gelu, pool, ...), pointwise
    modes, and names of operations. ``exact``: the kernel has no other operations.
    """
    __tracebackhide__ = True
    fused = _fused_of(subject)
    if not kernels_like(fused, pattern, exact=exact):
        asked = f"no kernel {'is' if exact else 'holds'} {pattern}"
        raise AssertionError(f"{asked}\n{described(fused)}")


def assert_plan_locked(
    subject: Subject, name: str | None = None, *, allow: Collection[str] = (), file: str | Path | None = None
) -> None:
    """Fail when something moved since the lock was written: fused sets, engines, knobs, texts, numbers, times.

    ``name``: of the entry, by default the test's own. ``allow``: classes of movement that are accepted, such as
    "text". ``file``: by default beside the test, with its name and ``.lock``.
    """
    __tracebackhide__ = True
    from graphdnn import __version__

    config = _config_of(subject)
    path, entry_name = _place(name, file)
    update = f"pytest {_OPTION}"
    if _updates():
        with _alone(path):
            lock = lock_from_json(path.read_bytes()) if path.exists() else Lock(__version__, {}, ())
            entry = entry_of(config, entry_name)
            if lock.find(entry_name) != entry:
                devices = {config.device.name: config.device}
                write_atomically(path, lock.with_graphs([entry], devices, __version__).to_json().encode())
        return
    lock = lock_from_json(path.read_bytes()) if path.exists() else Lock(__version__, {}, ())
    locked = lock.find(entry_name)
    if locked is None:
        raise AssertionError(f"{path.name} has no entry '{entry_name}'; to write it: {update}")
    moved = [m for m in against(_like_here(locked, lock, config), config) if m.kind not in allow]
    if moved:
        raise AssertionError(_told(moved, path, update))


def _told(moved: list[LockChange], path: Path, update: str) -> str:
    return "\n".join((f"the plan moved since {path.name} was written", *map(str, moved), f"to accept it: {update}"))


def _fused_of(subject: Subject | FusedGraph) -> FusedGraph:
    if isinstance(subject, FusedGraph):
        return subject
    if isinstance(subject, OperationGraph):
        return fuse(subject)
    if isinstance(subject, Graph):
        return subject.fused
    return (subject.config if isinstance(subject, ExecutionPlan) else subject).fused


def _config_of(subject: Subject) -> EngineConfig:
    if isinstance(subject, EngineConfig):
        return subject
    if isinstance(subject, ExecutionPlan):
        return subject.config
    if isinstance(subject, OperationGraph):
        return rank(subject).best
    try:
        return subject.plan.config
    except NotInitialized:
        return subject.ranking.best


def _like_here(locked: LockedGraph, lock: Lock, config: EngineConfig) -> LockedGraph:
    """The entry with this machine's predictions, where the device is not a profile: another machine predicts others."""
    device = config.device
    if device.name in PROFILES or lock.devices[locked.device] == device or len(locked.kernels) != len(config.choices):
        return locked
    here = entry_of(config, locked.name)
    kernels = (
        replace(then, predicted_us=now.predicted_us, ranking=now.ranking) if then.engine == now.engine else then
        for then, now in zip(locked.kernels, here.kernels, strict=True)
    )
    return replace(locked, kernels=tuple(kernels))


def _item() -> Any:
    """The running test, where the plugin is on."""
    plugin = sys.modules.get("pytest_graphdnn")
    return plugin.running[0] if plugin is not None and plugin.running else None


def _updates() -> bool:
    item = _item()
    return bool(item is not None and item.config.getoption(_OPTION, default=False))


def _place(name: str | None, file: str | Path | None) -> tuple[Path, str]:
    item = _item()
    if item is None and (name is None or file is None):
        raise NotInitialized(OUTSIDE.reject("assert_plan_locked", "test", "none"))
    path = Path(file) if file is not None else Path(item.path).with_suffix(".lock")
    return path, name if name is not None else item.nodeid.partition("::")[2]


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One writer at a time, also among processes; one that died is waited for no longer than ``_PATIENCE``."""
    mark = path.with_name(f".{path.name}.writing")
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            if time.monotonic() > until:
                break
            time.sleep(0.02)
    try:
        yield
    finally:
        if beginning(mark, 1) == b"":  # a mark is empty: what holds something is not one
            with suppress(FileNotFoundError):
                mark.unlink()
