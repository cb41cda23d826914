"""The whole pipeline in one function: graph -> fusion -> heuristics -> engine -> plan."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from itertools import count
from typing import Protocol

from graphdnn.bounded_cache import BoundedCache
from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.engines import engines_of
from graphdnn.engines.engine import sort_needs
from graphdnn.enums import HeurMode
from graphdnn.fusion import NO_LIMITS, FusedGraph, FusionLimits, fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Filters, Ranking, mode_of
from graphdnn.heuristics.filters import UNFILTERED
from graphdnn.plan import ExecutionPlan, class_of

# The rankings asked for last: an equal graph is neither fused nor ranked again. Mode B is left out: it lists every knob
# value.
_MOST = 256
_rankings: OrderedDict[tuple[object, ...], Ranking] = OrderedDict()
_guard = threading.Lock()
# Devices, modes, filters and limits have a number together, because a number is looked up faster. The entry holds the
# device spec, so that no other one gets the identity in the key.
_settings = BoundedCache[tuple[object, ...], tuple[int, DeviceSpec]](64)
_next = count()  # no number is given twice, even when its settings were removed


def _forget() -> None:
    """In the child of a fork: a thread that is not there may hold the lock, or one of a ranking's."""
    global _guard  # noqa: PLW0603
    _guard = threading.Lock()
    _rankings.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Records(Protocol):
    """What was measured before: a ``graphdnn.tuning.Database``."""

    def ranking(self, fused: FusedGraph, device: DeviceSpec, mode: HeurMode, filters: Filters) -> Ranking:
        """A ranking that begins with the recorded winner, where there is one."""


def prepare(device: DeviceSpec | str | None = None) -> DeviceSpec:
    """Load the engines and the driver of a device before the first plan is built.

    Loading takes a tenth of a second for a GPU the first time. A later plan then takes milliseconds.

    Args:
        device: A profile, its name, or None for the default device.

    Returns:
        The profile of the device.

    Raises:
        BadParam: The device is unknown.
        NotSupported: The device is not present.
    """
    spec = device_spec(device)
    sort_needs(engines_of(spec.kind))
    class_of(spec.kind).prepare(spec)
    return spec


def rank(
    graph: OperationGraph,
    device: DeviceSpec | str | None = None,
    mode: HeurMode = HeurMode.A,
    filters: Filters | None = None,
    limits: FusionLimits = NO_LIMITS,
    tuned: Records | None = None,
) -> Ranking:
    """Fuse a graph and rank its engine configurations on a device.

    Args:
        graph: The operation graph.
        device: A profile, its name, or None for the default device. The device need not be present.
        mode: A: best first. B: every knob value as well. FALLBACK: only engines that serve everything.
        filters: What configurations must not be or cost. None means no filter.
        limits: Kernels that the fusion is forced or forbidden to make.
        tuned: A tuning database; its fastest configuration comes first.

    Returns:
        The ranking. Its configurations are worked out when they are read.

    Raises:
        BadParam: The device, the mode or the limits are invalid.
        NotSupported: No fusion satisfies the limits.
    """
    spec, mode, filters = device_spec(device), mode_of(mode), filters or UNFILTERED
    if tuned is not None:
        return tuned.ranking(fuse(graph, limits), spec, mode, filters)
    if mode is HeurMode.B:
        return Ranking(fuse(graph, limits), spec, mode, filters)
    structure = graph.structure_key  # names and origins too, which are shown in reports
    key = graph.name, structure.number, structure.extents, _number_of(spec, mode, filters, limits)
    with _guard:
        kept = _rankings.get(key)
        if kept is not None:
            _rankings.move_to_end(key)
            return kept
    made = Ranking(fuse(graph, limits), spec, mode, filters)
    with _guard:
        kept = _rankings.setdefault(key, made)
        while len(_rankings) > _MOST:
            _rankings.popitem(last=False)
    return kept


def _number_of(spec: DeviceSpec, mode: HeurMode, filters: Filters, limits: FusionLimits) -> int:
    key = id(spec), mode, filters, limits
    found = _settings.get(key)
    if found is None:
        found = _settings.remember(key, (next(_next), spec))
    return found[0]


def build(
    graph: OperationGraph,
    device: DeviceSpec | str | None = None,
    mode: HeurMode = HeurMode.A,
    filters: Filters | None = None,
    limits: FusionLimits = NO_LIMITS,
    tuned: Records | None = None,
) -> ExecutionPlan:
    """Build a plan for the best configuration of a graph.

    Args:
        graph: The operation graph.
        device: A profile, its name, or None for the default device.
        mode: The heuristic mode, as in ``rank``.
        filters: What configurations must not be or cost. None means no filter.
        limits: Kernels that the fusion is forced or forbidden to make.
        tuned: A tuning database; its fastest configuration comes first.

    Returns:
        The plan.

    Raises:
        BadParam: The device, the mode or the limits are invalid.
        NotSupported: No engine serves the graph. The error lists the reasons of every engine.
    """
    return ExecutionPlan(rank(graph, device, mode, filters, limits, tuned).best)
