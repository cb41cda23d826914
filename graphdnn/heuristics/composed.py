"""The composed engine: configurations of a graph of several kernels behind one index and one knob.

The knob KERNEL_CFG is a position in a list: mode B's ranking, best first, then
what the other modes would return and B's best do not contain. The list depends on
the graph and the device only, so a position means the same on every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import Engine, Knob, Task, engines_of
from graphdnn.enums import HeurMode, KnobType, NumericalNote
from graphdnn.fusion import FusedGraph
from graphdnn.heuristics import COMPOSED_ID, COMPOSED_NAME, EngineConfig, Filters, Ranking

# How many configurations of each mode take part; INSTANT and FALLBACK are lists to fall back on, not to search.
LIMITS = {HeurMode.B: 64, HeurMode.A: 16, HeurMode.INSTANT: 4, HeurMode.FALLBACK: 4}

Identity = tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


def identity(config: EngineConfig) -> Identity:
    """Engines and knobs: what makes two configurations of one graph and device the same."""
    return tuple((c.engine.id, tuple(sorted((int(k), v) for k, v in c.knobs.items()))) for c in config.choices)


def ranked(fused: FusedGraph, device: DeviceSpec, mode: HeurMode) -> list[EngineConfig]:
    """A mode's configurations, cut to the limit for several kernels. Raises ``NotSupported`` when there are none."""
    ranking = Ranking(fused, device, mode)
    return [ranking.best, *islice(ranking, 1, LIMITS[mode] if len(fused) > 1 else None)]


def down_converted(fused: FusedGraph, device: DeviceSpec, mode: HeurMode) -> list[EngineConfig]:
    """A mode's configurations of a graph of one kernel that round operands to fewer digits, as TF32 does.

    The general engines of FALLBACK keep the digits, so that mode has those of A.
    """
    note = NumericalNote.DOWN_CONVERT_INPUTS
    engines = tuple(engine for engine in engines_of(device.kind) if note in engine.numerical_notes)
    if len(fused) > 1 or not engines:
        return []
    allowed = Filters(allowed_numerical_notes=frozenset({note}))
    return list(Ranking(fused, device, HeurMode.A if mode is HeurMode.FALLBACK else mode, allowed, engines))


def composed_configs(
    fused: FusedGraph, device: DeviceSpec, also: Sequence[EngineConfig] = ()
) -> dict[Identity, EngineConfig]:
    """The list, each configuration once; ``also`` adds configurations that were decided elsewhere."""
    found: dict[Identity, EngineConfig] = {}
    for config in (*(c for mode in LIMITS for c in ranked(fused, device, mode)), *also):
        found.setdefault(identity(config), config)
    return found


def composed_engine(configs: Sequence[EngineConfig]) -> Engine:
    """The engine row of these configurations. Its notes are those of all of them: an absent note is a promise."""
    knob = Knob(KnobType.KERNEL_CFG, 0, len(configs) - 1, 1, 0, "position among the composed configurations")
    return Engine(
        id=COMPOSED_ID,
        name=COMPOSED_NAME,
        summary="one kernel after another, each by an engine of its own",
        needs=(),
        cost=_by_parts,
        compile=_by_parts,
        knobs=(knob,),
        numerical_notes=tuple(sorted({n for c in configs for n in c.numerical_notes})),
        behavior_notes=tuple(sorted({n for c in configs for n in c.behavior_notes})),
    )


def _by_parts(task: Task, knobs: Mapping[KnobType, int]) -> Any:
    raise AssertionError("a composed configuration is costed and compiled choice by choice")
