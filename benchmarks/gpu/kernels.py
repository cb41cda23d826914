"""Configurations beside the first choice: each engine that serves an operation, with each of its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import KnobType
from graphdnn.fusion import FusedGraph
from graphdnn.heuristics import Choice, EngineConfig, Filters, Ranking


def every_kernel(fused: FusedGraph, device: DeviceSpec, filters: Filters) -> Iterator[EngineConfig]:
    """Configurations that differ from the ranking's first one in the engine or the kernel of one operation.

    Args:
        fused: The graph.
        device: The device.
        filters: What the caller excludes.

    Yields:
        Each configuration once, without the first choice of the ranking.
    """
    ranking = Ranking(fused, device, filters=filters)
    first = ranking.best
    for index, chosen in enumerate(first.choices):
        for choice in ranking.choices(chosen.task.op):
            for one in _kernels(ranking, choice):
                if (one.engine.name, one.knobs) != (chosen.engine.name, chosen.knobs):
                    yield replace(first, choices=(*first.choices[:index], one, *first.choices[index + 1 :]))


def _kernels(ranking: Ranking, choice: Choice) -> Iterator[Choice]:
    """The choice, and one for each other value of the knob that names a kernel."""
    yield choice
    for knob in choice.engine.knobs:
        if knob.type is not KnobType.KERNEL_CFG:
            continue
        for value in knob.values:
            if value != choice.knobs[knob.type]:
                settings = choice.engine.settings({**choice.knobs, knob.type: value})
                changed = Choice(choice.task, choice.engine, settings)
                if not any(ranking.filtered(changed)):
                    yield changed
