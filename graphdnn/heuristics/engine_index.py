"""Engines by index, for one graph on one device: an engine's id, or 0 for the composed engine of several kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import ENGINE_BY_ID, ENGINE_BY_NAME, Engine, Task
from graphdnn.enums import KnobType, Status
from graphdnn.errors import raise_if
from graphdnn.fusion import FusedGraph
from graphdnn.heuristics import COMPOSED_ID, Choice, EngineConfig
from graphdnn.heuristics.composed import composed_configs, composed_engine
from graphdnn.rules import Rule

UNKNOWN = Rule(
    id="engine.index",
    expected="one of {known}",
    reason="an engine's global index is its id, and no engine has this one",
    fix="use an index the heuristics return, or try each below ENGINE_GLOBAL_COUNT, get_engine_count()",
    status=Status.NOT_SUPPORTED,
)
COMPOSED = Rule(
    id="engine.composed",
    expected="the index of one engine",
    reason="index 0 composes several kernels, and this graph is a single one: {fused}",
    fix="use an index the heuristics return",
    status=Status.NOT_SUPPORTED,
)
SEVERAL = Rule(
    id="engine.several_kernels",
    expected="index 0, the composed engine",
    reason="an engine serves one fused operation, and this graph needs {count}: {fused}",
    fix="use index 0, or split the graph where the fusion stops",
    status=Status.NOT_SUPPORTED_GRAPH_PATTERN,
)


@dataclass(frozen=True, slots=True, eq=False)
class IndexedEngine:
    """An engine that serves a graph on a device."""

    row: Engine  # of the engine table, or made for this graph when composed
    fused: FusedGraph
    device: DeviceSpec
    composed: tuple[EngineConfig, ...] = ()  # empty for a graph of one kernel

    def configured(self, chosen: Mapping[KnobType, int] | Mapping[str, int]) -> EngineConfig:
        """The configuration of these knob values; the others keep their defaults. Raises for what is no knob value."""
        given: dict[Any, int] = {KnobType.__members__.get(str(knob), knob): value for knob, value in chosen.items()}
        raise_if(self.row.knob_problems(tuple(given.items())))
        knobs = self.row.settings(given)
        if self.composed:
            return self.composed[knobs[KnobType.KERNEL_CFG]]
        task = Task(self.fused.operations[0], self.device)
        raise_if(self.row.unavailable_knobs(task, knobs))
        return EngineConfig(self.fused, self.device, (Choice(task, self.row, knobs),))


def engine_count() -> int:
    """The number that indices are below; not all of them have an engine."""
    return 1 + max(ENGINE_BY_ID)


def engine_at(
    index: int | str, fused: FusedGraph, device: DeviceSpec, where: str, label: str, also: Sequence[EngineConfig] = ()
) -> IndexedEngine:
    """Raises ``NotSupported`` when the index, or a name in its place, is no engine's, or of one that does not serve.

    ``label`` is what the caller calls the index; ``also`` are configurations that the composed engine has to have.
    """
    if isinstance(index, str) and index in ENGINE_BY_NAME:
        index = ENGINE_BY_NAME[index].id
    _check(index, fused, where, label)
    assert isinstance(index, int)
    if len(fused) > 1:
        configs = tuple(composed_configs(fused, device, also).values())
        return IndexedEngine(composed_engine(configs), fused, device, configs)
    row = ENGINE_BY_ID[index]
    raise_if(row.why_not(Task(fused.operations[0], device)))
    return IndexedEngine(row, fused, device)


def _ranges(ids: Sequence[int]) -> str:
    """``0 to 2, 10`` for 0, 1, 2, 10."""
    begins = [i for i in ids if i - 1 not in ids]
    ends = [i for i in ids if i + 1 not in ids]
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in zip(begins, ends, strict=True))


def _check(index: int | str, fused: FusedGraph, where: str, label: str) -> None:
    names = "; ".join(op.name for op in fused)
    if index not in (COMPOSED_ID, *ENGINE_BY_ID):
        known = _ranges(sorted((COMPOSED_ID, *ENGINE_BY_ID)))
        raise_if([UNKNOWN.reject(where, label, index, known=f"{known}, or an engine's name")])
    if index == COMPOSED_ID and len(fused) == 1:
        raise_if([COMPOSED.reject(where, label, index, fused=names)])
    if index != COMPOSED_ID and len(fused) > 1:
        raise_if([SEVERAL.reject(where, label, index, count=len(fused), fused=names)])
