"""A lock held against this version of the library: every graph is fused and ranked again for the device it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphdnn.device.profiles import PROFILES, DeviceSpec
from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.enums import KnobType
from graphdnn.errors import MalformedFile, NotSupported
from graphdnn.fusion import FusedGraph
from graphdnn.heuristics import Choice, EngineConfig, Ranking
from graphdnn.locks.lock_diff import LockChange, compare
from graphdnn.locks.lock_entries import entry_of
from graphdnn.locks.lock_file import Lock, LockedGraph
from graphdnn.pipeline import rank


@dataclass(frozen=True, slots=True)
class LockCheckResult:
    """The result of a check: the changes, and the entries as they are now."""

    movements: tuple[LockChange, ...]
    entries: tuple[LockedGraph, ...]  # as they would be locked now
    notes: tuple[str, ...]  # what is no movement, and may explain one


def check(lock: Lock, library: str, entries: Sequence[LockedGraph] | None = None) -> LockCheckResult:
    """Compare the graphs of a lock with what this version makes of them.

    Args:
        lock: The lock.
        library: This version of the library.
        entries: Entries of the lock. None takes all of them.

    Returns:
        The changes, and the entries as they are now.
    """
    found: list[LockChange] = []
    now: list[LockedGraph] = []
    for entry in lock.graphs if entries is None else entries:
        try:
            config = _config_now(entry, device_of(lock, entry.device))
        except (MalformedFile, NotSupported) as error:
            served = "this version does not read it" if isinstance(error, MalformedFile) else "no engine serves it"
            why = tuple(f"{r.where}: {r.reason} [{r.rule}]" for r in error.rejections[:8])
            found.append(LockChange("graph", entry.name, "graph", served, why))
            continue
        found += against(entry, config)
        now.append(entry_of(config, entry.name, entry.problem, is_planned=entry.is_planned))
    return LockCheckResult(tuple(found), tuple(now), tuple(_notes(lock, library)))


def against(entry: LockedGraph, config: EngineConfig) -> list[LockChange]:
    """The changes between an entry and a configuration, with the reasons that engines give now.

    Args:
        entry: The entry.
        config: The configuration.

    Returns:
        The changes.
    """
    new = entry_of(config, entry.name, entry.problem, is_planned=entry.is_planned)
    return compare(entry, new, lambda place, engine: _refusals(config, place, engine), _why_stopped(config.fused))


def _config_now(entry: LockedGraph, device: DeviceSpec) -> EngineConfig:
    """What the ranking chooses now; of a plan file's entry the engines that were pinned, where they still serve."""
    ranking = rank(entry.operation_graph(), device, limits=entry.limits_of_fusion())
    return (_pinned(entry, ranking) if entry.is_planned else None) or ranking.best


def _pinned(entry: LockedGraph, ranking: Ranking) -> EngineConfig | None:
    choices: list[Choice] = []
    for op, kernel in zip(ranking.fused, entry.kernels, strict=False):
        engine, task = ENGINE_BY_NAME.get(kernel.engine), Task(op, ranking.device)
        if engine is None or not engine.serves(task) or not kernel.knobs.keys() <= KnobType.__members__.keys():
            return None
        knobs = {KnobType[name]: value for name, value in kernel.knobs.items()}
        if engine.knob_problems(list(knobs.items())):
            return None
        choices.append(Choice(task, engine, engine.named_settings(task, engine.settings(knobs))))
        if not choices[-1].is_available:
            return None
    return EngineConfig(ranking.fused, ranking.device, tuple(choices)) if len(choices) == len(ranking.fused) else None


def device_of(lock: Lock, name: str) -> DeviceSpec:
    """A profile as it is now; any other device as the lock describes it, so that the machine does not matter."""
    return PROFILES.get(name) or lock.devices[name]


def _refusals(config: EngineConfig, place: int, name: str) -> list[str]:
    if name not in ENGINE_BY_NAME:
        return ["no engine has this name any more"]
    refused = ENGINE_BY_NAME[name].why_not(config.choices[place].task)
    return [f"{r.attribute} = {r.shown_value}, expected {r.expected}: {r.reason} [{r.rule}]" for r in refused]


def _why_stopped(fused: FusedGraph) -> dict[tuple[str, str], str]:
    return {
        (stop.subject, stop.rule): f"{stop.actual}, required {stop.required}; {stop.reason}"
        for stop in fused.stopped_by
    }


def _notes(lock: Lock, library: str) -> list[str]:
    notes = [f"locked by version {lock.library}, this is {library}"] if lock.library != library else []
    for name, spec in lock.devices.items():
        now = PROFILES.get(name, spec).to_json()
        changed = [f"{key} {value}, then {now[key]}" for key, value in spec.to_json().items() if now[key] != value]
        notes += [f"the profile {name} changed: {'; '.join(changed)}"] if changed else []
    return notes


def updated(lock: Lock, checked: LockCheckResult, library: str) -> Lock:
    """The lock with every checked entry as it is now.

    Args:
        lock: The lock.
        checked: The result of ``check``.
        library: This version of the library.

    Returns:
        The new lock.
    """
    return lock.with_graphs(checked.entries, {n: device_of(lock, n) for n in lock.devices}, library)
